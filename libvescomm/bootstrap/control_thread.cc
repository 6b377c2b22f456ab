// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/control_thread.h"

#include <algorithm>
#include <new>
#include <string>

namespace vescomm::internal {

namespace {

struct Shared {
    std::mutex mutex;
    std::weak_ptr<ControlThread> current;
    // Threads that serve hubs which their own process no longer needs.
    std::vector<std::shared_ptr<ControlThread>> serving;
};

// Never destroyed: a thread may serve other processes until this one ends.
Shared &shared() {
    static Shared &only = *new Shared;
    return only;
}

}  // namespace

ControlThread::ControlThread() : network_([this](const std::exception &error) { caught(error); }) {}

ControlThread::~ControlThread() = default;

std::shared_ptr<ControlThread> ControlThread::get() {
    std::vector<std::shared_ptr<ControlThread>> over;  // destroyed after the lock is released
    const std::lock_guard lock(shared().mutex);
    auto &serving = shared().serving;
    for (auto thread = serving.begin(); thread != serving.end();) {
        (*thread)->reap();
        if (!(*thread)->hubs_.empty()) {
            ++thread;
            continue;
        }
        over.push_back(std::move(*thread));
        thread = serving.erase(thread);
    }
    if (auto current = shared().current.lock()) return current;
    std::shared_ptr<ControlThread> made(new ControlThread);
    shared().current = made;
    return made;
}

// Called outside the network's thread; the hubs are accessed inside it only.
void ControlThread::reap() {
    network_.run([this] {
        std::erase_if(hubs_, [this](const auto &hub) {
            if (!hub->deserted()) return false;
            remove(hub.get());
            return true;
        });
    });
}

void ControlThread::keep(std::shared_ptr<ControlThread> self, std::unique_ptr<SessionCore> hub) {
    self->network_.run([&] { self->hubs_.push_back(std::move(hub)); });
    const std::lock_guard lock(shared().mutex);
    auto &serving = shared().serving;
    if (std::ranges::find(serving, self) == serving.end()) serving.push_back(std::move(self));
}

void ControlThread::add(SessionCore *core) {
    cores_.push_back(core);
}

void ControlThread::remove(SessionCore *core) {
    std::erase(cores_, core);
}

void ControlThread::caught(const std::exception &error) {
    const bool memory = dynamic_cast<const std::bad_alloc *>(&error) != nullptr;
    const auto status = memory ? VESCOMM_ERROR_OUT_OF_MEMORY : VESCOMM_ERROR_INTERNAL;
    for (SessionCore *core : std::vector(cores_)) {
        if (!core->begun()) continue;
        try {
            core->fail(status, "the control plane of rank " + std::to_string(core->options().rank) +
                                   " failed: " + error.what());
        } catch (const std::exception &) {
            // Out of memory for the message. Peers observe the end of the connection.
        }
    }
}

}  // namespace vescomm::internal

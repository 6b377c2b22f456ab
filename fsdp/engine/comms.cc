// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/comms.h"

#include <sched.h>

#include <chrono>
#include <string>
#include <utility>

#include "fsdp/error.h"

namespace vescomm::fsdp {

namespace {

Communicator split(const Communicator &world, int color) {
    vescomm_comm_t *made = nullptr;
    check(vescomm_comm_split(world.get(), color, world.rank(), nullptr, &made));
    return Communicator(made);
}

[[noreturn]] void fail_interrupted() {
    throw Failure(VESCOMM_ERROR_ABORTED, "the function of vescomm_set_interrupt() ended the wait");
}

}  // namespace

Communicator make_world(vescomm_comm_t *parent) {
    vescomm_comm_t *made = nullptr;
    check(vescomm_comm_dup(parent, nullptr, &made));
    return Communicator(made);
}

Comms::Comms(Communicator world, vescomm_comm_t *parent, const Mesh &mesh)
    : mesh_(mesh), world_(std::move(world)), parent_(parent) {
    const int rank = world_.rank();
    if (mesh.replicas() > 1) {
        shard_ = split(world_, mesh.group(rank));
        if (mesh.shard_ranks > 1) replica_ = split(world_, mesh.position(rank));
    }
    if (mesh.secondary_ranks > 0) gather_ = split(world_, rank / mesh.secondary_ranks);
    if (mesh.expert_ranks > 1)
        experts_ = split(world_, mesh.group(rank) * mesh.expert_ranks + mesh.expert_index(rank));
    if (shard_ || gather_ || experts_)
        for (const Communicator *comm : {&this->world(), &shard(), &gather(), &replica()})
            all_.push_back(comm->get());
    if (experts_) all_.push_back(experts_->get());
    all_.push_back(parent);
}

void Comms::started(const Communicator &comm, vescomm_request_t *request) {
    if (experts_) running_.push_back({&comm, request});
}

void Comms::complete_others(const Communicator &comm) {
    const std::vector<Running> running = running_;
    for (const Running &one : running)
        if (one.comm != &comm) wait(*one.comm, one.request);
}

void Comms::finish_work(vescomm_request_t *request) {
    try {
        if (!advance_ || !advance_()) return;
        wait_until(
            [&] { return !advance_() || vescomm_request_test(request) != VESCOMM_IN_PROGRESS; },
            [&] {
                return fmt::format(
                    "rank {} waited {} s for ranks that fill secondary copies of units; see which "
                    "rank has not announced the same events, or raise VESCOMM_TIMEOUT_SECONDS",
                    world_.rank(), world_.info().timeout_seconds);
            });
    } catch (const std::exception &error) {
        abort(error.what());  // the request can be freed now
        throw;
    }
}

void Comms::wait(const Communicator &comm, vescomm_request_t *request) {
    const WaitClock::Wait timed(waits_);
    finish_work(request);
    const vescomm_status_t status = vescomm_request_wait_with(request, all_.data(), all_.size());
    std::erase(running_, Running{&comm, request});
    if (status == VESCOMM_OK) return;
    if (status == VESCOMM_IN_PROGRESS) {
        // The request can be freed now, and writes nothing any more.
        abort("the function of vescomm_set_interrupt() ended the wait of a rank");
        fail_interrupted();
    }
    const std::string why = vescomm_get_last_error();
    const vescomm_status_t own = vescomm_request_test(request);
    if (own < 0) {
        std::string text = vescomm_get_last_error() + describe(comm);
        // The error of Watch may come later than that of a collective which it accompanies.
        if (own == VESCOMM_ERROR_MISMATCH)
            text += "; these are calls of the engine, whose ranks have announced different events";
        throw Failure(own, text);
    }
    progress();  // throws the failure of another communicator; the request goes on, or is complete
    throw Failure(status, why);
}

std::string Comms::describe(const Communicator &comm) const {
    const int rank = world_.rank();
    const int first = mesh_.group(rank) * mesh_.shard_ranks;
    if (shard_ && &comm == &*shard_)
        return fmt::format(" (rank 0 of the shard group is rank {})", first);
    if (gather_ && &comm == &*gather_)
        return fmt::format(" (rank 0 of the group with a secondary copy is rank {})",
                           rank / mesh_.secondary_ranks * mesh_.secondary_ranks);
    if (replica_ && &comm == &*replica_)
        return fmt::format(" (rank r of the replicas is rank {} + {} * r)", mesh_.position(rank),
                           mesh_.shard_ranks);
    if (experts_ && &comm == &*experts_)
        return fmt::format(" (rank r of those with the same experts is rank {} + {} * r)",
                           first + mesh_.expert_index(rank), mesh_.expert_ranks);
    return "";
}

void Comms::wait_until(const std::function<bool()> &ready,
                       const std::function<std::string()> &late) {
    if (ready()) return;
    const WaitClock::Wait timed(waits_);
    poll_until(ready, late);
}

void Comms::poll_until(const std::function<bool()> &ready,
                       const std::function<std::string()> &late) {
    using Clock = std::chrono::steady_clock;
    const std::chrono::duration<double> timeout(world_.info().timeout_seconds);
    constexpr auto interrupt_period = std::chrono::milliseconds(100);
    const Clock::time_point begin = Clock::now();
    Clock::time_point next_interrupt = begin + interrupt_period;
    while (!ready()) {
        progress();
        const Clock::time_point now = Clock::now();
        if (now - begin > timeout) throw Failure(VESCOMM_ERROR_TIMEOUT, late());
        // The program's function may take long.
        if (now > next_interrupt) {
            if (vescomm_is_interrupted() != 0) fail_interrupted();
            next_interrupt = now + interrupt_period;
        }
        sched_yield();
    }
}

void Comms::progress() {
    if (parent_ != nullptr)
        if (const vescomm_status_t status = vescomm_comm_progress(parent_); status != VESCOMM_OK)
            throw Failure(status, vescomm_get_last_error());
    const auto advance = [&](const Communicator &comm) {
        const vescomm_status_t status = vescomm_comm_progress(comm.get());
        if (status != VESCOMM_OK) throw Failure(status, vescomm_get_last_error() + describe(comm));
    };
    advance(world_);
    for (const auto *comm : {&shard_, &gather_, &replica_, &experts_})
        if (*comm) advance(**comm);
}

// A split in which no rank takes part is an all-gather over the control plane, whose result reaches
// a rank before any later failure. A barrier does not promise that.
void meet_in(const Communicator &world) {
    vescomm_comm_t *none = nullptr;
    check(vescomm_comm_split(world.get(), -1, 0, nullptr, &none));
}

void Comms::abort(const char *reason) noexcept {
    if (world_.get() != nullptr) vescomm_comm_abort(world_.get(), reason);
    for (const auto *comm : {&shard_, &gather_, &replica_, &experts_})
        if (*comm) vescomm_comm_abort((*comm)->get(), reason);
}

}  // namespace vescomm::fsdp

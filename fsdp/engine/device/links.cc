// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/links.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "fsdp/error.h"

namespace vescomm::fsdp::device {

namespace {

std::string late_sentence(const Communicator &world, const char *work_of) {
    return fmt::format(
        "the device of rank {} has not completed the work of {} within {} s; see which rank has "
        "made another call, or raise VESCOMM_TIMEOUT_SECONDS",
        world.rank(), work_of, world.info().timeout_seconds);
}

}  // namespace

Link::Link(vescomm_comm_t *comm) : host_(comm) {
    vescomm_gpu_comm_t *made = nullptr;
    check(vescomm_gpu_comm_create(comm, nullptr, &made));
    comm_.reset(made);
    // No effect, unless the communicator forbids sums on devices: then the engine is not created.
    check(vescomm_gpu_all_reduce(made, nullptr, nullptr, 0, VESCOMM_I64, VESCOMM_SUM, nullptr));
}

Link::Link(Link &parent, vescomm_comm_t *comm) : host_(comm) {
    vescomm_gpu_comm_t *made = nullptr;
    check(vescomm_gpu_comm_split(parent.get(), comm, nullptr, &made));
    comm_.reset(made);
}

Links::Links(Comms &comms, const Mesh &mesh) : comms_(comms), shard_(comms.shard().get()) {
    if (mesh.secondary_ranks > 0) gather_.emplace(shard_, comms.gather().get());
    if (mesh.replicas() > 1) replica_.emplace(comms.replica().get());
    if (mesh.expert_ranks > 1) experts_.emplace(comms.shard(UnitKind::experts).get());
}

void Links::wait(const Event &event) {
    comms_.wait_until(
        [&] {
            check_all();
            return event.reached();
        },
        [&] { return late_sentence(comms_.world(), "a step"); });
}

void Links::wait(cuda::Stream stream) {
    comms_.poll_until(
        [&] {
            check_all();
            return is_complete(stream);
        },
        [&] { return late_sentence(comms_.world(), "a stream"); });
    check_all();  // work may end because NCCL failed
}

void Links::check_all() {
    end_broken();
    for (const Link *link : all()) check(vescomm_gpu_comm_check(link->get()));
}

std::vector<Link *> Links::all() {
    std::vector<Link *> links = {&shard_};
    for (auto *link : {&gather_, &replica_, &experts_})
        if (*link) links.push_back(&**link);
    return links;
}

void Links::end_broken() noexcept {
    try {
        std::vector<Link *> links = all();
        if (std::ranges::none_of(links, &Link::broken)) return;
        std::vector<std::jthread> threads;
        for (const Link *link : links)
            threads.emplace_back([comm = link->get()] { vescomm_gpu_comm_check(comm); });
    } catch (const std::exception &) {
        // There is no thread: they end one after another, when they are freed.
    }
}

void Links::settle(Streams &streams) {
    streams.order(streams.gather(), streams.reduce());
    Event complete;
    complete.record(streams.reduce());
    wait(complete);
}

}  // namespace vescomm::fsdp::device

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/links.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "fsdp/engine/or_abort.h"
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

Link::Link(const Comms &comms, const Communicator &comm)
    : host_(comm.get()), ranks_(comms.describe(comm)) {
    vescomm_gpu_comm_t *made = nullptr;
    require(vescomm_gpu_comm_create(host_, nullptr, &made));
    comm_.reset(made);
}

bool Link::needs_order() const {
    // No effect, unless the communicator asks for reproducible sums.
    const vescomm_status_t status =
        vescomm_gpu_all_reduce(get(), nullptr, nullptr, 0, VESCOMM_F32, VESCOMM_SUM, nullptr);
    if (status == VESCOMM_ERROR_UNSUPPORTED) return true;
    require(status);
    return false;
}

Link::Link(Link &parent, const Comms &comms, const Communicator &comm)
    : host_(comm.get()), ranks_(comms.describe(comm)) {
    vescomm_gpu_comm_t *made = nullptr;
    require(vescomm_gpu_comm_split(parent.get(), host_, nullptr, &made));
    comm_.reset(made);
}

// The others get the reason before the links of this rank end, which is a call that they compare.
Links::Links(Comms &comms, const ModelPlan &plan) : comms_(comms), shard_(comms, comms.shard()) {
    const Mesh &mesh = plan.mesh;
    or_abort(comms_, [&] {
        if (mesh.secondary_ranks > 0) gather_.emplace(shard_, comms, comms.gather());
        if (mesh.replicas() > 1) replica_.emplace(comms, comms.replica());
        if (mesh.expert_ranks > 1) experts_.emplace(comms, comms.shard(UnitKind::experts));
        if (mesh.replicas() > 1 && plan.sums_replicated()) world_.emplace(comms, comms.world());
    });
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
    for (const Link *link : all()) link->require(vescomm_gpu_comm_check(link->get()));
}

std::vector<Link *> Links::all() {
    std::vector<Link *> links = {&shard_};
    for (auto *link : {&gather_, &replica_, &experts_, &world_})
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

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "api/guard.h"
#include "api/handles.h"
#include "comm/connect.h"

using vescomm::guarded;
using vescomm::require;

namespace {

vescomm::CommOptions read(const vescomm_comm_options_t *options, const char *function) {
    const auto given = vescomm::read_options(options, function, "options");
    vescomm::CommOptions wanted;
    wanted.timeout_seconds = given.timeout_seconds;
    if (given.node != nullptr) wanted.node = given.node;
    return wanted;
}

vescomm_comm_t *hand_out(std::shared_ptr<vescomm::Communicator> comm) {
    auto handle = std::make_unique<vescomm_comm>();
    handle->calls = std::make_shared<vescomm::Calls>(vescomm::Stage::create(comm));
    handle->value = std::move(comm);
    return handle.release();
}

}  // namespace

vescomm_status_t vescomm_comm_create(int32_t rank, int32_t ranks, const char *address,
                                     const char *secret, const vescomm_comm_options_t *options,
                                     vescomm_comm_t **comm) {
    return guarded([&] {
        require(comm, "vescomm_comm_create", "comm");
        if (ranks > 1) {
            require(address, "vescomm_comm_create", "address");
            require(secret, "vescomm_comm_create", "secret");
        }
        *comm = hand_out(vescomm::connect_explicitly(rank, ranks, address != nullptr ? address : "",
                                                     secret != nullptr ? secret : "",
                                                     read(options, "vescomm_comm_create")));
    });
}

vescomm_status_t vescomm_comm_create_from_environment(const vescomm_comm_options_t *options,
                                                      vescomm_comm_t **comm) {
    return guarded([&] {
        require(comm, "vescomm_comm_create_from_environment", "comm");
        *comm = hand_out(vescomm::connect_from_environment(
            read(options, "vescomm_comm_create_from_environment")));
    });
}

vescomm_status_t vescomm_comm_create_from_all_gather(int32_t rank, int32_t ranks,
                                                     vescomm_all_gather_function_t all_gather,
                                                     void *context,
                                                     const vescomm_comm_options_t *options,
                                                     vescomm_comm_t **comm) {
    return guarded([&] {
        require(comm, "vescomm_comm_create_from_all_gather", "comm");
        require(reinterpret_cast<const void *>(all_gather), "vescomm_comm_create_from_all_gather",
                "all_gather");
        const auto gather = [&](const void *mine, std::size_t bytes, void *all) {
            return all_gather(context, mine, bytes, all) == 0;
        };
        *comm = hand_out(vescomm::connect_through(
            rank, ranks, gather, read(options, "vescomm_comm_create_from_all_gather")));
    });
}

vescomm_status_t vescomm_comm_query(const vescomm_comm_t *comm, vescomm_comm_info_t *info) {
    return guarded([&] {
        require(comm, "vescomm_comm_query", "comm");
        const vescomm::Communicator &c = *comm->value;
        const vescomm::Nodes &nodes = c.nodes();
        vescomm_comm_info_t filled = vescomm_comm_info();
        filled.rank = c.rank();
        filled.ranks = c.ranks();
        filled.node = nodes.node_of(c.rank());
        filled.nodes = nodes.count();
        filled.local_rank = nodes.local_rank(c.rank());
        filled.local_ranks = static_cast<int32_t>(nodes.members(filled.node).size());
        vescomm::write_struct(info, filled, "vescomm_comm_query", "info");
    });
}

vescomm_status_t vescomm_comm_count(const vescomm_comm_t *comm, vescomm_comm_counters_t *counters) {
    return guarded([&] {
        require(comm, "vescomm_comm_count", "comm");
        const vescomm::Counters &counted = comm->value->counters();
        vescomm_comm_counters_t filled = vescomm_comm_counters();
        filled.operations = counted.operations;
        filled.bytes_written = counted.bytes_written;
        filled.bytes_reduced = counted.bytes_reduced;
        filled.bytes_sent = counted.bytes_sent;
        filled.sleeps = counted.sleeps;
        filled.busy_seconds = counted.busy_seconds;
        filled.waiting_seconds = counted.waiting_seconds;
        vescomm::write_struct(counters, filled, "vescomm_comm_count", "counters");
    });
}

vescomm_status_t vescomm_comm_progress(vescomm_comm_t *comm) {
    return guarded([&] {
        require(comm, "vescomm_comm_progress", "comm");
        comm->value->progress();
    });
}

vescomm_status_t vescomm_barrier(vescomm_comm_t *comm) {
    return guarded([&] {
        require(comm, "vescomm_barrier", "comm");
        comm->value->barrier();
    });
}

vescomm_status_t vescomm_comm_abort(vescomm_comm_t *comm, const char *reason) {
    return guarded([&] {
        require(comm, "vescomm_comm_abort", "comm");
        comm->value->abort(reason != nullptr ? reason : "no reason was given");
    });
}

vescomm_status_t vescomm_comm_free(vescomm_comm_t *comm) {
    return guarded([&] {
        if (comm == nullptr) return;
        const std::unique_ptr<vescomm_comm> owner(comm);
        owner->value->leave();
    });
}

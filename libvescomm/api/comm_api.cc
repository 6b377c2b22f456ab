// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "api/guard.h"
#include "api/handles.h"
#include "comm/collective_create.h"
#include "comm/connect.h"
#include "comm/split.h"
#include "observe/metrics.h"

using namespace vescomm::internal;

namespace {

CommOptions read(const vescomm_comm_options_t *options, const char *function) {
    const auto given = read_options(options, function, "options");
    CommOptions wanted;
    wanted.timeout_seconds = given.timeout_seconds;
    if (given.node != nullptr) wanted.node = given.node;
    wanted.reproducible = given.reproducible != 0;
    constexpr std::size_t max_tag_bytes = 255;
    if (given.tag != nullptr) wanted.tag = given.tag;
    if (wanted.tag.size() > max_tag_bytes)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    std::string(function) + ": the tag has " + std::to_string(wanted.tag.size()) +
                        " bytes; give at most " + std::to_string(max_tag_bytes));
    return wanted;
}

// Ends a communicator that other ranks may not have got, without waiting for them.
struct Withdraw {
    void operator()(vescomm_comm_t *comm) const {
        vescomm_comm_abort(comm, "its creation failed on another rank");
        vescomm_comm_free(comm);
    }
};
using NewComm = std::unique_ptr<vescomm_comm_t, Withdraw>;

vescomm_comm_t *hand_out(std::shared_ptr<Communicator> comm) {
    auto handle = std::make_unique<vescomm_comm>();
    handle->calls = Calls::create(comm);
    handle->value = std::move(comm);
    return handle.release();
}

vescomm_comm_info_t info_of(const Communicator &comm) {
    const Nodes &nodes = comm.nodes();
    vescomm_comm_info_t info = vescomm_comm_info_init();
    info.rank = comm.rank();
    info.ranks = comm.ranks();
    info.node = nodes.node_of(comm.rank());
    info.nodes = nodes.count();
    info.local_rank = nodes.local_rank(comm.rank());
    info.local_ranks = static_cast<int32_t>(nodes.members(info.node).size());
    info.timeout_seconds = comm.timeout_seconds();
    return info;
}

vescomm_comm_counters_t counters_of(Communicator &comm) {
    const Counters &counted = comm.counters();
    vescomm_comm_counters_t counters = vescomm_comm_counters_init();
    counters.operations = counted.operations;
    counters.bytes_written = counted.bytes_written;
    counters.bytes_reduced = counted.bytes_reduced;
    counters.bytes_sent = counted.bytes_sent;
    counters.sleeps = counted.sleeps;
    counters.busy_seconds = counted.busy_seconds;
    counters.waiting_seconds = counted.waiting_seconds;
    counters.bytes_registered = counted.bytes_registered;
    return counters;
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
        *comm = hand_out(connect_explicitly(rank, ranks, address != nullptr ? address : "",
                                            secret != nullptr ? secret : "",
                                            read(options, "vescomm_comm_create")));
    });
}

vescomm_status_t vescomm_comm_create_from_environment(const vescomm_comm_options_t *options,
                                                      vescomm_comm_t **comm) {
    return guarded([&] {
        require(comm, "vescomm_comm_create_from_environment", "comm");
        *comm = hand_out(
            connect_from_environment(read(options, "vescomm_comm_create_from_environment")));
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
        *comm = hand_out(connect_through(rank, ranks, gather,
                                         read(options, "vescomm_comm_create_from_all_gather")));
    });
}

vescomm_status_t vescomm_comm_split(vescomm_comm_t *comm, int32_t color, int32_t key,
                                    const vescomm_comm_options_t *options, vescomm_comm_t **out) {
    return guarded([&] {
        require(comm, "vescomm_comm_split", "comm");
        collective_create(*comm->value, [&] {
            require(out, "vescomm_comm_split", "out");
            const auto wanted = read(options, "vescomm_comm_split");
            NewComm made;
            split(*comm->value, color, key, wanted,
                  [&](const auto &part) { made.reset(hand_out(part)); });
            *out = made.release();
        });
    });
}

vescomm_status_t vescomm_comm_dup(vescomm_comm_t *comm, const vescomm_comm_options_t *options,
                                  vescomm_comm_t **out) {
    return guarded([&] {
        require(comm, "vescomm_comm_dup", "comm");
        collective_create(*comm->value, [&] {
            require(out, "vescomm_comm_dup", "out");
            NewComm made;
            duplicate(*comm->value, read(options, "vescomm_comm_dup"),
                      [&](const auto &copy) { made.reset(hand_out(copy)); });
            *out = made.release();
        });
    });
}

vescomm_status_t vescomm_comm_shrink(vescomm_comm_t *comm, const int32_t *failed, size_t count,
                                     vescomm_comm_t **out) {
    return guarded([&] {
        require(comm, "vescomm_comm_shrink", "comm");
        require(out, "vescomm_comm_shrink", "out");
        if (count > 0) require(failed, "vescomm_comm_shrink", "failed");
        const std::set<int> named(failed, failed + count);
        shrink(*comm->value, named, [&](auto made) { *out = hand_out(std::move(made)); });
    });
}

vescomm_status_t vescomm_comm_get_info(const vescomm_comm_t *comm, vescomm_comm_info_t *info) {
    return guarded([&] {
        require(comm, "vescomm_comm_get_info", "comm");
        write_struct(info, info_of(*comm->value), "vescomm_comm_get_info", "info");
    });
}

vescomm_status_t vescomm_comm_get_counters(const vescomm_comm_t *comm,
                                           vescomm_comm_counters_t *counters) {
    return guarded([&] {
        require(comm, "vescomm_comm_get_counters", "comm");
        write_struct(counters, counters_of(*comm->value), "vescomm_comm_get_counters", "counters");
    });
}

vescomm_status_t vescomm_comm_get_metrics(const vescomm_comm_t *comm, char *text, size_t capacity,
                                          size_t *size) {
    return guarded([&] {
        require(comm, "vescomm_comm_get_metrics", "comm");
        require(size, "vescomm_comm_get_metrics", "size");
        if (capacity > 0) require(text, "vescomm_comm_get_metrics", "text");
        Communicator &c = *comm->value;
        const std::string made =
            metrics_text(info_of(c), counters_of(c), c.number(), c.failure().broken());
        if (capacity > made.size()) std::memcpy(text, made.c_str(), made.size() + 1);
        *size = made.size() + 1;
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
        try {
            comm->value->abort(reason != nullptr ? reason : "no reason was given");
        } catch (const std::bad_alloc &) {
            // Other ranks learn of it even if there is no memory for the reason.
            comm->value->run_out();
        }
    });
}

vescomm_status_t vescomm_comm_finalize(vescomm_comm_t *comm) {
    return guarded([&] {
        require(comm, "vescomm_comm_finalize", "comm");
        comm->value->finalize();
    });
}

vescomm_status_t vescomm_comm_free(vescomm_comm_t *comm) {
    return guarded([&] {
        if (comm == nullptr) return;
        require(comm, "vescomm_comm_free", "comm");
        const std::unique_ptr<vescomm_comm> owner(comm);
        owner->value->leave();
    });
}

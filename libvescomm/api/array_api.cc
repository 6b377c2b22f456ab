// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Collectives on arrays of the caller. Every function describes its arrays as blocks of a Call;
// array_arguments.h checks them.
#include "api/array_arguments.h"
#include "api/guard.h"
#include "api/handles.h"

using namespace vescomm::internal;

namespace {

// Runs one call to completion.
void run(Calls &calls, const Call &call, const CallKey &key) {
    std::unique_ptr<Request> request = calls.request(call, key);
    request->run();
    calls.keep(std::move(request));
}

// Repeats a call of which the request is in the cache.
void repeat(Calls &calls, Request &request) {
    try {
        request.run();
    } catch (...) {
        // A request that may be running leaves the cache, and gives up its operation.
        calls.take(request);
        throw;
    }
}

// A handle without requests.
std::unique_ptr<vescomm_request> handle_for(vescomm_comm_t *comm) {
    auto &spare = comm->spare_requests->all;
    std::unique_ptr<vescomm_request> handle;
    if (spare.empty()) {
        handle = std::make_unique<vescomm_request>();
        handle->parts.reserve(1);
    } else {
        handle = std::move(spare.back());
        spare.pop_back();
        handle->freed = false;
    }
    handle->calls = comm->calls;
    handle->spare = comm->spare_requests;
    return handle;
}

// Starts a group. Returns it to the caller in `handle`, or waits for it if `handle` is null.
void hand_out(Calls &calls, std::unique_ptr<CallGroup> group,
              std::unique_ptr<vescomm_request> handle, vescomm_request_t **request) {
    start_all(group->parts);
    if (handle) {
        handle->parts.swap(group->parts);
        handle->group = std::move(group);
        *request = handle.release();
        return;
    }
    for (const auto &part : group->parts) part->wait();
    calls.groups().keep(std::move(group));
}

// Makes a call that does not repeat another one. `describe` checks and adds the arrays.
template <typename Describe>
[[gnu::noinline]] void make(const Caller &caller, const CallArguments &arguments,
                            vescomm_request_t **request, const Describe &describe) {
    vescomm_comm_t *comm = caller.comm;
    Calls &calls = *comm->calls;
    const bool in_group = calls.groups().is_open();
    caller.require_type();
    if (in_group && request != nullptr)
        caller.refuse("request must be NULL within a group; vescomm_group_end() gives one for all");
    std::unique_ptr<vescomm_request> handle;
    if (request != nullptr) handle = handle_for(comm);
    std::unique_ptr<Request> part = handle ? calls.take(arguments) : nullptr;
    if (!part) {
        Call &made = calls.blank();
        made.options.collective = arguments.collective;
        made.options.type = arguments.type;
        made.options.op = arguments.op;
        made.options.root = arguments.root;
        if (arguments.algorithm != nullptr) made.options.algorithm = arguments.algorithm;
        made.options.factor = arguments.factor;
        made.tag = caller.tag(arguments);
        describe(caller, made);
        check(*comm->value, made.options, arguments.type);
        if (made.source.size() + made.output.size() > 1) require_apart(caller, made);
        if (in_group) return calls.groups().add(made, arguments);
        const CallKey key(arguments, caller.ranks());
        if (!handle) return run(calls, made, key);
        part = calls.request(made, key);
    }
    handle->parts.push_back(std::move(part));
    start_all(handle->parts);
    *request = handle.release();
}

// Makes a call. Checks the common arguments.
template <typename Describe>
vescomm_status_t call(const char *function, vescomm_comm_t *comm, CallArguments arguments,
                      const vescomm_call_options_t *options, void *stream,
                      vescomm_request_t **request, const Describe &describe) {
    return guarded([&] {
        require(comm, function, "comm");
        require_no_stream(stream, function);
        if (options != nullptr) [[unlikely]] {
            const auto given = read_options(options, function, "options");
            arguments.algorithm = given.algorithm;
            arguments.factor = given.factor;
            arguments.tag = given.tag;
        }
        // Only the root has offsets.
        if ((arguments.collective == Collective::gather_v ||
             arguments.collective == Collective::scatter_v) &&
            arguments.root != comm->value->rank())
            arguments.lists[1] = nullptr;
        if (request == nullptr) {
            Calls &calls = *comm->calls;
            if (calls.groups().is_open()) {
                if (calls.groups().repeats(arguments)) return;
            } else if (Request *same = calls.find(arguments)) {
                return repeat(calls, *same);
            }
        }
        make(Caller{function, comm, arguments.type}, arguments, request, describe);
    });
}

}  // namespace

vescomm_status_t vescomm_all_gather_v(vescomm_comm_t *comm, const void *source, void *output,
                                      const int64_t *counts, const int64_t *offsets,
                                      vescomm_type_t type, const vescomm_call_options_t *options,
                                      void *stream, vescomm_request_t **request) {
    return call("vescomm_all_gather_v", comm,
                {.collective = Collective::all_gather_v,
                 .type = type,
                 .source = source,
                 .output = output,
                 .count = counts_in_lists,
                 .lists = {counts, offsets}},
                options, stream, request, [&](const Caller &caller, Call &made) {
                    caller.counts(counts, "counts", made.counts);
                    made.source = {caller.piece(source, 0, counts[caller.rank()], "source")};
                    caller.pieces(output, made.counts, offsets, "output", made.output);
                });
}

vescomm_status_t vescomm_all_gather(vescomm_comm_t *comm, const void *source, void *output,
                                    int64_t count, vescomm_type_t type,
                                    const vescomm_call_options_t *options, void *stream,
                                    vescomm_request_t **request) {
    return call("vescomm_all_gather", comm,
                {.collective = Collective::all_gather_v,
                 .type = type,
                 .source = source,
                 .output = output,
                 .count = count},
                options, stream, request, [&](const Caller &caller, Call &made) {
                    caller.equal_counts(count, made.counts);
                    made.source = {caller.piece(source, 0, count, "source")};
                    caller.pieces(output, made.counts, nullptr, "output", made.output);
                });
}

vescomm_status_t vescomm_reduce_scatter_v(vescomm_comm_t *comm, const void *source, void *output,
                                          const int64_t *counts, vescomm_type_t type,
                                          vescomm_op_t op, const vescomm_call_options_t *options,
                                          void *stream, vescomm_request_t **request) {
    return call("vescomm_reduce_scatter_v", comm,
                {.collective = Collective::reduce_scatter_v,
                 .type = type,
                 .op = op,
                 .source = source,
                 .output = output,
                 .count = counts_in_lists,
                 .lists = {counts}},
                options, stream, request, [&](const Caller &caller, Call &made) {
                    caller.counts(counts, "counts", made.counts);
                    caller.pieces(source, made.counts, nullptr, "source", made.source);
                    made.output = {caller.piece(output, 0, counts[caller.rank()], "output")};
                });
}

vescomm_status_t vescomm_reduce_scatter(vescomm_comm_t *comm, const void *source, void *output,
                                        int64_t count, vescomm_type_t type, vescomm_op_t op,
                                        const vescomm_call_options_t *options, void *stream,
                                        vescomm_request_t **request) {
    return call("vescomm_reduce_scatter", comm,
                {.collective = Collective::reduce_scatter_v,
                 .type = type,
                 .op = op,
                 .source = source,
                 .output = output,
                 .count = count},
                options, stream, request, [&](const Caller &caller, Call &made) {
                    caller.equal_counts(count, made.counts);
                    caller.pieces(source, made.counts, nullptr, "source", made.source);
                    made.output = {caller.piece(output, 0, count, "output")};
                });
}

vescomm_status_t vescomm_all_reduce(vescomm_comm_t *comm, const void *source, void *output,
                                    int64_t count, vescomm_type_t type, vescomm_op_t op,
                                    const vescomm_call_options_t *options, void *stream,
                                    vescomm_request_t **request) {
    return call("vescomm_all_reduce", comm,
                {.collective = Collective::all_reduce,
                 .type = type,
                 .op = op,
                 .source = source,
                 .output = output,
                 .count = count},
                options, stream, request, [&](const Caller &caller, Call &made) {
                    made.counts = {caller.count(count)};
                    made.source = {caller.piece(source, 0, count, "source")};
                    made.output = {caller.piece(output, 0, count, "output")};
                });
}

vescomm_status_t vescomm_reduce(vescomm_comm_t *comm, const void *source, void *output,
                                int64_t count, vescomm_type_t type, vescomm_op_t op, int32_t root,
                                const vescomm_call_options_t *options, void *stream,
                                vescomm_request_t **request) {
    return call("vescomm_reduce", comm,
                {.collective = Collective::reduce,
                 .type = type,
                 .op = op,
                 .root = root,
                 .source = source,
                 .output = output,
                 .count = count},
                options, stream, request, [&](const Caller &caller, Call &made) {
                    made.counts = {caller.count(count)};
                    made.source = {caller.piece(source, 0, count, "source")};
                    if (caller.rank() == root)
                        made.output = {caller.piece(output, 0, count, "output")};
                });
}

vescomm_status_t vescomm_broadcast(vescomm_comm_t *comm, void *data, int64_t count,
                                   vescomm_type_t type, int32_t root,
                                   const vescomm_call_options_t *options, void *stream,
                                   vescomm_request_t **request) {
    return call("vescomm_broadcast", comm,
                {.collective = Collective::broadcast,
                 .type = type,
                 .root = root,
                 .output = data,
                 .count = count},
                options, stream, request, [&](const Caller &caller, Call &made) {
                    made.counts = {caller.count(count)};
                    auto &array = caller.rank() == root ? made.source : made.output;
                    array = {caller.piece(data, 0, count, "data")};
                });
}

vescomm_status_t vescomm_gather_v(vescomm_comm_t *comm, const void *source, void *output,
                                  const int64_t *counts, const int64_t *offsets,
                                  vescomm_type_t type, int32_t root,
                                  const vescomm_call_options_t *options, void *stream,
                                  vescomm_request_t **request) {
    return call("vescomm_gather_v", comm,
                {.collective = Collective::gather_v,
                 .type = type,
                 .root = root,
                 .source = source,
                 .output = output,
                 .count = counts_in_lists,
                 .lists = {counts, offsets}},
                options, stream, request, [&](const Caller &caller, Call &made) {
                    caller.counts(counts, "counts", made.counts);
                    made.source = {caller.piece(source, 0, counts[caller.rank()], "source")};
                    if (caller.rank() == root)
                        caller.pieces(output, made.counts, offsets, "output", made.output);
                });
}

vescomm_status_t vescomm_scatter_v(vescomm_comm_t *comm, const void *source, void *output,
                                   const int64_t *counts, const int64_t *offsets,
                                   vescomm_type_t type, int32_t root,
                                   const vescomm_call_options_t *options, void *stream,
                                   vescomm_request_t **request) {
    return call("vescomm_scatter_v", comm,
                {.collective = Collective::scatter_v,
                 .type = type,
                 .root = root,
                 .source = source,
                 .output = output,
                 .count = counts_in_lists,
                 .lists = {counts, offsets}},
                options, stream, request, [&](const Caller &caller, Call &made) {
                    caller.counts(counts, "counts", made.counts);
                    if (caller.rank() == root)
                        caller.pieces(source, made.counts, offsets, "source", made.source);
                    made.output = {caller.piece(output, 0, counts[caller.rank()], "output")};
                });
}

vescomm_status_t vescomm_all_to_all_v(vescomm_comm_t *comm, const void *source,
                                      const int64_t *source_counts, const int64_t *source_offsets,
                                      void *output, const int64_t *output_counts,
                                      const int64_t *output_offsets, vescomm_type_t type,
                                      const vescomm_call_options_t *options, void *stream,
                                      vescomm_request_t **request) {
    return call("vescomm_all_to_all_v", comm,
                {.collective = Collective::all_to_all_v,
                 .type = type,
                 .source = source,
                 .output = output,
                 .count = counts_in_lists,
                 .lists = {source_counts, source_offsets, output_counts, output_offsets}},
                options, stream, request, [&](const Caller &caller, Call &made) {
                    caller.counts(source_counts, "source_counts", made.sends);
                    caller.counts(output_counts, "output_counts", made.receives);
                    if (made.sends[caller.rank()] != made.receives[caller.rank()])
                        caller.refuse("this rank sends itself " +
                                      std::to_string(made.sends[caller.rank()]) +
                                      " elements and expects " +
                                      std::to_string(made.receives[caller.rank()]));
                    caller.pieces(source, made.sends, source_offsets, "source", made.source);
                    caller.pieces(output, made.receives, output_offsets, "output", made.output);
                });
}

vescomm_status_t vescomm_all_to_all(vescomm_comm_t *comm, const void *source, void *output,
                                    int64_t count, vescomm_type_t type,
                                    const vescomm_call_options_t *options, void *stream,
                                    vescomm_request_t **request) {
    return call("vescomm_all_to_all", comm,
                {.collective = Collective::all_to_all_v,
                 .type = type,
                 .source = source,
                 .output = output,
                 .count = count},
                options, stream, request, [&](const Caller &caller, Call &made) {
                    caller.equal_counts(count, made.sends);
                    made.receives = made.sends;
                    caller.pieces(source, made.sends, nullptr, "source", made.source);
                    caller.pieces(output, made.receives, nullptr, "output", made.output);
                });
}

vescomm_status_t vescomm_send(vescomm_comm_t *comm, const void *source, int64_t count,
                              vescomm_type_t type, int32_t peer,
                              const vescomm_call_options_t *options, void *stream,
                              vescomm_request_t **request) {
    return call("vescomm_send", comm,
                {.collective = Collective::send,
                 .type = type,
                 .root = peer,
                 .source = source,
                 .count = count},
                options, stream, request, [&](const Caller &caller, Call &made) {
                    made.counts = {caller.count(count)};
                    made.source = {caller.piece(source, 0, count, "source")};
                });
}

vescomm_status_t vescomm_receive(vescomm_comm_t *comm, void *output, int64_t count,
                                 vescomm_type_t type, int32_t peer,
                                 const vescomm_call_options_t *options, void *stream,
                                 vescomm_request_t **request) {
    return call("vescomm_receive", comm,
                {.collective = Collective::receive,
                 .type = type,
                 .root = peer,
                 .output = output,
                 .count = count},
                options, stream, request, [&](const Caller &caller, Call &made) {
                    made.counts = {caller.count(count)};
                    made.output = {caller.piece(output, 0, count, "output")};
                });
}

vescomm_status_t vescomm_group_begin(vescomm_comm_t *comm) {
    return guarded([&] {
        require(comm, "vescomm_group_begin", "comm");
        if (comm->calls->groups().is_open())
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        "vescomm_group_begin: a group has begun already; end it first");
        comm->calls->groups().begin();
    });
}

vescomm_status_t vescomm_group_end(vescomm_comm_t *comm, vescomm_request_t **request) {
    return guarded([&] {
        require(comm, "vescomm_group_end", "comm");
        Calls &calls = *comm->calls;
        if (!calls.groups().is_open())
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        "vescomm_group_end: no group has begun; call vescomm_group_begin() first");
        // If one of these runs out of memory, nothing has happened, and the caller can end the
        // group again.
        std::unique_ptr<vescomm_request> handle;
        if (request != nullptr) handle = handle_for(comm);
        std::unique_ptr<CallGroup> group = calls.groups().end();
        hand_out(calls, std::move(group), std::move(handle), request);
    });
}

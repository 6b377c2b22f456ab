// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/request.h"

#include <algorithm>
#include <span>

#include "api/guard.h"
#include "api/handles.h"
#include "comm/collective_create.h"

using namespace vescomm::internal;

namespace {

vescomm_status_t create(const char *function, Collective collective, vescomm_comm_t *comm,
                        vescomm_buffer_t *buffer, const vescomm_request_options_t *options,
                        vescomm_request_t **request) {
    return guarded([&] {
        require(comm, function, "comm");
        collective_create(*comm->value, [&] {
            if (collective != Collective::barrier) require(buffer, function, "buffer");
            require(request, function, "request");
            const auto given = read_options(options, function, "options");
            Request::Options wanted;
            wanted.collective = collective;
            wanted.op = given.op;
            wanted.factor = given.factor;
            wanted.root = given.root;
            wanted.type = given.type;
            if (given.type == VESCOMM_TYPE_DEFAULT && buffer != nullptr)
                wanted.type = buffer->value->type();
            wanted.source = given.source;
            wanted.output = given.output;
            if (given.algorithm != nullptr) wanted.algorithm = given.algorithm;
            auto made = std::make_unique<vescomm_request>();
            made->parts.push_back(Request::create(
                comm->calls->staging(), buffer != nullptr ? buffer->value : nullptr, wanted));
            *request = made.release();
        });
    });
}

}  // namespace

vescomm_status_t vescomm_all_gather_v_create(vescomm_comm_t *comm, vescomm_buffer_t *buffer,
                                             const vescomm_request_options_t *options,
                                             vescomm_request_t **request) {
    return create("vescomm_all_gather_v_create", Collective::all_gather_v, comm, buffer, options,
                  request);
}

vescomm_status_t vescomm_reduce_scatter_v_create(vescomm_comm_t *comm, vescomm_buffer_t *buffer,
                                                 const vescomm_request_options_t *options,
                                                 vescomm_request_t **request) {
    return create("vescomm_reduce_scatter_v_create", Collective::reduce_scatter_v, comm, buffer,
                  options, request);
}

vescomm_status_t vescomm_all_reduce_create(vescomm_comm_t *comm, vescomm_buffer_t *buffer,
                                           const vescomm_request_options_t *options,
                                           vescomm_request_t **request) {
    return create("vescomm_all_reduce_create", Collective::all_reduce, comm, buffer, options,
                  request);
}

vescomm_status_t vescomm_reduce_create(vescomm_comm_t *comm, vescomm_buffer_t *buffer,
                                       const vescomm_request_options_t *options,
                                       vescomm_request_t **request) {
    return create("vescomm_reduce_create", Collective::reduce, comm, buffer, options, request);
}

vescomm_status_t vescomm_broadcast_create(vescomm_comm_t *comm, vescomm_buffer_t *buffer,
                                          const vescomm_request_options_t *options,
                                          vescomm_request_t **request) {
    return create("vescomm_broadcast_create", Collective::broadcast, comm, buffer, options,
                  request);
}

vescomm_status_t vescomm_barrier_create(vescomm_comm_t *comm,
                                        const vescomm_request_options_t *options,
                                        vescomm_request_t **request) {
    return create("vescomm_barrier_create", Collective::barrier, comm, nullptr, options, request);
}

vescomm_status_t vescomm_request_start(vescomm_request_t *request, void *stream) {
    return guarded([&] {
        require(request, "vescomm_request_start", "request");
        require_no_stream(stream, "vescomm_request_start");
        start_all(request->parts);
    });
}

vescomm_status_t vescomm_request_test(vescomm_request_t *request) {
    bool complete = false;
    const vescomm_status_t status = guarded([&] {
        require(request, "vescomm_request_test", "request");
        complete = true;
        for (const auto &part : request->parts) complete &= part->test();
    });
    return status == VESCOMM_OK && !complete ? VESCOMM_IN_PROGRESS : status;
}

vescomm_status_t vescomm_request_wait(vescomm_request_t *request) {
    bool complete = false;
    const vescomm_status_t status = guarded([&] {
        require(request, "vescomm_request_wait", "request");
        complete =
            std::ranges::all_of(request->parts, [](const auto &part) { return part->try_wait(); });
    });
    return status == VESCOMM_OK && !complete ? VESCOMM_IN_PROGRESS : status;
}

vescomm_status_t vescomm_request_wait_with(vescomm_request_t *request, vescomm_comm_t *const *comms,
                                           size_t count) {
    bool complete = false;
    const vescomm_status_t status = guarded([&] {
        constexpr const char *function = "vescomm_request_wait_with";
        require(request, function, "request");
        if (count > 0 && comms == nullptr)
            throw Error(
                VESCOMM_ERROR_INVALID_ARGUMENT,
                std::string(function) + ": comms is NULL, and count is " + std::to_string(count));
        const std::span all(comms, count);
        for (vescomm_comm_t *comm : all) require(comm, function, "an entry of comms");
        const auto meanwhile = [&all] {
            bool moved = false;
            for (const vescomm_comm_t *comm : all) moved |= comm->value->try_progress();
            return moved;
        };
        complete = std::ranges::all_of(request->parts,
                                       [&](const auto &part) { return part->try_wait(meanwhile); });
    });
    return status == VESCOMM_OK && !complete ? VESCOMM_IN_PROGRESS : status;
}

vescomm_status_t vescomm_request_get_message(vescomm_request_t *request, int32_t index,
                                             vescomm_message_info_t *info) {
    return guarded([&] {
        constexpr const char *function = "vescomm_request_get_message";
        require(request, function, "request");
        require(info, function, "info");
        std::int32_t receives = 0;
        for (const auto &part : request->parts) {
            if (!part->receives() || receives++ != index) continue;
            // The progress thread writes the message of a request that runs.
            if (part->running())
                throw Error(
                    VESCOMM_ERROR_INVALID_ARGUMENT,
                    std::string(function) + ": the request is still running; wait for it first");
            const ReceivedMessage message = part->received();
            vescomm_message_info_t found = vescomm_message_info_init();
            found.source = message.source;
            found.tag = message.tag;
            found.type = message.type;
            found.count = message.count;
            return write_struct(info, found, function, "info");
        }
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    std::string(function) + ": index is " + std::to_string(index) +
                        ", and the request receives " + std::to_string(receives) + " messages");
    });
}

vescomm_status_t vescomm_request_explain(vescomm_request_t *request, const char **text) {
    return guarded([&] {
        require(request, "vescomm_request_explain", "request");
        require(text, "vescomm_request_explain", "text");
        request->explanation.clear();
        for (const auto &part : request->parts) request->explanation += part->explanation();
        *text = request->explanation.c_str();
    });
}

vescomm_status_t vescomm_request_free(vescomm_request_t *request) {
    return guarded([&] {
        if (request == nullptr) return;
        require(request, "vescomm_request_free", "request");
        if (request->freed)
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        "vescomm_request_free: the request has been freed already");
        for (const auto &part : request->parts)
            if (part->under_way())
                throw Error(
                    VESCOMM_ERROR_INVALID_ARGUMENT,
                    "vescomm_request_free: the request is still running; wait for it first");
        if (const auto calls = request->calls.lock()) {
            if (request->group) {
                request->group->parts.swap(request->parts);
                calls->groups().keep(std::move(request->group));
            } else {
                for (auto &part : request->parts) calls->keep(std::move(part));
            }
        }
        request->parts.clear();
        const auto spare = request->spare.lock();
        if (!spare || spare->all.size() == SpareRequests::max) {
            delete request;
            return;
        }
        request->freed = true;
        spare->all.emplace_back(request);
    });
}

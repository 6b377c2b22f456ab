// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>

#include "api/gpu_handles.h"
#include "api/guard.h"
#include "api/handles.h"
#include "comm/collective_create.h"
#include "gpu/device_arguments.h"
#include "gpu/device_collectives.h"
#include "gpu/device_exchange.h"
#include "gpu/gpu_libraries.h"
#include "gpu/nccl_config.h"

using namespace vescomm::internal;

namespace {

cuda::Stream stream_of(void *stream) {
    return static_cast<cuda::Stream>(stream);
}

DeviceCommunicator::Options checked_options(const vescomm_gpu_comm_options_t *options,
                                            const char *function) {
    const auto given = read_options(options, function, "options");
    if (given.min_ctas < 0 || given.max_ctas < 0 ||
        (given.max_ctas != 0 && given.max_ctas < given.min_ctas))
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    std::string(function) + ": min_ctas is " + std::to_string(given.min_ctas) +
                        " and max_ctas " + std::to_string(given.max_ctas) +
                        "; they must be 0 or more, the minimum at most the maximum");
    DeviceCommunicator::Options wanted;
    wanted.workspace_bytes = given.workspace_bytes;
    wanted.min_ctas = given.min_ctas;
    wanted.max_ctas = given.max_ctas;
    if (given.shrinkable != 0 && given.shrinkable != 1)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, std::string(function) + ": shrinkable is " +
                                                        std::to_string(given.shrinkable) +
                                                        "; use 0 or 1");
    wanted.shrinkable = given.shrinkable != 0;
    if (given.method != nullptr) wanted.method = given.method;
    if (given.nccl_config != nullptr) wanted.nccl_settings = given.nccl_config;
    check_nccl_settings(function, wanted.nccl_settings);
    wanted.borrowed = static_cast<nccl::Comm>(given.nccl_comm);
    check_device_method(wanted.method);
    return wanted;
}

// Options of a communicator that is made from another one.
DeviceCommunicator::Options derived_options(const vescomm_gpu_comm_options_t *options,
                                            const char *function) {
    DeviceCommunicator::Options wanted = checked_options(options, function);
    if (wanted.borrowed != nullptr)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    std::string(function) +
                        ": nccl_comm is given, and the communicator is made from the parent; pass "
                        "NULL, or call vescomm_gpu_comm_create()");
    return wanted;
}

vescomm_gpu_comm_t *hand_out(std::unique_ptr<vescomm_gpu_comm> handle,
                             std::unique_ptr<DeviceCommunicator> made) {
    handle->value = std::move(made);
    return handle.release();
}

}  // namespace

vescomm_status_t vescomm_gpu_check_support(std::int32_t *nccl_version) {
    return guarded([&] {
        const GpuLibraries &libraries = gpu_libraries();
        if (nccl_version != nullptr) *nccl_version = libraries.nccl_version;
    });
}

vescomm_status_t vescomm_gpu_comm_create(vescomm_comm_t *comm,
                                         const vescomm_gpu_comm_options_t *options,
                                         vescomm_gpu_comm_t **out) {
    return guarded([&] {
        const char *function = "vescomm_gpu_comm_create";
        require(comm, function, "comm");
        collective_create(*comm->value, [&] {
            require(out, function, "out");
            const auto wanted = checked_options(options, function);
            auto made = std::make_unique<vescomm_gpu_comm>();
            made->parent = comm->value;
            const GpuLibraries &libraries = agree_on_libraries(*comm->value, gpu_libraries);
            *out = hand_out(std::move(made),
                            DeviceCommunicator::create(comm->value, wanted, libraries));
        });
    });
}

vescomm_status_t vescomm_gpu_comm_split(vescomm_gpu_comm_t *parent, vescomm_comm_t *comm,
                                        const vescomm_gpu_comm_options_t *options,
                                        vescomm_gpu_comm_t **out) {
    return guarded([&] {
        const char *function = "vescomm_gpu_comm_split";
        require(parent, function, "parent");
        auto made = std::make_unique<vescomm_gpu_comm>();
        std::unique_ptr<DeviceCommunicator> value;
        collective_create(*parent->parent, [&] {
            require(out, function, "out");
            if (comm != nullptr) require(comm, function, "comm");
            const auto wanted = derived_options(options, function);
            if (comm != nullptr) made->parent = comm->value;
            value = DeviceCommunicator::split(*parent->value, made->parent, wanted);
        });
        *out = nullptr;
        if (!value) return;
        collective_create(*made->parent, [&] { value->complete_split(); });
        *out = hand_out(std::move(made), std::move(value));
    });
}

vescomm_status_t vescomm_gpu_comm_shrink(vescomm_gpu_comm_t *parent, vescomm_comm_t *survivors,
                                         const vescomm_gpu_comm_options_t *options,
                                         vescomm_gpu_comm_t **out) {
    return guarded([&] {
        const char *function = "vescomm_gpu_comm_shrink";
        require(survivors, function, "survivors");
        collective_create(*survivors->value, [&] {
            require(parent, function, "parent");
            require(out, function, "out");
            const auto wanted = derived_options(options, function);
            auto made = std::make_unique<vescomm_gpu_comm>();
            made->parent = survivors->value;
            *out = hand_out(std::move(made),
                            DeviceCommunicator::shrink(*parent->value, survivors->value, wanted));
        });
    });
}

vescomm_status_t vescomm_gpu_comm_get_info(const vescomm_gpu_comm_t *comm,
                                           vescomm_gpu_comm_info_t *info) {
    return guarded([&] {
        const char *function = "vescomm_gpu_comm_get_info";
        require(comm, function, "comm");
        vescomm_gpu_comm_info_t ours = vescomm_gpu_comm_info_init();
        ours.device = comm->value->device();
        ours.nccl_version = comm->value->libraries().nccl_version;
        ours.derived = comm->value->derived() ? 1 : 0;
        write_struct(info, ours, function, "info");
    });
}

vescomm_status_t vescomm_gpu_comm_check(vescomm_gpu_comm_t *comm) {
    return guarded([&] {
        require(comm, "vescomm_gpu_comm_check", "comm");
        comm->value->check_failures();
    });
}

vescomm_status_t vescomm_gpu_wait(vescomm_gpu_comm_t *comm, void *stream) {
    return guarded([&] {
        require(comm, "vescomm_gpu_wait", "comm");
        comm->value->wait(stream_of(stream));
    });
}

vescomm_status_t vescomm_gpu_order_stream(vescomm_gpu_comm_t *comm, void *stream) {
    return guarded([&] {
        require(comm, "vescomm_gpu_order_stream", "comm");
        comm->value->order(stream_of(stream));
    });
}

vescomm_status_t vescomm_gpu_comm_free(vescomm_gpu_comm_t *comm) {
    return guarded([&] {
        if (comm == nullptr) return;
        require(comm, "vescomm_gpu_comm_free", "comm");
        const std::unique_ptr<vescomm_gpu_comm> freed(comm);
        freed->value->close();
    });
}

vescomm_status_t vescomm_gpu_malloc(vescomm_gpu_comm_t *comm, std::uint64_t bytes, void **pointer) {
    return guarded([&] {
        require(comm, "vescomm_gpu_malloc", "comm");
        collective_create(*comm->parent, [&] {
            require(pointer, "vescomm_gpu_malloc", "pointer");
            comm->value->check_call("vescomm_gpu_malloc");
            comm->value->begin_call({.kind = DeviceCall::Kind::allocate});
            *pointer = comm->value->allocate(bytes);
        });
    });
}

vescomm_status_t vescomm_gpu_mfree(vescomm_gpu_comm_t *comm, void *pointer) {
    return guarded([&] {
        require(comm, "vescomm_gpu_mfree", "comm");
        if (pointer != nullptr) comm->value->free(pointer);
    });
}

vescomm_status_t vescomm_gpu_all_gather_v(vescomm_gpu_comm_t *comm, const vescomm_layout_t *layout,
                                          vescomm_type_t type, const void *source, void *output,
                                          void *stream) {
    return guarded([&] {
        require(comm, "vescomm_gpu_all_gather_v", "comm");
        require(layout, "vescomm_gpu_all_gather_v", "layout");
        device::all_gather_v(*comm->value, layout->value, type, source, output, stream_of(stream));
    });
}

vescomm_status_t vescomm_gpu_reduce_scatter_v(vescomm_gpu_comm_t *comm,
                                              const vescomm_layout_t *layout, vescomm_type_t type,
                                              vescomm_op_t op, void *source, void *output,
                                              void *stream) {
    return guarded([&] {
        require(comm, "vescomm_gpu_reduce_scatter_v", "comm");
        require(layout, "vescomm_gpu_reduce_scatter_v", "layout");
        device::reduce_scatter_v(*comm->value, layout->value, type, op, source, output,
                                 stream_of(stream));
    });
}

vescomm_status_t vescomm_gpu_all_reduce(vescomm_gpu_comm_t *comm, const void *source, void *output,
                                        std::int64_t count, vescomm_type_t type, vescomm_op_t op,
                                        void *stream) {
    return guarded([&] {
        require(comm, "vescomm_gpu_all_reduce", "comm");
        device::all_reduce(*comm->value, source, output, count, type, op, stream_of(stream));
    });
}

vescomm_status_t vescomm_gpu_broadcast(vescomm_gpu_comm_t *comm, void *data, std::int64_t count,
                                       vescomm_type_t type, std::int32_t root, void *stream) {
    return guarded([&] {
        require(comm, "vescomm_gpu_broadcast", "comm");
        device::broadcast(*comm->value, data, count, type, root, stream_of(stream));
    });
}

vescomm_status_t vescomm_gpu_all_to_all_v(vescomm_gpu_comm_t *comm, const void *source,
                                          const std::int64_t *source_counts,
                                          const std::int64_t *source_offsets, void *output,
                                          const std::int64_t *output_counts,
                                          const std::int64_t *output_offsets, vescomm_type_t type,
                                          void *stream) {
    return guarded([&] {
        require(comm, "vescomm_gpu_all_to_all_v", "comm");
        // The call only reads the source.
        device::all_to_all_v(*comm->value,
                             {const_cast<void *>(source), source_counts, source_offsets},
                             {output, output_counts, output_offsets}, type, stream_of(stream));
    });
}

vescomm_status_t vescomm_gpu_explain(vescomm_gpu_comm_t *comm, const vescomm_layout_t *layout,
                                     vescomm_type_t type, std::int32_t reduces, const char **text) {
    return guarded([&] {
        require(comm, "vescomm_gpu_explain", "comm");
        require(layout, "vescomm_gpu_explain", "layout");
        require(text, "vescomm_gpu_explain", "text");
        device::check_reduces("vescomm_gpu_explain", reduces, type);
        const DeviceProblem problem = device::problem_of(
            *comm->value,
            device::checked_placement("vescomm_gpu_explain", *comm->value, layout->value, type),
            reduces != 0);
        comm->explanation = to_string(problem, choose_device_method(problem));
        *text = comm->explanation.c_str();
    });
}

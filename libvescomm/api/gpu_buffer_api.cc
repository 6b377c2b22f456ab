// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "api/gpu_handles.h"
#include "api/guard.h"
#include "api/handles.h"
#include "comm/collective_create.h"
#include "gpu/device_arguments.h"

using namespace vescomm::internal;

namespace {

DeviceBuffer::Options read_buffer_options(const vescomm_gpu_buffer_options_t *options,
                                          const char *function) {
    const auto given = read_options(options, function, "options");
    const auto require_value = [&](const char *member, std::int32_t value, const char *values) {
        if (value != 0 && value != 1)
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, std::string(function) + ": " + member +
                                                            " is " + std::to_string(value) +
                                                            "; use " + values);
    };
    require_value("placement", given.placement, "VESCOMM_GPU_PACKED or VESCOMM_GPU_STRIDED");
    require_value("any_cuts", given.any_cuts, "0 or 1");
    DeviceBuffer::Options wanted;
    if (given.type != VESCOMM_TYPE_DEFAULT) wanted.type = given.type;
    wanted.memory = given.memory;
    wanted.offset_bytes = given.offset_bytes;
    wanted.strided = given.placement == VESCOMM_GPU_STRIDED;
    wanted.any_cuts = given.any_cuts != 0;
    if (given.name != nullptr) wanted.name = given.name;
    return wanted;
}

// The buffers of a call.
std::vector<DeviceBuffer *> buffers_of(const char *function, vescomm_gpu_buffer_t *const *buffers,
                                       std::size_t count) {
    std::vector<DeviceBuffer *> all;
    if (count != 0) require(buffers, function, "buffers");
    for (std::size_t k = 0; k < count; ++k) {
        require(buffers[k], function, "an element of buffers");
        all.push_back(buffers[k]->value.get());
    }
    return all;
}

// The buffer of a call that fills a view. Its communicator exists.
const DeviceBuffer &viewed_buffer(const char *function, const vescomm_gpu_buffer_t *buffer,
                                  const vescomm_view_t *view) {
    require(buffer, function, "buffer");
    require(view, function, "view");
    buffer->value->comm(function);
    return *buffer->value;
}

vescomm_view_t view_of(const DeviceBuffer &buffer, char *data, std::uint64_t bytes) {
    return {data, static_cast<std::int64_t>(bytes / buffer.placement().element())};
}

}  // namespace

vescomm_status_t vescomm_gpu_buffer_get_bytes(const vescomm_layout_t *layout,
                                              const vescomm_gpu_buffer_options_t *options,
                                              std::uint64_t *bytes) {
    return guarded([&] {
        const char *function = "vescomm_gpu_buffer_get_bytes";
        require(layout, function, "layout");
        require(bytes, function, "bytes");
        *bytes =
            DeviceBuffer::place(function, layout->value, read_buffer_options(options, function))
                .size();
    });
}

vescomm_status_t vescomm_gpu_buffer_create(vescomm_gpu_comm_t *comm, const vescomm_layout_t *layout,
                                           const vescomm_gpu_buffer_options_t *options,
                                           vescomm_gpu_buffer_t **buffer) {
    return guarded([&] {
        const char *function = "vescomm_gpu_buffer_create";
        require(comm, function, "comm");
        collective_create(*comm->parent, [&] {
            require(layout, function, "layout");
            require(buffer, function, "buffer");
            auto made = std::make_unique<vescomm_gpu_buffer>();
            made->value = DeviceBuffer::create(comm->value, layout->value,
                                               read_buffer_options(options, function));
            *buffer = made.release();
        });
    });
}

vescomm_status_t vescomm_gpu_buffer_get_data(const vescomm_gpu_buffer_t *buffer,
                                             vescomm_view_t *view) {
    return guarded([&] {
        const char *function = "vescomm_gpu_buffer_get_data";
        const DeviceBuffer &value = viewed_buffer(function, buffer, view);
        *view = view_of(
            value, value.data(),
            value.placement().strided() ? value.placement().size() : value.placement().sum());
    });
}

vescomm_status_t vescomm_gpu_buffer_get_tensor(const vescomm_gpu_buffer_t *buffer, size_t index,
                                               vescomm_view_t *view) {
    return guarded([&] {
        const char *function = "vescomm_gpu_buffer_get_tensor";
        const DeviceBuffer &value = viewed_buffer(function, buffer, view);
        char *data = value.tensor(function, index);
        *view = {data, value.layout().tensors()[index].elements};
    });
}

vescomm_status_t vescomm_gpu_buffer_get_shard(const vescomm_gpu_buffer_t *buffer, std::int32_t rank,
                                              vescomm_view_t *view) {
    return guarded([&] {
        const char *function = "vescomm_gpu_buffer_get_shard";
        const DeviceBuffer &value = viewed_buffer(function, buffer, view);
        const int ranks = value.placement().ranks();
        if (rank < 0 || rank >= ranks)
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        std::string(function) + ": rank is " + std::to_string(rank) +
                            "; ranks are 0 to " + std::to_string(ranks - 1));
        *view = view_of(value, value.shard(rank), value.placement().bytes(rank));
    });
}

vescomm_status_t vescomm_gpu_buffer_all_gather_v(vescomm_gpu_buffer_t *const *buffers, size_t count,
                                                 void *stream) {
    return guarded([&] {
        device::all_gather_v(buffers_of("vescomm_gpu_buffer_all_gather_v", buffers, count),
                             static_cast<cuda::Stream>(stream));
    });
}

vescomm_status_t vescomm_gpu_buffer_reduce_scatter_v(vescomm_gpu_buffer_t *const *buffers,
                                                     size_t count, vescomm_op_t op, void *stream) {
    return guarded([&] {
        device::reduce_scatter_v(buffers_of("vescomm_gpu_buffer_reduce_scatter_v", buffers, count),
                                 op, static_cast<cuda::Stream>(stream));
    });
}

vescomm_status_t vescomm_gpu_buffer_explain(vescomm_gpu_buffer_t *buffer, std::int32_t reduces,
                                            const char **text) {
    return guarded([&] {
        const char *function = "vescomm_gpu_buffer_explain";
        require(buffer, function, "buffer");
        require(text, function, "text");
        device::check_reduces(function, reduces, buffer->value->type());
        const auto comm = buffer->value->comm(function);
        buffer->explanation = buffer->value->explain(*comm, reduces != 0);
        *text = buffer->explanation.c_str();
    });
}

vescomm_status_t vescomm_gpu_buffer_free(vescomm_gpu_buffer_t *buffer) {
    return guarded([&] {
        if (buffer == nullptr) return;
        require(buffer, "vescomm_gpu_buffer_free", "buffer");
        buffer->value->free();
        delete buffer;
    });
}

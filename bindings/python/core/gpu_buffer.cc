// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Device buffers, their arrays, and the calls on several of them.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "convert.h"
#include "docs_gpu.h"
#include "gpu.h"
#include "gpu_array.h"
#include "gpu_handle.h"
#include "integer.h"
#include "layout.h"
#include "types.h"

namespace nb = nanobind;

namespace vescomm::python {

namespace {

// Owner of a device buffer. Arrays share it.
struct GpuBufferHandle {
    std::shared_ptr<GpuHandle> gpu;
    vescomm_gpu_buffer_t *buffer = nullptr;
    Layout layout;
    vescomm_type_t type;

    GpuBufferHandle(std::shared_ptr<GpuHandle> on, vescomm_gpu_buffer_t *owned, Layout its_layout,
                    vescomm_type_t its_type)
        : gpu(std::move(on)), buffer(owned), layout(std::move(its_layout)), type(its_type) {}
    GpuBufferHandle(const GpuBufferHandle &) = delete;
    GpuBufferHandle &operator=(const GpuBufferHandle &) = delete;
    // Freeing a buffer waits for all ranks, unless its communicator was freed.
    ~GpuBufferHandle() {
        if (buffer == nullptr) return;
        if (gpu->gpu != nullptr) gpu->dropped.push_back(buffer);
        else vescomm_gpu_buffer_free(buffer);
    }
};

class OwnerInBuffer final : public ArrayOwner {
public:
    explicit OwnerInBuffer(std::shared_ptr<GpuBufferHandle> of) : buffer_(std::move(of)) {
        ++buffer_->gpu->arrays;
    }
    ~OwnerInBuffer() override { --buffer_->gpu->arrays; }

    vescomm_status_t order_stream(void *stream) override {
        vescomm_gpu_comm_t *const on = buffer_->gpu->get();  // it lives as long as arrays exist
        return buffer_->gpu->comm->call_briefly(
            [&] { return vescomm_gpu_order_stream(on, stream); });
    }

private:
    std::shared_ptr<GpuBufferHandle> buffer_;
};

struct GpuBuffer {
    std::shared_ptr<GpuBufferHandle> handle;

    vescomm_gpu_buffer_t *get() const {
        handle->gpu->get();
        if (handle->buffer == nullptr)
            refuse("the device buffer has been freed; create another one");
        return handle->buffer;
    }
};

vescomm_gpu_buffer_options_t options_of(Integer type, Integer memory, std::uint64_t offset_bytes,
                                        bool strided, bool any_cuts, const Name &name) {
    vescomm_gpu_buffer_options_t options = vescomm_gpu_buffer_options_init();
    options.type = type.small("type");
    options.memory = memory.pointer();
    options.offset_bytes = offset_bytes;
    options.placement = strided ? VESCOMM_GPU_STRIDED : VESCOMM_GPU_PACKED;
    options.any_cuts = any_cuts ? 1 : 0;
    options.name = c_string(name, "name");
    return options;
}

void create_buffer(GpuBuffer *self, const Gpu &gpu, const Layout &layout, ElementType type,
                   Integer memory, std::uint64_t offset_bytes, bool strided, bool any_cuts,
                   const Name &name) {
    const auto options = options_of(type, memory, offset_bytes, strided, any_cuts, name);
    vescomm_gpu_buffer_t *buffer = nullptr;
    gpu.run([&](vescomm_gpu_comm_t *on) {
        return vescomm_gpu_buffer_create(on, layout.get(), &options, &buffer);
    });
    const vescomm_type_t its_type =
        options.type == VESCOMM_TYPE_DEFAULT ? VESCOMM_F32 : options.type;
    new (self) GpuBuffer{std::make_shared<GpuBufferHandle>(gpu.handle, buffer, layout, its_type)};
}

std::uint64_t get_bytes(const Layout &layout, ElementType type, bool strided, bool any_cuts) {
    const auto options = options_of(type, {}, 0, strided, any_cuts, {});
    std::uint64_t bytes = 0;
    check(vescomm_gpu_buffer_get_bytes(layout.get(), &options, &bytes));
    return bytes;
}

DeviceArray view_of(const GpuBuffer &buffer, const vescomm_view_t &view,
                    std::vector<std::int64_t> shape) {
    return DeviceArray(view.data, std::move(shape), buffer.handle->type, buffer.handle->gpu->device,
                       std::make_shared<OwnerInBuffer>(buffer.handle));
}

DeviceArray buffer_data(const GpuBuffer &buffer) {
    vescomm_view_t view{};
    check(vescomm_gpu_buffer_get_data(buffer.get(), &view));
    return view_of(buffer, view, {view.elements});
}

DeviceArray buffer_shard(const GpuBuffer &buffer, std::optional<Integer> rank) {
    vescomm_view_t view{};
    const std::int32_t of = rank ? rank->small("rank") : buffer.handle->gpu->comm->rank();
    check(vescomm_gpu_buffer_get_shard(buffer.get(), of, &view));
    return view_of(buffer, view, {view.elements});
}

DeviceArray buffer_tensor(const GpuBuffer &buffer, nb::handle which) {
    vescomm_gpu_buffer_t *const got = buffer.get();
    const Layout &layout = buffer.handle->layout;
    const std::size_t index = layout.index(which);
    vescomm_view_t view{};
    check(vescomm_gpu_buffer_get_tensor(got, index, &view));
    const vescomm_tensor_t tensor = layout.tensor(index);
    return view_of(buffer, view, {tensor.shape, tensor.shape + tensor.dimensions});
}

nb::str explain_buffer(const GpuBuffer &buffer, bool reduces) {
    buffer.get();
    const std::shared_ptr<GpuBufferHandle> handle = buffer.handle;
    const char *text = nullptr;
    // A destructor that runs within the call may free the buffer, which is null then.
    check(handle->gpu->comm->call(
        [&] { return vescomm_gpu_buffer_explain(handle->buffer, reduces ? 1 : 0, &text); }));
    return to_str(text);
}

void free_buffer(GpuBuffer &buffer) {
    GpuBufferHandle &handle = *buffer.handle;
    if (handle.buffer == nullptr) return;
    if (buffer.handle.use_count() > 1)
        refuse("arrays of the buffer exist; drop them first, because the memory is freed");
    check(handle.gpu->comm->call([&] { return vescomm_gpu_buffer_free(handle.buffer); }));
    handle.buffer = nullptr;
}

// The buffers of a call, and the communicator that serves it.
struct Group {
    explicit Group(const std::vector<const GpuBuffer *> &given) {
        for (const GpuBuffer *buffer : given) {
            if (buffer == nullptr) refuse("one of the buffers is None; give device buffers");
            buffer->get();
            handles.push_back(buffer->handle);
        }
    }

    // Calls a function of the buffers and their number. A destructor that runs within the call may
    // free a buffer, which is null then.
    template <typename Function>
    void run(Function &&function) const {
        if (handles.empty()) return;
        std::vector<vescomm_gpu_buffer_t *> buffers(handles.size());
        check(handles[0]->gpu->comm->call([&] {
            for (std::size_t i = 0; i < handles.size(); ++i) buffers[i] = handles[i]->buffer;
            return function(buffers.data(), buffers.size());
        }));
    }

    std::vector<std::shared_ptr<GpuBufferHandle>> handles;
};

void gather_buffers(const std::vector<const GpuBuffer *> &buffers, Integer stream) {
    const Group group(buffers);
    group.run([&](vescomm_gpu_buffer_t *const *all, std::size_t count) {
        return vescomm_gpu_buffer_all_gather_v(all, count, stream.pointer());
    });
}

void reduce_buffers(const std::vector<const GpuBuffer *> &buffers, OpArgument op, Integer stream) {
    const Group group(buffers);
    const std::int32_t small_op = op.small("op");
    group.run([&](vescomm_gpu_buffer_t *const *all, std::size_t count) {
        return vescomm_gpu_buffer_reduce_scatter_v(all, count, small_op, stream.pointer());
    });
}

}  // namespace

void define_gpu_buffer(nb::module_ &module) {
    using nb::arg;
    nb::class_<GpuBuffer>(module, "GpuBuffer", nb::is_weak_referenceable())
        .def("__init__", create_buffer, arg("comm"), arg("layout"), arg("type"), arg("memory"),
             arg("offset_bytes"), arg("strided"), arg("any_cuts"), arg("name").none())
        .def_prop_ro("_layout", [](const GpuBuffer &buffer) { return buffer.handle->layout; })
        .def_prop_ro(
            "type", [](const GpuBuffer &buffer) { return to_python(buffer.handle->type); },
            docs::gpu_buffer_type)
        .def("data", buffer_data, docs::gpu_buffer_data)
        .def("shard", buffer_shard, docs::gpu_buffer_shard, arg("rank").none() = nb::none())
        .def("tensor", buffer_tensor, docs::gpu_buffer_tensor, arg("which"))
        .def("explain", explain_buffer, docs::gpu_buffer_explain, arg("reduces") = false)
        .def("free", free_buffer, docs::gpu_buffer_free);
    module.def("gpu_buffer_get_bytes", get_bytes);
    module.def("gpu_all_gather_v", gather_buffers);
    module.def("gpu_reduce_scatter_v", reduce_buffers);
}

}  // namespace vescomm::python

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Memories and buffers, their views, and the requests on them.
#include "buffer.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>

#include "argument.h"
#include "array.h"
#include "convert.h"
#include "docs.h"
#include "layout.h"
#include "request.h"
#include "types.h"

namespace nb = nanobind;

namespace vescomm::python {

namespace {

// Owner of a memory of the library. Views keep it alive.
struct MemoryHandle {
    std::shared_ptr<CommHandle> comm;
    vescomm_memory_t *memory = nullptr;

    MemoryHandle(std::shared_ptr<CommHandle> on, vescomm_memory_t *owned)
        : comm(std::move(on)), memory(owned) {}
    MemoryHandle(const MemoryHandle &) = delete;
    MemoryHandle &operator=(const MemoryHandle &) = delete;
    ~MemoryHandle() { vescomm_memory_free(memory); }
};

// Owner of a buffer of the library. Views and requests keep it alive.
struct BufferHandle {
    std::shared_ptr<CommHandle> comm;
    vescomm_buffer_t *buffer = nullptr;
    Layout layout;
    vescomm_type_t type = VESCOMM_F32;

    BufferHandle(std::shared_ptr<CommHandle> on, vescomm_buffer_t *owned, Layout its_layout,
                 vescomm_type_t its_type)
        : comm(std::move(on)), buffer(owned), layout(std::move(its_layout)), type(its_type) {}
    BufferHandle(const BufferHandle &) = delete;
    BufferHandle &operator=(const BufferHandle &) = delete;
    ~BufferHandle() { vescomm_buffer_free(buffer); }
};

class Memory {
public:
    explicit Memory(std::shared_ptr<MemoryHandle> handle) : handle_(std::move(handle)) {}

    const std::shared_ptr<MemoryHandle> &share() const {
        if (!handle_) refuse("the memory has been freed; create another one");
        return handle_;
    }
    void free() noexcept { handle_.reset(); }

private:
    std::shared_ptr<MemoryHandle> handle_;
};

class Buffer {
public:
    explicit Buffer(std::shared_ptr<BufferHandle> handle) : handle_(std::move(handle)) {}

    const std::shared_ptr<BufferHandle> &share() const {
        if (!handle_) refuse("the buffer has been freed; create another one");
        return handle_;
    }
    BufferHandle &handle() const { return *share(); }
    void free() noexcept { handle_.reset(); }

private:
    std::shared_ptr<BufferHandle> handle_;
};

void create_memory(Memory *self, Comm &comm, SizeArgument bytes, SharingArgument sharing) {
    vescomm_memory_options_t options = vescomm_memory_options_init();
    options.sharing = sharing.small("sharing");
    options.bytes = static_cast<std::uint64_t>(bytes.value);
    vescomm_memory_t *memory = nullptr;
    auto handle =
        comm.run([&](vescomm_comm_t *on) { return vescomm_memory_create(on, &options, &memory); });
    new (self) Memory(std::make_shared<MemoryHandle>(std::move(handle), memory));
}

Array memory_data(const Memory &memory) {
    void *data = nullptr;
    std::uint64_t bytes = 0;
    check(vescomm_memory_get_data(memory.share()->memory, &data, &bytes));
    return Array(data, {static_cast<std::int64_t>(bytes)}, VESCOMM_U8, memory.share());
}

void create_buffer(Buffer *self, Comm &comm, const Layout &layout, ElementType type,
                   const Memory *memory, OffsetArgument offset_bytes, SharingArgument sharing,
                   const std::optional<std::string> &name) {
    vescomm_buffer_options_t options = vescomm_buffer_options_init();
    options.type = type.small("type");
    // A destructor that runs within the call may free it.
    const std::shared_ptr<MemoryHandle> held = memory != nullptr ? memory->share() : nullptr;
    options.memory = held != nullptr ? held->memory : nullptr;
    options.offset_bytes = static_cast<std::uint64_t>(offset_bytes.value);
    options.sharing = sharing.small("sharing");
    options.name = c_string(name, "name");
    vescomm_buffer_t *buffer = nullptr;
    auto handle = comm.run([&](vescomm_comm_t *on) {
        return vescomm_buffer_create(on, layout.get(), &options, &buffer);
    });
    const vescomm_type_t its_type =
        options.type == VESCOMM_TYPE_DEFAULT ? VESCOMM_F32 : options.type;
    new (self) Buffer(std::make_shared<BufferHandle>(std::move(handle), buffer, layout, its_type));
}

Array view_of(const Buffer &buffer, const vescomm_view_t &view, std::vector<std::int64_t> shape) {
    return Array(view.data, std::move(shape), buffer.handle().type, buffer.share());
}

Array buffer_data(const Buffer &buffer) {
    vescomm_view_t view{};
    check(vescomm_buffer_get_data(buffer.handle().buffer, &view));
    return view_of(buffer, view, {view.elements});
}

Array buffer_shard(const Buffer &buffer) {
    vescomm_view_t view{};
    check(vescomm_buffer_get_shard(buffer.handle().buffer, &view));
    return view_of(buffer, view, {view.elements});
}

Array buffer_tensor(const Buffer &buffer, nb::handle which) {
    const Layout layout = buffer.handle().layout;
    const std::size_t index = layout.index(which);  // may run code of Python
    vescomm_view_t view{};
    check(vescomm_buffer_get_tensor(buffer.handle().buffer, index, &view));
    const vescomm_tensor_t tensor = layout.tensor(index);
    return view_of(buffer, view, {tensor.shape, tensor.shape + tensor.dimensions});
}

void release(const Buffer &buffer) {
    const std::shared_ptr<BufferHandle> handle = buffer.share();
    check(handle->comm->call_briefly([&] { return vescomm_buffer_release(handle->buffer); }));
}

void acquire(const Buffer &buffer) {
    const std::shared_ptr<BufferHandle> handle = buffer.share();
    check(handle->comm->call([&] { return vescomm_buffer_acquire(handle->buffer); }));
}

// ---- requests ----

using Create = vescomm_status_t (*)(vescomm_comm_t *, vescomm_buffer_t *,
                                    const vescomm_request_options_t *, vescomm_request_t **);

Request create(const Buffer &buffer, Create function, vescomm_request_options_t options,
               const std::optional<std::string> &algorithm, Arguments arrays) {
    const std::shared_ptr<BufferHandle> handle = buffer.share();
    options.algorithm = c_string(algorithm, "algorithm");
    vescomm_request_t *request = nullptr;
    check(handle->comm->call(
        [&] { return function(handle->comm->get(), handle->buffer, &options, &request); }));
    return Request(handle->comm, request, std::move(arrays));
}

// An array of the shard's size that takes its place.
void require_shard(const Buffer &buffer, const Argument &array, const char *name) {
    vescomm_view_t shard{};
    check(vescomm_buffer_get_shard(buffer.handle().buffer, &shard));
    if (array.elements != shard.elements)
        refuse(std::string(name) + " has " + std::to_string(array.elements) +
               " elements, and the shard of this rank has " + std::to_string(shard.elements));
}

Request all_gather_v(const Buffer &buffer, const std::optional<nb::handle> &source,
                     const TypeArgument &type, const std::optional<std::string> &algorithm) {
    vescomm_request_options_t options = vescomm_request_options_init();
    Arguments arrays;
    if (source) {
        arrays.push_back(read_source(*source, "source", type));
        require_shard(buffer, arrays[0], "source");
        options.source = arrays[0].data;
        options.type = arrays[0].type;
    }
    return create(buffer, vescomm_all_gather_v_create, options, algorithm, std::move(arrays));
}

Request reduce_scatter_v(const Buffer &buffer, const std::optional<nb::handle> &output,
                         OpArgument op, double factor, const TypeArgument &type,
                         const std::optional<std::string> &algorithm) {
    vescomm_request_options_t options = vescomm_request_options_init();
    options.op = op.small("op");
    options.factor = factor;
    Arguments arrays;
    if (output) {
        arrays.push_back(read_output(*output, "output", type));
        require_shard(buffer, arrays[0], "output");
        options.output = arrays[0].data;
        options.type = arrays[0].type;
    }
    return create(buffer, vescomm_reduce_scatter_v_create, options, algorithm, std::move(arrays));
}

Request all_reduce(const Buffer &buffer, OpArgument op, double factor,
                   const std::optional<std::string> &algorithm) {
    vescomm_request_options_t options = vescomm_request_options_init();
    options.op = op.small("op");
    options.factor = factor;
    return create(buffer, vescomm_all_reduce_create, options, algorithm, {});
}

Request reduce(const Buffer &buffer, RootArgument root, OpArgument op, double factor,
               const std::optional<std::string> &algorithm) {
    vescomm_request_options_t options = vescomm_request_options_init();
    options.root = root.small("root");
    options.op = op.small("op");
    options.factor = factor;
    return create(buffer, vescomm_reduce_create, options, algorithm, {});
}

Request broadcast(const Buffer &buffer, RootArgument root,
                  const std::optional<std::string> &algorithm) {
    vescomm_request_options_t options = vescomm_request_options_init();
    options.root = root.small("root");
    return create(buffer, vescomm_broadcast_create, options, algorithm, {});
}

Request barrier(Comm &comm, const std::optional<std::string> &algorithm) {
    vescomm_request_options_t options = vescomm_request_options_init();
    options.algorithm = c_string(algorithm, "algorithm");
    vescomm_request_t *request = nullptr;
    auto handle = comm.run(
        [&](vescomm_comm_t *on) { return vescomm_barrier_create(on, &options, &request); });
    return Request(std::move(handle), request, {});
}

}  // namespace

void define_buffer(nb::module_ &module, nb::class_<Comm> &comm) {
    using nb::arg;
    const auto algorithm = arg("algorithm").none() = nb::none(),
               type = arg("type").none() = nb::none();
    const auto op = arg("op").sig("Op.SUM") = VESCOMM_SUM, root = arg("root") = 0,
               factor = arg("factor") = 0.0,
               sharing = arg("sharing").sig("Sharing.PER_RANK") = VESCOMM_PER_RANK;
    const nb::kw_only options;
    comm.def("create_barrier", barrier, docs::create_barrier, options, algorithm);

    nb::class_<Memory>(module, "Memory", docs::memory, nb::is_weak_referenceable())
        .def("__init__", create_memory, docs::memory_init, arg("comm"), arg("bytes"), sharing)
        .def("data", memory_data, docs::memory_data)
        .def("free", &Memory::free, docs::memory_free);

    nb::class_<Buffer>(module, "Buffer", docs::buffer, nb::is_weak_referenceable())
        .def("__init__", create_buffer, docs::buffer_init, arg("comm"), arg("layout"),
             arg("type").sig("Type.F32") = VESCOMM_F32, options, arg("memory").none() = nb::none(),
             arg("offset_bytes") = 0, sharing, arg("name").none() = nb::none())
        .def_prop_ro("_layout", [](const Buffer &buffer) { return buffer.handle().layout; })
        .def_prop_ro(
            "type", [](const Buffer &buffer) { return to_python(buffer.handle().type); },
            docs::buffer_type)
        .def("data", buffer_data, docs::buffer_data)
        .def("shard", buffer_shard, docs::buffer_shard)
        .def("tensor", buffer_tensor, docs::buffer_tensor, arg("which"))
        .def("release", release, docs::buffer_release)
        .def("acquire", acquire, docs::buffer_acquire)
        .def("free", &Buffer::free, docs::buffer_free)
        .def("create_all_gather_v", all_gather_v, docs::create_all_gather_v,
             arg("source").none() = nb::none(), options, type, algorithm)
        .def("create_reduce_scatter_v", reduce_scatter_v, docs::create_reduce_scatter_v,
             arg("output").none() = nb::none(), op, options, factor, type, algorithm)
        .def("create_all_reduce", all_reduce, docs::create_all_reduce, op, options, factor,
             algorithm)
        .def("create_reduce", reduce, docs::create_reduce, root, op, options, factor, algorithm)
        .def("create_broadcast", broadcast, docs::create_broadcast, root, options, algorithm);
}

}  // namespace vescomm::python

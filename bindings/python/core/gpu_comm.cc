// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Device communicators, and calls on arrays in device memory.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

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

// Options of a device communicator. It borrows the texts.
vescomm_gpu_comm_options_t options_of(std::uint64_t workspace_bytes, Integer min_ctas,
                                      Integer max_ctas, bool shrinkable, const Name &method,
                                      const Name &nccl_config) {
    vescomm_gpu_comm_options_t options = vescomm_gpu_comm_options_init();
    options.workspace_bytes = workspace_bytes;
    options.min_ctas = min_ctas.small("min_ctas");
    options.max_ctas = max_ctas.small("max_ctas");
    options.shrinkable = shrinkable ? 1 : 0;
    options.method = c_string(method, "method");
    options.nccl_config = c_string(nccl_config, "nccl_config");
    return options;
}

vescomm_gpu_comm_info_t info_of(const GpuHandle &handle) {
    vescomm_gpu_comm_info_t info = vescomm_gpu_comm_info_init();
    check(vescomm_gpu_comm_get_info(handle.get(), &info));
    return info;
}

void create_gpu(Gpu *self, Comm &comm, std::uint64_t workspace_bytes, Integer min_ctas,
                Integer max_ctas, bool shrinkable, const Name &method, Integer nccl_comm,
                const Name &nccl_config) {
    auto options = options_of(workspace_bytes, min_ctas, max_ctas, shrinkable, method, nccl_config);
    options.nccl_comm = nccl_comm.pointer();
    auto handle = std::make_shared<GpuHandle>();
    handle->comm = comm.share();
    comm.run(
        [&](vescomm_comm_t *on) { return vescomm_gpu_comm_create(on, &options, &handle->gpu); });
    handle->device = info_of(*handle).device;
    new (self) Gpu{std::move(handle)};
}

// A device communicator that no object of vescomm.gpu.Communicator has yet.
struct CreatedGpu {
    std::shared_ptr<GpuHandle> handle;
};

// None: this rank is in no part.
std::optional<CreatedGpu> split_gpu(const Gpu &parent, Comm *comm, std::uint64_t workspace_bytes,
                                    Integer min_ctas, Integer max_ctas, bool shrinkable,
                                    const Name &method, const Name &nccl_config) {
    const auto options =
        options_of(workspace_bytes, min_ctas, max_ctas, shrinkable, method, nccl_config);
    auto handle = std::make_shared<GpuHandle>();
    if (comm != nullptr) handle->comm = comm->share();
    vescomm_comm_t *const part = comm != nullptr ? handle->comm->get() : nullptr;
    parent.run([&](vescomm_gpu_comm_t *on) {
        return vescomm_gpu_comm_split(on, part, &options, &handle->gpu);
    });
    if (comm == nullptr) return {};
    handle->device = info_of(*handle).device;
    return CreatedGpu{std::move(handle)};
}

CreatedGpu shrink_gpu(const Gpu &parent, Comm &survivors, std::uint64_t workspace_bytes,
                      Integer min_ctas, Integer max_ctas, bool shrinkable, const Name &method,
                      const Name &nccl_config) {
    const auto options =
        options_of(workspace_bytes, min_ctas, max_ctas, shrinkable, method, nccl_config);
    auto handle = std::make_shared<GpuHandle>();
    handle->comm = survivors.share();
    vescomm_gpu_comm_t *const from = parent.handle->get();
    survivors.run([&](vescomm_comm_t *on) {
        return vescomm_gpu_comm_shrink(from, on, &options, &handle->gpu);
    });
    handle->device = info_of(*handle).device;
    return CreatedGpu{std::move(handle)};
}

std::int32_t check_support() {
    std::int32_t version = 0;
    check(vescomm_gpu_check_support(&version));
    return version;
}

// An array with `elements`, or refuses it.
DeviceArgument argument(const Gpu &gpu, nb::handle array, const char *name, std::int64_t elements) {
    const DeviceArgument read = read_device_array(array, name, gpu.handle->device);
    if (read.elements != elements)
        refuse(std::string(name) + " has " + std::to_string(read.elements) + " elements, and " +
               std::to_string(elements) + " are needed");
    return read;
}

void require_type(const DeviceArgument &array, const char *name, const DeviceArgument &other,
                  const char *other_name) {
    if (array.type != other.type)
        refuse(std::string(name) + " has elements of type " + name_of(array.type) + ", and " +
               other_name + " of type " + name_of(other.type));
}

// The elements of the shard of this rank.
std::int64_t own_elements(const Gpu &gpu, const Layout &layout) {
    std::int64_t begin = 0, end = 0;
    check(vescomm_layout_get_shard(layout.get(), gpu.handle->comm->rank(), &begin, &end));
    return end - begin;
}

void all_gather_v(const Gpu &gpu, nb::handle output, const Layout &layout, nb::handle source,
                  Integer stream) {
    const DeviceArgument whole = argument(gpu, output, "output", layout.info().elements);
    DeviceArgument own;
    if (!source.is_none()) {
        own = argument(gpu, source, "source", own_elements(gpu, layout));
        require_type(own, "source", whole, "output");
    }
    gpu.run([&](vescomm_gpu_comm_t *on) {
        return vescomm_gpu_all_gather_v(on, layout.get(), whole.type, own.data, whole.data,
                                        stream.pointer());
    });
}

void reduce_scatter_v(const Gpu &gpu, nb::handle source, const Layout &layout, nb::handle output,
                      OpArgument op, Integer stream) {
    const DeviceArgument whole = argument(gpu, source, "source", layout.info().elements);
    DeviceArgument own;
    if (!output.is_none()) {
        own = argument(gpu, output, "output", own_elements(gpu, layout));
        require_type(own, "output", whole, "source");
    }
    const std::int32_t small_op = op.small("op");
    gpu.run([&](vescomm_gpu_comm_t *on) {
        return vescomm_gpu_reduce_scatter_v(on, layout.get(), whole.type, small_op, whole.data,
                                            own.data, stream.pointer());
    });
}

void all_reduce(const Gpu &gpu, nb::handle source, nb::handle output, OpArgument op,
                Integer stream) {
    const DeviceArgument from = read_device_array(source, "source", gpu.handle->device);
    DeviceArgument to = from;
    if (!output.is_none()) {
        to = argument(gpu, output, "output", from.elements);
        require_type(to, "output", from, "source");
    }
    const std::int32_t small_op = op.small("op");
    gpu.run([&](vescomm_gpu_comm_t *on) {
        return vescomm_gpu_all_reduce(on, from.data, to.data, from.elements, from.type, small_op,
                                      stream.pointer());
    });
}

void broadcast(const Gpu &gpu, nb::handle data, Integer root, Integer stream) {
    const DeviceArgument array = read_device_array(data, "data", gpu.handle->device);
    const std::int32_t small_root = root.small("root");
    gpu.run([&](vescomm_gpu_comm_t *on) {
        return vescomm_gpu_broadcast(on, array.data, array.elements, array.type, small_root,
                                     stream.pointer());
    });
}

// A list with a number for each rank.
const std::int64_t *each_rank(const Gpu &gpu, const Integers &numbers, const std::string &name) {
    const auto ranks = static_cast<std::size_t>(gpu.handle->comm->ranks());
    if (numbers.values.size() != ranks)
        refuse(name + " has " + std::to_string(numbers.values.size()) + " numbers, and there are " +
               std::to_string(ranks) + " ranks");
    return numbers.values.data();
}

// One side of an exchange.
struct Blocks {
    DeviceArgument array;
    const std::int64_t *counts, *offsets;
};

Blocks blocks_of(const Gpu &gpu, nb::handle array, const std::string &name, const Integers &counts,
                 const std::optional<Integers> &offsets) {
    Blocks made{read_device_array(array, name.c_str(), gpu.handle->device),
                each_rank(gpu, counts, name + "_counts"), nullptr};
    if (offsets) made.offsets = each_rank(gpu, *offsets, name + "_offsets");
    std::int64_t next = 0;
    for (std::size_t k = 0; k < counts.values.size(); ++k) {
        const std::int64_t begin = offsets ? offsets->values[k] : next, count = counts.values[k];
        // As in C, an empty block may be anywhere.
        const bool outside =
            begin < 0 || begin > made.array.elements || count > made.array.elements - begin;
        if (count < 0 || (count > 0 && outside))
            refuse(name + " has " + std::to_string(made.array.elements) +
                   " elements, and the block of rank " + std::to_string(k) + " is " +
                   std::to_string(count) + " elements at offset " + std::to_string(begin));
        if (!offsets) next += count;
    }
    return made;
}

void all_to_all_v(const Gpu &gpu, nb::handle source, const Integers &source_counts,
                  nb::handle output, const Integers &output_counts,
                  const std::optional<Integers> &source_offsets,
                  const std::optional<Integers> &output_offsets, Integer stream) {
    const Blocks from = blocks_of(gpu, source, "source", source_counts, source_offsets);
    const Blocks to = blocks_of(gpu, output, "output", output_counts, output_offsets);
    require_type(to.array, "output", from.array, "source");
    gpu.run([&](vescomm_gpu_comm_t *on) {
        return vescomm_gpu_all_to_all_v(on, from.array.data, from.counts, from.offsets,
                                        to.array.data, to.counts, to.offsets, to.array.type,
                                        stream.pointer());
    });
}

void wait(const Gpu &gpu, Integer stream) {
    gpu.run([&](vescomm_gpu_comm_t *on) { return vescomm_gpu_wait(on, stream.pointer()); });
}

void order_stream(const Gpu &gpu, Integer stream) {
    gpu.run([&](vescomm_gpu_comm_t *on) { return vescomm_gpu_order_stream(on, stream.pointer()); });
}

void check_gpu(const Gpu &gpu) {
    gpu.run([](vescomm_gpu_comm_t *on) { return vescomm_gpu_comm_check(on); });
}

nb::str explain(const Gpu &gpu, const Layout &layout, ElementType type, bool reduces) {
    const char *text = nullptr;
    const std::int32_t small_type = type.small("type");
    gpu.run([&](vescomm_gpu_comm_t *on) {
        return vescomm_gpu_explain(on, layout.get(), small_type, reduces ? 1 : 0, &text);
    });
    return to_str(text);
}

std::uintptr_t gpu_malloc(const Gpu &gpu, std::uint64_t bytes) {
    void *memory = nullptr;
    gpu.run([&](vescomm_gpu_comm_t *on) { return vescomm_gpu_malloc(on, bytes, &memory); });
    return reinterpret_cast<std::uintptr_t>(memory);
}

void gpu_mfree(const Gpu &gpu, Integer address) {
    gpu.run([&](vescomm_gpu_comm_t *on) { return vescomm_gpu_mfree(on, address.pointer()); });
}

}  // namespace

void define_gpu_comm(nb::module_ &module) {
    using nb::arg;
    nb::class_<CreatedGpu>(module, "CreatedGpuCommunicator");
    nb::class_<Gpu>(module, "GpuCommunicator", nb::is_weak_referenceable())
        .def("__init__", create_gpu, arg("comm"), arg("workspace_bytes"), arg("min_ctas"),
             arg("max_ctas"), arg("shrinkable"), arg("method").none(), arg("nccl_comm"),
             arg("nccl_config").none())
        .def("__init__", [](Gpu *self, const CreatedGpu &made) { new (self) Gpu{made.handle}; })
        .def("_split", split_gpu, arg().none(), arg(), arg(), arg(), arg(), arg().none(),
             arg().none())
        .def("_shrink", shrink_gpu, arg(), arg(), arg(), arg(), arg(), arg().none(), arg().none())
        .def_prop_ro(
            "derived", [](const Gpu &gpu) { return info_of(*gpu.handle).derived != 0; },
            docs::gpu_derived)
        .def_prop_ro(
            "device", [](const Gpu &gpu) { return gpu.handle->device; }, docs::gpu_device)
        .def("_all_gather_v", all_gather_v, arg(), arg(), arg().none(), arg())
        .def("_reduce_scatter_v", reduce_scatter_v, arg(), arg(), arg().none(), arg(), arg())
        .def("_all_reduce", all_reduce, arg(), arg().none(), arg(), arg())
        .def("_broadcast", broadcast)
        .def("_all_to_all_v", all_to_all_v, arg(), arg(), arg(), arg(), arg().none(), arg().none(),
             arg())
        .def("_wait", wait)
        .def("_order_stream", order_stream)
        .def("check", check_gpu, docs::gpu_check)
        .def("_explain", explain)
        .def("malloc", gpu_malloc, docs::gpu_malloc, arg("bytes"))
        .def("mfree", gpu_mfree, docs::gpu_mfree, arg("address"))
        .def(
            "free", [](const Gpu &gpu) { gpu.handle->free(); }, docs::gpu_free);
    module.def("gpu_check_support", check_support);
}

}  // namespace vescomm::python

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_buffer.h"

#include <algorithm>

#include "base/types.h"
#include "comm/agree.h"
#include "comm/same_layout.h"
#include "execute/kernels.h"
#include "gpu/device_arguments.h"

namespace vescomm::internal {
namespace {

// Buffers in memory of the caller begin at multiples of this, as allocations of CUDA do.
constexpr std::uint64_t offset_alignment = 256;

std::string number(std::uint64_t value) {
    return std::to_string(value);
}

// Checks that the buffer lies in the memory.
void check_memory(const std::string &label, const DeviceMemory *memory, std::uint64_t offset,
                  std::uint64_t bytes) {
    if (memory == nullptr)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    label +
                        ": no memory of vescomm_gpu_malloc() on this communicator begins at "
                        "the address in the member memory of the options");
    if (offset % offset_alignment != 0)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, label + ": offset_bytes is " + number(offset) +
                                                        ", and must be a multiple of " +
                                                        number(offset_alignment));
    if (offset <= memory->bytes && bytes <= memory->bytes - offset) return;
    throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                label + ": " + number(bytes) + " bytes at " + number(offset) +
                    " do not fit into its memory of " + number(memory->bytes) +
                    " bytes; vescomm_gpu_buffer_get_bytes() returns the number of bytes");
}

}  // namespace

DevicePlacement DeviceBuffer::place(const char *function, const Layout &layout,
                                    const Options &options) {
    device::check_type(function, options.type);
    DevicePlacement placement(
        layout, size_of(options.type),
        options.strided ? DevicePlacement::Kind::strided : DevicePlacement::Kind::packed);
    const auto rank = placement.unaligned();
    if (!rank || options.any_cuts) return placement;
    device::refuse(function, "the shard of rank " + std::to_string(*rank) + " of buffer \"" +
                                 options.name + "\" begins at byte " +
                                 number(placement.begin(*rank)) +
                                 ", which is no multiple of 16, and NCCL is several times slower "
                                 "there; choose other blocks, or VESCOMM_GPU_STRIDED, or set "
                                 "any_cuts to 1");
}

std::unique_ptr<DeviceBuffer> DeviceBuffer::create(std::shared_ptr<DeviceCommunicator> comm,
                                                   const Layout &layout, Options options) {
    const char *function = "vescomm_gpu_buffer_create";
    comm->check_call(function);
    device::check_layout(function, *comm, layout);
    DevicePlacement placement = place(function, layout, options);
    const std::string label = "creation of device buffer \"" + options.name + "\"";
    DeviceMemory *memory = nullptr;
    if (options.memory != nullptr) {
        memory = comm->find_memory(options.memory);
        check_memory(label, memory, options.offset_bytes, placement.size());
    }
    comm->begin_call({.kind = DeviceCall::Kind::create_buffer});
    const Deadline deadline = comm->comm().deadline();
    require_same_layout(comm->comm(), label, deadline, layout);
    require_same(comm->comm(), label, deadline,
                 {{"its type", name_of_type(options.type)},
                  {"its placement", options.strided ? "strided" : "packed"},
                  {"its memory", memory != nullptr ? "allocation " + number(memory->number)
                                                   : std::string("its own")},
                  {"its offset_bytes", number(memory != nullptr ? options.offset_bytes : 0)}});
    std::unique_ptr<DeviceBuffer> made(
        new DeviceBuffer(comm, layout, std::move(options), std::move(placement)));
    if (memory != nullptr)
        made->data_ = static_cast<char *>(made->options_.memory) + made->options_.offset_bytes;
    else made->data_ = static_cast<char *>(comm->allocate(made->placement_.size()));
    ++comm->find_memory(made->memory())->buffers;
    made->number_ = comm->number_buffer(made->name() != Options().name ? made->name() : "");
    return made;
}

void DeviceBuffer::free() {
    const auto comm = comm_.lock();
    if (!comm || data_ == nullptr) return;
    if (options_.memory == nullptr) comm->free(data_, 1, place());
    else --comm->find_memory(memory())->buffers;
    data_ = nullptr;
}

std::shared_ptr<DeviceCommunicator> DeviceBuffer::comm(const char *function) const {
    auto comm = comm_.lock();
    if (!comm)
        device::refuse(function, "the communicator of buffer \"" + name() +
                                     "\" was freed, and its memory with it; free buffers first");
    return comm;
}

char *DeviceBuffer::tensor(const char *function, std::size_t index) const {
    const auto tensors = layout_.tensors();
    if (index >= tensors.size())
        device::refuse(function, "index is " + std::to_string(index) + ", and buffer \"" + name() +
                                     "\" has " + std::to_string(tensors.size()) + " tensors");
    const Layout::Tensor &tensor = tensors[index];
    const auto bytes = [&](std::int64_t elements) {
        return static_cast<std::uint64_t>(elements) * placement_.element();
    };
    if (!placement_.strided()) return data_ + bytes(tensor.offset);
    // The last shard that begins at or before the tensor has its first element.
    const auto cuts = layout_.cuts().first(layout_.cuts().size() - 1);
    const auto rank =
        static_cast<int>(std::upper_bound(cuts.begin(), cuts.end(), tensor.offset) - cuts.begin()) -
        1;
    const Layout::Shard shard = layout_.shard(rank);
    if (tensor.offset + tensor.elements > shard.end)
        device::refuse(function,
                       "tensor \"" + tensor.name + "\" of buffer \"" + name() +
                           "\" has elements of rank " + std::to_string(rank) +
                           " and of later ranks, and strided shards have gaps between them; use "
                           "vescomm_gpu_buffer_get_shard() and vescomm_layout_get_piece(), "
                           "or VESCOMM_GPU_PACKED");
    return this->shard(rank) + bytes(tensor.offset - shard.begin);
}

DeviceProblem DeviceBuffer::problem(const DeviceCommunicator &comm, bool reduces) const {
    DeviceProblem problem = device::problem_of(comm, placement_, reduces);
    problem.no_peers = comm.why_no_peers();
    problem.lone_buffer = comm.ranks() == 1;
    problem.borrowed = comm.options().borrowed != nullptr;
    problem.reproducible =
        comm.comm().reproducible() && comm.ranks() > 1 && is_float(options_.type);
    if (problem.no_peers.empty() && comm.find_memory(memory())->peers.empty())
        problem.no_peers = "not all ranks can address one another's memory";
    return problem;
}

std::vector<char *> DeviceBuffer::peers(DeviceCommunicator &comm) const {
    std::vector<char *> all = comm.find_memory(memory())->peers;
    for (char *&one : all) one += data_ - static_cast<char *>(memory());
    return all;
}

DeviceMethod DeviceBuffer::method(const DeviceCommunicator &comm, bool reduces) {
    auto &method = methods_[reduces ? 1 : 0];
    if (!method) method = choose_device_method(problem(comm, reduces)).method;
    return *method;
}

std::string DeviceBuffer::explain(DeviceCommunicator &comm, bool reduces) const {
    const DeviceProblem problem = this->problem(comm, reduces);
    const DeviceMemory *memory = comm.find_memory(this->memory());
    std::string text = "buffer \"" + name() + "\": " + number(placement_.size()) + " bytes of " +
                       name_of_type(type()) + ", " + (placement_.strided() ? "strided" : "packed");
    if (placement_.stride() != 0)
        text += ", shards at multiples of " + number(placement_.stride()) + " bytes";
    text +=
        memory->window != nullptr
            ? "; a window of NCCL, symmetric if NCCL has symmetric memory between these devices"
        : memory->registration != nullptr
            ? "; registered with the communicator, because NCCL has no symmetric memory between "
              "these devices"
            : "; not registered: NCCL does not register memory on these devices";
    return text + "\n" + to_string(problem, choose_device_method(problem));
}

}  // namespace vescomm::internal

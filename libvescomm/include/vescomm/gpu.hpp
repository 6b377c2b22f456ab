// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Device memory for C++20: owners for the objects of gpu.h, and exceptions for its statuses. Header
// only; it needs no header of CUDA. gpu.h documents each call and its errors at the C function
// whose name contains that of the C++ function: vescomm_gpu_comm_check() for Communicator::check(),
// vescomm_gpu_buffer_get_shard() for Buffer::shard(). All of it is experimental, as gpu.h is.
// gpu_kernels.hpp has the kernels.
//
//     cudaSetDevice(local_rank);
//     vescomm::gpu::Communicator device(comm);  // comm: a vescomm::Communicator
//     auto bf16 = vescomm_gpu_buffer_options_init();
//     bf16.type = VESCOMM_BF16;
//     vescomm::gpu::Buffer parameters(device, layout, bf16);
//     parameters.all_gather_v(stream);
//     forward<<<grid, block, 0, stream>>>(parameters.tensor(0).as<__nv_bfloat16>(), ...);
//     device.wait(stream);
//
// A stream is a cudaStream_t; nullptr is the legacy default stream. A call follows the earlier work
// of its stream, and returns before it is complete. Calls on one communicator must be ordered: on
// one stream, by events, or by order_stream().
//
// A failed call throws vescomm::Error. An array that is too short, or of another type, throws
// std::invalid_argument before the call.
//
// Owners can be moved, not copied. An owner frees its object in its destructor, after the work of
// the device: work that runs never uses memory that an owner has freed. A destructor throws
// nothing. Memory that cannot be freed, because the work hangs until the timeout or a stream of the
// device is captured, stays until the communicator is freed, and at most until the process ends.
// free() does the same and throws the error. Destroy graphs that captured calls before the
// communicator, and do not launch them after a buffer of theirs is freed.
//
// Constructors and destructors are collective: all ranks create and destroy owners in the same
// order. Therefore, if an exception leaves the scope of an owner, the destructor first aborts the
// host's communicator on all ranks, so that it waits for no rank. An exception that is caught
// within the scope does not abort it.
//
// The handle of the host's communicator, which may move to another owner, must outlive all owners
// here. Buffer and Memory may outlive the gpu::Communicator, which frees their memory: a Buffer
// then refuses all calls, and data() of a Memory is no longer valid.
#ifndef VESCOMM_GPU_HPP
#define VESCOMM_GPU_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "vescomm/gpu.h"
#include "vescomm/vescomm.hpp"

namespace vescomm::gpu {
// The version of the symbols; invisible to callers.
inline namespace v0 {

// Elements at a device address. A view: it owns nothing, and the host cannot access them.
struct Array {
    void *data = nullptr;
    std::int64_t elements = 0;
    vescomm_type_t type = VESCOMM_F32;

    Array() = default;
    Array(void *address, std::int64_t count, vescomm_type_t its_type) noexcept
        : data(address), elements(count), type(its_type) {}
    // The type is deduced; see type_of().
    template <typename T>
    requires(!std::is_const_v<T>) Array(T *address, std::int64_t count)
        : Array(address, count, type_of<T>()) {}

    // The device address as T *. T has the size of the elements, or one byte.
    template <typename T>
    T *as() const {
        if (sizeof(T) != 1 && sizeof(T) != vescomm_type_get_bytes(type))
            throw std::invalid_argument("a device array of elements of " +
                                        std::to_string(vescomm_type_get_bytes(type)) +
                                        " bytes is seen as one of " + std::to_string(sizeof(T)) +
                                        " bytes; use a C++ type of that size");
        return static_cast<T *>(data);
    }
};

// An array that a call only reads.
struct ConstArray {
    const void *data = nullptr;
    std::int64_t elements = 0;
    vescomm_type_t type = VESCOMM_F32;

    ConstArray() = default;
    ConstArray(const void *address, std::int64_t count, vescomm_type_t its_type) noexcept
        : data(address), elements(count), type(its_type) {}
    template <typename T>
    ConstArray(const T *address, std::int64_t count) noexcept
        : ConstArray(address, count, type_of<T>()) {}
    ConstArray(const Array &array) noexcept : ConstArray(array.data, array.elements, array.type) {}
};

// Returns the version of NCCL, such as 22809 for 2.28.9. Throws an Error of
// VESCOMM_ERROR_UNSUPPORTED if device memory cannot be used.
inline std::int32_t check_support() {
    std::int32_t version = 0;
    vescomm::check(vescomm_gpu_check_support(&version));
    return version;
}

namespace detail {

// The object of a gpu::Communicator, to which Memory refers without owning it.
struct Device {
    Device() = default;
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;
    ~Device() { vescomm_gpu_comm_free(gpu); }

    vescomm_gpu_comm_t *gpu = nullptr;
    vescomm_comm_t *comm = nullptr;  // of the host
    std::int32_t rank = 0, ranks = 0;
};

// The place where an owner was created.
struct Scope {
    Scope() = default;
    explicit Scope(vescomm_comm_t *host) noexcept : comm(host) {}

    // Called by destructors. Aborts the host's communicator if an exception leaves the scope: the
    // other ranks do not come to the end of this owner.
    void leave() const noexcept {
        if (comm != nullptr && std::uncaught_exceptions() > exceptions)
            vescomm_comm_abort(comm,
                               "an exception left the scope of device memory on this rank; see the "
                               "output of that rank");
    }

    vescomm_comm_t *comm = nullptr;
    int exceptions = std::uncaught_exceptions();
};

inline void require_elements(const char *function, const char *what, const ConstArray &array,
                             std::int64_t needed) {
    if (array.elements < needed)
        throw std::invalid_argument(std::string(function) + ": " + what + " has " +
                                    std::to_string(array.elements) + " elements, and " +
                                    std::to_string(needed) + " are needed");
    // NULL has a meaning in C: in place.
    if (needed > 0 && array.data == nullptr)
        throw std::invalid_argument(std::string(function) + ": the address of " + what +
                                    " is NULL; it must be given");
}

inline void require_type(const char *function, const char *what, const ConstArray &array,
                         vescomm_type_t needed) {
    if (array.type != needed)
        throw std::invalid_argument(std::string(function) + ": " + what + " has elements of type " +
                                    std::to_string(array.type) + ", and type " +
                                    std::to_string(needed) + " is needed (vescomm_type_t)");
}

}  // namespace detail

// An NCCL communicator of the ranks of a vescomm::Communicator, each with its GPU.
class Communicator {
public:
    Communicator() = default;
    // On the current device of the calling thread.
    explicit Communicator(
        const vescomm::Communicator &comm,
        const vescomm_gpu_comm_options_t &options = vescomm_gpu_comm_options_init())
        : scope_(comm.get()) {
        auto made = std::make_shared<detail::Device>();
        made->comm = comm.get();
        made->rank = comm.rank();
        made->ranks = comm.ranks();
        vescomm::check(vescomm_gpu_comm_create(comm.get(), &options, &made->gpu));
        device_ = std::move(made);
    }

    vescomm_gpu_comm_info_t info() const {
        vescomm_gpu_comm_info_t info = vescomm_gpu_comm_info_init();
        vescomm::check(vescomm_gpu_comm_get_info(get(), &info));
        return info;
    }
    // A device communicator of the ranks of `comm`, which are ranks of this one, through
    // ncclCommSplit(). A rank whose `comm` is empty, as vescomm::Communicator::split() returns it
    // for a negative color, gets an empty one, whose get() returns nullptr. Collective over this
    // communicator, which stays usable.
    Communicator split(
        const vescomm::Communicator &comm,
        const vescomm_gpu_comm_options_t &options = vescomm_gpu_comm_options_init()) {
        return derived(comm, [&](vescomm_gpu_comm_t **made) {
            return vescomm_gpu_comm_split(get(), comm.get(), &options, made);
        });
    }
    // A device communicator of the survivors, as vescomm::Communicator::shrink() returns them,
    // through ncclCommShrink(). Destroy the buffers of this one afterwards.
    Communicator shrink(
        const vescomm::Communicator &survivors,
        const vescomm_gpu_comm_options_t &options = vescomm_gpu_comm_options_init()) {
        return derived(survivors, [&](vescomm_gpu_comm_t **made) {
            return vescomm_gpu_comm_shrink(get(), survivors.get(), &options, made);
        });
    }

    // Those of the host's communicator.
    int rank() const noexcept { return device_ ? device_->rank : 0; }
    int ranks() const noexcept { return device_ ? device_->ranks : 0; }

    void check() { vescomm::check(vescomm_gpu_comm_check(get())); }
    // Use it instead of cudaStreamSynchronize(), which reports no failure of another rank, and may
    // wait for it forever.
    void wait(void *stream = nullptr) { vescomm::check(vescomm_gpu_wait(get(), stream)); }
    // Later work of the stream waits for the collectives so far. The host does not wait.
    void order_stream(void *stream) { vescomm::check(vescomm_gpu_order_stream(get(), stream)); }

    // How all_gather_v() will run on device memory with a layout; with `reduces`,
    // reduce_scatter_v().
    std::string explain(const Layout &layout, vescomm_type_t type, bool reduces = false) const {
        const char *text = nullptr;
        vescomm::check(vescomm_gpu_explain(get(), layout.get(), type, reduces ? 1 : 0, &text));
        return text;
    }

    // Frees the communicator, with the memory of all buffers and of Memory on it, also if it
    // throws.
    void free() {
        if (!device_) return;
        const vescomm_status_t status = vescomm_gpu_comm_free(device_->gpu);
        device_->gpu = nullptr;
        device_.reset();
        vescomm::check(status);
    }

    vescomm_gpu_comm_t *get() const noexcept { return device_ ? device_->gpu : nullptr; }

    Communicator(Communicator &&) noexcept = default;
    Communicator &operator=(Communicator &&other) noexcept {
        std::swap(device_, other.device_);
        std::swap(scope_, other.scope_);
        return *this;
    }
    ~Communicator() {
        if (device_) scope_.leave();
    }

private:
    friend class Buffer;
    friend class Memory;

    template <typename Make>
    static Communicator derived(const vescomm::Communicator &comm, const Make &make) {
        auto device = std::make_shared<detail::Device>();
        device->comm = comm.get();
        if (comm.get() != nullptr) {
            device->rank = comm.rank();
            device->ranks = comm.ranks();
        }
        vescomm::check(make(&device->gpu));
        Communicator made;
        if (device->gpu == nullptr) return made;
        made.scope_ = detail::Scope(comm.get());
        made.device_ = std::move(device);
        return made;
    }

    // Never shared: those that refer to it have weak pointers.
    std::shared_ptr<detail::Device> device_;
    detail::Scope scope_;
};

// Registered device memory, for arrays of the program and for buffers at offsets. While buffers use
// it, it cannot be freed: destroy them first.
class Memory {
public:
    Memory() = default;
    // `bytes` is the same on every rank. The contents are undefined.
    Memory(const Communicator &device, std::uint64_t bytes)
        : device_(device.device_), scope_(device.scope_.comm) {
        vescomm::check(vescomm_gpu_malloc(device.get(), bytes, &data_));
    }

    // The device address, for Array and for `memory` of vescomm_gpu_buffer_options_t.
    void *data() const noexcept { return data_; }

    void free() {
        const auto device = device_.lock();
        if (device && data_ != nullptr) vescomm::check(vescomm_gpu_mfree(device->gpu, data_));
        data_ = nullptr;
    }

    Memory(Memory &&other) noexcept { swap(other); }
    Memory &operator=(Memory &&other) noexcept {
        swap(other);
        return *this;
    }
    ~Memory() {
        const auto device = device_.lock();
        if (!device || data_ == nullptr) return;
        scope_.leave();
        vescomm_gpu_mfree(device->gpu, data_);
    }

private:
    void swap(Memory &other) noexcept {
        std::swap(device_, other.device_);
        std::swap(scope_, other.scope_);
        std::swap(data_, other.data_);
    }

    // Expired: the communicator was freed, and has freed the memory.
    std::weak_ptr<detail::Device> device_;
    detail::Scope scope_;
    void *data_ = nullptr;
};

// A layout in registered device memory: tensors and shards at stable device addresses.
class Buffer {
public:
    Buffer() = default;
    Buffer(const Communicator &device, const Layout &layout,
           const vescomm_gpu_buffer_options_t &options = vescomm_gpu_buffer_options_init())
        : scope_(device.scope_.comm), rank_(device.rank()) {
        vescomm_gpu_buffer_t *made = nullptr;
        vescomm::check(vescomm_gpu_buffer_create(device.get(), layout.get(), &options, &made));
        owner_ = Owner(made);
        if (options.type != VESCOMM_TYPE_DEFAULT) type_ = options.type;
    }

    // The bytes of device memory that a buffer needs.
    static std::uint64_t bytes(const Layout &layout, const vescomm_gpu_buffer_options_t &options =
                                                         vescomm_gpu_buffer_options_init()) {
        std::uint64_t bytes = 0;
        vescomm::check(vescomm_gpu_buffer_get_bytes(layout.get(), &options, &bytes));
        return bytes;
    }

    Array data() const {
        vescomm_view_t view;
        vescomm::check(vescomm_gpu_buffer_get_data(get(), &view));
        return array(view);
    }
    Array tensor(std::size_t index) const {
        vescomm_view_t view;
        vescomm::check(vescomm_gpu_buffer_get_tensor(get(), index, &view));
        return array(view);
    }
    // The shard of a rank in the memory of this one.
    Array shard(std::int32_t rank) const {
        vescomm_view_t view;
        vescomm::check(vescomm_gpu_buffer_get_shard(get(), rank, &view));
        return array(view);
    }
    // The shard of this rank.
    Array shard() const { return shard(rank_); }

    // In place.
    void all_gather_v(void *stream = nullptr) {
        vescomm_gpu_buffer_t *const one = get();
        vescomm::check(vescomm_gpu_buffer_all_gather_v(&one, 1, stream));
    }
    void reduce_scatter_v(vescomm_op_t op = VESCOMM_SUM, void *stream = nullptr) {
        vescomm_gpu_buffer_t *const one = get();
        vescomm::check(vescomm_gpu_buffer_reduce_scatter_v(&one, 1, op, stream));
    }

    // How all_gather_v() will run on it, and its memory; with `reduces`, reduce_scatter_v().
    std::string explain(bool reduces = false) const {
        const char *text = nullptr;
        vescomm::check(vescomm_gpu_buffer_explain(get(), reduces ? 1 : 0, &text));
        return text;
    }

    // After an error the buffer still exists.
    void free() {
        vescomm::check(vescomm_gpu_buffer_free(get()));
        owner_.release();
    }

    vescomm_gpu_buffer_t *get() const noexcept { return owner_.get(); }

    Buffer(Buffer &&) noexcept = default;
    Buffer &operator=(Buffer &&other) noexcept {
        owner_ = std::move(other.owner_);
        std::swap(scope_, other.scope_);
        std::swap(rank_, other.rank_);
        std::swap(type_, other.type_);
        return *this;
    }
    ~Buffer() {
        if (owner_) scope_.leave();
    }

private:
    Array array(const vescomm_view_t &view) const noexcept {
        return {view.data, view.elements, type_};
    }

    using Owner = vescomm::detail::Owner<vescomm_gpu_buffer_t, vescomm_gpu_buffer_free>;
    Owner owner_;
    detail::Scope scope_;
    std::int32_t rank_ = 0;
    vescomm_type_t type_ = VESCOMM_F32;
};

// Collectives in place on several buffers, given by get(), in one group of NCCL.
inline void all_gather_v(std::span<vescomm_gpu_buffer_t *const> buffers, void *stream = nullptr) {
    check(vescomm_gpu_buffer_all_gather_v(buffers.data(), buffers.size(), stream));
}
inline void all_gather_v(std::initializer_list<vescomm_gpu_buffer_t *> buffers,
                         void *stream = nullptr) {
    all_gather_v(std::span(buffers.begin(), buffers.size()), stream);
}
inline void reduce_scatter_v(std::span<vescomm_gpu_buffer_t *const> buffers,
                             vescomm_op_t op = VESCOMM_SUM, void *stream = nullptr) {
    check(vescomm_gpu_buffer_reduce_scatter_v(buffers.data(), buffers.size(), op, stream));
}
inline void reduce_scatter_v(std::initializer_list<vescomm_gpu_buffer_t *> buffers,
                             vescomm_op_t op = VESCOMM_SUM, void *stream = nullptr) {
    reduce_scatter_v(std::span(buffers.begin(), buffers.size()), op, stream);
}

// Collectives on any device memory. It must exist until the work is complete.

// `source`: the shard of this rank. `output`: all elements of the layout.
inline void all_gather_v(const Communicator &device, ConstArray source, Array output,
                         const Layout &layout, void *stream = nullptr) {
    const auto [begin, end] = layout.shard(device.rank());
    detail::require_elements("gpu::all_gather_v", "source", source, end - begin);
    detail::require_elements("gpu::all_gather_v", "output", output, layout.info().elements);
    detail::require_type("gpu::all_gather_v", "source", source, output.type);
    check(vescomm_gpu_all_gather_v(device.get(), layout.get(), output.type, source.data,
                                   output.data, stream));
}

// In place.
inline void all_gather_v(const Communicator &device, Array data, const Layout &layout,
                         void *stream = nullptr) {
    detail::require_elements("gpu::all_gather_v", "data", data, layout.info().elements);
    check(vescomm_gpu_all_gather_v(device.get(), layout.get(), data.type, nullptr, data.data,
                                   stream));
}

// `source`: all elements of the layout. `output`: the shard of this rank.
inline void reduce_scatter_v(const Communicator &device, ConstArray source, Array output,
                             const Layout &layout, vescomm_op_t op = VESCOMM_SUM,
                             void *stream = nullptr) {
    const auto [begin, end] = layout.shard(device.rank());
    detail::require_elements("gpu::reduce_scatter_v", "source", source, layout.info().elements);
    detail::require_elements("gpu::reduce_scatter_v", "output", output, end - begin);
    detail::require_type("gpu::reduce_scatter_v", "output", output, source.type);
    // The call writes to the source only in place.
    check(vescomm_gpu_reduce_scatter_v(device.get(), layout.get(), source.type, op,
                                       const_cast<void *>(source.data), output.data, stream));
}

// In place. The elements of other shards are undefined afterwards.
inline void reduce_scatter_v(const Communicator &device, Array data, const Layout &layout,
                             vescomm_op_t op = VESCOMM_SUM, void *stream = nullptr) {
    detail::require_elements("gpu::reduce_scatter_v", "data", data, layout.info().elements);
    check(vescomm_gpu_reduce_scatter_v(device.get(), layout.get(), data.type, op, data.data,
                                       nullptr, stream));
}

inline void all_reduce(const Communicator &device, ConstArray source, Array output,
                       vescomm_op_t op = VESCOMM_SUM, void *stream = nullptr) {
    detail::require_elements("gpu::all_reduce", "output", output, source.elements);
    detail::require_type("gpu::all_reduce", "output", output, source.type);
    check(vescomm_gpu_all_reduce(device.get(), source.data, output.data, source.elements,
                                 source.type, op, stream));
}

// In place.
inline void all_reduce(const Communicator &device, Array data, vescomm_op_t op = VESCOMM_SUM,
                       void *stream = nullptr) {
    all_reduce(device, data, data, op, stream);
}

inline void broadcast(const Communicator &device, Array data, std::int32_t root = 0,
                      void *stream = nullptr) {
    check(vescomm_gpu_broadcast(device.get(), data.data, data.elements, data.type, root, stream));
}

namespace detail {

// The sum of a list with a count for each rank.
inline std::int64_t sum(const char *function, const Communicator &device,
                        std::span<const std::int64_t> counts) {
    const auto ranks = static_cast<std::size_t>(device.ranks());
    if (counts.size() != ranks)
        throw std::invalid_argument(std::string(function) + ": there are " +
                                    std::to_string(counts.size()) + " counts for " +
                                    std::to_string(ranks) + " ranks");
    std::int64_t sum = 0;
    // The C function refuses negative and large counts.
    for (const std::int64_t count : counts)
        if (count > 0) sum += std::min(count, INT64_MAX - sum);
    return sum;
}

}  // namespace detail

// Blocks lie one after another, in the order of ranks.
inline void all_to_all_v(const Communicator &device, ConstArray source,
                         std::span<const std::int64_t> source_counts, Array output,
                         std::span<const std::int64_t> output_counts, void *stream = nullptr) {
    const char *function = "gpu::all_to_all_v";
    detail::require_elements(function, "source", source,
                             detail::sum(function, device, source_counts));
    detail::require_elements(function, "output", output,
                             detail::sum(function, device, output_counts));
    detail::require_type(function, "source", source, output.type);
    check(vescomm_gpu_all_to_all_v(device.get(), source.data, source_counts.data(), nullptr,
                                   output.data, output_counts.data(), nullptr, output.type,
                                   stream));
}

}  // namespace v0
}  // namespace vescomm::gpu

#endif

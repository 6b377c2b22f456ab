// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// vescomm for C++20: owners for the objects of vescomm.h, and exceptions for its statuses. Header
// only. vescomm.h documents each call and its errors at the C function whose name contains that of
// the C++ function: vescomm_layout_get_shard() for Layout::shard(), vescomm_layout_find_tensor()
// for Layout::find(). start_trace(), write_trace() and write_flight_recorder() of Communicator call
// vescomm_trace_start(), vescomm_trace_write() and vescomm_flight_recorder_write(). Request::run()
// is start() and wait(). group() calls vescomm_group_begin() and vescomm_group_end().
//
// A failed call throws vescomm::Error. A range that is too short throws std::invalid_argument
// before the call. An owner frees its object in its destructor. Owners can be moved, not copied. A
// move assignment swaps the objects: the old object of the target is freed when the source is
// destroyed, so immediately if the source is a temporary.
//
// Some functions have no wrapper. Call the C function with get() for
//
// - vescomm_comm_create_from_all_gather(); Communicator(handle) then owns the result;
// - calls on arrays with offsets, with options (factor, algorithm), or of type bf16, f16 or f8; the
//   caller frees the request of such a call;
// - vescomm_trace_add_span(), vescomm_trace_add_span_with(), and functions without an object, such
//   as vescomm_set_log().
#ifndef VESCOMM_VESCOMM_HPP
#define VESCOMM_VESCOMM_HPP

#if __cplusplus < 202002L
#error "vescomm.hpp needs C++20, for std::span and concepts; use vescomm.h in C++17"
#endif

#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <limits>
#include <new>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "vescomm/vescomm.h"

namespace vescomm {
// The version of the symbols; invisible to callers.
inline namespace v0 {

// A negative status, with the error text of vescomm_get_last_error().
class Error : public std::runtime_error {
public:
    explicit Error(vescomm_status_t status)
        : std::runtime_error(vescomm_get_last_error()), status_(status) {}
    Error(vescomm_status_t status, const char *why) : std::runtime_error(why), status_(status) {}

    vescomm_status_t status() const noexcept { return status_; }

private:
    vescomm_status_t status_;
};

// Throws Error if the status is an error.
inline void check(vescomm_status_t status) {
    if (status < 0) throw Error(status);
}

namespace detail {

// Owns one C object.
template <typename Object, vescomm_status_t (*free_object)(Object *)>
class Owner {
public:
    Owner() = default;
    explicit Owner(Object *object) noexcept : object_(object) {}
    Owner(Owner &&other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    Owner &operator=(Owner &&other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }
    ~Owner() { free_object(object_); }

    Object *get() const noexcept { return object_; }
    // Gives up the object, which the caller has freed.
    void release() noexcept { object_ = nullptr; }
    explicit operator bool() const noexcept { return object_ != nullptr; }

private:
    Object *object_ = nullptr;
};

}  // namespace detail

// One tensor of a layout; see vescomm_tensor_t.
struct Tensor {
    std::string name;
    std::vector<std::int64_t> shape;
    std::int64_t offset = 0;
    std::int64_t block = 1;
    std::int32_t batch_dimensions = 0;

    // The largest number of the type if there are more; no layout has such a tensor.
    std::int64_t elements() const {
        constexpr std::int64_t max = std::numeric_limits<std::int64_t>::max();
        std::int64_t product = 1;
        for (const std::int64_t extent : shape) {
            if (extent <= 0) return 0;
            product = extent > max / product ? max : product * extent;
        }
        return product;
    }
};

namespace detail {
class Started;
}

// Places of tensors and shards in a fused buffer.
class Layout {
public:
    Layout() = default;
    explicit Layout(vescomm_layout_t *owned) noexcept : owner_(owned) {}

    // `cuts` has ranks + 1 elements.
    Layout(const std::vector<Tensor> &tensors, std::int64_t elements,
           std::span<const std::int64_t> cuts) {
        std::vector<vescomm_tensor_t> plain;
        plain.reserve(tensors.size());
        for (const Tensor &tensor : tensors) {
            vescomm_tensor_t one = vescomm_tensor_init();
            one.name = tensor.name.c_str();
            one.shape = tensor.shape.data();
            one.dimensions = static_cast<std::int32_t>(tensor.shape.size());
            one.offset = tensor.offset;
            one.block = tensor.block;
            one.batch_dimensions = tensor.batch_dimensions;
            plain.push_back(one);
        }
        const auto ranks = static_cast<std::int32_t>(cuts.size()) - 1;
        vescomm_layout_t *made = nullptr;
        check(
            vescomm_layout_create(plain.data(), plain.size(), elements, cuts.data(), ranks, &made));
        owner_ = Owner(made);
    }

    static Layout from_counts(std::span<const std::int64_t> counts) {
        vescomm_layout_t *made = nullptr;
        check(vescomm_layout_create_from_counts(counts.data(),
                                                static_cast<std::int32_t>(counts.size()), &made));
        return Layout(made);
    }

    vescomm_layout_info_t info() const {
        vescomm_layout_info_t info = vescomm_layout_info_init();
        check(vescomm_layout_get_info(get(), &info));
        return info;
    }

    // The shard of a rank: elements [first, second) of the buffer.
    std::pair<std::int64_t, std::int64_t> shard(std::int32_t rank) const {
        std::pair<std::int64_t, std::int64_t> range;
        check(vescomm_layout_get_shard(get(), rank, &range.first, &range.second));
        return range;
    }

    Tensor tensor(std::size_t index) const {
        vescomm_tensor_t plain = vescomm_tensor_init();
        check(vescomm_layout_get_tensor(get(), index, &plain));
        return {plain.name, std::vector<std::int64_t>(plain.shape, plain.shape + plain.dimensions),
                plain.offset, plain.block, plain.batch_dimensions};
    }

    std::size_t find(const std::string &name) const {
        std::size_t index = 0;
        check(vescomm_layout_find_tensor(get(), name.c_str(), &index));
        return index;
    }

    std::vector<vescomm_piece_t> pieces(std::int32_t rank) const {
        std::size_t count = 0;
        check(vescomm_layout_get_pieces(get(), rank, nullptr, 0, &count));
        std::vector<vescomm_piece_t> pieces(count);
        check(vescomm_layout_get_pieces(get(), rank, pieces.data(), count, &count));
        return pieces;
    }

    // The part of one tensor that a rank owns; it may have no elements.
    vescomm_piece_t piece(std::size_t tensor, std::int32_t rank) const {
        vescomm_piece_t piece{};
        check(vescomm_layout_get_piece(get(), tensor, rank, &piece));
        return piece;
    }

    // Consecutive elements of a tensor as boxes. A box is its start in every dimension, then its
    // extent in every dimension.
    std::vector<std::vector<std::int64_t>> boxes(std::size_t tensor, std::int64_t first,
                                                 std::int64_t elements) const {
        std::size_t count = 0;
        check(vescomm_layout_get_boxes(get(), tensor, first, elements, nullptr, 0, &count));
        vescomm_tensor_t plain = vescomm_tensor_init();
        check(vescomm_layout_get_tensor(get(), tensor, &plain));
        const std::size_t numbers = 2 * static_cast<std::size_t>(plain.dimensions);
        std::vector<std::int64_t> flat(count * numbers);
        check(vescomm_layout_get_boxes(get(), tensor, first, elements, flat.data(), count, &count));
        std::vector<std::vector<std::int64_t>> boxes;
        for (auto at = flat.begin(); boxes.size() < count; at += static_cast<long>(numbers))
            boxes.emplace_back(at, at + static_cast<long>(numbers));
        return boxes;
    }

    // Returns the serialised layout. Sizes here and in parse() are in bytes.
    std::vector<std::byte> serialise() const {
        std::size_t size = 0;
        check(vescomm_layout_serialise(get(), nullptr, 0, &size));
        std::vector<std::byte> bytes(size);
        check(vescomm_layout_serialise(get(), bytes.data(), size, &size));
        return bytes;
    }

    static Layout parse(std::span<const std::byte> bytes) {
        vescomm_layout_t *made = nullptr;
        check(vescomm_layout_parse(bytes.data(), bytes.size(), &made));
        return Layout(made);
    }

    vescomm_layout_t *get() const noexcept { return owner_.get(); }

private:
    using Owner = detail::Owner<vescomm_layout_t, vescomm_layout_free>;
    Owner owner_;
};

// The ranks that work together. Call finalize() before the destructor runs. Otherwise the
// destructor is collective: it waits for all ranks, and cannot report an error.
class Communicator {
public:
    Communicator(std::int32_t rank, std::int32_t ranks, const std::string &address,
                 const std::string &secret, const vescomm_comm_options_t *options = nullptr) {
        vescomm_comm_t *made = nullptr;
        check(vescomm_comm_create(rank, ranks, address.c_str(), secret.c_str(), options, &made));
        owner_ = Owner(made);
    }

    static Communicator from_environment(const vescomm_comm_options_t *options = nullptr) {
        vescomm_comm_t *made = nullptr;
        check(vescomm_comm_create_from_environment(options, &made));
        return Communicator(made);
    }

    explicit Communicator(vescomm_comm_t *owned) noexcept : owner_(owned) {}

    // The ranks with the same color form a communicator. With a negative color the result is
    // empty: its get() returns nullptr.
    Communicator split(std::int32_t color, std::int32_t key = 0,
                       const vescomm_comm_options_t *options = nullptr) {
        vescomm_comm_t *made = nullptr;
        check(vescomm_comm_split(get(), color, key, options, &made));
        return Communicator(made);
    }

    Communicator dup(const vescomm_comm_options_t *options = nullptr) {
        vescomm_comm_t *made = nullptr;
        check(vescomm_comm_dup(get(), options, &made));
        return Communicator(made);
    }

    // The surviving ranks form a communicator. This one is broken afterwards.
    Communicator shrink(std::span<const std::int32_t> failed = {}) {
        vescomm_comm_t *made = nullptr;
        check(vescomm_comm_shrink(get(), failed.data(), failed.size(), &made));
        return Communicator(made);
    }

    // Registered memory, see also Allocator.
    void *malloc(std::uint64_t bytes) {
        void *data = nullptr;
        check(vescomm_malloc(get(), bytes, &data));
        return data;
    }
    void mfree(void *data) { check(vescomm_mfree(get(), data)); }

    vescomm_comm_info_t info() const {
        vescomm_comm_info_t info = vescomm_comm_info_init();
        check(vescomm_comm_get_info(get(), &info));
        return info;
    }
    int rank() const { return info().rank; }
    int ranks() const { return info().ranks; }

    vescomm_comm_counters_t counters() const {
        vescomm_comm_counters_t counters = vescomm_comm_counters_init();
        check(vescomm_comm_get_counters(get(), &counters));
        return counters;
    }

    // The text of vescomm_comm_get_metrics(), without a terminating zero.
    std::string metrics() const {
        // The text may grow between two calls.
        std::size_t size = 4096;
        for (std::string text;;) {
            text.resize(size);
            check(vescomm_comm_get_metrics(get(), text.data(), text.size(), &size));
            if (size > text.size()) continue;
            text.resize(size - 1);
            return text;
        }
    }

    void barrier() { check(vescomm_barrier(get())); }
    void progress() { check(vescomm_comm_progress(get())); }
    void finalize() { check(vescomm_comm_finalize(get())); }
    void abort(const std::string &reason) { check(vescomm_comm_abort(get(), reason.c_str())); }

    void start_trace(std::uint64_t spans = 0) { check(vescomm_trace_start(get(), spans)); }
    void write_trace(const std::string &path) { check(vescomm_trace_write(get(), path.c_str())); }

    void write_flight_recorder(const std::string &path) const {
        check(vescomm_flight_recorder_write(get(), path.c_str()));
    }

    vescomm_comm_t *get() const noexcept { return owner_.get(); }

    Communicator(Communicator &&) noexcept = default;
    Communicator &operator=(Communicator &&) noexcept = default;
    // If an exception leaves the scope of the communicator, the destructor aborts the communicator
    // on all ranks: this rank will not make the calls that the others wait for. An exception that
    // is caught within the scope does not abort it, unless a Request or group() does.
    ~Communicator() {
        if (owner_ && std::uncaught_exceptions() > exceptions_)
            vescomm_comm_abort(
                get(), "an exception ended the program on this rank; see the output of that rank");
    }

private:
    using Owner = detail::Owner<vescomm_comm_t, vescomm_comm_free>;
    Owner owner_;
    int exceptions_ = std::uncaught_exceptions();
};

// Allocates registered memory, so that std::vector<float, vescomm::Allocator<float>> is an array
// that moves within a node without a copy in between. It stores the handle of the communicator, not
// the object: the handle must outlive the containers. An assignment frees the old handle, also
// comm = comm.shrink(); keep the old communicator under another name for as long as its containers
// exist.
template <typename T>
class Allocator {
public:
    using value_type = T;
    using propagate_on_container_copy_assignment = std::true_type;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;

    explicit Allocator(const Communicator &comm) noexcept : comm_(comm.get()) {}
    template <typename U>
    Allocator(const Allocator<U> &other) noexcept : comm_(other.comm()) {}

    T *allocate(std::size_t count) {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T))
            throw std::bad_array_new_length();
        void *data = nullptr;
        check(vescomm_malloc(comm_, count * sizeof(T), &data));
        return static_cast<T *>(data);
    }
    void deallocate(T *data, std::size_t) noexcept { vescomm_mfree(comm_, data); }

    vescomm_comm_t *comm() const noexcept { return comm_; }
    bool operator==(const Allocator &) const = default;

private:
    vescomm_comm_t *comm_;
};

// Bytes that several buffers may lie in.
class Memory {
public:
    Memory() = default;
    // `bytes` is the size of a slab. `partial_bytes`: for partial sums of requests on this memory.
    Memory(const Communicator &comm, std::uint64_t bytes, vescomm_sharing_t sharing,
           std::uint64_t partial_bytes = 0) {
        vescomm_memory_options_t options = vescomm_memory_options_init();
        options.bytes = bytes;
        options.sharing = sharing;
        options.partial_bytes = partial_bytes;
        vescomm_memory_t *made = nullptr;
        check(vescomm_memory_create(comm.get(), &options, &made));
        owner_ = Owner(made);
    }

    void *data() const {
        void *data = nullptr;
        check(vescomm_memory_get_data(get(), &data, nullptr));
        return data;
    }
    // Bytes of this rank for partial sums of requests on this memory.
    std::uint64_t partial_bytes() const {
        std::uint64_t bytes = 0;
        check(vescomm_memory_get_partial_bytes(get(), &bytes));
        return bytes;
    }

    vescomm_memory_t *get() const noexcept { return owner_.get(); }

private:
    using Owner = detail::Owner<vescomm_memory_t, vescomm_memory_free>;
    Owner owner_;
};

// Memory seen through a layout.
//
// T of data(), shard() and tensor() is a C++ type of the size of the buffer's elements, such as
// float for f32 and std::uint16_t for bf16. T may also be a type of one byte, such as std::byte, to
// get the address in a buffer of any type. The size of the span is the number of elements in both
// cases, not of bytes; vescomm_type_get_bytes() returns the bytes of an element. Types of another
// size throw std::invalid_argument.
//
// The destructor does not wait for requests. A Request keeps the memory of its buffer alive.
class Buffer {
public:
    Buffer() = default;
    Buffer(const Communicator &comm, const Layout &layout,
           const vescomm_buffer_options_t &options = vescomm_buffer_options_init()) {
        vescomm_buffer_t *made = nullptr;
        check(vescomm_buffer_create(comm.get(), layout.get(), &options, &made));
        owner_ = Owner(made);
        if (options.type != VESCOMM_TYPE_DEFAULT) type_ = options.type;
    }

    template <typename T>
    std::span<T> data() const {
        vescomm_view_t view;
        check(vescomm_buffer_get_data(get(), &view));
        return span<T>(view);
    }
    template <typename T>
    std::span<T> shard() const {
        vescomm_view_t view;
        check(vescomm_buffer_get_shard(get(), &view));
        return span<T>(view);
    }
    template <typename T>
    std::span<T> tensor(std::size_t index) const {
        vescomm_view_t view;
        check(vescomm_buffer_get_tensor(get(), index, &view));
        return span<T>(view);
    }

    void release() { check(vescomm_buffer_release(get())); }
    void acquire() { check(vescomm_buffer_acquire(get())); }

    vescomm_buffer_t *get() const noexcept { return owner_.get(); }

private:
    template <typename T>
    std::span<T> span(const vescomm_view_t &view) const {
        if (sizeof(T) != 1 && sizeof(T) != vescomm_type_get_bytes(type_))
            throw std::invalid_argument("a buffer of elements of " +
                                        std::to_string(vescomm_type_get_bytes(type_)) +
                                        " bytes is seen as one of " + std::to_string(sizeof(T)) +
                                        " bytes; use a C++ type of that size");
        return {static_cast<T *>(view.data), static_cast<std::size_t>(view.elements)};
    }

    using Owner = detail::Owner<vescomm_buffer_t, vescomm_buffer_free>;
    Owner owner_;
    vescomm_type_t type_ = VESCOMM_F32;
};

// A collective, a message, or a group of calls, created once and started many times.
//
// If the request is running, the destructor waits until it is complete, and throws no exception. If
// an exception leaves the scope of the running request, the destructor first aborts the
// communicator on all ranks, so that it does not wait for ranks that wait for this one. Wait for
// the request within the scope if the program is to catch the exception and go on with the
// communicator. A function of vescomm_set_interrupt() does not end the destructor's wait. If the
// wait fails, at the latest after the timeout, the communicator is broken. After the destructor
// nothing writes to the caller's arrays (source and output), also when the wait has failed. After a
// failed wait, however, other ranks of this node may still write to the request's buffer until they
// observe the failure. The buffer can be freed nevertheless: every process has its own mapping.
class Request {
public:
    Request() = default;

    static Request all_gather_v(
        const Communicator &comm, const Buffer &buffer,
        const vescomm_request_options_t &options = vescomm_request_options_init()) {
        return create(vescomm_all_gather_v_create, comm, buffer, options);
    }
    static Request reduce_scatter_v(
        const Communicator &comm, const Buffer &buffer,
        const vescomm_request_options_t &options = vescomm_request_options_init()) {
        return create(vescomm_reduce_scatter_v_create, comm, buffer, options);
    }
    static Request all_reduce(
        const Communicator &comm, const Buffer &buffer,
        const vescomm_request_options_t &options = vescomm_request_options_init()) {
        return create(vescomm_all_reduce_create, comm, buffer, options);
    }
    static Request broadcast(
        const Communicator &comm, const Buffer &buffer,
        const vescomm_request_options_t &options = vescomm_request_options_init()) {
        return create(vescomm_broadcast_create, comm, buffer, options);
    }
    static Request reduce(
        const Communicator &comm, const Buffer &buffer,
        const vescomm_request_options_t &options = vescomm_request_options_init()) {
        return create(vescomm_reduce_create, comm, buffer, options);
    }
    static Request barrier(const Communicator &comm) {
        vescomm_request_t *made = nullptr;
        check(vescomm_barrier_create(comm.get(), nullptr, &made));
        return Request(comm, made);
    }

    // `stream` must be nullptr: all memory here is host memory.
    void start(void *stream = nullptr) { check(vescomm_request_start(get(), stream)); }
    // Makes progress. Returns true when complete.
    bool test() {
        const vescomm_status_t status = vescomm_request_test(get());
        check(status);
        return status == VESCOMM_OK;
    }
    // Throws an Error of status VESCOMM_IN_PROGRESS if the function of vescomm_set_interrupt()
    // ended the wait. The request is then still running, and may be waited for again.
    void wait() { check_complete(vescomm_request_wait(get())); }
    // Makes progress on other communicators meanwhile. Throws as wait().
    void wait_with(std::span<vescomm_comm_t *const> comms) {
        check_complete(vescomm_request_wait_with(get(), comms.data(), comms.size()));
    }
    // Starts the request and waits for it. Throws as wait().
    void run() {
        start();
        wait();
    }
    std::string explain() const {
        const char *text = nullptr;
        check(vescomm_request_explain(get(), &text));
        return text;
    }

    // The sender and the tag of a message that the request has received. `index`: number of the
    // receive in a group, from 0.
    vescomm_message_info_t message(std::int32_t index = 0) const {
        auto info = vescomm_message_info_init();
        check(vescomm_request_get_message(get(), index, &info));
        return info;
    }

    vescomm_request_t *get() const noexcept { return owner_.get(); }

    Request(Request &&) noexcept = default;
    Request &operator=(Request &&other) noexcept {
        owner_ = std::move(other.owner_);
        std::swap(comm_, other.comm_);
        std::swap(exceptions_, other.exceptions_);
        return *this;
    }
    ~Request() {
        if (owner_ && std::uncaught_exceptions() > exceptions_ && running())
            vescomm_comm_abort(comm_,
                               "an exception left the scope of a running request on this rank; see "
                               "the output of that rank");
    }

private:
    Request(const Communicator &comm, vescomm_request_t *owned) noexcept
        : owner_(owned), comm_(comm.get()) {}
    friend class detail::Started;

    template <typename Create>
    static Request create(Create make, const Communicator &comm, const Buffer &buffer,
                          const vescomm_request_options_t &options) {
        vescomm_request_t *made = nullptr;
        check(make(comm.get(), buffer.get(), &options, &made));
        return Request(comm, made);
    }

    static void check_complete(vescomm_status_t status) {
        check(status);
        if (status == VESCOMM_IN_PROGRESS)
            throw Error(status,
                        "the wait for a request was interrupted; the request is still running");
    }

    bool running() const noexcept { return vescomm_request_test(get()) == VESCOMM_IN_PROGRESS; }

    static vescomm_status_t end(vescomm_request_t *request) {
        if (request == nullptr) return VESCOMM_OK;
        // All waits for one run have one deadline, so this ends.
        while (vescomm_request_wait(request) == VESCOMM_IN_PROGRESS) continue;
        return vescomm_request_free(request);
    }

    using Owner = detail::Owner<vescomm_request_t, end>;
    Owner owner_;
    // Valid while the request is running: finalizing a communicator completes its requests.
    vescomm_comm_t *comm_ = nullptr;
    int exceptions_ = std::uncaught_exceptions();
};

namespace detail {

// Moves the request that a call has started into the caller's Request, if the caller passed one.
class Started {
public:
    Started(const Communicator &comm, Request *request) noexcept : comm_(comm), request_(request) {}
    vescomm_request_t **slot() noexcept { return request_ != nullptr ? &made_ : nullptr; }
    void done(vescomm_status_t status) {
        check(status);
        if (request_ != nullptr) *request_ = Request(comm_, made_);
    }

private:
    const Communicator &comm_;
    Request *request_;
    vescomm_request_t *made_ = nullptr;
};

inline void require_elements(const char *function, const char *what, std::size_t there,
                             std::size_t needed) {
    if (there >= needed) return;
    throw std::invalid_argument(std::string(function) + ": " + what + " has " +
                                std::to_string(there) + " elements, and " + std::to_string(needed) +
                                " are needed");
}

inline std::size_t sum(std::span<const std::int64_t> counts) {
    std::size_t sum = 0;
    for (const std::int64_t count : counts) sum += static_cast<std::size_t>(count);
    return sum;
}

inline std::size_t ranks(const Communicator &comm) {
    return static_cast<std::size_t>(comm.ranks());
}

inline void require_ranks(const char *function, const Communicator &comm,
                          std::span<const std::int64_t> counts) {
    require_elements(function, "counts", counts.size(), ranks(comm));
}

}  // namespace detail

// The vescomm_type_t of a C++ type. An unsigned integer is an integer, never the bits of a float. A
// bool is VESCOMM_BOOL, which admits every byte. A C++ bool has the bytes 0 and 1 only: a program
// in another language must send no others to it.
template <typename T>
constexpr vescomm_type_t type_of() noexcept {
    using U = std::remove_const_t<T>;
    if constexpr (std::is_same_v<U, std::complex<float>>) {
        return VESCOMM_C64;
    } else if constexpr (std::is_same_v<U, std::complex<double>>) {
        return VESCOMM_C128;
    } else if constexpr (std::is_same_v<U, bool>) {
        return VESCOMM_BOOL;
    } else {
        static_assert(std::is_arithmetic_v<U> && sizeof(U) <= 8,
                      "no vescomm_type_t is deduced for this type; for bf16, f16 and f8 call the C "
                      "functions");
        if constexpr (std::is_floating_point_v<U>) {
            static_assert(sizeof(U) >= 4, "give the type of f16 and bf16 to the C functions");
            return sizeof(U) == 4 ? VESCOMM_F32 : VESCOMM_F64;
        }
        constexpr bool is_signed = std::is_signed_v<U>;
        switch (sizeof(U)) {
            case 1:
                return is_signed ? VESCOMM_I8 : VESCOMM_U8;
            case 2:
                return is_signed ? VESCOMM_I16 : VESCOMM_U16;
            case 4:
                return is_signed ? VESCOMM_I32 : VESCOMM_U32;
            default:
                return is_signed ? VESCOMM_I64 : VESCOMM_U64;
        }
    }
}

// Collectives on arrays of the caller; see the group "Collectives on arrays" of vescomm.h. An array
// is a contiguous range (std::vector, std::array, std::span). Its type is deduced; its size and all
// counts are numbers of elements. Blocks lie one after another, in the order of ranks.
//
// Without a request a call returns when it is complete on this rank. With a request it returns when
// it has started, and the arrays must exist until the request is complete: a temporary container
// cannot be passed. The new request replaces that in *request, after a wait for it. `stream` must
// be nullptr: all memory here is host memory.

namespace detail {

template <typename Range>
concept Array = std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range>;

template <typename Range>
using Element = std::remove_reference_t<std::ranges::range_reference_t<Range>>;

// An array that a call writes.
template <typename Range>
concept Output = Array<Range> && !std::is_const_v<Element<Range>>;

// Two arrays of the same type, of which the second one is written.
template <typename Source, typename Target>
concept Pair = Array<Source> && Output<Target> &&
    std::same_as<std::remove_const_t<Element<Source>>, Element<Target>>;

// The argument of a call for its request. A call with a temporary array takes only nullptr: the
// array ends when the call returns. A temporary std::span is no temporary array.
template <typename... Ranges>
using Slot =
    std::conditional_t<(std::ranges::borrowed_range<Ranges> && ...), Request *, std::nullptr_t>;

template <typename Range>
constexpr vescomm_type_t type_in = type_of<std::remove_const_t<Element<Range>>>();

template <typename Range>
std::int64_t count(const Range &range) {
    return static_cast<std::int64_t>(std::ranges::size(range));
}

}  // namespace detail

template <typename Source, typename Output>
requires detail::Pair<Source &, Output &>
void all_gather_v(const Communicator &comm, Source &&source, Output &&output,
                  std::span<const std::int64_t> counts,
                  detail::Slot<Source, Output> request = nullptr, void *stream = nullptr) {
    detail::require_ranks("all_gather_v", comm, counts);
    const auto mine = static_cast<std::size_t>(counts[static_cast<std::size_t>(comm.rank())]);
    detail::require_elements("all_gather_v", "source", std::ranges::size(source), mine);
    detail::require_elements("all_gather_v", "output", std::ranges::size(output),
                             detail::sum(counts));
    detail::Started started(comm, request);
    started.done(vescomm_all_gather_v(comm.get(), std::ranges::data(source),
                                      std::ranges::data(output), counts.data(), nullptr,
                                      detail::type_in<Output &>, nullptr, stream, started.slot()));
}

// Every rank has a source of the same size.
template <typename Source, typename Output>
requires detail::Pair<Source &, Output &>
void all_gather(const Communicator &comm, Source &&source, Output &&output,
                detail::Slot<Source, Output> request = nullptr, void *stream = nullptr) {
    detail::require_elements("all_gather", "output", std::ranges::size(output),
                             std::ranges::size(source) * detail::ranks(comm));
    detail::Started started(comm, request);
    started.done(vescomm_all_gather(comm.get(), std::ranges::data(source),
                                    std::ranges::data(output), detail::count(source),
                                    detail::type_in<Output &>, nullptr, stream, started.slot()));
}

template <typename Source, typename Output>
requires detail::Pair<Source &, Output &>
void reduce_scatter_v(const Communicator &comm, Source &&source, Output &&output,
                      std::span<const std::int64_t> counts, vescomm_op_t op = VESCOMM_SUM,
                      detail::Slot<Source, Output> request = nullptr, void *stream = nullptr) {
    detail::require_ranks("reduce_scatter_v", comm, counts);
    const auto mine = static_cast<std::size_t>(counts[static_cast<std::size_t>(comm.rank())]);
    detail::require_elements("reduce_scatter_v", "source", std::ranges::size(source),
                             detail::sum(counts));
    detail::require_elements("reduce_scatter_v", "output", std::ranges::size(output), mine);
    detail::Started started(comm, request);
    started.done(vescomm_reduce_scatter_v(
        comm.get(), std::ranges::data(source), std::ranges::data(output), counts.data(),
        detail::type_in<Output &>, op, nullptr, stream, started.slot()));
}

// Every rank has an output of the same size.
template <typename Source, typename Output>
requires detail::Pair<Source &, Output &>
void reduce_scatter(const Communicator &comm, Source &&source, Output &&output,
                    vescomm_op_t op = VESCOMM_SUM, detail::Slot<Source, Output> request = nullptr,
                    void *stream = nullptr) {
    detail::require_elements("reduce_scatter", "source", std::ranges::size(source),
                             std::ranges::size(output) * detail::ranks(comm));
    detail::Started started(comm, request);
    started.done(vescomm_reduce_scatter(
        comm.get(), std::ranges::data(source), std::ranges::data(output), detail::count(output),
        detail::type_in<Output &>, op, nullptr, stream, started.slot()));
}

template <typename Source, typename Output>
requires detail::Pair<Source &, Output &>
void all_reduce(const Communicator &comm, Source &&source, Output &&output,
                vescomm_op_t op = VESCOMM_SUM, detail::Slot<Source, Output> request = nullptr,
                void *stream = nullptr) {
    detail::require_elements("all_reduce", "output", std::ranges::size(output),
                             std::ranges::size(source));
    detail::Started started(comm, request);
    started.done(vescomm_all_reduce(
        comm.get(), std::ranges::data(source), std::ranges::data(output), detail::count(source),
        detail::type_in<Output &>, op, nullptr, stream, started.slot()));
}

// In place.
template <typename Data>
requires detail::Output<Data &>
void all_reduce(const Communicator &comm, Data &&data, vescomm_op_t op = VESCOMM_SUM,
                detail::Slot<Data> request = nullptr, void *stream = nullptr) {
    all_reduce(comm, data, data, op, request, stream);
}

// `output` is used on the root only.
template <typename Source, typename Output>
requires detail::Pair<Source &, Output &>
void reduce(const Communicator &comm, Source &&source, Output &&output,
            vescomm_op_t op = VESCOMM_SUM, std::int32_t root = 0,
            detail::Slot<Source, Output> request = nullptr, void *stream = nullptr) {
    if (comm.rank() == root)
        detail::require_elements("reduce", "output", std::ranges::size(output),
                                 std::ranges::size(source));
    detail::Started started(comm, request);
    started.done(vescomm_reduce(comm.get(), std::ranges::data(source), std::ranges::data(output),
                                detail::count(source), detail::type_in<Output &>, op, root, nullptr,
                                stream, started.slot()));
}

// In place.
template <typename Data>
requires detail::Output<Data &>
void reduce(const Communicator &comm, Data &&data, vescomm_op_t op = VESCOMM_SUM,
            std::int32_t root = 0, detail::Slot<Data> request = nullptr, void *stream = nullptr) {
    reduce(comm, data, data, op, root, request, stream);
}

template <typename Data>
requires detail::Output<Data &>
void broadcast(const Communicator &comm, Data &&data, std::int32_t root = 0,
               detail::Slot<Data> request = nullptr, void *stream = nullptr) {
    detail::Started started(comm, request);
    started.done(vescomm_broadcast(comm.get(), std::ranges::data(data), detail::count(data),
                                   detail::type_in<Data &>, root, nullptr, stream, started.slot()));
}

// `output` is used on the root only.
template <typename Source, typename Output>
requires detail::Pair<Source &, Output &>
void gather_v(const Communicator &comm, Source &&source, Output &&output,
              std::span<const std::int64_t> counts, std::int32_t root = 0,
              detail::Slot<Source, Output> request = nullptr, void *stream = nullptr) {
    detail::require_ranks("gather_v", comm, counts);
    const auto mine = static_cast<std::size_t>(counts[static_cast<std::size_t>(comm.rank())]);
    detail::require_elements("gather_v", "source", std::ranges::size(source), mine);
    if (comm.rank() == root)
        detail::require_elements("gather_v", "output", std::ranges::size(output),
                                 detail::sum(counts));
    detail::Started started(comm, request);
    started.done(vescomm_gather_v(comm.get(), std::ranges::data(source), std::ranges::data(output),
                                  counts.data(), nullptr, detail::type_in<Output &>, root, nullptr,
                                  stream, started.slot()));
}

// `source` is used on the root only.
template <typename Source, typename Output>
requires detail::Pair<Source &, Output &>
void scatter_v(const Communicator &comm, Source &&source, Output &&output,
               std::span<const std::int64_t> counts, std::int32_t root = 0,
               detail::Slot<Source, Output> request = nullptr, void *stream = nullptr) {
    detail::require_ranks("scatter_v", comm, counts);
    const auto mine = static_cast<std::size_t>(counts[static_cast<std::size_t>(comm.rank())]);
    if (comm.rank() == root)
        detail::require_elements("scatter_v", "source", std::ranges::size(source),
                                 detail::sum(counts));
    detail::require_elements("scatter_v", "output", std::ranges::size(output), mine);
    detail::Started started(comm, request);
    started.done(vescomm_scatter_v(comm.get(), std::ranges::data(source), std::ranges::data(output),
                                   counts.data(), nullptr, detail::type_in<Output &>, root, nullptr,
                                   stream, started.slot()));
}

template <typename Source, typename Output>
requires detail::Pair<Source &, Output &>
void all_to_all_v(const Communicator &comm, Source &&source,
                  std::span<const std::int64_t> source_counts, Output &&output,
                  std::span<const std::int64_t> output_counts,
                  detail::Slot<Source, Output> request = nullptr, void *stream = nullptr) {
    detail::require_ranks("all_to_all_v", comm, source_counts);
    detail::require_ranks("all_to_all_v", comm, output_counts);
    detail::require_elements("all_to_all_v", "source", std::ranges::size(source),
                             detail::sum(source_counts));
    detail::require_elements("all_to_all_v", "output", std::ranges::size(output),
                             detail::sum(output_counts));
    detail::Started started(comm, request);
    started.done(vescomm_all_to_all_v(comm.get(), std::ranges::data(source), source_counts.data(),
                                      nullptr, std::ranges::data(output), output_counts.data(),
                                      nullptr, detail::type_in<Output &>, nullptr, stream,
                                      started.slot()));
}

// The source consists of a block of the same size for each rank.
template <typename Source, typename Output>
requires detail::Pair<Source &, Output &>
void all_to_all(const Communicator &comm, Source &&source, Output &&output,
                detail::Slot<Source, Output> request = nullptr, void *stream = nullptr) {
    const std::size_t ranks = detail::ranks(comm);
    if (std::ranges::size(source) % ranks != 0)
        throw std::invalid_argument(
            "all_to_all: source has " + std::to_string(std::ranges::size(source)) +
            " elements, which is no multiple of " + std::to_string(ranks) + " ranks");
    detail::require_elements("all_to_all", "output", std::ranges::size(output),
                             std::ranges::size(source));
    detail::Started started(comm, request);
    started.done(vescomm_all_to_all(comm.get(), std::ranges::data(source),
                                    std::ranges::data(output),
                                    static_cast<std::int64_t>(std::ranges::size(source) / ranks),
                                    detail::type_in<Output &>, nullptr, stream, started.slot()));
}

// The peer of a receive() that takes a message of any rank. Request::message() returns its sender.
inline constexpr std::int32_t any_source = VESCOMM_ANY_SOURCE;

// Messages with a tag. A receive takes only messages with its own tag.
template <typename Source>
requires detail::Array<Source &>
void send(const Communicator &comm, Source &&source, std::int32_t peer, std::int32_t tag,
          detail::Slot<Source> request = nullptr, void *stream = nullptr) {
    auto options = vescomm_call_options_init();
    options.tag = tag;
    detail::Started started(comm, request);
    started.done(vescomm_send(comm.get(), std::ranges::data(source), detail::count(source),
                              detail::type_in<Source &>, peer, &options, stream, started.slot()));
}

template <typename Data>
requires detail::Output<Data &>
void receive(const Communicator &comm, Data &&data, std::int32_t peer, std::int32_t tag,
             detail::Slot<Data> request = nullptr, void *stream = nullptr) {
    auto options = vescomm_call_options_init();
    options.tag = tag;
    detail::Started started(comm, request);
    started.done(vescomm_receive(comm.get(), std::ranges::data(data), detail::count(data),
                                 detail::type_in<Data &>, peer, &options, stream, started.slot()));
}

// Messages with tag 0.
template <typename Source>
requires detail::Array<Source &>
void send(const Communicator &comm, Source &&source, std::int32_t peer,
          detail::Slot<Source> request = nullptr, void *stream = nullptr) {
    send(comm, source, peer, 0, request, stream);
}

template <typename Data>
requires detail::Output<Data &>
void receive(const Communicator &comm, Data &&data, std::int32_t peer,
             detail::Slot<Data> request = nullptr, void *stream = nullptr) {
    receive(comm, std::forward<Data>(data), peer, 0, request, stream);
}

namespace detail {

// Ends an open group of which nothing starts, because the communicator is broken first.
inline void give_up_group(const Communicator &comm, const char *reason) noexcept {
    vescomm_comm_abort(comm.get(), reason);
    vescomm_group_end(comm.get(), nullptr);
}

}  // namespace detail

// Calls `calls`, collects the collectives and messages on arrays that it makes, and starts them
// together. They take no request of their own. Their arrays must exist until the group is complete:
// temporary containers end too early.
//
// If `calls` throws, or if there is no memory to start the group, none of them starts. Other ranks
// may be in the matching group and would wait for this rank, so the communicator is aborted: their
// calls throw an Error of VESCOMM_ERROR_ABORTED. The exception of `calls`, or the Error of
// VESCOMM_ERROR_OUT_OF_MEMORY, is then thrown. An exception that `calls` itself catches has no
// effect.
template <typename Calls>
void group(const Communicator &comm, const Calls &calls, Request *request = nullptr) {
    check(vescomm_group_begin(comm.get()));
    try {
        calls();
    } catch (...) {
        detail::give_up_group(comm, "an exception left a group of calls on this rank");
        throw;
    }
    detail::Started started(comm, request);
    const vescomm_status_t status = vescomm_group_end(comm.get(), started.slot());
    try {
        started.done(status);
    } catch (...) {
        // After this error the group is still open, and would collect the next calls.
        if (status == VESCOMM_ERROR_OUT_OF_MEMORY)
            detail::give_up_group(comm, "a group of calls found no memory on this rank");
        throw;
    }
}

}  // namespace v0
}  // namespace vescomm

#endif

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "docs.h"
#include "integer.h"
#include "request.h"

namespace nb = nanobind;

namespace vescomm::python {

namespace {

// The communicators of this process that are not freed, in the order of their creation. Guarded by
// the GIL.
struct OpenComm {
    vescomm_comm_t *comm = nullptr;
    CommHandle *handle = nullptr;  // null: Python has dropped it
};
std::vector<OpenComm> &open_comms() {
    static auto *all = new std::vector<OpenComm>;  // used until the process has ended
    return *all;
}

// Without the GIL. After an interrupt the process may end at once: the other ranks get the failure
// before.
vescomm_status_t finalize_and_flush(vescomm_comm_t *comm) noexcept {
    const vescomm_status_t status = vescomm_comm_finalize(comm);
    // The communicator is broken, and keeps its first error: this reason is not used.
    if (status == VESCOMM_ERROR_ABORTED) vescomm_comm_abort(comm, "finalize() was interrupted");
    return status;
}

// Arrays that an operation may still use: they must outlive it, and its end is not known.
void leak(DroppedRequest dropped) {
    new Arguments(std::move(dropped.arrays));
    dropped.owner.release();
}

// A sentence that may have lone surrogates, as those of files whose names are not UTF-8, and NULs,
// at which the library would cut it. Both become backslash escapes.
std::string utf8(const nb::str &text) {
    PyObject *const encoded = PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace");
    if (encoded == nullptr) throw nb::python_error();
    const auto bytes = nb::steal<nb::bytes>(encoded);
    std::string sentence;
    for (const char byte : std::string_view(bytes.c_str(), bytes.size())) {
        if (byte == '\0') sentence += "\\x00";
        else sentence += byte;
    }
    return sentence;
}

nb::dict info(const Comm &comm) {
    vescomm_comm_info_t info = vescomm_comm_info_init();
    check(vescomm_comm_get_info(comm.handle().get(), &info));
    nb::dict all;
    all["rank"] = info.rank;
    all["ranks"] = info.ranks;
    all["node"] = info.node;
    all["nodes"] = info.nodes;
    all["local_rank"] = info.local_rank;
    all["local_ranks"] = info.local_ranks;
    all["timeout"] = info.timeout_seconds;
    return all;
}

nb::dict counters(const Comm &comm) {
    vescomm_comm_counters_t counters = vescomm_comm_counters_init();
    check(vescomm_comm_get_counters(comm.handle().get(), &counters));
    nb::dict all;
    all["operations"] = counters.operations;
    all["bytes_written"] = counters.bytes_written;
    all["bytes_reduced"] = counters.bytes_reduced;
    all["bytes_sent"] = counters.bytes_sent;
    all["bytes_registered"] = counters.bytes_registered;
    all["sleeps"] = counters.sleeps;
    all["busy_seconds"] = counters.busy_seconds;
    all["waiting_seconds"] = counters.waiting_seconds;
    return all;
}

nb::str metrics(const Comm &comm) {
    vescomm_comm_t *const handle = comm.handle().get();
    std::string text;
    std::size_t size = 4096;
    do {
        text.resize(size);
        check(vescomm_comm_get_metrics(handle, text.data(), text.size(), &size));
    } while (size > text.size());
    text.resize(size - 1);
    return to_str(text);
}

void abort(const Comm &comm, const std::optional<nb::str> &reason) {
    const std::shared_ptr<CommHandle> handle = comm.share();
    const std::optional<std::string> text = reason ? std::optional(utf8(*reason)) : std::nullopt;
    vescomm_status_t status = VESCOMM_OK;
    {
        const GilReleased released;
        status = vescomm_comm_abort(handle->get(), text ? text->c_str() : nullptr);
    }
    check(status);
}

void progress(const Comm &comm) {
    const std::shared_ptr<CommHandle> handle = comm.share();
    vescomm_status_t status = VESCOMM_OK;
    {
        const GilReleased released;
        status = vescomm_comm_progress(handle->get());
    }
    check(status);
}

void barrier(Comm &comm) {
    comm.run([](vescomm_comm_t *on) { return vescomm_barrier(on); });
}

void group_begin(Comm &comm) {
    const std::shared_ptr<CommHandle> handle = comm.share();
    if (comm.group_left_open) comm.end_left_group();
    check(handle->call_briefly([&] { return vescomm_group_begin(handle->get()); }));
    comm.in_group = true;
    comm.group_arrays.clear();
}

// Without memory the library leaves the group open. The other ranks start all of its calls, so the
// communicator is broken, and the group ends then without being started. Returns its arrays.
Arguments end_group(Comm &comm, const std::shared_ptr<CommHandle> &handle,
                    vescomm_request_t **request) {
    const vescomm_status_t status =
        handle->call([&] { return vescomm_group_end(handle->get(), request); });
    comm.in_group = false;
    // They live until the group is complete, and have no use after a failure.
    Arguments arrays = std::exchange(comm.group_arrays, {});
    if (status == VESCOMM_ERROR_OUT_OF_MEMORY) {
        const std::string why = vescomm_get_last_error();
        vescomm_comm_abort(handle->get(), ("a group of calls failed: " + why).c_str());
        comm.group_left_open = true;
        try {
            comm.end_left_group();
        } catch (const nb::python_error &) {
            // The next call ends it.
        }
        raise(status, why);
    }
    check(status);
    return arrays;
}

void group_end(Comm &comm) {
    end_group(comm, std::shared_ptr(comm.share()), nullptr);
}

Request start_group_end(Comm &comm, nb::object owner) {
    vescomm_request_t *request = nullptr;
    const std::shared_ptr<CommHandle> handle = comm.share();
    Arguments arrays = end_group(comm, handle, &request);
    return Request(handle, request, std::move(arrays), std::move(owner));
}

std::uintptr_t allocate(Comm &comm, SizeArgument bytes) {
    void *pointer = nullptr;
    const std::shared_ptr<CommHandle> handle = comm.share();
    vescomm_status_t status = VESCOMM_OK;
    {
        // Pages are allocated, which takes time. Safe for threads.
        const GilReleased released;
        status = vescomm_malloc(handle->get(), static_cast<std::uint64_t>(bytes.value), &pointer);
    }
    check(status);
    return reinterpret_cast<std::uintptr_t>(pointer);
}

void deallocate(Comm &comm, Integer address) {
    if (CommHandle::array_memory().contains(address.pointer()))
        refuse("the memory at address " + std::to_string(address.value) +
               " belongs to an array of empty(); it is freed with the last array that shares it");
    check(vescomm_mfree(comm.handle().get(), address.pointer()));
}

void free_comm(Comm &comm) {
    if (comm.freed()) return;
    const std::shared_ptr<CommHandle> handle = comm.share();
    if (handle->busy()) comm.run([](vescomm_comm_t *) { return VESCOMM_OK; });
    try {
        if (!handle->ended()) handle->finalize();
    } catch (const nb::python_error &error) {
        // As vescomm_comm_free() does. A signal handler's exception is not an error of the library.
        if (!is_of_library(error)) throw;
    }
    comm.release();
}

// At the end of the process: finalizes the communicators that are left or, with a reason, aborts
// them, so that the other ranks do not wait for this one.
void end_all(const std::optional<nb::str> &reason) {
    const std::vector<OpenComm> all = open_comms();
    if (reason) {
        const std::string text = utf8(*reason);
        for (const OpenComm &open : all) vescomm_comm_abort(open.comm, text.c_str());
        return;
    }
    std::string interrupted;
    std::optional<nb::python_error> error;
    for (const OpenComm &each : all) {
        // Another thread may have dropped or freed it meanwhile.
        const auto open = std::ranges::find(open_comms(), each.comm, &OpenComm::comm);
        if (open == open_comms().end()) continue;
        if (error) {
            // The other ranks must not wait for this one.
            vescomm_comm_abort(open->comm, interrupted.c_str());
            continue;
        }
        if (open->handle == nullptr) {
            const GilReleased released;
            finalize_and_flush(each.comm);
        } else if (const auto handle = open->handle->weak_from_this().lock(); handle != nullptr) {
            handle->finalize_at_end();
        }
        if (!PyErr_Occurred()) continue;
        error.emplace();  // of the handler of a signal
        interrupted = "its program ended with " + utf8(nb::str(error->type().attr("__name__")));
    }
    if (error) throw std::move(*error);
}

}  // namespace

void Comm::end_left_group() {
    const std::shared_ptr<CommHandle> comm = share();
    // The communicator is broken: any other error says that, and the group has ended.
    const vescomm_status_t status =
        comm->call([&] { return vescomm_group_end(comm->get(), nullptr); });
    if (status == VESCOMM_ERROR_OUT_OF_MEMORY) raise_last(status);
    group_left_open = false;
}

CommHandle::CommHandle(vescomm_comm_t *comm) : comm_(comm) {
    vescomm_comm_info_t info = vescomm_comm_info_init();
    vescomm_comm_get_info(comm, &info);
    rank_ = info.rank;
    ranks_ = info.ranks;
    open_comms().push_back({comm, this});
}

CommHandle::~CommHandle() {
    // Code of Python that runs meanwhile may create other communicators.
    const auto find_mine = [this] {
        return std::ranges::find(open_comms(), this, &OpenComm::handle);
    };
    if (!ended()) {
        // The end of the process finalizes it: until then nothing may be freed.
        if (const auto mine = find_mine(); mine != open_comms().end()) mine->handle = nullptr;
        for (DroppedRequest &dropped : dropped_) leak(std::move(dropped));
        return;
    }
    free_dropped();
    // Left are requests of a process that has forked: they belong to the parent.
    for (DroppedRequest &dropped : dropped_) leak(std::move(dropped));
    vescomm_comm_free(comm_);
    if (const auto mine = find_mine(); mine != open_comms().end()) open_comms().erase(mine);
}

bool CommHandle::broken() const noexcept {
    return vescomm_comm_progress(comm_) < 0;
}

void CommHandle::finalize() {
    const vescomm_status_t status = call([&] { return finalize_and_flush(comm_); });
    finalized_ = true;
    check(status);
}

void CommHandle::finalize_at_end() {
    if (busy_) return;
    busy_ = true;
    {
        const GilReleased released;
        finalize_and_flush(comm_);
    }
    busy_ = false;
}

std::set<const void *> &CommHandle::array_memory() {
    static auto *all = new std::set<const void *>;  // used until the process has ended
    return *all;
}

void CommHandle::drop(DroppedRequest dropped) {
    dropped_.push_back(std::move(dropped));
    if (!busy_) free_dropped();
}

void CommHandle::free_dropped() {
    // Destructors of arrays may drop other requests, and free the last communicator of Python that
    // shares this one.
    const std::shared_ptr<CommHandle> self = weak_from_this().lock();
    std::vector<DroppedRequest> running;
    for (DroppedRequest &dropped : dropped_) {
        if (vescomm_request_test(dropped.request) == VESCOMM_IN_PROGRESS ||
            vescomm_request_free(dropped.request) != VESCOMM_OK)
            running.push_back(std::move(dropped));
    }
    std::vector<DroppedRequest> complete = std::exchange(dropped_, std::move(running));
    complete.clear();
}

void CommHandle::refuse_overlap() const {
    refuse("rank " + std::to_string(rank_) +
           ": another thread is in a call on this communicator; give each thread a communicator of "
           "its own: dup()");
}

void define_comm(nb::module_ &module, nb::class_<Comm> &type) {
    nb::class_<CreatedComm>(module, "CreatedCommunicator");
    module.def("end_all", end_all, nb::arg("reason").none());

    type.def(nb::init<std::shared_ptr<CommHandle>>());
    type.def("__init__",
             [](Comm *comm, const CreatedComm &created) { new (comm) Comm(created.handle); });
    type.def_prop_ro(
        "rank", [](const Comm &comm) { return comm.handle().rank(); }, docs::rank);
    type.def_prop_ro(
        "ranks", [](const Comm &comm) { return comm.handle().ranks(); }, docs::ranks);
    type.def_prop_ro("freed", &Comm::freed, docs::freed);
    type.def_prop_ro(
        "broken", [](const Comm &comm) { return comm.handle().broken(); }, docs::broken);
    type.def("_info", info);
    type.def("_counters", counters);
    type.def("metrics", metrics, docs::metrics);
    type.def("progress", progress, docs::progress);
    type.def("abort", abort, nb::arg("reason").none() = nb::none(), docs::abort);
    type.def(
        "finalize", [](Comm &comm) { std::shared_ptr(comm.share())->finalize(); }, docs::finalize);
    type.def("free", free_comm, docs::free_comm);
    type.def("barrier", barrier, docs::barrier);
    type.def("group_begin", group_begin, docs::group_begin);
    type.def("group_end", group_end, docs::group_end);
    type.def("start_group_end", start_group_end, nb::arg("owner") = nb::none(),
             docs::start_group_end);
    type.def_prop_ro("_in_group", [](const Comm &comm) { return comm.in_group; });
    type.def("malloc", allocate, docs::malloc);
    type.def("mfree", deallocate, docs::mfree);
}

}  // namespace vescomm::python

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Communicators, and how their functions are called: without the GIL, one thread at a time.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "argument.h"
#include "errors.h"
#include "gil.h"
#include "vescomm/vescomm.h"

namespace vescomm::python {

// A request that Python has dropped. It is freed, with the arrays that it holds, when no thread is
// in a call and it is complete.
struct DroppedRequest {
    vescomm_request_t *request = nullptr;
    Arguments arrays;
    nanobind::object owner;  // of memory that was given by address
};

// Owner of a communicator of the library. The communicator of Python, its requests, buffers and
// arrays share it, and so do calls: while one runs, another thread or a destructor may free the
// communicator of Python. All members but those that never change are guarded by the GIL.
class CommHandle : public std::enable_shared_from_this<CommHandle> {
public:
    explicit CommHandle(vescomm_comm_t *comm);
    CommHandle(const CommHandle &) = delete;
    CommHandle &operator=(const CommHandle &) = delete;
    // Waits for no other rank: a communicator that is neither finalized nor broken stays until the
    // process ends.
    ~CommHandle();

    vescomm_comm_t *get() const noexcept { return comm_; }
    int rank() const noexcept { return rank_; }
    int ranks() const noexcept { return ranks_; }
    bool busy() const noexcept { return busy_; }
    bool broken() const noexcept;
    // True: freeing the communicator does not wait.
    bool ended() const noexcept { return finalized_ || broken(); }

    // Runs `function`, which may wait, without the GIL. No other thread may be in such a call on
    // this communicator: the library does not permit it. Returns the status.
    template <typename Function>
    vescomm_status_t call(Function &&function) {
        enter();
        vescomm_status_t status = VESCOMM_OK;
        {
            const GilReleased released;
            status = function();
        }
        busy_ = false;
        return status;
    }
    // The same for a function that returns at once: the GIL is kept.
    template <typename Function>
    vescomm_status_t call_briefly(Function &&function) {
        enter();
        const vescomm_status_t status = function();
        busy_ = false;
        return status;
    }

    void drop(DroppedRequest dropped);
    // Frees dropped requests that are complete.
    void free_dropped();
    // Raises the first error of a broken communicator, also each further time.
    void finalize();
    // The same at the end of the process, for a communicator that no thread is in a call on. Errors
    // are not reported; an exception of a signal handler stays set.
    void finalize_at_end();

    // Addresses of vescomm_malloc() that arrays of any communicator own.
    static std::set<const void *> &array_memory();

private:
    void enter() {
        if (busy_) [[unlikely]]
            refuse_overlap();
        if (!dropped_.empty()) [[unlikely]] {
            free_dropped();
            // Destructors of arrays run code of Python, and other threads meanwhile.
            if (busy_) refuse_overlap();
        }
        busy_ = true;
    }
    [[noreturn]] void refuse_overlap() const;

    vescomm_comm_t *const comm_;
    int rank_ = 0;
    int ranks_ = 1;
    bool busy_ = false;  // a thread is in call()
    bool finalized_ = false;  // finalize() has ended, with or without an error
    std::vector<DroppedRequest> dropped_;
};

// The base class of vescomm.Communicator.
class Comm {
public:
    explicit Comm(std::shared_ptr<CommHandle> handle) : handle_(std::move(handle)) {}

    // Raises an exception after free().
    const std::shared_ptr<CommHandle> &share() const {
        if (!handle_) [[unlikely]]
            refuse("the communicator has been freed; create another one");
        return handle_;
    }
    // For uses that run no code of Python: it may free the communicator. See share().
    CommHandle &handle() const { return *share(); }
    bool freed() const noexcept { return !handle_; }
    // Drops the reference to the communicator of the library.
    void release() noexcept { handle_.reset(); }

    // A call on arrays that returns when it is complete. Returns the communicator that it was made
    // on: a destructor that runs within the call may free this one.
    template <typename Function>
    std::shared_ptr<CommHandle> run(Function &&function) {
        std::shared_ptr<CommHandle> comm = share();
        if (group_left_open) [[unlikely]]
            end_left_group();
        check(comm->call([&] { return function(comm->get()); }));
        return comm;
    }
    // Ends a group that had no memory to end, which would collect all later calls.
    void end_left_group();

    // A group has begun, and the arrays of its calls.
    bool in_group = false;
    Arguments group_arrays;
    bool group_left_open = false;  // the library has an open group; in_group is false

private:
    std::shared_ptr<CommHandle> handle_;
};

// The result of the functions that create communicators, for the constructor of the class in
// Python.
struct CreatedComm {
    std::shared_ptr<CommHandle> handle;
};

void define_comm(nanobind::module_ &module, nanobind::class_<Comm> &type);
void define_creation(nanobind::module_ &module, nanobind::class_<Comm> &type);
void define_calls(nanobind::class_<Comm> &type);
void define_calls_at(nanobind::class_<Comm> &type);

}  // namespace vescomm::python

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>

#include "argument.h"
#include "comm.h"
#include "integer.h"

namespace vescomm::python {

// A request of the library, and its arrays. Several threads may test it and wait for it. All
// members are guarded by the GIL.
class Request {
public:
    Request(std::shared_ptr<CommHandle> comm, vescomm_request_t *request, Arguments arrays,
            nanobind::object owner = {})
        : comm_(std::move(comm)),
          request_(request),
          arrays_(std::move(arrays)),
          owner_(std::move(owner)) {}
    Request(Request &&other) noexcept
        : comm_(std::move(other.comm_)),
          request_(std::exchange(other.request_, nullptr)),
          arrays_(std::move(other.arrays_)),
          owner_(std::move(other.owner_)) {}
    Request &operator=(Request &&) = delete;
    ~Request() { drop(); }

    void start();
    bool test();
    // Returns false if the request is not complete after `seconds`.
    bool wait(std::optional<double> seconds);
    // The same, and makes progress on other communicators meanwhile.
    bool wait_with(const nanobind::sequence &comms, std::optional<double> seconds);
    nanobind::str explain();
    // The message that the request has received last, as vescomm.Message.
    nanobind::object message(Integer index);
    // A request that is running is freed when it is complete.
    void free();
    // The same at the end of the object.
    void drop() noexcept;
    nanobind::handle owner() const { return owner_; }

private:
    const std::shared_ptr<CommHandle> &share() const;
    [[noreturn]] void refuse_freed() const;
    // Runs a function on the request, without the GIL. Drops the owner of its memory if it runs no
    // more. Raises the exception of an error.
    template <typename Function>
    vescomm_status_t call_beside_others(Function &&function);
    // Returns false if `function`, a wait for the request, has not completed after `seconds`.
    template <typename Function>
    bool wait_by(std::optional<double> seconds, Function &&function);

    std::shared_ptr<CommHandle> comm_;
    vescomm_request_t *request_ = nullptr;
    Arguments arrays_;
    nanobind::object owner_;  // of memory that was given by address; null when it is complete
    int waits_ = 0;  // threads that test it or wait for it
    int starts_ = 0;  // calls that start or explain it
};

void define_request(nanobind::module_ &module);

}  // namespace vescomm::python

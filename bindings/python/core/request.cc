// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "request.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "docs.h"
#include "gil.h"
#include "interrupt.h"
#include "types.h"

namespace nb = nanobind;

namespace vescomm::python {

void Request::refuse_freed() const {
    refuse("the request has been freed; create another one");
}

const std::shared_ptr<CommHandle> &Request::share() const {
    if (request_ == nullptr) refuse_freed();
    return comm_;
}

namespace {

struct Counted {
    explicit Counted(int &number) : number(number) { ++number; }
    Counted(const Counted &) = delete;
    Counted &operator=(const Counted &) = delete;
    ~Counted() { --number; }
    int &number;
};

}  // namespace

void Request::start() {
    const std::shared_ptr<CommHandle> on = share();
    const Counted start(starts_);
    check(on->call([&] { return vescomm_request_start(request_, nullptr); }));
}

// Other threads may be in calls on the communicator, and in waits for the same request. They own
// references to it, so nothing frees it meanwhile but an explicit free().
template <typename Function>
vescomm_status_t Request::call_beside_others(Function &&function) {
    if (request_ == nullptr) refuse_freed();
    vescomm_request_t *const request = request_;
    ++waits_;
    vescomm_status_t status = VESCOMM_OK;
    std::string why;
    bool running = false;
    {
        const GilReleased released;
        status = function(request);
        running = status == VESCOMM_IN_PROGRESS;
        if (status < 0) [[unlikely]] {
            // The error may be that of another communicator: then the request still runs.
            why = vescomm_get_last_error();
            running = vescomm_request_test(request) == VESCOMM_IN_PROGRESS;
        }
    }
    --waits_;
    if (!running && owner_.is_valid()) [[likely]]
        nb::object(std::move(owner_)).reset();
    if (status < 0) [[unlikely]] {
        if (PyErr_Occurred()) throw nb::python_error();
        raise(status, why);
    }
    return status;
}

bool Request::test() {
    return call_beside_others(vescomm_request_test) == VESCOMM_OK;
}

template <typename Function>
bool Request::wait_by(std::optional<double> seconds, Function &&function) {
    if (seconds && !(*seconds >= 0)) {
        char digits[32];
        std::snprintf(digits, sizeof digits, "%g", *seconds);
        refuse(std::string("timeout is ") + digits +
               "; give at least 0 seconds, or None to wait until the end");
    }
    std::optional<WaitLimit> limit;
    if (seconds) limit.emplace(std::chrono::duration<double>(*seconds));
    const vescomm_status_t status = call_beside_others(function);
    if (status == VESCOMM_OK) return true;
    // The limit has passed, or the handler of a signal has raised an exception.
    if (PyErr_Occurred()) throw nb::python_error();
    return false;
}

bool Request::wait(std::optional<double> seconds) {
    return wait_by(seconds, vescomm_request_wait);
}

bool Request::wait_with(const nb::sequence &comms, std::optional<double> seconds) {
    // Another thread may free a communicator meanwhile: its handle lives until the wait has ended.
    std::vector<std::shared_ptr<CommHandle>> handles;
    std::vector<vescomm_comm_t *> others;
    for (const nb::handle each : comms) {
        if (!nb::isinstance<Comm>(each))
            throw nb::type_error("comms holds something that is no Communicator");
        handles.push_back(nb::cast<const Comm &>(each).share());
        others.push_back(handles.back()->get());
    }
    return wait_by(seconds, [&others](vescomm_request_t *request) {
        return vescomm_request_wait_with(request, others.data(), others.size());
    });
}

nb::str Request::explain() {
    const std::shared_ptr<CommHandle> on = share();
    const Counted use(starts_);
    const char *text = nullptr;
    check(on->call_briefly([&] { return vescomm_request_explain(request_, &text); }));
    return to_str(text);
}

// Calls on the communicator do not disturb it: another thread may finalize the communicator.
nb::object Request::message(Integer index) {
    if (request_ == nullptr) refuse_freed();
    if (starts_ > 0) refuse("a call starts the request at the moment; wait for it first");
    vescomm_message_info_t info = vescomm_message_info_init();
    check(vescomm_request_get_message(request_, index.small("index"), &info));
    return nb::module_::import_("vescomm.types")
        .attr("Message")(info.source, info.tag, to_python(info.type), info.count);
}

void Request::free() {
    if (waits_ > 0) refuse("another thread waits for the request; free it after the wait");
    if (starts_ > 0) refuse("a call starts the request at the moment; free it after that call");
    drop();
}

void Request::drop() noexcept {
    if (request_ == nullptr) return;
    const std::shared_ptr<CommHandle> comm = std::move(comm_);
    comm->drop({std::exchange(request_, nullptr), std::move(arrays_), std::move(owner_)});
}

namespace {

// For the collector of garbage: the owner of memory may refer to the request.
int traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<Request>(self)->owner().ptr());
    return 0;
}

int clear(PyObject *self) {
    if (nb::inst_ready(self)) nb::inst_ptr<Request>(self)->drop();
    return 0;
}

PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void *>(traverse)},
                       {Py_tp_clear, reinterpret_cast<void *>(clear)},
                       {0, nullptr}};

}  // namespace

void define_request(nb::module_ &module) {
    nb::class_<Request>(module, "Request", docs::request, nb::is_weak_referenceable(),
                        nb::type_slots(slots))
        .def("start", &Request::start, docs::request_start)
        .def("test", &Request::test, docs::request_test)
        .def("wait", &Request::wait, nb::arg("timeout").none() = nb::none(), docs::request_wait)
        .def("wait_with", &Request::wait_with, nb::arg("comms"),
             nb::arg("timeout").none() = nb::none(), docs::request_wait_with)
        .def(
            "run",
            [](Request &request) {
                request.start();
                request.wait({});
            },
            docs::request_run)
        .def("explain", &Request::explain, docs::request_explain)
        .def("message", &Request::message, nb::arg("index") = 0, docs::request_message)
        .def("free", &Request::free, docs::request_free);
}

}  // namespace vescomm::python

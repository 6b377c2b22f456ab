// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Calls on arrays that are given by addresses, for adapters of frameworks: converting an array of a
// framework costs microseconds, its address a tenth of that. NAME_at() returns when the call is
// complete, start_NAME_at() returns a request. It may be given an object that owns the memory, and
// keeps it until the request is complete: also if an exception of a signal handler, which may come
// between any two steps of Python, has the program lose the request.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>

#include "calls.h"

namespace nb = nanobind;

namespace vescomm::python {

namespace {

// An owner that is a number is a factor without an algorithm.
void require_owner(nb::handle owner) {
    if (PyLong_Check(owner.ptr()) || PyFloat_Check(owner.ptr()))
        refuse_type("owner is of type " + type_name_of(owner) +
                    "; give the object that owns the memory. A factor is followed by an algorithm, "
                    "or None");
}

// Defines NAME_at(arguments), NAME_at(arguments, factor, algorithm), start_NAME_at(arguments),
// start_NAME_at(arguments, factor, algorithm), and the latter two with an owner as last argument.
// Arguments have no names, which is the faster way of nanobind.
template <typename Started, typename... Arguments>
void define(nb::class_<Comm> &type, const char *name,
            Started (*describe)(const Comm &, Arguments...)) {
    const std::string run_name = std::string(name) + "_at", start_name = "start_" + run_name;
    type.def(run_name.c_str(), [describe](Comm &comm, Arguments... arguments) {
        const auto call = describe(comm, arguments...);
        comm.run([&](vescomm_comm_t *on) { return call(on, nullptr, nullptr); });
    });
    type.def(run_name.c_str(), [describe](Comm &comm, Arguments... arguments, double factor,
                                          const std::optional<std::string> &algorithm) {
        const auto call = describe(comm, arguments...);
        const vescomm_call_options_t options = calls::options_of(factor, algorithm);
        comm.run([&](vescomm_comm_t *on) { return call(on, &options, nullptr); });
    });
    type.def(start_name.c_str(), [describe](Comm &comm, Arguments... arguments, nb::object owner) {
        require_owner(owner);
        return calls::start(comm, describe(comm, arguments...), nullptr, {}, std::move(owner));
    });
    type.def(start_name.c_str(), [describe](Comm &comm, Arguments... arguments, double factor,
                                            const std::optional<std::string> &algorithm,
                                            nb::object owner) {
        require_owner(owner);
        const vescomm_call_options_t options = calls::options_of(factor, algorithm);
        return calls::start(comm, describe(comm, arguments...), &options, {}, std::move(owner));
    });
    type.def(start_name.c_str(), [describe](Comm &comm, Arguments... arguments) {
        return calls::start(comm, describe(comm, arguments...), nullptr, {});
    });
    type.def(start_name.c_str(), [describe](Comm &comm, Arguments... arguments, double factor,
                                            const std::optional<std::string> &algorithm) {
        const vescomm_call_options_t options = calls::options_of(factor, algorithm);
        return calls::start(comm, describe(comm, arguments...), &options, {});
    });
}

}  // namespace

void define_calls_at(nb::class_<Comm> &type) {
    define(type, "all_gather", calls::all_gather);
    define(type, "all_gather_v", calls::all_gather_v);
    define(type, "reduce_scatter", calls::reduce_scatter);
    define(type, "reduce_scatter_v", calls::reduce_scatter_v);
    define(type, "all_reduce", calls::all_reduce);
    define(type, "reduce", calls::reduce);
    define(type, "broadcast", calls::broadcast);
    define(type, "gather_v", calls::gather_v);
    define(type, "scatter_v", calls::scatter_v);
    define(type, "all_to_all", calls::all_to_all);
    define(type, "all_to_all_v", calls::all_to_all_v);
    define(type, "send", calls::send);
    define(type, "receive", calls::receive);
}

}  // namespace vescomm::python

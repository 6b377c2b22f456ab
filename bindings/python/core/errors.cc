// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "errors.h"

namespace nb = nanobind;

namespace vescomm::python {

void raise(vescomm_status_t status, const std::string &sentence) {
    const nb::object error =
        nb::module_::import_("vescomm.errors").attr("from_status")(status, sentence.c_str());
    PyErr_SetObject(error.type().ptr(), error.ptr());
    throw nb::python_error();
}

void raise_last(vescomm_status_t status) {
    if (PyErr_Occurred()) throw nb::python_error();
    raise(status, vescomm_get_last_error());
}

}  // namespace vescomm::python

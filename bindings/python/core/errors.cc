// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "errors.h"

namespace nb = nanobind;

namespace vescomm::python {

namespace {

// vescomm.errors.from_status(), and Error. Kept: nothing can be imported while the interpreter
// ends, and destructors make calls then.
PyObject *from_status = nullptr;
PyObject *error_class = nullptr;

nb::object error_of(vescomm_status_t status, const std::string &sentence) {
    return nb::handle(from_status)(status, to_str(sentence));
}

}  // namespace

void load_errors() {
    const nb::module_ errors = nb::module_::import_("vescomm.errors");
    from_status = nb::object(errors.attr("from_status")).release().ptr();
    error_class = nb::object(errors.attr("Error")).release().ptr();
}

void raise(vescomm_status_t status, const std::string &sentence) {
    const nb::object error = error_of(status, sentence);
    PyErr_SetObject(error.type().ptr(), error.ptr());
    throw nb::python_error();
}

void raise_last(vescomm_status_t status) {
    if (PyErr_Occurred()) throw nb::python_error();
    raise(status, vescomm_get_last_error());
}

void refuse_because(const std::string &sentence, nb::python_error &cause) {
    const nb::object error = error_of(VESCOMM_ERROR_INVALID_ARGUMENT, sentence);
    PyException_SetCause(error.ptr(), nb::borrow(cause.value()).release().ptr());
    PyErr_SetObject(error.type().ptr(), error.ptr());
    throw nb::python_error();
}

void refuse_type(const std::string &sentence) {
    PyErr_SetObject(PyExc_TypeError, to_str(sentence).ptr());
    throw nb::python_error();
}

bool is_of_library(const nb::python_error &error) noexcept {
    return error.matches(error_class);
}

bool must_pass(const nb::python_error &error) noexcept {
    return !error.matches(PyExc_Exception) || error.matches(PyExc_MemoryError);
}

nb::str to_str(std::string_view text) {
    PyObject *const decoded =
        PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace");
    if (decoded == nullptr) throw nb::python_error();
    return nb::steal<nb::str>(decoded);
}

}  // namespace vescomm::python

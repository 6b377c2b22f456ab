// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The module vescomm._core: vescomm.h for Python.
#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

#include "array.h"
#include "buffer.h"
#include "comm.h"
#include "errors.h"
#include "gpu.h"
#include "gpu_array.h"
#include "interrupt.h"
#include "layout.h"
#include "observe.h"
#include "request.h"

namespace nb = nanobind;
using namespace vescomm::python;

namespace {

// Runs before anything of the module: nanobind and this module have one state for the process, so
// the import in a second interpreter would take it from the first one.
int refuse_subinterpreter(PyObject *) {
    constexpr std::int64_t main_interpreter = 0;
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) == main_interpreter) return 0;
    PyErr_SetString(PyExc_ImportError,
                    "vescomm cannot be imported in a subinterpreter: communicators belong to the "
                    "process, and signals to its main interpreter; import it there");
    return -1;
}

}  // namespace

// PyInit_core(), which nanobind defines, returns a definition of the module.
NB_MODULE(core, module) {
    module.doc() = "vescomm.h for Python. Use the package vescomm instead.";
    // Globals of a program, such as the process groups of torch, live until the process ends.
    nb::set_leak_warnings(false);
    load_errors();
    handle_signals_in_waits();
    module.def("get_version", [] { return vescomm_get_version(); });
    nb::class_<Comm> comm(module, "Communicator", nb::is_weak_referenceable());
    define_request(module);
    define_comm(module, comm);
    define_creation(module, comm);
    define_layout(module);
    define_array(module, comm);
    define_calls(comm);
    define_calls_at(comm);
    define_buffer(module, comm);
    define_gpu_array(module);
    define_gpu_comm(module);
    define_gpu_buffer(module);
    define_gpu_kernels(module);
    define_plan(module);
    define_observe(module, comm);
}

// Adds the check of the interpreter in front of the steps of the definition.
extern "C" NB_EXPORT PyObject *PyInit__core() {
    static std::vector<PyModuleDef_Slot> steps;
    PyObject *const made = PyInit_core();
    if (made == nullptr || !steps.empty()) return made;
    auto *const definition = reinterpret_cast<PyModuleDef *>(made);
    steps.push_back({Py_mod_exec, reinterpret_cast<void *>(refuse_subinterpreter)});
    for (const PyModuleDef_Slot *step = definition->m_slots; step->slot != 0; ++step)
        steps.push_back(*step);
    steps.push_back({0, nullptr});
    definition->m_slots = steps.data();
    return made;
}

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The module vescomm._core: vescomm.h for Python.
#include <nanobind/nanobind.h>

#include "array.h"
#include "buffer.h"
#include "comm.h"
#include "gpu.h"
#include "gpu_array.h"
#include "interrupt.h"
#include "layout.h"
#include "observe.h"
#include "request.h"

namespace nb = nanobind;
using namespace vescomm::python;

NB_MODULE(_core, module) {
    module.doc() = "vescomm.h for Python. Use the package vescomm instead.";
    // Globals of a program, such as the process groups of torch, live until the process ends.
    nb::set_leak_warnings(false);
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

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

namespace vescomm::python {

// Device communicators and device buffers: vescomm/gpu.h. vescomm/gpu.py has their classes.
void define_gpu_comm(nanobind::module_ &module);
void define_gpu_buffer(nanobind::module_ &module);
// Kernels: vescomm/gpu_kernels.h. vescomm/gpu_kernels.py has their functions.
void define_gpu_kernels(nanobind::module_ &module);

}  // namespace vescomm::python

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Docstrings of the classes of device memory that vescomm/gpu.py does not document itself.
#pragma once

#include "docs_guarantees.h"

namespace vescomm::python::docs {

inline constexpr const char *gpu_device =
    "Number of the device, the current one of the thread that created it. Since: 0.1";
inline constexpr const char *gpu_derived =
    "True if NCCL has created its communicator from that of a parent. Since: 0.1";
inline constexpr const char *gpu_check =
    "Raises the first failure of the communicator, also one of work that still "
    "runs.\n" VESCOMM_ALONE;
inline constexpr const char *gpu_malloc =
    "Allocates device memory that is registered with NCCL, for buffers.\n\n"
    "Args:\n    bytes: the same on every rank.\n\n"
    "Returns:\n    its address; mfree() frees it.\n\n"
    "Raises:\n    OutOfMemoryError: on every rank when one rank has too little.\n    "
    "MismatchError.\n" VESCOMM_COLLECTIVE;
inline constexpr const char *gpu_mfree =
    "Frees memory of malloc() when the work of the device is complete.\n\n"
    "Args:\n    address: that malloc() returned; no buffer uses it.\n\n"
    "Raises:\n    InvalidArgumentError, TimeoutError.\n" VESCOMM_COLLECTIVE;
inline constexpr const char *gpu_free =
    "Frees the communicator and the memory of its buffers, when the work of the device is\n"
    "complete. Buffers can then only be dropped.\n\n"
    "Raises:\n    InvalidArgumentError: arrays of its buffers exist.\n" VESCOMM_COLLECTIVE;

inline constexpr const char *gpu_buffer_type = "Type of the elements. Since: 0.1";
inline constexpr const char *gpu_buffer_data =
    "Returns the whole buffer as an array, with the gaps of a strided one.\n" VESCOMM_ALONE;
inline constexpr const char *gpu_buffer_shard =
    "Returns the place of a shard in the memory of this rank as an array.\n\n"
    "Args:\n    rank: whose shard. None: that of this rank.\n" VESCOMM_ALONE;
inline constexpr const char *gpu_buffer_tensor =
    "Returns a tensor as an array of its shape.\n\n"
    "Args:\n    which: its name, or its index.\n\n"
    "Raises:\n    InvalidArgumentError: also for a tensor that the gaps of a strided buffer\n"
    "    divide.\n" VESCOMM_ALONE;
inline constexpr const char *gpu_buffer_explain =
    "Describes the memory, and how a collective on this buffer alone runs.\n\n"
    "Args:\n    reduces: False: all_gather_v; True: reduce_scatter_v.\n" VESCOMM_ALONE;
inline constexpr const char *gpu_buffer_free =
    "Frees the buffer when the work of the device is complete.\n\n"
    "Raises:\n    InvalidArgumentError: arrays of it exist.\n" VESCOMM_COLLECTIVE;

inline constexpr const char *gpu_array =
    "A dense array in device memory: a view of a device buffer. It exports DLPack, and keeps the\n"
    "memory alive. An export makes the stream of the package that takes it wait for the\n"
    "collectives so far, unless the stream is captured into a graph. Later calls and kernels are\n"
    "ordered by the program.\n\n"
    "Since: 0.1";
inline constexpr const char *gpu_array_address = "Device address of the first element. Since: 0.1";
inline constexpr const char *gpu_array_shape = "Extents, row-major. Since: 0.1";
inline constexpr const char *gpu_array_type = "Type of the elements. Since: 0.1";
inline constexpr const char *gpu_array_size = "Number of elements. Since: 0.1";
inline constexpr const char *gpu_array_device = "Number of the device. Since: 0.1";
inline constexpr const char *gpu_array_torch =
    "Returns a tensor of torch that shares the memory, without a copy. Later work of torch's\n"
    "current stream waits for the collectives so far.\n" VESCOMM_ALONE;

}  // namespace vescomm::python::docs

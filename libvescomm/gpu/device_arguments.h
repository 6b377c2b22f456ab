// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Checks of the arguments of collectives on device memory. Each throws INVALID_ARGUMENT, or
// UNSUPPORTED for what NCCL lacks; the sentence begins with the name of the function.
#pragma once

#include <cstdint>
#include <string>

#include "gpu/device_communicator.h"
#include "gpu/device_ragged.h"
#include "layout/layout.h"
#include "vescomm/vescomm.h"

namespace vescomm::internal::device {

inline constexpr std::int64_t max_elements = std::int64_t{1} << 40;

// Throws INVALID_ARGUMENT.
[[noreturn]] void refuse(const char *function, const std::string &why);

void check_type(const char *function, vescomm_type_t type);
void check_count(const char *function, std::int64_t count);
// The pointer is not NULL, and aligned to elements of the type.
void check_pointer(const char *function, const char *name, const void *pointer,
                   vescomm_type_t type);
// `expected`: the address in the second array at which the first one may lie.
void check_overlap(const char *function, const char *first, std::uint64_t first_bytes,
                   const char *second, std::uint64_t second_bytes, const char *expected);
// The layout has a shard for each rank.
void check_layout(const char *function, const DeviceCommunicator &comm, const Layout &layout);
// Throws unless it is 0, or 1 and there are sums of the type.
void check_reduces(const char *function, std::int32_t reduces, vescomm_type_t type);
// NCCL's type and operator.
Reduction checked_reduction(const char *function, vescomm_type_t type, vescomm_op_t op);
// Refuses reductions of floats by NCCL if the communicator asks for reproducible ones.
void check_reproducible(const char *function, const DeviceCommunicator &comm, vescomm_type_t type);

}  // namespace vescomm::internal::device

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_arguments.h"

#include "base/error.h"
#include "base/types.h"
#include "execute/kernels.h"
#include "gpu/nccl_types.h"
#include "gpu/unaligned_text.h"

namespace vescomm::internal::device {
namespace {

nccl::Type nccl_type(const char *function, vescomm_type_t type) {
    if (const auto reduced = nccl::reduced_type(type)) return *reduced;
    throw Error(VESCOMM_ERROR_UNSUPPORTED, std::string(function) +
                                               ": NCCL does not reduce elements of type " +
                                               name_of_type(type) + " on every GPU");
}

nccl::Op nccl_op(const char *function, vescomm_op_t op, vescomm_type_t type) {
    switch (op) {
        case VESCOMM_SUM:
            return nccl::sum;
        case VESCOMM_PROD:
            return nccl::prod;
        case VESCOMM_MIN:
            return nccl::min;
        case VESCOMM_MAX:
            return nccl::max;
        case VESCOMM_AVERAGE:
            if (is_float(type)) return nccl::average;
            break;
        default:
            break;
    }
    if (op < 0 || op > last_op)
        refuse(function, name_of_op(op) +
                             " is no operator; use one of VESCOMM_SUM (0) to VESCOMM_MAX (" +
                             std::to_string(VESCOMM_MAX) + ")");
    throw Error(VESCOMM_ERROR_UNSUPPORTED, std::string(function) + ": there is no " +
                                               name_of_op(op) + " of elements of type " +
                                               name_of_type(type) + " on device memory");
}

}  // namespace

void refuse(const char *function, const std::string &why) {
    throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, std::string(function) + ": " + why);
}

void check_type(const char *function, vescomm_type_t type) {
    if (type < VESCOMM_F32 || type > last_type)
        refuse(function,
               name_of_type(type) +
                   " is no type of elements; use one of VESCOMM_F32 (1) to VESCOMM_C128 (" +
                   std::to_string(last_type) + ")");
}

void check_count(const char *function, std::int64_t count) {
    if (count < 0 || count > max_elements)
        refuse(function, "count is " + std::to_string(count) + "; it must be 0 to 2^40");
}

void check_pointer(const char *function, const char *name, const void *pointer,
                   vescomm_type_t type) {
    if (pointer == nullptr) refuse(function, std::string(name) + " is NULL; it must be given");
    if (reinterpret_cast<std::uintptr_t>(pointer) % alignment_of(type) != 0)
        refuse(function, unaligned_text(name, pointer, alignment_of(type)));
}

void check_overlap(const char *function, const char *first, std::uint64_t first_bytes,
                   const char *second, std::uint64_t second_bytes, const char *expected) {
    if (first == expected || first_bytes == 0 || second_bytes == 0) return;
    if (first + first_bytes <= second || second + second_bytes <= first) return;
    refuse(function, "source and output overlap, but not in place");
}

void check_layout(const char *function, const DeviceCommunicator &comm, const Layout &layout) {
    if (layout.ranks() != comm.ranks())
        refuse(function, "the layout has " + std::to_string(layout.ranks()) +
                             " shards, and the communicator " + std::to_string(comm.ranks()) +
                             " ranks");
}

void check_reproducible(const char *function, const DeviceCommunicator &comm, vescomm_type_t type) {
    if (comm.comm().reproducible() && comm.ranks() > 1 && is_float(type))
        throw Error(
            VESCOMM_ERROR_UNSUPPORTED,
            std::string(function) +
                ": the communicator asks for reproducible reductions, and those of floats by "
                "NCCL are not");
}

void check_reduces(const char *function, std::int32_t reduces, vescomm_type_t type) {
    if (reduces != 0 && reduces != 1)
        refuse(function, "reduces is " + std::to_string(reduces) + "; use 0 or 1");
    check_type(function, type);
    if (reduces == 1) nccl_type(function, type);
}

Reduction checked_reduction(const char *function, vescomm_type_t type, vescomm_op_t op) {
    return {nccl_type(function, type), nccl_op(function, op, type), type, op};
}

}  // namespace vescomm::internal::device

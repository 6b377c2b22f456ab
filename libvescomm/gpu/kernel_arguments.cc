// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernel_arguments.h"

#include <cmath>

#include "base/types.h"
#include "execute/kernels.h"
#include "gpu/unaligned_text.h"

namespace vescomm::internal::device {

std::int64_t checked_pieces(const char *function, Pieces pieces, bool has_source) {
    std::int64_t end = 0, elements = 0;
    for (std::size_t k = 0; k < pieces.size(); ++k) {
        const vescomm_gpu_piece_t &piece = pieces[k];
        const auto text = [&] {
            return "piece " + std::to_string(k) + " has target " + std::to_string(piece.target) +
                   ", source " + std::to_string(piece.source) + " and count " +
                   std::to_string(piece.count);
        };
        if (piece.count < 0 || piece.target < 0 || (has_source && piece.source < 0))
            refuse(function, text() + "; they must be 0 or more");
        if (piece.count > max_elements - elements)
            refuse(function, text() + "; all pieces must have at most 2^40 elements");
        if (piece.target > INT64_MAX / 16 || (has_source && piece.source > INT64_MAX / 16))
            refuse(function, text() + "; offsets must be at most 2^59");
        if (piece.target < end)
            refuse(function, text() + ", but the piece before ends at " + std::to_string(end) +
                                 "; pieces must ascend and not overlap in the target");
        end = piece.target + piece.count;
        elements += piece.count;
    }
    return elements;
}

void check_address(const char *function, const char *name, const void *address,
                   std::size_t alignment) {
    if (address == nullptr) refuse(function, std::string(name) + " is NULL; it must be given");
    if (reinterpret_cast<std::uintptr_t>(address) % alignment != 0)
        refuse(function, unaligned_text(name, address, alignment));
}

void check_float(const char *function, vescomm_type_t type) {
    if (!is_type(type) || !is_float(type))
        refuse(function, name_of_type(type) + " is not a float; use f32, bf16, f16, f64 or an f8");
}

void check_small_float(const char *function, vescomm_type_t type, const std::string &name) {
    if (type != VESCOMM_F32 && type != VESCOMM_BF16 && type != VESCOMM_F16)
        refuse(function, name + " is " + name_of_type(type) + "; it must be f32, bf16 or f16");
}

void check_finite(const char *function, const char *name, double value) {
    if (!std::isfinite(value))
        refuse(function,
               std::string(name) + " is " + std::to_string(value) + "; it must be finite");
}

}  // namespace vescomm::internal::device

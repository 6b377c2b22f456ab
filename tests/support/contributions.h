// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Contributions to reductions of every type, for tests of types and operators.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

#include "base/types.h"
#include "execute/kernels.h"

namespace vescomm::internal::testing_support {

using Bytes = std::vector<std::byte>;

// The contribution of a rank. With `any_bits` the bytes are random, for sums in the order of ranks.
// Otherwise floats are one and two, whose sums and products are exact in every accumulator, and
// complex numbers are these times 2 + i, so that no part of a product is 0. Results of integers and
// bool do not depend on the order anyway.
inline Bytes contribution(vescomm_type_t type, std::size_t count, int rank, bool any_bits) {
    std::mt19937 random(static_cast<unsigned>(100 * type + rank));
    const std::size_t size = size_of(type);
    Bytes bytes(count * size);
    if (any_bits || is_integer(type) || type == VESCOMM_BOOL) {
        for (std::byte &byte : bytes) byte = static_cast<std::byte>(random());
        // Half of the bytes of a bool are 0.
        if (type == VESCOMM_BOOL)
            for (std::byte &byte : bytes) byte = random() % 2 == 0 ? std::byte{} : byte;
        return bytes;
    }
    const vescomm_type_t part = type == VESCOMM_C64    ? VESCOMM_F32
                                : type == VESCOMM_C128 ? VESCOMM_F64
                                                       : type;
    for (std::size_t i = 0; i < count; ++i) {
        const auto value = static_cast<float>(1 + random() % 2);
        const float parts[] = {is_complex(type) ? 2 * value : value, value};
        kernels().convert(&bytes[i * size], part, parts, VESCOMM_F32, is_complex(type) ? 2 : 1);
    }
    return bytes;
}

// The reduction of all contributions, in order. `factor`: of a premultiplied sum.
inline Bytes reduction(vescomm_op_t op, vescomm_type_t type, const std::vector<Bytes> &all,
                       double factor) {
    std::vector<const void *> pointers;
    for (const Bytes &bytes : all) pointers.push_back(bytes.data());
    const std::vector<double> factors(all.size(), factor);
    Bytes result(all[0].size());
    kernels().reduce({.op = op,
                      .divisor = op == VESCOMM_AVERAGE ? static_cast<int>(all.size()) : 1,
                      .factors = op == VESCOMM_PREMULTIPLIED_SUM ? factors.data() : nullptr},
                     pointers, type, {}, result.data(), type, result.size() / size_of(type));
    return result;
}

}  // namespace vescomm::internal::testing_support

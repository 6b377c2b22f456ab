// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Element types: their names, and the conversion of small whole numbers. A bool is false for 0 and
// true for all others; a complex number has the imaginary part 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "vescomm/vescomm.h"

namespace vescomm::perf {

enum class Kind { floating, integer, truth, complex };

struct Type {
    std::string_view name;
    std::string_view nccl_name;  // name in nccl-tests or in PyTorch, accepted as well
    vescomm_type_t number;
    Kind kind;
    std::int64_t exact;  // whole numbers from 0 to this are exact
    void (*write)(std::int64_t value, std::byte *to);
    double (*read)(const std::byte *from);

    std::int64_t bytes() const { return static_cast<std::int64_t>(vescomm_type_get_bytes(number)); }
};

std::span<const Type> types();

// Throws std::invalid_argument, which lists the known names.
const Type &find_type(std::string_view name);

}  // namespace vescomm::perf

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Element types: their names, and the conversion of small whole numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "vescomm/vescomm.h"

namespace vescomm::perf {

struct Type {
    std::string_view name;
    std::string_view nccl_name;  // name in nccl-tests, accepted as well
    vescomm_type_t number;
    std::int64_t exact;  // whole numbers from 0 to this are exact
    void (*write)(std::int64_t value, std::byte *to);
    double (*read)(const std::byte *from);

    std::int64_t bytes() const { return static_cast<std::int64_t>(vescomm_type_get_bytes(number)); }
};

std::span<const Type> types();

// Throws std::invalid_argument, which lists the known names.
const Type &find_type(std::string_view name);

}  // namespace vescomm::perf

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Values of options as people write them. All throw std::invalid_argument with a sentence.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perf/run/options.h"

namespace vescomm::perf {

// "65536", "64K", "1.5M", "2G": nccl-tests' powers of two; KiB, MiB and GiB mean the same. Throws
// what begins with `option`.
std::int64_t parse_size(std::string_view text, std::string_view option);

// From `min` to `max`, or to `min` where that is empty: by steps of bytes (1M where that is empty),
// or by a factor that is not 0.
std::vector<std::int64_t> make_sizes(const std::string &min_bytes, const std::string &max_bytes,
                                     const std::string &step_bytes, double factor);

// "200" or "200:1": microseconds, and who is late.
void parse_skew(const std::string &text, Options &options);

}  // namespace vescomm::perf

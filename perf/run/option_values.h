// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Parses values of options. All functions throw std::invalid_argument with a sentence.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perf/run/options.h"

namespace vescomm::perf {

// Parses bytes: "65536", "64K", "1.5M", "2G", which are powers of two as in nccl-tests; KiB, MiB
// and GiB are synonyms. The text of the exception begins with `option`.
std::int64_t parse_size(std::string_view text, std::string_view option);

// Returns the sizes from `min_bytes` to `max_bytes` (empty: `min_bytes`). They grow by `factor`, or
// if it is 0 by `step_bytes` (empty: 1M).
std::vector<std::int64_t> make_sizes(const std::string &min_bytes, const std::string &max_bytes,
                                     const std::string &step_bytes, double factor);

// Parses "200" or "200:1": microseconds, and the late rank.
void parse_skew(const std::string &text, Options &options);

}  // namespace vescomm::perf

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "perf/run/table.h"

namespace vescomm::perf {

// Everything that was measured, after perf/vescomm-perf-1.schema.json. One result a line.
std::string to_json(const Run &run, const Options &options, const std::vector<Result> &results,
                    const Summary &summary);

// Replaces a file at once: readers see the old one or the new one. Throws Failure.
void replace_file(const std::string &path, const std::string &text);

}  // namespace vescomm::perf

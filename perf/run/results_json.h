// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "perf/run/table.h"

namespace vescomm::perf {

// Returns all results as JSON, one result per line; perf/vescomm-perf-1.schema.json describes it.
std::string to_json(const Run &run, const Options &options, const std::vector<Result> &results,
                    const Summary &summary);

// Throws Failure if replace_file() cannot write the file: before a measurement of hours.
void require_writable(const std::string &path);
// Replaces a file atomically: readers see the old or the new contents. Throws Failure.
void replace_file(const std::string &path, const std::string &text);

}  // namespace vescomm::perf

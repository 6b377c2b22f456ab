// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace vescomm {

// Who writes a file, for its name.
struct Writer {
    int rank = 0;
    int ranks = 1;
    int communicator = 0;
};

// The name that is meant by one with %r (rank), %c (communicator of the process), %p (process) and
// %% in it. Throws Error(INVALID_ARGUMENT) for any other %; `what` says where the name is from.
std::string file_name(std::string_view pattern, const Writer &writer, const std::string &what);

// Writes a file so that nobody ever sees a part of it: replaces one that exists. Throws
// Error(SYSTEM).
void write_file(const std::string &name, std::string_view text, const std::string &what);

}  // namespace vescomm

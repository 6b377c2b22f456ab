// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/deadline.h"

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

// Writes a file so that nobody ever sees a part of it: replaces one that exists, and a symbolic
// link instead of its target. Follows no link at the name of the temporary file either, which is
// unpredictable. Permissions are those of the umask. Throws Error(SYSTEM), and INVALID_ARGUMENT
// where the name is that of a device, a pipe or a socket.
void write_file(const std::string &name, std::string_view text, const std::string &what);

// The same within a limited time, on a thread of its own: no call of a file system whose server is
// gone need ever return. Throws Error(TIMEOUT) when the deadline passes; the file may still come.
void write_file_by(const std::string &name, std::string text, const std::string &what,
                   Deadline deadline);

}  // namespace vescomm

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/deadline.h"

namespace vescomm::internal {

// The writer of a file: the values that file_name() puts into the name.
struct Writer {
    int rank = 0;
    int ranks = 1;
    int communicator = 0;
};

// Expands %r (rank), %c (communicator of the process), %p (process ID) and %% in a file name.
// Throws Error(INVALID_ARGUMENT) for any other %, and for a name without %r if there are several
// ranks. `what` precedes the pattern in the error sentence and says where the name comes from.
std::string file_name(std::string_view pattern, const Writer &writer, const std::string &what);

// Writes a file atomically: readers never see a part of it. Replaces an existing file. If the name
// is a symbolic link, replaces the link and not its target. The name of the temporary file is
// unpredictable, and no link at that name is followed. Permissions follow the umask. Throws
// Error(SYSTEM), and Error(INVALID_ARGUMENT) if the name is that of a device, a pipe or a socket.
void write_file(const std::string &name, std::string_view text, const std::string &what);

// Calls write_file() in a separate thread and waits for it until the deadline: a call of a file
// system whose server is gone may never return. Throws Error(TIMEOUT) when the deadline passes. The
// file may still appear later.
void write_file_by(const std::string &name, std::string text, const std::string &what,
                   Deadline deadline);

}  // namespace vescomm::internal

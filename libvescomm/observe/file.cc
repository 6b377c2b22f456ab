// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "observe/file.h"

#include <unistd.h>

#include <cstdio>

#include "base/error.h"
#include "base/system.h"

namespace vescomm {

std::string file_name(std::string_view pattern, const Writer &writer, const std::string &what) {
    std::string name;
    bool has_rank = false;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
        if (pattern[i] != '%') {
            name += pattern[i];
            continue;
        }
        const char which = ++i < pattern.size() ? pattern[i] : '\0';
        has_rank |= which == 'r';
        if (which == 'r') name += std::to_string(writer.rank);
        else if (which == 'c') name += std::to_string(writer.communicator);
        else if (which == 'p') name += std::to_string(getpid());
        else if (which == '%') name += '%';
        else
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        what + std::string(pattern) +
                            ": after a % comes r (rank), c (communicator of the process), p "
                            "(process) or another %");
    }
    if (!has_rank && writer.ranks > 1)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    what + std::string(pattern) +
                        ": ranks would overwrite one another's files; put %r into the name, which "
                        "becomes the rank");
    return name;
}

void write_file(const std::string &name, std::string_view text, const std::string &what) {
    // Beside it, since only within one file system a file can take another one's place.
    const std::string part = name + "." + std::to_string(getpid()) + ".part";
    std::FILE *file = std::fopen(part.c_str(), "w");
    if (file == nullptr) throw system_error("cannot write " + what + " to " + name);
    bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    written = std::fclose(file) == 0 && written;
    if (written && std::rename(part.c_str(), name.c_str()) == 0) return;
    const Error error = system_error("cannot write " + what + " to " + name);
    std::remove(part.c_str());
    throw error;
}

}  // namespace vescomm

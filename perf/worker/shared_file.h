// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Memory that the coordinator makes for the ranks of one machine. It has no name in a file system,
// so nothing is left behind. Ranks open it as /proc/PID/fd/N of the coordinator.
#pragma once

#include <cstddef>
#include <string>

namespace vescomm::perf {

// Maps a file. Throws std::system_error.
void *map_shared(const std::string &file, std::size_t bytes);
void unmap_shared(void *memory, std::size_t bytes);

// An anonymous file of `bytes` zeros. Only the pages that are written occupy memory.
class SharedFile {
public:
    explicit SharedFile(std::size_t bytes);
    ~SharedFile();
    SharedFile(const SharedFile &) = delete;
    SharedFile &operator=(const SharedFile &) = delete;

    std::string path() const;  // valid in child processes

private:
    int descriptor_;
};

}  // namespace vescomm::perf

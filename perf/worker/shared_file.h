// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Memory that the coordinator made for the ranks of one machine. It has no name of its own, so
// nothing is left behind: ranks open it as /proc/PID/fd/N of the coordinator.
#pragma once

#include <cstddef>
#include <string>

namespace vescomm::perf {

// Throws std::system_error.
void *map_shared(const std::string &file, std::size_t bytes);
void unmap_shared(void *memory, std::size_t bytes);

// An anonymous file of so many bytes, all zero, that takes memory only where it is written.
class SharedFile {
public:
    explicit SharedFile(std::size_t bytes);
    ~SharedFile();
    SharedFile(const SharedFile &) = delete;
    SharedFile &operator=(const SharedFile &) = delete;

    std::string path() const;  // for the processes that this one starts

private:
    int descriptor_;
};

}  // namespace vescomm::perf

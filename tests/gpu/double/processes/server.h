// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Makes the calls of programs, in the process of gpu_double_run.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "gpu/double/processes/functions.h"

namespace gpu_double::processes {

// Pinned memory of all programs, at addresses that are free in each of them. Addresses are never
// used twice.
class SharedMemory {
public:
    SharedMemory();
    // Zeros; nullptr if too few addresses are left.
    void *allocate(std::size_t bytes);
    void describe(Welcome &welcome) const;

private:
    std::mutex mutex_;
    int file_ = -1;
    char *base_ = nullptr;
    std::size_t used_ = 0;
};

// Never destroyed: threads of streams and of connections run until the process ends.
class Server {
public:
    // Listens at the path of a socket, which must not exist.
    explicit Server(const std::string &path);
    // Waits until all connections have ended, at most some seconds: the calls of a dead process may
    // not end.
    void wait_for_connections();

private:
    void accept_all(int listener);
    void serve_and_close(int socket);
    void serve(int socket);
    void serve_thread(int socket);

    SharedMemory pinned_;
    std::atomic<int> processes_{0};
    std::mutex mutex_;
    std::condition_variable changed_;
    int connections_ = 0;
};

}  // namespace gpu_double::processes

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace vescomm::fsdp::checkpoint {

// The system calls that change or read files of a checkpoint, as POSIX defines them: -1 and errno
// on failure. Tests override them to make a call fail, or to end the process at it.
class SystemCalls {
public:
    virtual ~SystemCalls() = default;

    virtual int open(const char *path, int flags, mode_t mode);
    virtual int close(int file);
    virtual ssize_t write(int file, const void *bytes, std::size_t count);
    virtual ssize_t pread(int file, void *bytes, std::size_t count, std::int64_t offset);
    virtual int fsync(int file);
    // Takes an exclusive lock without waiting, until the file is closed (flock()).
    virtual int lock(int file);
    virtual int rename(const char *from, const char *to);
    virtual int unlink(const char *path);
    // Removes a file of an open folder (unlinkat()).
    virtual int unlink_in(int folder, const char *name);
    virtual int mkdir(const char *path, mode_t mode);
    virtual int rmdir(const char *path);
    // Returns the size of a regular file; EISDIR or EINVAL for anything else.
    virtual std::int64_t size(int file);
};

// The calls of the operating system.
SystemCalls &system_calls();

}  // namespace vescomm::fsdp::checkpoint

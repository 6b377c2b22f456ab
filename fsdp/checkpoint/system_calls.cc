// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "fsdp/checkpoint/system_calls.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace vescomm::fsdp::checkpoint {

int SystemCalls::open(const char *path, int flags, mode_t mode) {
    return ::open(path, flags, mode);
}

int SystemCalls::close(int file) {
    return ::close(file);
}

ssize_t SystemCalls::write(int file, const void *bytes, std::size_t count) {
    return ::write(file, bytes, count);
}

ssize_t SystemCalls::pread(int file, void *bytes, std::size_t count, std::int64_t offset) {
    return ::pread(file, bytes, count, offset);
}

int SystemCalls::fsync(int file) {
    return ::fsync(file);
}

int SystemCalls::lock(int file) {
    return ::flock(file, LOCK_EX | LOCK_NB);
}

int SystemCalls::rename(const char *from, const char *to) {
    return ::rename(from, to);
}

int SystemCalls::unlink(const char *path) {
    return ::unlink(path);
}

int SystemCalls::unlink_in(int folder, const char *name) {
    return ::unlinkat(folder, name, 0);
}

int SystemCalls::mkdir(const char *path, mode_t mode) {
    return ::mkdir(path, mode);
}

int SystemCalls::rmdir(const char *path) {
    return ::rmdir(path);
}

std::int64_t SystemCalls::size(int file) {
    struct stat status {};
    if (::fstat(file, &status) != 0) return -1;
    if (S_ISREG(status.st_mode)) return status.st_size;
    errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
    return -1;
}

SystemCalls &system_calls() {
    static SystemCalls calls;
    return calls;
}

}  // namespace vescomm::fsdp::checkpoint

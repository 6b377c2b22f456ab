// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// System calls that fail, end the process, or lose what is not on the disk.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fsdp/checkpoint/system_calls.h"

namespace vescomm::fsdp::checkpoint::testing_support {

// Calls `at` before each system call that changes or reads files, with the number of the call from
// 1 on. The call fails with the error that `at` returns, if it is not 0. Closing never fails.
class WatchedCalls : public SystemCalls {
public:
    using At = std::function<int(int number, std::string_view call)>;
    explicit WatchedCalls(At at) : at_(std::move(at)) {}

    int calls() const { return number_; }

    int open(const char *path, int flags, mode_t mode) override {
        return fails("open") ? -1 : SystemCalls::open(path, flags, mode);
    }
    ssize_t write(int file, const void *bytes, std::size_t count) override {
        return fails("write") ? -1 : SystemCalls::write(file, bytes, count);
    }
    ssize_t pread(int file, void *bytes, std::size_t count, std::int64_t offset) override {
        return fails("pread") ? -1 : SystemCalls::pread(file, bytes, count, offset);
    }
    int fsync(int file) override { return fails("fsync") ? -1 : SystemCalls::fsync(file); }
    int lock(int file) override { return fails("lock") ? -1 : SystemCalls::lock(file); }
    int rename(const char *from, const char *to) override {
        return fails("rename") ? -1 : SystemCalls::rename(from, to);
    }
    int unlink(const char *path) override {
        return fails("unlink") ? -1 : SystemCalls::unlink(path);
    }
    int unlink_in(int folder, const char *name) override {
        return fails("unlink") ? -1 : SystemCalls::unlink_in(folder, name);
    }
    int mkdir(const char *path, mode_t mode) override {
        return fails("mkdir") ? -1 : SystemCalls::mkdir(path, mode);
    }
    int rmdir(const char *path) override { return fails("rmdir") ? -1 : SystemCalls::rmdir(path); }
    std::int64_t size(int file) override { return fails("size") ? -1 : SystemCalls::size(file); }

private:
    bool fails(std::string_view call) {
        const int error = at_(++number_, call);
        if (error == 0) return false;
        errno = error;
        return true;
    }

    At at_;
    std::atomic<int> number_ = 0;
};

// Kills the process with SIGKILL at the call of a number: before it, or in the middle of a write.
class KillingCalls final : public SystemCalls {
public:
    KillingCalls(int at, bool in_the_middle) : at_(at), in_the_middle_(in_the_middle) {}

    int open(const char *path, int flags, mode_t mode) override {
        count();
        return SystemCalls::open(path, flags, mode);
    }
    int close(int file) override {
        count();
        return SystemCalls::close(file);
    }
    ssize_t write(int file, const void *bytes, std::size_t count) override {
        if (++number_ == at_) {
            if (in_the_middle_) (void)!::write(file, bytes, count / 2);
            die();
        }
        return SystemCalls::write(file, bytes, count);
    }
    int fsync(int file) override {
        count();
        return SystemCalls::fsync(file);
    }
    int rename(const char *from, const char *to) override {
        count();
        return SystemCalls::rename(from, to);
    }
    int unlink(const char *path) override {
        count();
        return SystemCalls::unlink(path);
    }
    int unlink_in(int folder, const char *name) override {
        count();
        return SystemCalls::unlink_in(folder, name);
    }
    int mkdir(const char *path, mode_t mode) override {
        count();
        return SystemCalls::mkdir(path, mode);
    }
    int rmdir(const char *path) override {
        count();
        return SystemCalls::rmdir(path);
    }

private:
    void count() {
        if (++number_ == at_) die();
    }
    [[noreturn]] static void die() {
        kill(getpid(), SIGKILL);
        for (;;) pause();
    }

    const int at_;
    const bool in_the_middle_;
    std::atomic<int> number_ = 0;
};

// A machine that loses its power at the call of a number. Every later call fails without an effect.
// lose() then removes what no fsync() has put on the disk, in the worst order: the bytes of files
// and the names of new files are lost, and renames and removals have happened.
class PowerLossCalls final : public SystemCalls {
public:
    explicit PowerLossCalls(int at) : at_(at) {}

    bool lost() const { return number_ >= at_; }

    int open(const char *path, int flags, mode_t mode) override {
        const std::lock_guard lock(mutex_);
        if (off()) return -1;
        const int file = SystemCalls::open(path, flags, mode);
        if (file < 0) return file;
        paths_[file] = path;
        if ((flags & O_CREAT) != 0) {
            new_names_.push_back(path);
            unwritten_.insert(path);
        }
        return file;
    }
    ssize_t write(int file, const void *bytes, std::size_t count) override {
        const std::lock_guard lock(mutex_);
        if (off()) return -1;
        unwritten_.insert(paths_[file]);
        return SystemCalls::write(file, bytes, count);
    }
    ssize_t pread(int file, void *bytes, std::size_t count, std::int64_t offset) override {
        const std::lock_guard lock(mutex_);
        return off() ? -1 : SystemCalls::pread(file, bytes, count, offset);
    }
    int fsync(int file) override {
        const std::lock_guard lock(mutex_);
        if (off()) return -1;
        const std::string path = paths_[file];
        unwritten_.erase(path);
        std::erase_if(new_names_, [&](const std::string &name) {
            return std::filesystem::path(name).parent_path() == path;
        });
        return 0;
    }
    int rename(const char *from, const char *to) override {
        const std::lock_guard lock(mutex_);
        if (off()) return -1;
        if (unwritten_.erase(from) > 0) unwritten_.insert(to);
        std::erase(new_names_, from);
        return SystemCalls::rename(from, to);
    }
    int unlink(const char *path) override {
        const std::lock_guard lock(mutex_);
        return off() ? -1 : SystemCalls::unlink(path);
    }
    int unlink_in(int folder, const char *name) override {
        const std::lock_guard lock(mutex_);
        return off() ? -1 : SystemCalls::unlink_in(folder, name);
    }
    int mkdir(const char *path, mode_t mode) override {
        const std::lock_guard lock(mutex_);
        if (off()) return -1;
        const int result = SystemCalls::mkdir(path, mode);
        if (result == 0) new_names_.push_back(path);
        return result;
    }
    int rmdir(const char *path) override {
        const std::lock_guard lock(mutex_);
        return off() ? -1 : SystemCalls::rmdir(path);
    }

    void lose() {
        for (const std::string &path : unwritten_)
            if (std::filesystem::exists(path)) std::filesystem::resize_file(path, 0);
        for (const std::string &path : new_names_) std::filesystem::remove_all(path);
    }

private:
    bool off() {
        errno = EIO;
        return ++number_ >= at_;
    }

    const int at_;
    std::mutex mutex_;
    std::atomic<int> number_ = 0;
    std::map<int, std::string> paths_;  // of open files; a number is used again after its close
    std::set<std::string> unwritten_;  // files whose bytes are not on the disk
    std::vector<std::string> new_names_;  // that are not on the disk
};

}  // namespace vescomm::fsdp::checkpoint::testing_support

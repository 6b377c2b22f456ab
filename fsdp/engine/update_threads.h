// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "vescomm/vescomm.hpp"

namespace vescomm::fsdp {

// Threads of one rank that update its shards together: the caller's, and others that sleep between
// two calls of run(). One caller at a time.
class UpdateThreads {
public:
    // Fewer threads exist if the system gives no more.
    explicit UpdateThreads(int threads);
    ~UpdateThreads();
    UpdateThreads(const UpdateThreads &) = delete;
    UpdateThreads &operator=(const UpdateThreads &) = delete;

    // Including the caller's.
    int threads() const { return static_cast<int>(helpers_.size()) + 1; }
    // Calls job(i) once for each i below `jobs`, in any thread and order, and returns after all.
    void run(std::size_t jobs, const std::function<void(std::size_t)> &job) noexcept;

private:
    void help() noexcept;
    void take_jobs() noexcept;

    std::mutex mutex_;
    std::condition_variable begin_;
    std::condition_variable end_;
    int invited_ = 0;  // helpers that may still begin
    int working_ = 0;
    bool ends_ = false;
    const std::function<void(std::size_t)> *job_ = nullptr;
    std::size_t jobs_ = 0;
    std::atomic<std::size_t> next_{0};
    std::vector<std::thread> helpers_;
};

// `asked`: the option update_threads. 0: this rank's part of the cores on which it may run.
// Collective.
std::shared_ptr<UpdateThreads> make_update_threads(std::int32_t asked, const Communicator &world);

}  // namespace vescomm::fsdp

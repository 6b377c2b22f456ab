// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/update_threads.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <system_error>

#include "base/signals.h"
#include "fsdp/hash.h"

namespace vescomm::fsdp {

namespace {

// Memory has no more bandwidth for further threads on the machines that are known.
constexpr int max_default_threads = 16;

// This rank's part of the cores on which it may run. Collective.
int count_own_cores(const Communicator &world) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    // It fails on a machine with more cores than a cpu_set_t holds.
    const bool known = sched_getaffinity(0, sizeof cores, &cores) == 0;
    const vescomm_comm_info_t info = world.info();
    const std::array<std::uint64_t, 2> mine = {hash_of(&cores, sizeof cores),
                                               static_cast<std::uint64_t>(info.node)};
    std::vector<std::array<std::uint64_t, 2>> all(static_cast<std::size_t>(info.ranks));
    check(vescomm_all_gather(world.get(), mine.data(), all.data(), 2, VESCOMM_U64, nullptr, nullptr,
                             nullptr));
    const auto sharers = static_cast<int>(std::ranges::count(all, mine));
    return known ? std::max(1, CPU_COUNT(&cores) / sharers) : 1;
}

}  // namespace

UpdateThreads::UpdateThreads(int threads) {
    const internal::SignalsBlocked blocked;
    helpers_.reserve(static_cast<std::size_t>(threads) - 1);
    try {
        while (this->threads() < threads) helpers_.emplace_back([this] { help(); });
    } catch (const std::system_error &) {  // the process or its user has as many as permitted
    }
}

UpdateThreads::~UpdateThreads() {
    {
        const std::lock_guard lock(mutex_);
        ends_ = true;
    }
    begin_.notify_all();
    for (std::thread &helper : helpers_) helper.join();
}

void UpdateThreads::run(std::size_t jobs, const std::function<void(std::size_t)> &job) noexcept {
    const auto others = jobs == 0 ? 0 : static_cast<int>(std::min(jobs - 1, helpers_.size()));
    {
        const std::lock_guard lock(mutex_);
        job_ = &job;
        jobs_ = jobs;
        next_ = 0;
        invited_ = others;
    }
    for (int other = 0; other < others; ++other) begin_.notify_one();
    take_jobs();
    std::unique_lock lock(mutex_);
    invited_ = 0;  // no job is left for those that have not woken up
    end_.wait(lock, [&] { return working_ == 0; });
}

void UpdateThreads::help() noexcept {
    std::unique_lock lock(mutex_);
    while (true) {
        begin_.wait(lock, [&] { return ends_ || invited_ > 0; });
        if (ends_) return;
        --invited_;
        ++working_;
        lock.unlock();
        take_jobs();
        lock.lock();
        if (--working_ == 0) end_.notify_one();
    }
}

void UpdateThreads::take_jobs() noexcept {
    for (std::size_t index = next_++; index < jobs_; index = next_++) (*job_)(index);
}

std::shared_ptr<UpdateThreads> make_update_threads(std::int32_t asked, const Communicator &world) {
    const int own = std::min(count_own_cores(world), max_default_threads);
    return std::make_shared<UpdateThreads>(asked != 0 ? asked : own);
}

}  // namespace vescomm::fsdp

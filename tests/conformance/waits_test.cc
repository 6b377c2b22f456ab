// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Waits for requests beside other calls: a second thread of each rank waits for the requests that
// the first thread starts, while that one starts the next and waits for some of them too. Also run
// under ThreadSanitizer.
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "support/array_ranks.h"

namespace vescomm::internal {
namespace {

using testing_support::check;
using testing_support::Kind;
using testing_support::run_array_ranks;
using testing_support::TestSetup;

std::vector<TestSetup> setups() {
    std::vector<TestSetup> setups;
    for (const char *progress : {"inline", "thread"}) {
        Config config;
        config.progress = progress;
        setups.push_back({Kind::node, {0}, config});
        setups.push_back({Kind::node, {0, 0}, config});
        setups.push_back({Kind::node, {0, 0, 0, 0, 0}, config});
        setups.push_back({Kind::loopback, {0, 0, 1}, config});
    }
    return setups;
}

std::string name_of(const ::testing::TestParamInfo<TestSetup> &info) {
    return testing_support::name_of(info.param) + "_" + info.param.config.progress;
}

// A thread that waits for the requests that it is given.
class Waiter {
public:
    Waiter() : thread_([this] { run(); }) {}
    ~Waiter() { end(); }
    Waiter(const Waiter &) = delete;
    Waiter &operator=(const Waiter &) = delete;

    void give(vescomm_request_t *request) {
        {
            const std::lock_guard lock(mutex_);
            given_.push_back(request);
        }
        changed_.notify_all();
    }
    // Returns when the waits for all given requests have ended.
    void join_waits() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return given_.empty() && !waiting_; });
    }
    // Ends the thread. Returns the message of the first error, empty if there was none.
    std::string end() {
        {
            const std::lock_guard lock(mutex_);
            ending_ = true;
        }
        changed_.notify_all();
        if (thread_.joinable()) thread_.join();
        return why_;
    }

private:
    void run() {
        std::unique_lock lock(mutex_);
        for (int i = 0;; ++i) {
            changed_.wait(lock, [this] { return !given_.empty() || ending_; });
            if (given_.empty()) return;
            vescomm_request_t *request = given_.front();
            given_.pop_front();
            waiting_ = true;
            lock.unlock();
            vescomm_status_t status = VESCOMM_IN_PROGRESS;
            if (i % 3 != 0) status = vescomm_request_wait(request);
            while (status == VESCOMM_IN_PROGRESS) status = vescomm_request_test(request);
            if (status != VESCOMM_OK && why_.empty()) why_ = vescomm_get_last_error();
            lock.lock();
            waiting_ = false;
            changed_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<vescomm_request_t *> given_;
    bool waiting_ = false;
    bool ending_ = false;
    std::string why_;  // written by the thread, read after its end
    std::thread thread_;
};

class Waits : public ::testing::TestWithParam<TestSetup> {};

// Six requests are under way at a time. Every second one is waited for by both threads.
TEST_P(Waits, OfAnotherThreadBesideCalls) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        constexpr std::int64_t count = 3000;
        constexpr std::size_t together = 6;
        constexpr int rounds = 20;
        const int rank = comm->value->rank(), ranks = comm->value->ranks();
        std::vector<std::vector<double>> data(together, std::vector<double>(count));
        Waiter waiter;
        for (int round = 0; round < rounds; ++round) {
            std::vector<vescomm_request_t *> requests;
            for (std::size_t k = 0; k < together; ++k) {
                data[k].assign(count, rank + static_cast<double>(k) + round);
                vescomm_request_t *request = nullptr;
                check(vescomm_all_reduce(comm, data[k].data(), data[k].data(), count, VESCOMM_F64,
                                         VESCOMM_SUM, nullptr, nullptr, &request));
                waiter.give(request);
                requests.push_back(request);
            }
            double one = 1;
            check(vescomm_all_reduce(comm, &one, &one, 1, VESCOMM_F64, VESCOMM_SUM, nullptr,
                                     nullptr, nullptr));
            EXPECT_EQ(one, ranks);
            for (std::size_t k = 0; k < together; k += 2) check(vescomm_request_wait(requests[k]));
            waiter.join_waits();
            for (std::size_t k = 0; k < together; ++k) {
                const double sum =
                    ranks * (static_cast<double>(k) + round) + ranks * (ranks - 1) / 2;
                EXPECT_EQ(data[k], std::vector<double>(count, sum)) << "round " << round;
                check(vescomm_request_free(requests[k]));
            }
        }
        EXPECT_EQ(waiter.end(), "");
    });
}

INSTANTIATE_TEST_SUITE_P(Everywhere, Waits, ::testing::ValuesIn(setups()), name_of);

}  // namespace
}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Legal programs. All ranks start requests and create objects in the same order, but each waits,
// tests and frees at its own times. All programs must end, with correct sums. A rank that waits in
// a creation makes progress on operations, because another rank may wait for one of them before it
// reaches the creation.
#include <unistd.h>

#include <cstdio>
#include <deque>
#include <random>
#include <stdexcept>
#include <thread>

#include "support/array_ranks.h"

namespace vescomm::internal {
namespace {

// Only rank 0 writes it.
std::string trace_file() {
    return testing::TempDir() + "vescomm-interleavings-" + std::to_string(getpid()) + ".json";
}

using testing_support::check;
using testing_support::Kind;
using testing_support::run_array_ranks;
using testing_support::TestSetup;

constexpr std::int64_t elements = 3000;

std::int64_t contribution(int rank, std::int64_t i, int number) {
    return (rank * 7 + i * 3 + number) % 19;
}

void expect_sums(const std::int64_t *data, int ranks, int number) {
    for (std::int64_t i = 0; i < elements; ++i) {
        std::int64_t sum = 0;
        for (int rank = 0; rank < ranks; ++rank) sum += contribution(rank, i, number);
        if (data[i] != sum)
            throw std::runtime_error("sum " + std::to_string(number) + ", element " +
                                     std::to_string(i) + ": " + std::to_string(data[i]) +
                                     " instead of " + std::to_string(sum));
    }
}

// An all_reduce, on a buffer or on its own array.
class Sum {
public:
    // Collective if it is on a buffer.
    Sum(vescomm_comm_t *comm, bool on_buffer) : comm_(comm), array_(elements) {
        data_ = array_.data();
        if (!on_buffer) return;
        std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks()), 0);
        counts[0] = elements - 1;
        counts.back() += 1;
        vescomm_layout_t *layout = nullptr;
        check(vescomm_layout_create_from_counts(counts.data(), ranks(), &layout));
        auto options = vescomm_buffer_options_init();
        options.type = VESCOMM_I64;
        check(vescomm_buffer_create(comm, layout, &options, &buffer_));
        check(vescomm_layout_free(layout));
        auto how = vescomm_request_options_init();
        how.algorithm = "two_phase";
        check(vescomm_all_reduce_create(comm, buffer_, &how, &request_));
        vescomm_view_t view{};
        check(vescomm_buffer_get_data(buffer_, &view));
        data_ = static_cast<std::int64_t *>(view.data);
    }
    ~Sum() {
        if (under_way_) vescomm_request_wait(request_);
        vescomm_request_free(request_);
        vescomm_buffer_free(buffer_);
    }
    Sum(const Sum &) = delete;
    Sum &operator=(const Sum &) = delete;

    void start(int number) {
        wait();
        number_ = number;
        for (std::int64_t i = 0; i < elements; ++i)
            data_[i] = contribution(comm_->value->rank(), i, number);
        if (buffer_ != nullptr) {
            check(vescomm_request_start(request_, nullptr));
        } else {
            check(vescomm_request_free(request_));
            request_ = nullptr;
            check(vescomm_all_reduce(comm_, data_, data_, elements, VESCOMM_I64, VESCOMM_SUM,
                                     nullptr, nullptr, &request_));
        }
        under_way_ = true;
    }
    void wait() {
        if (!under_way_) return;
        check(vescomm_request_wait(request_));
        finish();
    }
    void test() {
        if (!under_way_) return;
        const vescomm_status_t status = vescomm_request_test(request_);
        if (status == VESCOMM_IN_PROGRESS) return;
        check(status);
        finish();
    }

private:
    int ranks() const { return comm_->value->ranks(); }
    void finish() {
        under_way_ = false;
        expect_sums(data_, ranks(), number_);
    }

    vescomm_comm_t *comm_;
    std::vector<std::int64_t> array_;
    std::int64_t *data_ = nullptr;
    vescomm_buffer_t *buffer_ = nullptr;
    vescomm_request_t *request_ = nullptr;
    bool under_way_ = false;
    int number_ = 0;
};

vescomm_memory_t *make_memory(vescomm_comm_t *comm, std::uint64_t bytes) {
    auto options = vescomm_memory_options_init();
    options.bytes = bytes;
    vescomm_memory_t *memory = nullptr;
    check(vescomm_memory_create(comm, &options, &memory));
    return memory;
}

TestSetup on(Kind kind, std::vector<int> node_of, const char *progress) {
    TestSetup setup{kind, std::move(node_of), {}};
    setup.config.progress = progress;
    setup.config.timeout_seconds = 59;
    return setup;
}

std::vector<TestSetup> setups() {
    std::vector<TestSetup> setups;
    for (const char *progress : {"inline", "thread"}) {
        setups.push_back(on(Kind::node, {0, 0}, progress));
        setups.push_back(on(Kind::node, {0, 0, 0, 0}, progress));
        setups.push_back(on(Kind::loopback, {0, 0, 1}, progress));
        setups.push_back(on(Kind::loopback, {0, 1, 2, 0, 1}, progress));
#if VESCOMM_HAVE_UCX
        setups.push_back(on(Kind::ucx, {0, 1}, progress));
        setups.push_back(on(Kind::ucx, {0, 1, 1}, progress));
#endif
    }
    return setups;
}

std::string name_of(const ::testing::TestParamInfo<TestSetup> &info) {
    return testing_support::name_of(info.param) + "_" + info.param.config.progress;
}

class Interleavings : public ::testing::TestWithParam<TestSetup> {};

// One rank waits for the sum before each creation, the other ranks after it.
TEST_P(Interleavings, RanksWaitBeforeOrAfterACreation) {
    const std::function<void(vescomm_comm_t *)> creations[] = {
        [](vescomm_comm_t *comm) { check(vescomm_memory_free(make_memory(comm, 100))); },
        [](vescomm_comm_t *comm) { Sum(comm, true); },
        [](vescomm_comm_t *comm) {
            vescomm_request_t *request = nullptr;
            check(vescomm_barrier_create(comm, nullptr, &request));
            check(vescomm_request_free(request));
        },
        [](vescomm_comm_t *comm) {
            const std::string name = trace_file();
            check(vescomm_trace_write(comm, name.c_str()));
            std::remove(name.c_str());
        },
    };
    run_array_ranks(GetParam(), [&](vescomm_comm_t *comm) {
        Sum buffer(comm, true), array(comm, false);
        const int ranks = comm->value->ranks();
        int number = 0;
        for (const auto &create : creations) {
            for (int first = 0; first < ranks; ++first) {
                for (Sum *sum : {&buffer, &array}) {
                    sum->start(++number);
                    if (comm->value->rank() == first) sum->wait();
                    create(comm);
                    sum->wait();
                }
            }
        }
    });
}

// One rank has completed its sum and ends the communicator; the others still wait for theirs.
TEST_P(Interleavings, RankLeavesWhileOthersStillWait) {
    for (const bool on_buffer : {false, true}) {
        run_array_ranks(GetParam(), [&](vescomm_comm_t *comm) {
            Sum sum(comm, on_buffer);
            sum.start(1);
            // On some ranks test() may complete the sum.
            sum.test();
            sum.wait();
        });
    }
}

// All ranks draw the same creations and starts from `common`, and their other calls from `own`.
void run_program(vescomm_comm_t *comm, unsigned seed) {
    std::mt19937 common(seed);
    std::mt19937 own(seed * 100 + static_cast<unsigned>(comm->value->rank()));
    std::deque<std::unique_ptr<Sum>> sums;
    std::deque<vescomm_memory_t *> memories;
    const auto some = [&own](auto &those) -> auto & {
        return those[own() % those.size()];
    };
    sums.push_back(std::make_unique<Sum>(comm, true));
    sums.push_back(std::make_unique<Sum>(comm, false));
    for (int number = 0; number < 25; ++number) {
        // The same on all ranks.
        switch (common() % 8) {
            case 0:
                memories.push_back(make_memory(comm, common() % 20'000));
                break;
            case 1:
                sums.push_back(std::make_unique<Sum>(comm, true));
                break;
            case 2:
                sums.push_back(std::make_unique<Sum>(comm, false));
                break;
            case 3:
                check(vescomm_barrier(comm));
                break;
            case 4:
                // Freeing is not collective, but all ranks free the same sums: they start the same
                // sums later.
                if (sums.size() > 4) {
                    sums.front()->wait();
                    sums.pop_front();
                }
                break;
            default:
                sums[common() % sums.size()]->start(number);
        }
        // Different on every rank.
        for (unsigned more = own() % 4; more > 0; --more) {
            switch (own() % 5) {
                case 0:
                    some(sums)->wait();
                    break;
                case 1:
                    check(vescomm_comm_progress(comm));
                    break;
                case 2:
                    if (memories.empty()) break;
                    check(vescomm_memory_free(memories.front()));
                    memories.pop_front();
                    break;
                case 3:
                    std::this_thread::yield();
                    break;
                default:
                    some(sums)->test();
            }
        }
    }
    for (vescomm_memory_t *memory : memories) check(vescomm_memory_free(memory));
    for (const auto &sum : sums) sum->wait();
}

TEST_P(Interleavings, RandomProgramsEndWithCorrectSums) {
    for (unsigned seed = 1; seed <= 6; ++seed) {
        run_array_ranks(GetParam(), [&](vescomm_comm_t *comm) { run_program(comm, seed); });
        if (HasFailure()) FAIL() << "with seed " << seed;
    }
}

INSTANTIATE_TEST_SUITE_P(Everywhere, Interleavings, ::testing::ValuesIn(setups()), name_of);

}  // namespace
}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Calls every function of a communicator that vescomm.h declares thread-safe in a second thread of
// each rank, while the first thread makes calls and waits for them. Verifies all results. Also run
// under ThreadSanitizer.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <thread>

#include "base/thread_sanitizer.h"
#include "support/array_ranks.h"

namespace vescomm::internal {
namespace {

using testing_support::check;
using testing_support::Kind;
using testing_support::run_array_ranks;
using testing_support::TestSetup;

bool slow() {
    const char *text = std::getenv("VESCOMM_TEST_SLOW");
    return text != nullptr && *text != '\0' && *text != '0';
}

// Repetitions of each call on each rank.
const int calls = slow() ? 15 : 40;

// One node and two emulated nodes, each with and without a progress thread.
std::vector<TestSetup> setups() {
    std::vector<TestSetup> setups;
    for (const char *progress : {"inline", "thread"}) {
        Config config;
        config.progress = progress;
        setups.push_back({Kind::node, {0}, config});
        setups.push_back({Kind::node, {0, 0}, config});
        setups.push_back({Kind::loopback, {0, 0, 1}, config});
#if VESCOMM_HAVE_UCX && !VESCOMM_THREAD_SANITIZER
        // UCX is not built with ThreadSanitizer, which then reports false races in it.
        setups.push_back({Kind::ucx, {0, 0, 1}, config});
#endif
    }
    return setups;
}

std::string name_of(const ::testing::TestParamInfo<TestSetup> &info) {
    return testing_support::name_of(info.param) + "_" + info.param.config.progress;
}

// A thread that calls a function repeatedly until end().
class RepeatingThread {
public:
    explicit RepeatingThread(std::function<void(int)> again)
        : thread_([this, again = std::move(again)] {
              try {
                  for (int i = 0; !done_; ++i) {
                      again(i);
                      std::this_thread::yield();
                  }
              } catch (const std::exception &error) {
                  why_ = error.what();
              }
          }) {}
    ~RepeatingThread() { end(); }
    RepeatingThread(const RepeatingThread &) = delete;
    RepeatingThread &operator=(const RepeatingThread &) = delete;

    // Stops the thread. Returns the message of its exception, empty if there was none.
    std::string end() {
        done_ = true;
        if (thread_.joinable()) thread_.join();
        return why_;
    }

private:
    std::atomic<bool> done_{false};
    std::string why_;
    std::thread thread_;
};

float part(int rank, std::int64_t i, int call) {
    return static_cast<float>((rank * 5 + i * 3 + call) % 17);
}

void expect_sum(const float *data, std::int64_t count, int ranks, int call) {
    for (std::int64_t i = 0; i < count; ++i) {
        float sum = 0;
        for (int rank = 0; rank < ranks; ++rank) sum += part(rank, i, call);
        if (data[i] == sum) continue;
        throw std::runtime_error("call " + std::to_string(call) + ": element " + std::to_string(i) +
                                 " is " + std::to_string(data[i]) + " instead of " +
                                 std::to_string(sum));
    }
}

// The calls of the first thread: blocking calls, requests with wait and with test, a request on a
// buffer, and messages.
void work(vescomm_comm_t *comm, vescomm_request_t *on_buffer, float *in_buffer,
          std::int64_t buffer_elements) {
    const int rank = comm->value->rank(), ranks = comm->value->ranks();
    const auto fill = [rank](float *data, std::int64_t count, int call) {
        for (std::int64_t i = 0; i < count; ++i) data[i] = part(rank, i, call);
    };
    std::vector<float> small(16), large(4096), sent(100), received(100);
    for (int call = 0; call < calls; ++call) {
        for (std::vector<float> *array : {&small, &large}) {
            const auto count = static_cast<std::int64_t>(array->size());
            fill(array->data(), count, call);
            check(vescomm_all_reduce(comm, array->data(), array->data(), count, VESCOMM_F32,
                                     VESCOMM_SUM, nullptr, nullptr, nullptr));
            expect_sum(array->data(), count, ranks, call);
        }
        fill(in_buffer, buffer_elements, call);
        const auto count = static_cast<std::int64_t>(large.size());
        fill(large.data(), count, call + 1);
        vescomm_request_t *request = nullptr;
        check(vescomm_request_start(on_buffer, nullptr));
        check(vescomm_all_reduce(comm, large.data(), large.data(), count, VESCOMM_F32, VESCOMM_SUM,
                                 nullptr, nullptr, &request));
        check(vescomm_request_wait(on_buffer));
        vescomm_status_t status = VESCOMM_IN_PROGRESS;
        while (status == VESCOMM_IN_PROGRESS) status = vescomm_request_test(request);
        check(status);
        check(vescomm_request_free(request));
        expect_sum(in_buffer, buffer_elements, ranks, call);
        expect_sum(large.data(), count, ranks, call + 1);

        fill(sent.data(), 100, call);
        check(vescomm_send(comm, sent.data(), 100, VESCOMM_F32, (rank + 1) % ranks, nullptr,
                           nullptr, nullptr));
        const int from = (rank + ranks - 1) % ranks;
        check(vescomm_receive(comm, received.data(), 100, VESCOMM_F32, from, nullptr, nullptr,
                              nullptr));
        for (std::int64_t i = 0; i < 100; ++i)
            if (received[static_cast<std::size_t>(i)] != part(from, i, call))
                throw std::runtime_error("message " + std::to_string(call) + " is wrong");
        check(vescomm_barrier(comm));
    }
}

class Threads : public ::testing::TestWithParam<TestSetup> {
protected:
    // Runs work() on every rank. A second thread repeats the function that `make` returns.
    static void run_with_second_thread(
        const std::function<std::function<void(int)>(vescomm_comm_t *, vescomm_buffer_t *)> &make) {
        run_array_ranks(GetParam(), [&](vescomm_comm_t *comm) {
            constexpr std::int64_t each = 1000;
            const int ranks = comm->value->ranks();
            const std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), each);
            vescomm_layout_t *layout = nullptr;
            vescomm_buffer_t *buffer = nullptr;
            vescomm_request_t *request = nullptr;
            check(vescomm_layout_create_from_counts(counts.data(), ranks, &layout));
            check(vescomm_buffer_create(comm, layout, nullptr, &buffer));
            check(vescomm_layout_free(layout));
            check(vescomm_all_reduce_create(comm, buffer, nullptr, &request));
            vescomm_view_t view{};
            check(vescomm_buffer_get_data(buffer, &view));
            std::string why;
            {
                RepeatingThread second(make(comm, buffer));
                work(comm, request, static_cast<float *>(view.data), view.elements);
                why = second.end();
            }
            check(vescomm_request_free(request));
            check(vescomm_buffer_free(buffer));
            if (!why.empty()) throw std::runtime_error("the second thread: " + why);
        });
    }
};

TEST_P(Threads, ProgressDuringAWait) {
    run_with_second_thread([](vescomm_comm_t *comm, vescomm_buffer_t *) {
        return [comm](int) { check(vescomm_comm_progress(comm)); };
    });
}

TEST_P(Threads, QueriesDuringAWait) {
    run_with_second_thread([](vescomm_comm_t *comm, vescomm_buffer_t *buffer) {
        auto last = std::make_shared<vescomm_comm_counters_t>(vescomm_comm_counters_init());
        return [=](int) {
            auto info = vescomm_comm_info_init();
            check(vescomm_comm_get_info(comm, &info));
            EXPECT_EQ(info.ranks, comm->value->ranks());
            auto counters = vescomm_comm_counters_init();
            check(vescomm_comm_get_counters(comm, &counters));
            EXPECT_GE(counters.operations, last->operations);
            EXPECT_GE(counters.bytes_written, last->bytes_written);
            EXPECT_GE(counters.bytes_reduced, last->bytes_reduced);
            EXPECT_GE(counters.bytes_sent, last->bytes_sent);
            EXPECT_GE(counters.sleeps, last->sleeps);
            *last = counters;
            char text[8192];
            std::size_t size = 0;
            check(vescomm_comm_get_metrics(comm, text, sizeof text, &size));
            EXPECT_GT(size, 1u);
            vescomm_view_t view{};
            check(vescomm_buffer_get_data(buffer, &view));
            check(vescomm_buffer_get_tensor(buffer, 0, &view));
            check(vescomm_buffer_get_shard(buffer, &view));
            EXPECT_EQ(view.elements, 1000);
            EXPECT_EQ(vescomm_comm_get_info(nullptr, &info), VESCOMM_ERROR_INVALID_ARGUMENT);
            EXPECT_STRNE(vescomm_get_last_error(), "");
        };
    });
}

TEST_P(Threads, TraceDuringAWait) {
    run_with_second_thread([](vescomm_comm_t *comm, vescomm_buffer_t *) {
        return [comm](int i) {
            check(vescomm_trace_start(comm, 1000 + static_cast<std::uint64_t>(i % 100)));
            const double begin = vescomm_trace_get_seconds();
            check(vescomm_trace_add_span(comm, "beside", "other", begin,
                                         vescomm_trace_get_seconds()));
        };
    });
}

TEST_P(Threads, FlightRecorderWriteDuringAWait) {
    const auto folder =
        std::filesystem::temp_directory_path() / ("vescomm-threads-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder);
    run_with_second_thread([&](vescomm_comm_t *comm, vescomm_buffer_t *) {
        const std::string path = (folder / "flight.%r").string();
        return [=](int) {
            check(vescomm_flight_recorder_write(comm, path.c_str()));
            // Writing a file is slow: make progress more often.
            for (int i = 0; i < 20; ++i) check(vescomm_comm_progress(comm));
        };
    });
    std::filesystem::remove_all(folder);
}

TEST_P(Threads, SetLogDuringAWait) {
    run_with_second_thread([](vescomm_comm_t *, vescomm_buffer_t *) {
        return [](int i) {
            const auto sink = [](void *, std::int32_t, const char *) {};
            check(vescomm_set_log(i % 2 == 0 ? +sink : nullptr, nullptr));
        };
    });
    check(vescomm_set_log(nullptr, nullptr));
}

// The second thread frees memories and buffers that were created before, one after another.
TEST_P(Threads, FreeMemoryDuringAWait) {
    run_with_second_thread([](vescomm_comm_t *comm, vescomm_buffer_t *) {
        constexpr int count = 20;
        struct Owned {
            std::vector<vescomm_memory_t *> memories;
            std::vector<vescomm_buffer_t *> buffers;
            std::size_t freed = 0;
            void free_next() {
                check(vescomm_memory_free(memories[freed]));
                check(vescomm_buffer_free(buffers[freed++]));
            }
            // The wait may end before the second thread has freed all.
            ~Owned() {
                while (freed < buffers.size()) free_next();
            }
        };
        auto owned = std::make_shared<Owned>();
        auto options = vescomm_memory_options_init();
        options.bytes = 10'000;
        const std::vector<std::int64_t> counts(static_cast<std::size_t>(comm->value->ranks()), 10);
        vescomm_layout_t *layout = nullptr;
        check(vescomm_layout_create_from_counts(counts.data(), comm->value->ranks(), &layout));
        for (int i = 0; i < count; ++i) {
            vescomm_memory_t *memory = nullptr;
            check(vescomm_memory_create(comm, &options, &memory));
            owned->memories.push_back(memory);
            vescomm_buffer_t *buffer = nullptr;
            check(vescomm_buffer_create(comm, layout, nullptr, &buffer));
            owned->buffers.push_back(buffer);
        }
        check(vescomm_layout_free(layout));
        return [owned, comm](int i) {
            check(vescomm_comm_progress(comm));
            if (i % 10 != 0 || owned->freed == count) return;
            void *data = nullptr;
            check(vescomm_memory_get_data(owned->memories[owned->freed], &data, nullptr));
            owned->free_next();
        };
    });
}

// Several threads make progress and query counters at once.
TEST_P(Threads, ProgressOfSeveralThreadsDuringAWait) {
    run_with_second_thread([](vescomm_comm_t *comm, vescomm_buffer_t *) {
        const auto ask = [comm](int) {
            check(vescomm_comm_progress(comm));
            auto counters = vescomm_comm_counters_init();
            check(vescomm_comm_get_counters(comm, &counters));
        };
        auto second = std::make_shared<RepeatingThread>(ask);
        return [ask, second](int i) { ask(i); };
    });
}

// A second thread of rank 0 makes progress while the first one finalizes, and waits for the others.
TEST_P(Threads, ProgressDuringFinalize) {
    if (GetParam().ranks() == 1) GTEST_SKIP() << "needs a rank to wait for";
    std::atomic<bool> finalizing{false};
    std::atomic<int> calls_meanwhile{0};
    run_ranks(GetParam(), [&](const std::shared_ptr<Communicator> &comm) {
        const auto handle = testing_support::handle_of(comm);
        constexpr int enough = 1000;
        if (comm->rank() > 0) {
            while (calls_meanwhile < enough) comm->progress();
            check(vescomm_comm_finalize(handle.get()));
            return;
        }
        RepeatingThread second([&](int) {
            const bool counts = finalizing;
            check(vescomm_comm_progress(handle.get()));
            // The first thread may not have begun: the last calls come well after it did.
            if (counts) ++calls_meanwhile;
        });
        finalizing = true;
        check(vescomm_comm_finalize(handle.get()));
        EXPECT_EQ(second.end(), "");
    });
}

// All ranks wait for messages that are never sent, until a second thread of rank 0 aborts.
TEST_P(Threads, AbortDuringAWait) {
    TestSetup setup = GetParam();
    if (setup.ranks() == 1) GTEST_SKIP() << "needs at least two ranks";
    std::atomic<int> created{0};  // ranks that have their communicator
    run_ranks(setup, [&](const std::shared_ptr<Communicator> &comm) {
        const auto handle = testing_support::handle_of(comm);
        ++created;
        if (comm->rank() == 0) {
            RepeatingThread second([&](int i) {
                while (i == 1000 && created < setup.ranks()) std::this_thread::yield();
                if (i == 1000) check(vescomm_comm_abort(handle.get(), "it is a test"));
                else if (i < 1000) check(vescomm_comm_progress(handle.get()));
            });
            float data = 1;
            EXPECT_EQ(
                vescomm_receive(handle.get(), &data, 1, VESCOMM_F32, 1, nullptr, nullptr, nullptr),
                VESCOMM_ERROR_ABORTED)
                << vescomm_get_last_error();
            EXPECT_EQ(second.end(), "");
        } else {
            float data = 1;
            EXPECT_EQ(
                vescomm_receive(handle.get(), &data, 1, VESCOMM_F32, 0, nullptr, nullptr, nullptr),
                VESCOMM_ERROR_ABORTED)
                << vescomm_get_last_error();
            EXPECT_NE(std::string(vescomm_get_last_error()).find("it is a test"),
                      std::string::npos);
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Everywhere, Threads, ::testing::ValuesIn(setups()), name_of);

}  // namespace
}  // namespace vescomm::internal

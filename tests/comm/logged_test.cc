// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The lines that a communicator logs in area comm.
#include <mutex>

#include "observe/log.h"
#include "support/array_ranks.h"

namespace vescomm::internal {
namespace {

using testing_support::check;
using testing_support::Kind;
using testing_support::run_array_ranks;
using testing_support::TestSetup;

// Collects the lines of all ranks during its lifetime.
class Lines {
public:
    explicit Lines(std::string_view filter) {
        set_log_filter(filter);
        set_log_sink(
            [](void *lines, std::int32_t, const char *line) {
                auto &all = *static_cast<Lines *>(lines);
                std::lock_guard lock(all.mutex_);
                all.text_ += std::string(line) + "\n";
            },
            this);
    }
    ~Lines() {
        set_log_sink(nullptr, nullptr);
        set_log_filter("warn");
    }

    // How often `part` occurs.
    int count(const std::string &part) const {
        std::lock_guard lock(mutex_);
        int found = 0;
        for (std::size_t at = text_.find(part); at != std::string::npos;
             at = text_.find(part, at + 1))
            ++found;
        return found;
    }
    std::string text() const {
        std::lock_guard lock(mutex_);
        return text_;
    }

private:
    mutable std::mutex mutex_;
    std::string text_;
};

void sum(vescomm_comm_t *comm, std::vector<float> &data) {
    check(vescomm_all_reduce(comm, data.data(), data.data(), static_cast<std::int64_t>(data.size()),
                             VESCOMM_F32, VESCOMM_SUM, nullptr, nullptr, nullptr));
}

TEST(Logged, DebugHasTheAlgorithmOfEachNewRequest) {
    const Lines lines("warn,comm:debug");
    run_array_ranks(TestSetup{Kind::node, {0, 0}}, [](vescomm_comm_t *comm) {
        std::vector<float> one(10, 1), other(10, 1), longer(11, 1);
        sum(comm, one);
        sum(comm, other);  // takes over the request of the first call
        sum(comm, longer);
        sum(comm, longer);  // repeats the call
    });
    const std::string text = lines.text();
    EXPECT_EQ(lines.count("comm: all_reduce"), 4) << text;  // two requests on each of two ranks
    EXPECT_EQ(lines.count(": algorithm inline, because "), 4) << text;
    EXPECT_EQ(lines.count("vescomm debug 1/2 comm: all_reduce"), 2) << text;
}

TEST(Logged, InfoHasTheFirstErrorOfABrokenCommunicatorOnce) {
    const Lines lines("comm:info");
    run_array_ranks(TestSetup{Kind::node, {0, 0, 0}}, [](vescomm_comm_t *comm) {
        check(vescomm_comm_abort(comm, "this is enough"));
        EXPECT_EQ(vescomm_barrier(comm), VESCOMM_ERROR_ABORTED);
        EXPECT_EQ(vescomm_barrier(comm), VESCOMM_ERROR_ABORTED);
    });
    const std::string text = lines.text();
    for (int rank = 0; rank < 3; ++rank)
        EXPECT_EQ(lines.count("vescomm info " + std::to_string(rank) + "/3 comm: broken: "), 1)
            << text;
    EXPECT_GE(lines.count("this is enough"), 3) << text;
}

TEST(Logged, NothingByDefault) {
    const Lines lines("warn");
    run_array_ranks(TestSetup{Kind::node, {0}}, [](vescomm_comm_t *comm) {
        std::vector<float> data(10, 1);
        sum(comm, data);
        check(vescomm_comm_abort(comm, "this is enough"));
    });
    EXPECT_EQ(lines.text(), "");
}

}  // namespace
}  // namespace vescomm::internal

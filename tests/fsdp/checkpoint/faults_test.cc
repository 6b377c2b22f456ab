// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Saves that fail or are killed at every system call: the last complete save always loads.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <set>

#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/checkpoint/faulty_calls.h"
#include "fsdp/checkpoint/manifest.h"

namespace vescomm::fsdp::checkpoint {
namespace {

using namespace testing_support;

constexpr int ranks = 3;

const std::vector<Tensor> model = {{"w", "master", {5, 7}, VESCOMM_F32},
                                   {"w", "moment", {5, 7}, VESCOMM_BF16},
                                   {"empty", "master", {0}, VESCOMM_F32}};

// About 300 system calls for a save of all ranks.
SaveOptions options() {
    SaveOptions options;
    options.checksum_bytes = 1;
    options.keep = 1;
    return options;
}

std::vector<std::string> no_errors() {
    return std::vector<std::string>(ranks);
}

bool all_failed(const std::vector<std::string> &errors) {
    return std::ranges::none_of(errors, [](const std::string &error) { return error.empty(); });
}

std::set<std::string> names(const std::string &folder) {
    std::set<std::string> names;
    for (const auto &entry : fs::directory_iterator(folder))
        names.insert(entry.path().filename().string());
    return names;
}

// Expects that the folder holds the version before or after a save that was interrupted, and that
// the next save succeeds and removes what remained. Returns the version.
unsigned expect_intact(const std::string &folder, unsigned before, unsigned after, unsigned next) {
    Checkpoint checkpoint(folder);
    const unsigned version = checkpoint.extra("version") == std::to_string(before) ? before : after;
    expect_loads_at(folder, 2, model, 3, version);
    EXPECT_EQ(save_at(folder, ranks, model, 1, next, options()), no_errors());
    expect_loads_at(folder, 2, model, 4, next);
    EXPECT_EQ(names(folder).size(), 2u) << "latest and one save";
    return version;
}

TEST(CheckpointFaults, ASaveThatIsKilledAtAnySystemCallLeavesTheLastOne) {
    for (const bool in_the_middle : {false, true}) {
        TemporaryFolder folder;
        const std::string path = folder.path("c");
        ASSERT_EQ(save_at(path, ranks, model, 1, 1, options()), no_errors());
        std::set<bool> outcomes;
        int killed = 0;
        for (unsigned version = 2;; version += 2) {
            SCOPED_TRACE(testing::Message() << "killed at call " << killed + 1);
            const pid_t child = fork();
            ASSERT_GE(child, 0);
            if (child == 0) {
                KillingCalls calls(killed + 1, in_the_middle);
                const auto errors = save_at(path, ranks, model, 1, version, options(), calls);
                _exit(errors == no_errors() ? 0 : 1);
            }
            int status = 0;
            ASSERT_EQ(waitpid(child, &status, 0), child);
            if (WIFEXITED(status)) {
                EXPECT_EQ(WEXITSTATUS(status), 0);
                break;
            }
            ASSERT_EQ(WTERMSIG(status), SIGKILL);
            ++killed;
            outcomes.insert(expect_intact(path, version - 1, version, version + 1) == version);
            if (HasFatalFailure() || HasNonfatalFailure()) return;
        }
        EXPECT_GE(killed, 250);
        EXPECT_EQ(outcomes.size(), 2u) << "kills before and after the commit";
        RecordProperty(in_the_middle ? "kills_in_the_middle" : "kills", killed);
    }
}

TEST(CheckpointFaults, ALossOfPowerAtAnySystemCallLeavesTheLastOne) {
    TemporaryFolder folder;
    const std::string path = folder.path("c");
    ASSERT_EQ(save_at(path, ranks, model, 1, 1, options()), no_errors());
    std::set<bool> outcomes;
    unsigned version = 2;
    for (int at = 1;; ++at, version += 2) {
        SCOPED_TRACE(testing::Message() << "power lost at call " << at);
        PowerLossCalls calls(at);
        const auto errors = save_at(path, ranks, model, 1, version, options(), calls);
        calls.lose();
        outcomes.insert(expect_intact(path, version - 1, version, version + 1) == version);
        if (HasFatalFailure() || HasNonfatalFailure()) return;
        if (!calls.lost()) break;
    }
    EXPECT_GE(version, 200u);
    EXPECT_EQ(outcomes.size(), 2u);
}

TEST(CheckpointFaults, AnErrorAtAnySystemCallFailsOnAllRanksOrNone) {
    for (const int error : {EIO, ENOSPC, EACCES}) {
        TemporaryFolder folder;
        const std::string path = folder.path("c");
        ASSERT_EQ(save_at(path, ranks, model, 1, 1, options()), no_errors());
        int failures = 0;
        unsigned version = 2;
        for (int at = 1;; ++at, version += 2) {
            SCOPED_TRACE(testing::Message() << "error " << error << " at call " << at);
            WatchedCalls calls(
                [&](int number, std::string_view) { return number == at ? error : 0; });
            const auto errors = save_at(path, ranks, model, 1, version, options(), calls);
            const unsigned found = expect_intact(path, version - 1, version, version + 1);
            if (errors == no_errors()) {
                EXPECT_EQ(found, version);
            } else {
                ++failures;
                EXPECT_TRUE(all_failed(errors));
                EXPECT_EQ(found, version - 1);
                EXPECT_EQ(errors[0], errors[1]);
                EXPECT_EQ(errors[0], errors[2]);
                EXPECT_NE(errors[0].find(path), std::string::npos) << errors[0];
                EXPECT_NE(errors[0].find("errno " + std::to_string(error)), std::string::npos)
                    << errors[0];
            }
            if (HasFatalFailure() || HasNonfatalFailure()) return;
            if (at > calls.calls()) break;
        }
        EXPECT_GE(failures, 100);
    }
}

TEST(CheckpointFaults, AFullDiskFailsOnAllRanksAndIsFreedAgain) {
    TemporaryFolder folder;
    const std::string path = folder.path("c");
    ASSERT_EQ(save_at(path, ranks, model, 1, 1, options()), no_errors());
    for (int at = 1;; ++at) {
        SCOPED_TRACE(testing::Message() << "full at write " << at);
        std::atomic<int> writes = 0;
        WatchedCalls calls([&](int, std::string_view call) {
            return call == "write" && ++writes >= at ? ENOSPC : 0;
        });
        const auto errors = save_at(path, ranks, model, 1, 2, options(), calls);
        if (errors == no_errors()) break;
        EXPECT_TRUE(all_failed(errors));
        EXPECT_NE(errors[1].find("No space left on device"), std::string::npos) << errors[1];
        EXPECT_EQ(names(path), (std::set<std::string>{"latest", save_name(1)}));
        expect_loads_at(path, 2, model, 3, 1);
        if (HasFatalFailure() || HasNonfatalFailure()) return;
    }
    expect_loads_at(path, 2, model, 3, 2);
}

TEST(CheckpointFaults, InterruptedAndShortSystemCallsAreRepeated) {
    class Interrupted final : public SystemCalls {
    public:
        int open(const char *path, int flags, mode_t mode) override {
            return interrupted() ? -1 : SystemCalls::open(path, flags, mode);
        }
        ssize_t write(int file, const void *bytes, std::size_t count) override {
            return interrupted() ? -1
                                 : SystemCalls::write(file, bytes, std::min(count, one_to_3()));
        }
        ssize_t pread(int file, void *bytes, std::size_t count, std::int64_t offset) override {
            return interrupted()
                       ? -1
                       : SystemCalls::pread(file, bytes, std::min(count, one_to_3()), offset);
        }
        int fsync(int file) override { return interrupted() ? -1 : SystemCalls::fsync(file); }

    private:
        bool interrupted() {
            errno = EINTR;
            return ++number_ % 2 == 1;
        }
        std::size_t one_to_3() const { return 1 + static_cast<std::size_t>(number_ / 2 % 3); }
        std::atomic<int> number_ = 0;
    };
    TemporaryFolder folder;
    Interrupted calls;
    ASSERT_EQ(save_at(folder.path("c"), ranks, model, 1, 1, options(), calls), no_errors());
    expect_loads_at(folder.path("c"), 2, model, 3, 1);
}

TEST(CheckpointFaults, TwoSavesDoNotWriteToOneFolderAtATime) {
    TemporaryFolder folder;
    const std::string path = folder.path("c");
    ASSERT_EQ(save_at(path, 1, model, 1, 1), (std::vector<std::string>{""}));
    std::vector<std::string> inner;
    WatchedCalls calls([&](int, std::string_view call) {
        if (call == "rename") inner = save_at(path, 1, model, 1, 7);
        return 0;
    });
    ASSERT_EQ(save_at(path, 1, model, 1, 2, options(), calls), (std::vector<std::string>{""}));
    ASSERT_EQ(inner.size(), 1u);
    EXPECT_NE(inner[0].find("another save writes to the folder"), std::string::npos) << inner[0];
    expect_loads_at(path, 1, model, 1, 2);
}

}  // namespace
}  // namespace vescomm::fsdp::checkpoint

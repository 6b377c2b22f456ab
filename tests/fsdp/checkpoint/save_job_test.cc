// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Saves in the background.
#include "fsdp/checkpoint/save_job.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <set>

#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/checkpoint/faulty_calls.h"
#include "fsdp/checkpoint/manifest.h"

namespace vescomm::fsdp::checkpoint {
namespace {

using namespace testing_support;

const Tensor weight = {"w", "master", {100}, VESCOMM_F32};

// Holds every write until it is opened.
class Gate {
public:
    void wait() {
        std::unique_lock lock(mutex_);
        EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [&] { return open_; }));
    }
    void open() {
        const std::lock_guard lock(mutex_);
        open_ = true;
        changed_.notify_all();
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool open_ = false;
};

std::unique_ptr<Agreement> alone() {
    return std::make_unique<LoneAgreement>();
}

std::string error_of(SaveJob &job) {
    try {
        job.wait(60);
        return "";
    } catch (const Error &error) {
        return error.what();
    }
}

TEST(SaveJob, SavesACopyOfTheDataAtItsStart) {
    TemporaryFolder folder;
    Gate gate;
    WatchedCalls calls([&](int, std::string_view call) {
        if (call == "write") gate.wait();
        return 0;
    });
    std::string bytes = values_of(weight, 0, 100);
    const Piece pieces[] = {{weight, 0, 100, bytes.data()}};
    SaveJob job(folder.path("c"), contents_of(pieces, {{"step", "12"}}), alone(), {}, calls);
    bytes.assign(bytes.size(), '\0');
    EXPECT_FALSE(job.test());
    gate.open();
    const SaveResult result = job.wait(60);
    EXPECT_TRUE(job.test());
    EXPECT_EQ(result.save, save_name(1));
    EXPECT_EQ(result.warning, "");
    EXPECT_EQ(job.wait(0).save, save_name(1)) << "a wait may be repeated";
    Checkpoint checkpoint(folder.path("c"));
    std::string loaded(400, '\0');
    const WantedPiece wanted[] = {{weight, 0, 100, loaded.data()}};
    checkpoint.read(wanted);
    EXPECT_TRUE(loaded == values_of(weight, 0, 100));
    EXPECT_EQ(checkpoint.extra("step"), "12");
}

TEST(SaveJob, AWaitEndsAfterItsTimeAndMayBeRepeated) {
    TemporaryFolder folder;
    Gate gate;
    WatchedCalls calls([&](int, std::string_view call) {
        if (call == "write") gate.wait();
        return 0;
    });
    SaveJob job(folder.path("c"), contents_of({}), alone(), {}, calls);
    try {
        job.wait(0);
        ADD_FAILURE() << "the save cannot be complete";
    } catch (const Error &error) {
        EXPECT_EQ(error.status, VESCOMM_ERROR_TIMEOUT);
        EXPECT_NE(std::string(error.what()).find("it goes on, wait again"), std::string::npos);
    }
    gate.open();
    EXPECT_EQ(job.wait(60).save, save_name(1));
}

TEST(SaveJob, ErrorsAreThoseOfTheWaitOnAllRanks) {
    TemporaryFolder folder;
    const auto meeting = std::make_shared<Meeting>(2);
    const std::string bytes = values_of(weight, 0, 100);
    const Piece half[] = {{weight, 0, 50, bytes.data()}};
    SaveJob first(folder.path("c"), contents_of(half),
                  std::make_unique<ThreadAgreement>(meeting, 0));
    const Piece missing[] = {{weight, 50, 50, nullptr}};
    SaveJob second(folder.path("c"), contents_of(missing),
                   std::make_unique<ThreadAgreement>(meeting, 1));
    EXPECT_NE(error_of(first).find("rank 1: saving on rank 1: tensor \"w\""), std::string::npos)
        << error_of(first);
    EXPECT_EQ(error_of(first), error_of(second));
    const Piece outside[] = {{weight, 50, 51, bytes.data()}};
    SaveJob third(folder.path("c"), contents_of(outside), alone());
    EXPECT_NE(error_of(third).find("51 elements from element 50 on are not within its 100"),
              std::string::npos)
        << error_of(third);
}

TEST(SaveJob, IsCancelledWhenItIsFreedEarly) {
    TemporaryFolder folder;
    const auto meeting = std::make_shared<Meeting>(2);
    const std::string bytes = values_of(weight, 0, 100);
    SaveOptions options;
    options.checksum_bytes = 8;
    Gate gate;
    WatchedCalls calls([&](int, std::string_view call) {
        if (call == "write") gate.wait();
        return 0;
    });
    const Piece halves[] = {{weight, 0, 50, bytes.data()}, {weight, 50, 50, bytes.data() + 200}};
    SaveJob other(folder.path("c"), contents_of(std::span(halves).subspan(1)),
                  std::make_unique<ThreadAgreement>(meeting, 1), options);
    auto freed =
        std::make_unique<SaveJob>(folder.path("c"), contents_of(std::span(halves).first(1)),
                                  std::make_unique<ThreadAgreement>(meeting, 0), options, calls);
    // The first write ends after the destructor has set the flag, or before: then a later chunk
    // finds it. There are 25 chunks.
    std::thread opener;
    {
        std::thread thread([&] { gate.open(); });
        opener.swap(thread);
    }
    freed.reset();
    opener.join();
    const std::string error = error_of(other);
    if (error.empty()) {
        EXPECT_EQ(Checkpoint(folder.path("c")).save(), save_name(1));
    } else {
        EXPECT_NE(error.find("rank 0: the save was cancelled"), std::string::npos) << error;
        EXPECT_FALSE(fs::exists(folder.path("c") + "/" + save_name(1)));
    }
}

// RLIMIT_FSIZE limits files of the whole process, so a child has it. The signal that comes with it
// keeps its default action, which would end the child.
TEST(SaveJob, AWriteBeyondALimitIsAnErrorThatNamesFileAndCause) {
    TemporaryFolder folder;
    const std::string path = folder.path("c");
    ASSERT_EQ(save_at(path, 1, {weight}, 1, 1), (std::vector<std::string>{""}));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const rlimit limit = {2048, 2048};
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(10);
        const Tensor large = {"large", "master", {4096}, VESCOMM_U8};
        const std::string bytes = values_of(large, 0, 4096);
        const Piece pieces[] = {{large, 0, 4096, bytes.data()}};
        SaveJob job(path, contents_of(pieces), alone());
        const std::string error = error_of(job);
        const bool named =
            error.find("rank-00000.safetensors\": writing 2168 bytes at byte 2048") !=
                std::string::npos &&
            error.find("File too large (errno 27)") != std::string::npos;
        if (!named) std::fprintf(stderr, "%s\n", error.c_str());
        _exit(named ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0);
    expect_loads_at(path, 2, {weight}, 1, 1);
}

}  // namespace
}  // namespace vescomm::fsdp::checkpoint

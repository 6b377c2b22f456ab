// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A flight recorder on a file system that hangs. This program's own rename() hangs for files whose
// names end with "hangs", like rename() on a network file system whose server is gone.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <string_view>
#include <thread>

#include "observe/file.h"
#include "support/thread_ranks.h"

namespace {

std::atomic<int> hanging{0};

}  // namespace

extern "C" int rename(const char *from, const char *to) noexcept {
    if (std::string_view(to).ends_with("hangs")) {
        ++hanging;
        for (;;) pause();
    }
    return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

namespace vescomm::internal {
namespace {

using testing_support::Kind;
using testing_support::run_ranks;
using testing_support::TestSetup;

// Longer than the test takes on any working machine.
constexpr auto hang = std::chrono::seconds(60);

class Recorder : public testing::TestWithParam<Kind> {
protected:
    Recorder() {
        char name[] = "/tmp/vescomm-recorder-test-XXXXXX";
        if (mkdtemp(name) != nullptr) folder_ = name;
    }
    ~Recorder() override { std::filesystem::remove_all(folder_); }

    TestSetup recorded(const std::string &name) const {
        TestSetup setup{GetParam(), {0, 0}};
        setup.config.flight_recorder = (folder_ / name).string();
        return setup;
    }

    std::filesystem::path folder_;
};

vescomm_status_t status_of(const std::function<void()> &body) {
    try {
        body();
    } catch (const Error &error) {
        return error.status;
    }
    return VESCOMM_OK;
}

TEST_P(Recorder, WritesBeforeTheFailureIsReported) {
    run_ranks(recorded("flight.%r"), [&](const std::shared_ptr<Communicator> &comm) {
        // Rank 0 may abort before the other ranks have left the first barrier.
        if (comm->rank() == 0) {
            comm->barrier();
            comm->abort("enough");
        } else {
            EXPECT_EQ(status_of([&] {
                          comm->barrier();
                          comm->barrier();
                      }),
                      VESCOMM_ERROR_ABORTED);
        }
        const auto path = folder_ / ("flight." + std::to_string(comm->rank()));
        EXPECT_TRUE(std::filesystem::exists(path));
        if (comm->rank() > 0) return;
        std::ifstream file(path);
        const std::string text(std::istreambuf_iterator<char>(file), {});
        EXPECT_NE(text.find(R"("collective":"barrier","type":"none")"), std::string::npos) << text;
    });
}

// The writer threads of both ranks hang until the process ends. The tests of one process share the
// time for recordings, so a writer may begin to hang after its rank has stopped waiting for it.
TEST_P(Recorder, EveryWaitEndsIfTheFileSystemHangs) {
    const int before = hanging;
    auto done = std::async(std::launch::async, [&] {
        run_ranks(recorded("flight.%r.hangs"), [&](const std::shared_ptr<Communicator> &comm) {
            EXPECT_EQ(status_of([&] {
                          comm->barrier();
                          if (comm->rank() == 0) comm->abort("enough");
                          comm->barrier();
                      }),
                      VESCOMM_ERROR_ABORTED);
            EXPECT_EQ(status_of([&] { comm->progress(); }), VESCOMM_ERROR_ABORTED);
        });
    });
    const bool ended = done.wait_for(hang) == std::future_status::ready;
    EXPECT_TRUE(ended) << "a wait never ends";
    if (!ended) _exit(1);
    const Deadline limit = Deadline::after(60);
    while (hanging - before < 2 && !limit.expired()) std::this_thread::yield();
    EXPECT_EQ(hanging - before, 2) << "nothing hung, so this has tested nothing";
}

// A recorder that the program writes itself has the timeout of any wait.
TEST_P(Recorder, ExplicitWriteEndsAtTheTimeout) {
    TestSetup setup = testing_support::hurried(recorded(""));
    setup.config.flight_recorder.clear();
    run_ranks(setup, [&](const std::shared_ptr<Communicator> &comm) {
        const std::string name = (folder_ / "%r").string();
        comm->write_flight_recorder(name);
        EXPECT_TRUE(std::filesystem::exists(folder_ / std::to_string(comm->rank())));
        EXPECT_EQ(status_of([&] { comm->write_flight_recorder(name + ".hangs"); }),
                  VESCOMM_ERROR_TIMEOUT);
        comm->barrier();
    });
}

TEST_P(Recorder, ErrorNamesAFileThatTakesTooLong) {
    try {
        write_file_by((folder_ / "it.hangs").string(), "text", "the text", Deadline::after(0.01));
        FAIL() << "written";
    } catch (const Error &error) {
        EXPECT_EQ(error.status, VESCOMM_ERROR_TIMEOUT);
        EXPECT_NE(std::string(error.what()).find("it.hangs"), std::string::npos) << error.what();
    }
    write_file_by((folder_ / "it").string(), "text", "the text", Deadline::after(60));
    EXPECT_TRUE(std::filesystem::exists(folder_ / "it"));
    EXPECT_THROW(write_file_by((folder_ / "none/it").string(), "text", "it", Deadline::after(60)),
                 Error);
}

INSTANTIATE_TEST_SUITE_P(Transports, Recorder, testing::Values(Kind::loopback, Kind::node));

}  // namespace
}  // namespace vescomm::internal

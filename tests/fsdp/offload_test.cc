// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Masters and states of optimizers in files.
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "fsdp/training.h"

namespace {

// Calls of posix_fallocate() for more bytes than this are interrupted; 0: no call is.
std::atomic<std::int64_t> uninterrupted_bytes = 0;

}  // namespace

// Replaces the function of the C library. The build determines the name that is called.
extern "C" int posix_fallocate64(int file, off_t offset, off_t bytes) {
    if (uninterrupted_bytes != 0 && bytes > uninterrupted_bytes) return EINTR;
    return syscall(SYS_fallocate, file, 0, offset, bytes) == 0 ? 0 : errno;
}

namespace vescomm::fsdp::testing {
namespace {

class Offload : public ::testing::Test {
protected:
    void SetUp() override {
        folder_ = (std::filesystem::temp_directory_path() / "offload_test.XXXXXX").string();
        ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    vescomm_fsdp_spec_options_t options(bool partner_copy = false) const {
        vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
        options.offload_folder = folder_.c_str();
        options.partner_copy = partner_copy ? 1 : 0;
        return options;
    }

    // Returns the error of an engine on one rank.
    static std::string error_of(const std::string &folder,
                                const std::vector<UnitModel> &model = odd_model()) {
        std::string text = "no error";
        run_ranks(1, [&](Communicator &comm) {
            vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
            options.offload_folder = folder.c_str();
            const Described described = describe(model, "zero3", options);
            try {
                const Engine engine(described.spec, comm);
            } catch (const Error &error) {
                EXPECT_EQ(error.status(), VESCOMM_ERROR_SYSTEM);
                text = error.what();
            }
        });
        return text;
    }

    std::string folder_;
};

TEST_F(Offload, HasTheSameBits) {
    const Training training{.steps = 4, .micro_batches = 2, .max_norm = 30};
    const Outcome in_memory =
        train_on(1, odd_model(), "zero3", vescomm_fsdp_spec_options_init(), training);
    for (const int ranks : {1, 2, 3, 5})
        for (const char *preset : {"zero3", "zero1", "ddp"}) {
            const Outcome offloaded =
                train_on(ranks, odd_model(), preset, options(ranks == 3), training);
            EXPECT_EQ(offloaded.parameters, in_memory.parameters) << preset << " on " << ranks;
            EXPECT_EQ(offloaded.norms, in_memory.norms);
        }
}

TEST_F(Offload, TakesTheBytesOfTheReport) {
    for (const bool partner_copy : {false, true})
        run_ranks(3, [&](Communicator &comm) {
            const Described described = describe(odd_model(), "zero3", options(partner_copy));
            const auto report = described.spec.report(3, comm.rank());
            const auto before = described.spec.report(3, (comm.rank() + 2) % 3);
            std::uint64_t file = report.master_bytes + report.optimizer_bytes;
            if (partner_copy) file += before.master_bytes + before.optimizer_bytes;
            EXPECT_EQ(report.file_bytes, file);
            Engine engine(described.spec, comm);
            EXPECT_EQ(engine.counters().allocated_bytes, report.peak_bytes);
        });
    EXPECT_EQ(describe(odd_model()).spec.report(3).file_bytes, 0u);
}

TEST_F(Offload, LeavesNoNames) {
    run_ranks(2, [&](Communicator &comm) {
        const Described described = describe(odd_model(), "zero3", options());
        const Engine engine(described.spec, comm);
        EXPECT_TRUE(std::filesystem::is_empty(folder_));
    });
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

// Bytes of the files of a folder that are in the memory of this process.
std::uint64_t resident_bytes(const std::string &folder) {
    std::ifstream maps("/proc/self/smaps");
    std::uint64_t bytes = 0;
    bool counts = false;
    for (std::string line; std::getline(maps, line);) {
        if (line.find('-') < line.find(' ')) counts = line.find(folder) != std::string::npos;
        std::istringstream words(line);
        std::string name;
        std::uint64_t kilobytes = 0;
        if (counts && words >> name >> kilobytes && name == "Rss:") bytes += kilobytes * 1024;
    }
    return bytes;
}

// After a step, only the masters of the units that it gathers are in memory, and after a forward
// pass only pages at the ends of shards.
TEST_F(Offload, LeavesMemoryAfterUse) {
    std::vector<UnitModel> model;
    for (int unit = 0; unit < 6; ++unit)
        model.push_back({"unit." + std::to_string(unit), {{.name = "w", .shape = {256, 1024}}}});
    run_ranks(1, [&](Communicator &comm) {
        const Described described = describe(model, "zero3", options());
        const std::uint64_t file = described.spec.report(1).file_bytes;
        Engine engine(described.spec, comm);
        fill(engine);
        EXPECT_GT(resident_bytes(folder_), file / 4);
        micro_batch(engine, described.ids, {}, 0, 0, 1, true);
        engine.step();
        constexpr std::uint64_t masters = 2 * 256 * 1024 * sizeof(float);  // of two slots
        EXPECT_LT(resident_bytes(folder_), file / 10 + masters);
        read_all(engine, described.ids);
        EXPECT_LT(resident_bytes(folder_), file / 10);
    });
}

TEST_F(Offload, NamesFolderAndCauseOfAnError) {
    const std::string missing = folder_ + "/missing";
    EXPECT_NE(error_of(missing).find("\"" + missing + "\": open()"), std::string::npos);
    EXPECT_NE(error_of(missing).find("No such file or directory"), std::string::npos);
    const std::string file = folder_ + "/file";
    std::ofstream(file) << "text";
    EXPECT_NE(error_of(file).find("Not a directory"), std::string::npos);
    // No files can be created there, even by root.
    EXPECT_NE(error_of("/proc").find("offload_folder \"/proc\": "), std::string::npos);
    EXPECT_NE(error_of("/proc").find("give a folder"), std::string::npos);
    vescomm_fsdp_spec_options_t empty = vescomm_fsdp_spec_options_init();
    empty.offload_folder = "";
    EXPECT_THROW(Spec spec(empty), Error);
}

// A limit of the size of files stands for a disk that is full: the space is asked for at once.
TEST_F(Offload, ReportsAFullDisk) {
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    std::signal(SIGXFSZ, SIG_IGN);
    // Enough for the shared memory of the communicators.
    const rlimit small{32 << 20, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const std::string error = error_of(folder_, {{"unit", {{.name = "w", .shape = {8192, 1024}}}}});
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_NE(error.find("posix_fallocate()"), std::string::npos) << error;
    EXPECT_NE(error.find("free some space"), std::string::npos) << error;
}

// Signals interrupt every call that takes much space at once.
TEST_F(Offload, TakesItsSpaceInSpiteOfSignals) {
    uninterrupted_bytes = 64 << 10;
    const std::string error = error_of(folder_, {{"unit", {{.name = "w", .shape = {1024, 333}}}}});
    uninterrupted_bytes = -1;
    const std::string always = error_of(folder_);
    uninterrupted_bytes = 0;
    EXPECT_EQ(error, "no error");
    EXPECT_NE(always.find("posix_fallocate() of a file of"), std::string::npos) << always;
    EXPECT_NE(always.find("Interrupted system call"), std::string::npos) << always;
}

// A rank that cannot create its file does not let the others wait.
TEST_F(Offload, FailsOnAllRanksTogether) {
    const std::string missing = folder_ + "/missing";
    run_ranks(3, [&](Communicator &comm) {
        vescomm_fsdp_spec_options_t mine = options();
        if (comm.rank() == 1) mine.offload_folder = missing.c_str();
        const Described described = describe(odd_model(), "zero3", mine);
        try {
            const Engine engine(described.spec, comm);
            ADD_FAILURE() << "rank 1 has no folder";
        } catch (const Error &error) {
            EXPECT_EQ(error.status(),
                      comm.rank() == 1 ? VESCOMM_ERROR_SYSTEM : VESCOMM_ERROR_ABORTED);
            EXPECT_NE(std::string(error.what()).find("offload_folder \"" + missing),
                      std::string::npos)
                << "rank " << comm.rank() << ": " << error.what();
        }
    });
}

TEST_F(Offload, SavesAndLoadsCheckpoints) {
    const std::string saves = folder_ + "/saves";
    std::vector<float> saved;
    run_ranks(3, [&](Communicator &comm) {
        const Described described = describe(odd_model(), "zero3", options());
        Engine engine(described.spec, comm);
        fill(engine);
        micro_batch(engine, described.ids, {}, 0, comm.rank(), 3, true);
        engine.step();
        engine.save(saves).wait(60);
        micro_batch(engine, described.ids, {}, 1, comm.rank(), 3, true);
        engine.step();
        const std::vector<float> seen = read_all(engine, described.ids);
        if (comm.rank() == 0) saved = seen;
    });
    for (const bool offloaded : {false, true})
        run_ranks(2, [&](Communicator &comm) {
            const Described described = describe(
                odd_model(), "zero3", offloaded ? options() : vescomm_fsdp_spec_options_init());
            Engine engine(described.spec, comm);
            engine.load(saves);
            micro_batch(engine, described.ids, {}, 1, comm.rank(), 2, true);
            engine.step();
            EXPECT_EQ(read_all(engine, described.ids), saved);
        });
}

}  // namespace
}  // namespace vescomm::fsdp::testing

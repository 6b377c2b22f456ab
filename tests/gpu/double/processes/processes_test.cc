// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The double for ranks that are processes. With an argument this program is such a process, and
// does one thing; without one it starts itself by gpu_double_run, whose path is GPU_DOUBLE_RUN, and
// expects an exit code and an output.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "gpu/gpu_libraries.h"
#include "gpu/loaded_cuda.h"
#include "vescomm/gpu_kernels.h"
#include "vescomm/vescomm.hpp"

namespace vescomm::internal {
namespace {

using testing_support::loaded_cuda;
using testing_support::LoadedDevice;

// ---- the processes ----

const nccl::Library &nccl_functions() {
    return gpu_libraries().nccl;
}

vescomm_status_t zero(float *array, std::int64_t count, cuda::Stream stream) {
    const vescomm_gpu_piece_t all = {0, 0, count};
    return vescomm_gpu_zero(array, VESCOMM_F32, &all, 1, stream);
}

// A communicator of NCCL with all ranks of vescomm-run, each on a device of its own.
struct NcclRanks {
    NcclRanks() {
        loaded_cuda().cudaSetDevice(comm.rank());
        nccl::UniqueId id{};
        if (comm.rank() == 0) nccl_functions().get_unique_id(&id);
        broadcast(comm, std::span(reinterpret_cast<std::uint8_t *>(id.internal), sizeof id), 0);
        EXPECT_EQ(
            nccl_functions().comm_init_rank_config(&made, comm.ranks(), id, comm.rank(), nullptr),
            0);
    }
    Communicator comm = Communicator::from_environment();
    nccl::Comm made = nullptr;
};

int use_all_kinds_of_memory() {
    LoadedDevice device(3);
    const auto &cuda = gpu_libraries().cuda;
    void *pinned = nullptr;
    EXPECT_EQ(cuda.host_alloc(&pinned, 4 * sizeof(float), cuda::host_mapped), 0);
    auto *shared = static_cast<float *>(pinned);
    for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(shared[i], 0);
        shared[i] = static_cast<float>(i + 1);
    }
    float *array = device.upload(std::vector<float>{9, 9, 9, 9});
    EXPECT_EQ(zero(shared, 2, device.stream), VESCOMM_OK);  // a kernel on pinned memory
    EXPECT_EQ(cuda.memcpy_async(array, shared, 3 * sizeof(float), 0, device.stream), 0);
    EXPECT_EQ(device.read(array, 4), (std::vector<float>{0, 0, 3, 9}));
    EXPECT_EQ(shared[3], 4);
    EXPECT_EQ(cuda.free_host(pinned), 0);
    return 0;
}

int use_two_threads() {
    const auto device = [] {
        int number = -1;
        EXPECT_EQ(gpu_libraries().cuda.get_device(&number), 0);
        return number;
    };
    loaded_cuda().cudaSetDevice(1);
    for (int turn = 0; turn < 3; ++turn)
        std::thread([&] {
            EXPECT_EQ(device(), 0);
            loaded_cuda().cudaSetDevice(2);
            EXPECT_EQ(device(), 2);
        }).join();
    EXPECT_EQ(device(), 1);
    return 0;
}

int write_on_two_streams(bool ordered) {
    LoadedDevice one(0), other(0);
    float *array = one.array<float>(4);
    CUevent_st *event = nullptr;
    EXPECT_EQ(loaded_cuda().cudaEventCreateWithFlags(&event, 2), 0);
    EXPECT_EQ(zero(array, 4, one.stream), VESCOMM_OK);
    EXPECT_EQ(loaded_cuda().cudaEventRecord(event, one.stream), 0);
    if (ordered) {
        EXPECT_EQ(loaded_cuda().cudaStreamWaitEvent(other.stream, event, 0), 0);
    }
    EXPECT_EQ(zero(array, 4, other.stream), VESCOMM_OK);
    EXPECT_EQ(loaded_cuda().cudaStreamSynchronize(other.stream), 0);
    return 0;
}

int run_kernel_on_host_memory() {
    LoadedDevice device(0);
    std::vector<float> mine(4, 5);
    EXPECT_EQ(zero(mine.data(), 4, device.stream), VESCOMM_OK);
    EXPECT_NE(loaded_cuda().cudaStreamSynchronize(device.stream), 0);
    EXPECT_EQ(mine, std::vector<float>(4, 5));
    return 0;
}

int read_device_memory_on_the_host() {
    LoadedDevice device(0);
    const volatile float *array = device.array<float>(4);
    return array[0] == 0 ? 0 : 1;
}

int leave_a_group_open(bool killed) {
    EXPECT_EQ(nccl_functions().group_start(), 0);
    if (killed) std::raise(SIGKILL);
    return 0;
}

int gather_different_counts() {
    NcclRanks ranks;
    LoadedDevice device(ranks.comm.rank());
    const auto count = static_cast<std::size_t>(4 + ranks.comm.rank());
    float *array = device.array<float>(16);
    EXPECT_EQ(
        nccl_functions().all_gather(array, array, count, nccl::f32, ranks.made, device.stream), 0);
    loaded_cuda().cudaStreamSynchronize(device.stream);
    return 0;
}

// Rank 1 is killed with a collective on its stream, or before its first one. That of rank 0 waits
// until its communicator is aborted.
int gather_with_a_dead_rank(bool has_called) {
    NcclRanks ranks;
    LoadedDevice device(ranks.comm.rank());
    const auto &cuda = gpu_libraries().cuda;
    float *array = device.array<float>(16);
    float *mine = array + 4 * ranks.comm.rank();
    if (ranks.comm.rank() == 1) {
        if (has_called)
            nccl_functions().all_gather(mine, array, 4, nccl::f32, ranks.made, device.stream);
        std::raise(SIGKILL);
    }
    try {
        for (;;) ranks.comm.barrier();  // ends when rank 1 has died
    } catch (const vescomm::Error &) {
    }
    EXPECT_EQ(nccl_functions().all_gather(mine, array, 4, nccl::f32, ranks.made, device.stream), 0);
    if (!has_called) {
        EXPECT_EQ(cuda.stream_query(device.stream), cuda::not_ready);
    }
    EXPECT_EQ(nccl_functions().comm_abort(ranks.made), 0);
    EXPECT_EQ(loaded_cuda().cudaStreamSynchronize(device.stream), 0);
    ranks.comm.abort("rank 1 is dead");
    return 0;
}

int ask_for_the_non_blocking_mode() {
    nccl::UniqueId id{};
    nccl::Config config;
    config.blocking = 0;
    nccl::Comm made = nullptr;
    nccl_functions().get_unique_id(&id);
    EXPECT_EQ(nccl_functions().comm_init_rank_config(&made, 1, id, 0, &config),
              nccl::invalid_usage);
    return 0;
}

// A capture forbids calls of its own process only.
int capture_beside_another_process() {
    Communicator comm = Communicator::from_environment();
    LoadedDevice device(comm.rank());
    CUgraph_st *graph = nullptr;
    if (comm.rank() == 0) {
        EXPECT_EQ(loaded_cuda().cudaStreamBeginCapture(device.stream, 0), 0);
    }
    comm.barrier();
    if (comm.rank() == 1) device.array<float>(4);
    comm.barrier();
    if (comm.rank() == 0) {
        EXPECT_EQ(loaded_cuda().cudaStreamEndCapture(device.stream, &graph), 0);
        EXPECT_EQ(loaded_cuda().cudaGraphDestroy(graph), 0);
    }
    return 0;
}

int use_what_does_not_exist() {
    constexpr int invalid_handle = 400;
    LoadedDevice device(0);
    const auto &cuda = gpu_libraries().cuda;
    const auto &of_nccl = nccl_functions();
    std::vector<float> mine(4, 5);
    auto *event = reinterpret_cast<cuda::Event>(mine.data());
    auto *graph = reinterpret_cast<CUgraphExec_st *>(mine.data());
    auto *comm = reinterpret_cast<nccl::Comm>(mine.data());
    EXPECT_EQ(cuda.event_destroy(event), invalid_handle);
    EXPECT_EQ(cuda.event_record(event, device.stream), invalid_handle);
    EXPECT_EQ(cuda.stream_wait_event(device.stream, event, 0), invalid_handle);
    EXPECT_EQ(loaded_cuda().cudaGraphLaunch(graph, device.stream), invalid_handle);
    EXPECT_EQ(loaded_cuda().cudaGraphExecDestroy(graph), invalid_handle);
    int count = 0;
    EXPECT_EQ(of_nccl.comm_count(comm, &count), nccl::invalid_argument);
    EXPECT_EQ(of_nccl.comm_user_rank(comm, &count), nccl::invalid_argument);
    EXPECT_STREQ(of_nccl.get_last_error(comm), "");
    EXPECT_EQ(cuda.memcpy_async(mine.data(), mine.data(), 4, 0, device.stream),
              cuda::invalid_value);
    return 0;
}

const std::map<std::string, std::function<int()>> programs = {
    {"memory", use_all_kinds_of_memory},
    {"threads", use_two_threads},
    {"ordered", [] { return write_on_two_streams(true); }},
    {"unordered", [] { return write_on_two_streams(false); }},
    {"kernel on host memory", run_kernel_on_host_memory},
    {"host on device memory", read_device_memory_on_the_host},
    {"open group", [] { return leave_a_group_open(false); }},
    {"killed in a group", [] { return leave_a_group_open(true); }},
    {"counts", gather_different_counts},
    {"dead after its call", [] { return gather_with_a_dead_rank(true); }},
    {"dead before its call", [] { return gather_with_a_dead_rank(false); }},
    {"capture", capture_beside_another_process},
    {"wild handles", use_what_does_not_exist},
    {"non-blocking", ask_for_the_non_blocking_mode},
    {"code 3", [] { return 3; }},
};

// ---- the tests ----

struct Ended {
    int code = 0;
    std::string output;
};

std::string quoted(const std::string &text) {
    return "'" + text + "'";
}

// Runs a program of the table. `ranks`: under vescomm-run, which goes on without failed ranks.
Ended run(const std::string &program, int ranks = 0) {
    std::string command = quoted(std::getenv("GPU_DOUBLE_RUN"));
    if (ranks > 0)
        command += " " + quoted(std::getenv("VESCOMM_TEST_RUN")) + " -n " + std::to_string(ranks) +
                   " --min-ranks 1";
    command += " /proc/" + std::to_string(getpid()) + "/exe " + quoted(program) + " 2>&1";
    Ended ended;
    std::FILE *pipe = popen(command.c_str(), "r");
    std::array<char, 4096> part;
    while (std::fgets(part.data(), static_cast<int>(part.size()), pipe) != nullptr)
        ended.output += part.data();
    const int status = pclose(pipe);
    ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return ended;
}

constexpr int broken_rule = 70;

void expect_violation(const Ended &ended, const std::string &text) {
    EXPECT_EQ(ended.code, broken_rule) << ended.output;
    EXPECT_NE(ended.output.find(text), std::string::npos) << ended.output;
}

void expect_code(const Ended &ended, int code) {
    EXPECT_EQ(ended.code, code) << ended.output;
    EXPECT_EQ(ended.output.find("gpu double"), std::string::npos) << ended.output;
}

TEST(DoubleForProcesses, SharesPinnedMemoryAndCopiesOtherMemory) {
    expect_code(run("memory"), 0);
}

TEST(DoubleForProcesses, HasADeviceForEachThread) {
    expect_code(run("threads"), 0);
}

TEST(DoubleForProcesses, ReturnsTheExitCodeOfTheProgram) {
    expect_code(run("code 3"), 3);
    expect_code(run("host on device memory"), 128 + SIGSEGV);
    expect_code(run("killed in a group"), 128 + SIGKILL);
}

TEST(DoubleForProcesses, FindsUnorderedStreams) {
    expect_code(run("ordered"), 0);
    expect_violation(run("unordered"), "without a stream dependency on");
}

TEST(DoubleForProcesses, FindsKernelsOnHostMemory) {
    expect_violation(run("kernel on host memory"), "writes host memory that is not pinned");
}

TEST(DoubleForProcesses, FindsAnOpenGroupAtTheEndOfItsThread) {
    expect_violation(run("open group"), "a thread ends within an open group");
}

TEST(DoubleForProcesses, FindsDifferentCallsOfProcesses) {
    expect_violation(
        run("counts", 2),
        "ranks 0 and 1 make different calls: ncclAllGather(4 of type 7) and ncclAllGather(5");
}

TEST(DoubleForProcesses, LetsOthersWaitForADeadProcess) {
    expect_code(run("dead before its call", 2), 0);
    expect_code(run("dead after its call", 2), 0);
}

TEST(DoubleForProcesses, HasTheCapturesOfEachProcess) {
    expect_code(run("capture", 2), 0);
}

TEST(DoubleForProcesses, SurvivesWildHandles) {
    expect_code(run("wild handles"), 0);
}

TEST(DoubleForProcesses, RefusesTheNonBlockingMode) {
    const Ended ended = run("non-blocking");
    EXPECT_EQ(ended.code, 0) << ended.output;
    EXPECT_NE(ended.output.find("no non-blocking mode"), std::string::npos) << ended.output;
}

}  // namespace
}  // namespace vescomm::internal

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    if (argc < 2) return RUN_ALL_TESTS();
    vescomm::internal::gpu_libraries();  // loads them
    const int code = vescomm::internal::programs.at(argv[1])();
    const bool failed = testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed();
    return failed ? 1 : code;
}

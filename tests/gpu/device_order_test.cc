// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Streams that wait for the collectives of a device communicator on other streams.
#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/device_ranks.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;
using gpu_double::cudaDeviceSynchronize;
using gpu_double::cudaSetDevice;
using gpu_double::take_violations;

// A stream of the current device.
class Stream {
public:
    Stream() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, 1), 0); }
    ~Stream() { cudaStreamDestroy(stream_); }
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;
    operator cuda::Stream() const { return stream_; }

private:
    cuda::Stream stream_ = nullptr;
};

constexpr std::int64_t count = 6;

vescomm_status_t all_reduce(DeviceRank &r, float *data, cuda::Stream stream) {
    return vescomm_gpu_all_reduce(r.gpu, data, data, count, VESCOMM_F32, VESCOMM_SUM, stream);
}

// Each collective with `count` elements of `data`, which is a device buffer.
using Collective =
    std::function<void(DeviceRank &, float *data, vescomm_gpu_buffer_t *, cuda::Stream)>;
const std::vector<std::pair<const char *, Collective>> collectives = {
    {"all_gather_v",
     [](DeviceRank &r, float *data, vescomm_gpu_buffer_t *, cuda::Stream stream) {
         const VectorLayout layout({4, 2});
         EXPECT_EQ(vescomm_gpu_all_gather_v(r.gpu, layout, VESCOMM_F32, nullptr, data, stream),
                   VESCOMM_OK);
     }},
    {"reduce_scatter_v",
     [](DeviceRank &r, float *data, vescomm_gpu_buffer_t *, cuda::Stream stream) {
         const VectorLayout layout({4, 2});
         EXPECT_EQ(vescomm_gpu_reduce_scatter_v(r.gpu, layout, VESCOMM_F32, VESCOMM_SUM, data,
                                                nullptr, stream),
                   VESCOMM_OK);
     }},
    {"all_reduce", [](DeviceRank &r, float *data, vescomm_gpu_buffer_t *,
                      cuda::Stream stream) { EXPECT_EQ(all_reduce(r, data, stream), VESCOMM_OK); }},
    {"broadcast",
     [](DeviceRank &r, float *data, vescomm_gpu_buffer_t *, cuda::Stream stream) {
         EXPECT_EQ(vescomm_gpu_broadcast(r.gpu, data, count, VESCOMM_F32, 0, stream), VESCOMM_OK);
     }},
    {"all_gather_v of a buffer",
     [](DeviceRank &, float *, vescomm_gpu_buffer_t *buffer, cuda::Stream stream) {
         EXPECT_EQ(vescomm_gpu_buffer_all_gather_v(&buffer, 1, stream), VESCOMM_OK);
     }},
    {"reduce_scatter_v of a buffer",
     [](DeviceRank &, float *, vescomm_gpu_buffer_t *buffer, cuda::Stream stream) {
         EXPECT_EQ(vescomm_gpu_buffer_reduce_scatter_v(&buffer, 1, VESCOMM_SUM, stream),
                   VESCOMM_OK);
     }},
};

// Runs a collective on a buffer of two ranks, and then a kernel on another stream that reads what
// the collective writes. `order`: orders the two, or does not.
void read_after(const Collective &collective,
                const std::function<void(DeviceRank &, cuda::Stream)> &order) {
    run_device_ranks(2, device_options(), [&](DeviceRank &r) {
        const VectorLayout layout({4, 2});
        vescomm_gpu_buffer_t *buffer = nullptr;
        ASSERT_EQ(vescomm_gpu_buffer_create(r.gpu, layout, nullptr, &buffer), VESCOMM_OK);
        vescomm_view_t view{};
        ASSERT_EQ(vescomm_gpu_buffer_get_data(buffer, &view), VESCOMM_OK);
        auto *data = static_cast<float *>(view.data);
        r.write(data, std::vector<float>(count, 1));
        {
            const Stream other;
            {
                const Stream first;  // it ends before its work is ordered
                collective(r, data, buffer, first);
            }
            order(r, other);
            gpu_double::launch(other, "reader", {{data, count * sizeof(float), false}}, [] {});
            EXPECT_EQ(vescomm_gpu_wait(r.gpu, other), VESCOMM_OK);
            EXPECT_EQ(cudaDeviceSynchronize(), 0);
        }
        EXPECT_EQ(vescomm_gpu_buffer_free(buffer), VESCOMM_OK);
    });
}

TEST(DeviceOrder, FollowsEveryCollective) {
    for (const auto &[name, collective] : collectives) {
        SCOPED_TRACE(name);
        read_after(collective, [](DeviceRank &r, cuda::Stream stream) {
            EXPECT_EQ(vescomm_gpu_order_stream(r.gpu, stream), VESCOMM_OK);
        });
        EXPECT_EQ(take_violations(), "");
    }
}

// Mutation: the double finds the missing order.
TEST(DeviceOrder, IsNeeded) {
    SKIP_RACE_WITH_THREAD_SANITIZER();
    for (const auto &[name, collective] : collectives) {
        SCOPED_TRACE(name);
        read_after(collective, [](DeviceRank &, cuda::Stream) {});
        EXPECT_THAT_VIOLATION("reader reads .* without a stream dependency on");
    }
}

TEST(DeviceOrder, HasNoEffectWithoutACollective) {
    run_device_ranks(2, device_options(), [](DeviceRank &r) {
        EXPECT_EQ(vescomm_gpu_order_stream(r.gpu, r.stream), VESCOMM_OK);
        EXPECT_EQ(vescomm_gpu_order_stream(r.gpu, nullptr), VESCOMM_OK);
        EXPECT_EQ(vescomm_gpu_order_stream(nullptr, r.stream), VESCOMM_ERROR_INVALID_ARGUMENT);
    });
    EXPECT_EQ(take_violations(), "");
}

// NULL is a stream of the communicator's device, whichever device is current.
TEST(DeviceOrder, ReachesTheDefaultStreamOfTheDevice) {
    run_device_ranks(2, device_options(), [](DeviceRank &r) {
        auto *data = r.upload(std::vector<float>(count, 1));
        ASSERT_EQ(all_reduce(r, data, r.stream), VESCOMM_OK);
        EXPECT_EQ(cudaSetDevice(1 - r.rank), 0);
        EXPECT_EQ(vescomm_gpu_order_stream(r.gpu, nullptr), VESCOMM_OK);
        EXPECT_EQ(gpu_double::current_device(), 1 - r.rank);
        EXPECT_EQ(cudaSetDevice(r.rank), 0);
        gpu_double::launch(nullptr, "reader", {{data, count * sizeof(float), false}}, [] {});
        EXPECT_EQ(vescomm_gpu_wait(r.gpu, nullptr), VESCOMM_OK);
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceOrder, RefusesACapturedStream) {
    run_device_ranks(2, device_options(), [](DeviceRank &r) {
        auto *data = r.upload(std::vector<float>(count, 1));
        EXPECT_EQ(all_reduce(r, data, r.stream), VESCOMM_OK);
        CUgraph_st *graph = nullptr;
        ASSERT_EQ(cudaStreamBeginCapture(r.stream, 1), 0);
        EXPECT_EQ(vescomm_gpu_order_stream(r.gpu, r.stream), VESCOMM_ERROR_INVALID_ARGUMENT);
        EXPECT_NE(std::string(vescomm_get_last_error()).find("captured into a graph"),
                  std::string::npos);
        EXPECT_EQ(all_reduce(r, data, r.stream), VESCOMM_OK);
        const Stream other;
        EXPECT_EQ(vescomm_gpu_order_stream(r.gpu, other), VESCOMM_OK) << "the call before";
        ASSERT_EQ(cudaStreamEndCapture(r.stream, &graph), 0) << "the capture stays valid";
        EXPECT_EQ(vescomm_gpu_order_stream(r.gpu, other), VESCOMM_OK) << "the call before";
        gpu_double::launch(other, "reader", {{data, count * sizeof(float), false}}, [] {});
        EXPECT_EQ(vescomm_gpu_wait(r.gpu, other), VESCOMM_OK);
        cudaGraphDestroy(graph);
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceOrder, WorksOnABrokenCommunicator) {
    std::barrier<> all(2);  // that of the communicator may end with the failure
    run_device_ranks(2, device_options(), [&](DeviceRank &r) {
        auto *data = r.upload(std::vector<float>(count, 1));
        ASSERT_EQ(all_reduce(r, data, r.stream), VESCOMM_OK);
        EXPECT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
        all.arrive_and_wait();
        if (r.rank == 0) r.parent.value->fail(VESCOMM_ERROR_ABORTED, "the test");
        while (vescomm_gpu_comm_check(r.gpu) == VESCOMM_OK) std::this_thread::yield();
        EXPECT_EQ(vescomm_gpu_order_stream(r.gpu, r.stream), VESCOMM_OK);
        EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
    });
    EXPECT_EQ(take_violations(), "");
}

// A call whose end CUDA does not record breaks the communicator, and so does a wait that fails.
TEST(DeviceOrder, FailsWithCuda) {
    for (const char *function :
         {"cudaEventCreateWithFlags", "cudaEventRecord", "cudaStreamWaitEvent"}) {
        SCOPED_TRACE(function);
        run_device_ranks(1, device_options(), [&](DeviceRank &r) {
            auto *data = r.upload(std::vector<float>(count, 1));
            gpu_double::fail_call(function, 0, cuda::invalid_value);
            vescomm_status_t status = all_reduce(r, data, r.stream);
            if (status == VESCOMM_OK) status = vescomm_gpu_order_stream(r.gpu, r.stream);
            EXPECT_EQ(status, VESCOMM_ERROR_SYSTEM);
            EXPECT_NE(std::string(vescomm_get_last_error()).find(function), std::string::npos)
                << vescomm_get_last_error();
            EXPECT_EQ(vescomm_gpu_comm_check(r.gpu), VESCOMM_ERROR_SYSTEM);
            EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
        });
        EXPECT_EQ(take_violations(), "");
    }
}

}  // namespace
}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks of a session, as threads, with device communicators on the test double: ranks that split
// and shrink both.
#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "api/gpu_handles.h"
#include "api/handles.h"
#include "gpu/double_ranks.h"
#include "support/free_port.h"
#include "vescomm/gpu.h"

namespace vescomm::internal::testing_support {

// A rank with a device and the host's communicator.
struct SessionRank : gpu_double::Device {
    SessionRank(int number, int ranks, const std::string &address, double timeout_seconds,
                const std::string &node)
        : Device(number), rank(number), ranks(ranks) {
        auto options = vescomm_comm_options_init();
        options.timeout_seconds = timeout_seconds;
        options.node = node.c_str();
        EXPECT_EQ(vescomm_comm_create(number, ranks, address.c_str(), "a secret", &options, &comm),
                  VESCOMM_OK)
            << vescomm_get_last_error();
    }
    ~SessionRank() {
        EXPECT_EQ(vescomm_gpu_comm_free(gpu), VESCOMM_OK);
        EXPECT_EQ(vescomm_comm_free(comm), VESCOMM_OK);
    }

    vescomm_status_t create(const vescomm_gpu_comm_options_t *options = nullptr) {
        return vescomm_gpu_comm_create(comm, options, &gpu);
    }
    // The ranks with a color, as a communicator of the host; nullptr for a negative color.
    vescomm_comm_t *split_host(int color, int key) {
        vescomm_comm_t *part = nullptr;
        EXPECT_EQ(vescomm_comm_split(comm, color, key, nullptr, &part), VESCOMM_OK)
            << vescomm_get_last_error();
        return part;
    }
    // The communicator of the host without these ranks.
    vescomm_comm_t *shrink_host(const std::vector<std::int32_t> &failed) {
        vescomm_comm_t *survivors = nullptr;
        EXPECT_EQ(vescomm_comm_shrink(comm, failed.data(), failed.size(), &survivors), VESCOMM_OK)
            << vescomm_get_last_error();
        return survivors;
    }

    const int rank, ranks;
    vescomm_comm_t *comm = nullptr;
    vescomm_gpu_comm_t *gpu = nullptr;
};

// `node`: the node of each rank; empty: one for all.
inline void run_session(int ranks, const std::function<void(SessionRank &)> &body,
                        double timeout_seconds = 60, const std::vector<int> &node = {}) {
    const std::string address = free_address();
    std::vector<std::thread> threads;
    for (int number = 0; number < ranks; ++number)
        threads.emplace_back([&, number] {
            const int its_node = node.empty() ? 0 : node[static_cast<std::size_t>(number)];
            SessionRank rank(number, ranks, address, timeout_seconds, std::to_string(its_node));
            body(rank);
        });
    for (std::thread &thread : threads) thread.join();
}

inline vescomm_comm_info_t info_of(const vescomm_comm_t *comm) {
    vescomm_comm_info_t info = vescomm_comm_info_init();
    EXPECT_EQ(vescomm_comm_get_info(comm, &info), VESCOMM_OK);
    return info;
}

// True: NCCL has created the communicator from another one.
inline bool is_derived(const vescomm_gpu_comm_t *gpu) {
    vescomm_gpu_comm_info_t info = vescomm_gpu_comm_info_init();
    EXPECT_EQ(vescomm_gpu_comm_get_info(gpu, &info), VESCOMM_OK);
    return info.derived != 0;
}

inline void expect_status(vescomm_status_t status, vescomm_status_t expected,
                          const std::string &says = {}) {
    EXPECT_EQ(status, expected) << vescomm_get_last_error();
    if (!says.empty()) {
        EXPECT_NE(std::string(vescomm_get_last_error()).find(says), std::string::npos)
            << vescomm_get_last_error() << "\ndoes not contain: " << says;
    }
}

// Ragged and other collectives on a device communicator give the values of its ranks.
inline void expect_values(gpu_double::Device &device, vescomm_gpu_comm_t *gpu,
                          const vescomm_comm_t *comm) {
    const vescomm_comm_info_t info = info_of(comm);
    std::vector<std::int64_t> counts;
    for (int rank = 0; rank < info.ranks; ++rank)
        counts.push_back(rank % 2 == 0 ? 3 + 2 * rank : 0);
    vescomm_layout layout{Layout::from_counts(counts)};
    const auto elements = static_cast<std::size_t>(layout.value.elements());
    const auto value = [](int rank, std::size_t at) {
        return static_cast<float>(1000 * (rank + 1)) + static_cast<float>(at);
    };
    std::vector<float> own, gathered, summed;
    for (int rank = 0; rank < info.ranks; ++rank)
        for (auto at = layout.value.shard(rank).begin; at < layout.value.shard(rank).end; ++at)
            gathered.push_back(value(rank, static_cast<std::size_t>(at)));
    const auto shard = layout.value.shard(info.rank);
    for (std::size_t at = 0; at < elements; ++at) {
        own.push_back(value(info.rank, at));
        float sum = 0;
        for (int rank = 0; rank < info.ranks; ++rank) sum += value(rank, at);
        if (static_cast<std::int64_t>(at) >= shard.begin &&
            static_cast<std::int64_t>(at) < shard.end)
            summed.push_back(sum);
    }
    auto *data = device.upload(own);
    ASSERT_EQ(vescomm_gpu_all_gather_v(gpu, &layout, VESCOMM_F32, nullptr, data, device.stream),
              VESCOMM_OK)
        << vescomm_get_last_error();
    ASSERT_EQ(vescomm_gpu_wait(gpu, device.stream), VESCOMM_OK) << vescomm_get_last_error();
    EXPECT_EQ(device.read(data, elements), gathered);
    data = device.upload(own);
    auto *result = device.array<float>(summed.size() + 1);
    ASSERT_EQ(vescomm_gpu_reduce_scatter_v(gpu, &layout, VESCOMM_F32, VESCOMM_SUM, data, result,
                                           device.stream),
              VESCOMM_OK)
        << vescomm_get_last_error();
    ASSERT_EQ(vescomm_gpu_wait(gpu, device.stream), VESCOMM_OK) << vescomm_get_last_error();
    EXPECT_EQ(device.read(result, summed.size()), summed);
    auto *one = device.upload(std::vector<float>{static_cast<float>(info.rank)});
    ASSERT_EQ(vescomm_gpu_broadcast(gpu, one, 1, VESCOMM_F32, info.ranks - 1, device.stream),
              VESCOMM_OK)
        << vescomm_get_last_error();
    ASSERT_EQ(vescomm_gpu_wait(gpu, device.stream), VESCOMM_OK) << vescomm_get_last_error();
    EXPECT_EQ(device.read(one, 1)[0], static_cast<float>(info.ranks - 1));
    // Memory is registered with the communicator.
    void *memory = nullptr;
    ASSERT_EQ(vescomm_gpu_malloc(gpu, 4096, &memory), VESCOMM_OK) << vescomm_get_last_error();
    EXPECT_EQ(vescomm_gpu_mfree(gpu, memory), VESCOMM_OK) << vescomm_get_last_error();
}

}  // namespace vescomm::internal::testing_support

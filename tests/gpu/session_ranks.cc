// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/session_ranks.h"

#include <thread>

#include "support/free_port.h"

namespace vescomm::internal::testing_support {

void run_session(int ranks, const std::function<void(SessionRank &)> &body, double timeout_seconds,
                 const std::vector<int> &node) {
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

vescomm_comm_info_t info_of(const vescomm_comm_t *comm) {
    vescomm_comm_info_t info = vescomm_comm_info_init();
    EXPECT_EQ(vescomm_comm_get_info(comm, &info), VESCOMM_OK);
    return info;
}

bool is_derived(const vescomm_gpu_comm_t *gpu) {
    vescomm_gpu_comm_info_t info = vescomm_gpu_comm_info_init();
    EXPECT_EQ(vescomm_gpu_comm_get_info(gpu, &info), VESCOMM_OK);
    return info.derived != 0;
}

void expect_status(vescomm_status_t status, vescomm_status_t expected, const std::string &says) {
    EXPECT_EQ(status, expected) << vescomm_get_last_error();
    if (!says.empty()) {
        EXPECT_NE(std::string(vescomm_get_last_error()).find(says), std::string::npos)
            << vescomm_get_last_error() << "\ndoes not contain: " << says;
    }
}

void expect_values(gpu_double::Device &device, vescomm_gpu_comm_t *gpu,
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

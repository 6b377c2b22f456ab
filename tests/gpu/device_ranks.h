// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks with device communicators on the test double, as threads.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "api/handles.h"
#include "gpu/double_ranks.h"
#include "support/thread_ranks.h"
#include "vescomm/gpu.h"

namespace vescomm::internal::testing_support {

namespace cuda = internal::cuda;
namespace nccl = internal::nccl;

void expect_error(vescomm_status_t status, vescomm_status_t expected, const std::string &says);

struct DeviceRank : gpu_double::Device {
    DeviceRank(const std::shared_ptr<Communicator> &comm)
        : Device(comm->rank()), rank(comm->rank()), ranks(comm->ranks()) {
        parent.value = comm;
    }
    ~DeviceRank() { EXPECT_EQ(vescomm_gpu_comm_free(gpu), VESCOMM_OK) << vescomm_get_last_error(); }

    vescomm_status_t create(const vescomm_gpu_comm_options_t &options) {
        return vescomm_gpu_comm_create(&parent, &options, &gpu);
    }

    int rank, ranks;
    vescomm_comm parent;
    vescomm_gpu_comm_t *gpu = nullptr;
};

vescomm_gpu_comm_options_t device_options(const char *method = nullptr,
                                          std::uint64_t workspace = 1 << 20);

TestSetup node_of_ranks(int ranks);

// Runs `body` on ranks that have no device communicator yet.
void run_devices(const TestSetup &setup, const std::function<void(DeviceRank &)> &body);

// Runs `body` on ranks with a device communicator.
void run_device_ranks(int ranks, const vescomm_gpu_comm_options_t &options,
                      const std::function<void(DeviceRank &)> &body);

// Calls of NCCL by the ranks of one call, which a barrier separates from other calls.
int calls_in(DeviceRank &r, const char *function, const std::function<void()> &call);

// A layout of one vector.
struct VectorLayout {
    explicit VectorLayout(const std::vector<std::int64_t> &counts)
        : value{Layout::from_counts(counts)} {}
    operator const vescomm_layout_t *() const { return &value; }
    std::size_t elements() const { return static_cast<std::size_t>(value.value.elements()); }
    std::size_t begin(int rank) const {
        return static_cast<std::size_t>(value.value.shard(rank).begin);
    }
    std::size_t end(int rank) const {
        return static_cast<std::size_t>(value.value.shard(rank).end);
    }
    std::size_t count(int rank) const { return end(rank) - begin(rank); }

    vescomm_layout value;
};

// Counts of ranks: equal, ragged, with empty shards, of one owner, and none at all.
std::vector<std::vector<std::int64_t>> shapes(int ranks);

}  // namespace vescomm::internal::testing_support

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

inline void expect_error(vescomm_status_t status, vescomm_status_t expected,
                         const std::string &says) {
    EXPECT_EQ(status, expected) << vescomm_get_last_error();
    EXPECT_NE(std::string(vescomm_get_last_error()).find(says), std::string::npos)
        << vescomm_get_last_error();
}

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

inline vescomm_gpu_comm_options_t device_options(const char *method = nullptr,
                                                 std::uint64_t workspace = 1 << 20) {
    vescomm_gpu_comm_options_t options = vescomm_gpu_comm_options_init();
    options.method = method;
    options.workspace_bytes = workspace;
    return options;
}

inline TestSetup node_of_ranks(int ranks) {
    TestSetup setup;
    setup.kind = Kind::loopback;
    setup.node_of.assign(static_cast<std::size_t>(ranks), 0);
    return setup;
}

// Runs `body` on ranks that have no device communicator yet.
inline void run_devices(const TestSetup &setup, const std::function<void(DeviceRank &)> &body) {
    run_ranks(setup, [&](const std::shared_ptr<Communicator> &comm) {
        DeviceRank rank(comm);
        body(rank);
    });
}

// Runs `body` on ranks with a device communicator.
inline void run_device_ranks(int ranks, const vescomm_gpu_comm_options_t &options,
                             const std::function<void(DeviceRank &)> &body) {
    run_devices(node_of_ranks(ranks), [&](DeviceRank &rank) {
        ASSERT_EQ(rank.create(options), VESCOMM_OK) << vescomm_get_last_error();
        body(rank);
    });
}

// Calls of NCCL by the ranks of one call, which a barrier separates from other calls.
inline int calls_in(DeviceRank &r, const char *function, const std::function<void()> &call) {
    r.parent.value->barrier();
    const int before = gpu_double::calls_of(function);
    r.parent.value->barrier();
    call();
    r.parent.value->barrier();
    const int after = gpu_double::calls_of(function);
    r.parent.value->barrier();
    return after - before;
}

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
inline std::vector<std::vector<std::int64_t>> shapes(int ranks) {
    std::vector<std::vector<std::int64_t>> all(5);
    for (std::int64_t k = 0; k < ranks; ++k) {
        all[0].push_back(4);
        all[1].push_back(3 + 5 * k);
        all[2].push_back(k % 2 == 0 ? 0 : 7 * k);
        all[3].push_back(k == ranks / 2 ? 33 : 0);
        all[4].push_back(0);
    }
    return all;
}

}  // namespace vescomm::internal::testing_support

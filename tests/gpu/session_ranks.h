// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks of a session, as threads, with device communicators on the test double: ranks that split
// and shrink both.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "api/gpu_handles.h"
#include "api/handles.h"
#include "gpu/double_ranks.h"
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
void run_session(int ranks, const std::function<void(SessionRank &)> &body,
                 double timeout_seconds = 60, const std::vector<int> &node = {});

vescomm_comm_info_t info_of(const vescomm_comm_t *comm);

// True: NCCL has created the communicator from another one.
bool is_derived(const vescomm_gpu_comm_t *gpu);

void expect_status(vescomm_status_t status, vescomm_status_t expected,
                   const std::string &says = {});

// Ragged and other collectives on a device communicator give the values of its ranks.
void expect_values(gpu_double::Device &device, vescomm_gpu_comm_t *gpu, const vescomm_comm_t *comm);

}  // namespace vescomm::internal::testing_support

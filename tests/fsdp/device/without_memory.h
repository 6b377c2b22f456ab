// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <barrier>
#include <string>
#include <vector>

#include "fsdp/device/training.h"

namespace vescomm::fsdp::testing {

// Memory that one of four ranks lacks at any time of a creation is no difference between programs.
// `allocations`: by ncclMemAlloc() on all ranks together, at most.
inline void expect_no_mismatch_without_memory(const std::string &preset,
                                              const std::vector<UnitModel> &units,
                                              int allocations) {
    std::atomic<int> failed{4};
    for (int call = 0; failed > 0; ++call) {
        SCOPED_TRACE(call);
        ASSERT_LE(call, allocations) << "a creation makes more";
        std::barrier<> all(4);
        failed = 0;
        run_ranks(4, [&](Communicator &comm) {
            const gpu_double::Device device(comm.rank());
            const Described described = describe(units, preset, on_device());
            if (comm.rank() == 0)
                gpu_double::fail_call("ncclMemAlloc", call,
                                      vescomm::internal::nccl::unhandled_cuda_error);
            all.arrive_and_wait();
            try {
                const Engine engine(described.spec, comm);
            } catch (const Error &error) {
                ++failed;
                EXPECT_TRUE(error.status() == VESCOMM_ERROR_OUT_OF_MEMORY ||
                            error.status() == VESCOMM_ERROR_ABORTED)
                    << error.what();
            }
            all.arrive_and_wait();
        });
        gpu_double::fail_call("", 0, 0);
        EXPECT_TRUE(failed == 0 || failed == 4) << failed;
        EXPECT_EQ(gpu_double::take_violations(), "");
    }
}

}  // namespace vescomm::fsdp::testing

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Kernels that meet those of other ranks, of which one fails or makes no call.
#pragma once

#include <gtest/gtest.h>

#include <barrier>

#include "gpu/test_buffer.h"

namespace vescomm::internal::testing_support {

// Rank 1 of three aborts, or makes no call: the kernels of an all_gather_v of the others end, and
// all ranks get the failure.
inline void expect_no_wait_for_a_failed_rank(const char *method) {
    for (const bool aborts : {true, false}) {
        std::barrier<> all(3);
        run_devices(aborts ? node_of_ranks(3) : hurried(node_of_ranks(3)), [&](DeviceRank &r) {
            ASSERT_EQ(r.create(device_options(method)), VESCOMM_OK);
            TestBuffer buffer(r, VectorLayout({4, 8, 12}),
                              buffer_options(VESCOMM_F32, VESCOMM_GPU_PACKED));
            all.arrive_and_wait();
            vescomm_status_t status = VESCOMM_OK;
            if (r.rank == 1) {
                if (aborts) r.parent.value->abort("rank 1 gives up");
                while (status == VESCOMM_OK) status = vescomm_gpu_comm_check(r.gpu);
            } else {
                status = vescomm_gpu_buffer_all_gather_v(&buffer.handle, 1, r.stream);
                if (status == VESCOMM_OK) status = vescomm_gpu_wait(r.gpu, r.stream);
            }
            EXPECT_EQ(status, aborts ? VESCOMM_ERROR_ABORTED : VESCOMM_ERROR_TIMEOUT)
                << vescomm_get_last_error();
            EXPECT_EQ(cudaStreamSynchronize(r.stream), 0) << "its kernels end";
            all.arrive_and_wait();
        });
    }
    EXPECT_EQ(gpu_double::take_violations(), "");
}

}  // namespace vescomm::internal::testing_support

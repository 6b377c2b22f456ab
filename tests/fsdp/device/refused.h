// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "fsdp/device/training.h"

namespace vescomm::fsdp::testing {

// Creates engines on two ranks, and expects VESCOMM_ERROR_UNSUPPORTED with the sentence on both.
inline void expect_unsupported(const std::function<Described()> &describe_model,
                               const std::string &sentence) {
    run_ranks(2, [&](Communicator &comm) {
        const gpu_double::Device device(comm.rank());
        try {
            const Described described = describe_model();
            const Engine engine(described.spec, comm);
            ADD_FAILURE() << "not refused: " << sentence;
        } catch (const Error &error) {
            EXPECT_EQ(error.status(), VESCOMM_ERROR_UNSUPPORTED) << error.what();
            EXPECT_NE(std::string(error.what()).find(sentence), std::string::npos) << error.what();
        }
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

}  // namespace vescomm::fsdp::testing

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The options of a buffer differ between ranks: each difference is an error that names it.
#include <gtest/gtest.h>

#include <functional>

#include "comm/buffer.h"
#include "support/thread_ranks.h"

namespace vescomm::internal {
namespace {

// Rank 1 changes its options.
void expect_mismatch(const std::function<void(Buffer::Options &)> &change,
                     const std::string &difference) {
    const testing_support::TestSetup setup{testing_support::Kind::loopback, {0, 0}};
    testing_support::run_ranks(setup, [&](const std::shared_ptr<Communicator> &comm) {
        Buffer::Options options;
        options.name = "b";
        if (comm->rank() == 1) change(options);
        try {
            Buffer::create(comm, Layout::from_counts(std::vector<std::int64_t>{4, 4}), options);
            ADD_FAILURE() << "no error";
        } catch (const Error &error) {
            EXPECT_EQ(error.status, VESCOMM_ERROR_MISMATCH);
            EXPECT_EQ(error.what(),
                      "creation of buffer \"b\": rank 0 and rank 1 disagree: " + difference +
                          " on rank 1; every rank must make the same call");
        }
    });
}

TEST(BufferCreation, NamesTheOptionThatDiffers) {
    expect_mismatch([](Buffer::Options &options) { options.type = VESCOMM_F64; },
                    "its type is f32 on rank 0 and f64");
    expect_mismatch([](Buffer::Options &options) { options.kind = 1; },
                    "its kind is 0 on rank 0 and 1");
    expect_mismatch([](Buffer::Options &options) { options.sharing = VESCOMM_PER_NODE; },
                    "its sharing is 0 on rank 0 and 1");
}

}  // namespace
}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The options of a buffer differ between ranks: each difference is an error that names it.
#include <gtest/gtest.h>

#include <functional>

#include "comm/buffer.h"
#include "comm/request.h"
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

// Rank 1 creates a request on another buffer of the same memory, or with another factor.
void expect_request_mismatch(double factor, int buffer, const std::string &difference) {
    const testing_support::TestSetup setup{testing_support::Kind::loopback, {0, 0}};
    testing_support::run_ranks(setup, [&](const std::shared_ptr<Communicator> &comm) {
        const auto staging = StagingBuffer::create(comm);
        const auto memory = Memory::create(comm, 1024, VESCOMM_HOST, VESCOMM_PER_RANK);
        const Layout layout = Layout::from_counts(std::vector<std::int64_t>{4, 4});
        const Layout other = Layout::from_counts(std::vector<std::int64_t>{5, 3});
        std::vector<std::shared_ptr<Buffer>> buffers;
        buffers.push_back(Buffer::create(comm, layout, {.memory = memory}));
        buffers.push_back(Buffer::create(comm, layout, {.memory = memory, .offset_bytes = 64}));
        buffers.push_back(Buffer::create(comm, layout, {.type = VESCOMM_I32, .memory = memory}));
        buffers.push_back(Buffer::create(comm, other, {.memory = memory}));
        Request::Options options{.collective = Collective::all_reduce,
                                 .op = factor == 0 ? VESCOMM_SUM : VESCOMM_PREMULTIPLIED_SUM,
                                 .factor = comm->rank() == 1 ? 2 * factor : factor,
                                 .algorithm = "two_phase"};
        try {
            Request::create(staging, buffers[comm->rank() == 1 ? buffer : 0], options);
            ADD_FAILURE() << "no error";
        } catch (const Error &error) {
            EXPECT_EQ(error.status, VESCOMM_ERROR_MISMATCH);
            EXPECT_NE(std::string(error.what()).find("disagree: " + difference), std::string::npos)
                << error.what();
        }
    });
}

TEST(RequestCreation, NamesWhatDiffers) {
    expect_request_mismatch(1e-7, 0, "the factor is 1e-07 on rank 0 and 2e-07");
    expect_request_mismatch(0, 1, "the buffer's offset_bytes is 0 on rank 0 and 64");
    expect_request_mismatch(0, 2, "the buffer's type is f32 on rank 0 and i32");
    expect_request_mismatch(0, 3, "the hash of the buffer's layout is");
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

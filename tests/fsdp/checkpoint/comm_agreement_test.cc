// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Saves in the background that agree over a communicator, while the ranks use another one.
#include "fsdp/checkpoint/comm_agreement.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/checkpoint/faulty_calls.h"
#include "support/free_port.h"
#include "vescomm/vescomm.hpp"

namespace vescomm::fsdp::checkpoint {
namespace {

using namespace testing_support;

// Runs `body` once for each rank of a communicator, in threads.
void run_communicator(int ranks, const std::function<void(Communicator &)> &body) {
    const std::string address = internal::testing_support::free_address();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
            try {
                vescomm_comm_options_t options = vescomm_comm_options_init();
                options.timeout_seconds = 60;
                Communicator comm(rank, ranks, address, "a secret of this test", &options);
                body(comm);
                comm.finalize();
            } catch (const std::exception &error) {
                ADD_FAILURE() << "rank " << rank << ": " << error.what();
            }
        });
    for (std::thread &thread : threads) thread.join();
}

std::unique_ptr<CommAgreement> agreement_of(Communicator &comm) {
    const auto owner = std::make_shared<Communicator>(comm.dup());
    return std::make_unique<CommAgreement>(std::shared_ptr<vescomm_comm_t>(owner, owner->get()));
}

TEST(CommAgreement, GathersTextsOfAnyLength) {
    for (const int ranks : {1, 2, 3, 5})
        run_communicator(ranks, [&](Communicator &comm) {
            const auto agreement = agreement_of(comm);
            EXPECT_EQ(agreement->rank(), comm.rank());
            EXPECT_EQ(agreement->ranks(), ranks);
            for (const int length : {0, 1, 100000}) {
                const auto text_of = [&](int rank) {
                    return std::string(static_cast<std::size_t>(length * (rank % 3)),
                                       static_cast<char>('a' + rank));
                };
                const auto texts = agreement->all_gather(text_of(comm.rank()));
                ASSERT_EQ(texts.size(), static_cast<std::size_t>(ranks));
                for (int rank = 0; rank < ranks; ++rank)
                    EXPECT_TRUE(texts[static_cast<std::size_t>(rank)] == text_of(rank));
            }
        });
}

TEST(CommAgreement, SavesInTheBackgroundWhileRanksCommunicate) {
    const std::vector<Tensor> model = model_of_all_types();
    for (const int ranks : {1, 2, 3, 5, 7}) {
        TemporaryFolder folder;
        run_communicator(ranks, [&](Communicator &comm) {
            const OwnedPieces owned = pieces_of_rank(model, comm.rank(), ranks, 11, 4);
            std::vector<Extra> extras;
            if (comm.rank() == 0) extras.push_back({"version", "4"});
            SaveJob job(folder.path("c"), contents_of(owned.pieces, extras), agreement_of(comm),
                        small_chunks());
            std::vector<float> mine(1000, 1.0f);
            std::vector<float> sums(1000);
            for (int i = 0; i < 20; ++i) {
                vescomm::all_reduce(comm, mine, sums);
                EXPECT_EQ(sums[999], static_cast<float>(ranks));
            }
            EXPECT_EQ(job.wait(60).save, "save-0000000001");
        });
        expect_loads_at(folder.path("c"), 3, model, 12, 4);
    }
}

// Ranks are processes here. One of them is killed at some of its system calls.
TEST(CommAgreement, TheDeathOfARankFailsTheSaveOfTheOthersAndLeavesTheLastOne) {
    constexpr int ranks = 3;
    const std::vector<Tensor> model = model_of_all_types();
    TemporaryFolder folder;
    const std::string path = folder.path("c");
    ASSERT_EQ(save_at(path, 2, model, 1, 1), std::vector<std::string>(2));
    for (const int dying : {0, ranks - 1}) {
        // 1 is the first call, 30 a write, 100000 none.
        for (const int at : {1, 3, 30, 100000}) {
            SCOPED_TRACE(testing::Message() << "rank " << dying << " ends at call " << at);
            const std::string address = internal::testing_support::free_address();
            std::vector<pid_t> children;
            for (int rank = 0; rank < ranks; ++rank) {
                const pid_t child = fork();
                ASSERT_GE(child, 0);
                if (child == 0) {
                    KillingCalls calls(rank == dying ? at : 0, false);
                    vescomm_comm_options_t options = vescomm_comm_options_init();
                    options.timeout_seconds = 60;
                    Communicator comm(rank, ranks, address, "a secret of this test", &options);
                    const OwnedPieces owned = pieces_of_rank(model, rank, ranks, 2, 2);
                    std::vector<Extra> extras;
                    if (rank == 0) extras.push_back({"version", "2"});
                    SaveJob job(path, contents_of(owned.pieces, extras), agreement_of(comm),
                                small_chunks(), calls);
                    try {
                        job.wait(60);
                        _exit(0);
                    } catch (const Error &error) {
                        _exit(error.status == VESCOMM_ERROR_PEER_FAILED ? 3 : 4);
                    }
                }
                children.push_back(child);
            }
            for (int rank = 0; rank < ranks; ++rank) {
                int status = 0;
                const pid_t child = children[static_cast<std::size_t>(rank)];
                ASSERT_EQ(waitpid(child, &status, 0), child);
                if (at == 100000) {
                    // A rank that is complete may end before the others have seen the last report.
                    EXPECT_TRUE(WIFEXITED(status)) << rank;
                } else if (rank == dying) {
                    EXPECT_TRUE(WIFSIGNALED(status));
                } else {
                    ASSERT_TRUE(WIFEXITED(status));
                    EXPECT_EQ(WEXITSTATUS(status), 3) << rank;
                }
            }
            expect_loads_at(path, 2, model, 5, at == 100000 ? 2 : 1);
            ASSERT_EQ(save_at(path, 2, model, 1, 1), std::vector<std::string>(2));
        }
    }
}

TEST(CommAgreement, AnErrorOfOneRankIsThatOfAll) {
    TemporaryFolder folder;
    run_communicator(3, [&](Communicator &comm) {
        const Piece wrong[] = {{{"t", "role", {2}, VESCOMM_F32}, 0, 3, nullptr}};
        const std::span<const Piece> pieces(wrong, comm.rank() == 2 ? 1 : 0);
        SaveJob job(folder.path("c"), contents_of(pieces), agreement_of(comm));
        try {
            job.wait(60);
            ADD_FAILURE() << "the save cannot succeed";
        } catch (const Error &error) {
            EXPECT_EQ(std::string(error.what()).find("rank 2: saving: tensor \"t\""), 0u)
                << error.what();
            EXPECT_EQ(error.status, VESCOMM_ERROR_INVALID_ARGUMENT);
        }
    });
}

}  // namespace
}  // namespace vescomm::fsdp::checkpoint

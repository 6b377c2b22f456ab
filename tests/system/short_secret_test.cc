// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks on loopback with a secret that can be guessed. Other users of the machine do not have the
// key of this user, which is a part of the secret then; here a rank with another cache folder.
#include <filesystem>

#include "system/forked_ranks.h"

namespace {

using namespace forked_ranks;

class ShortSecret : public ::testing::Test {
protected:
    void SetUp() override {
        folder_ = (std::filesystem::temp_directory_path() / "short_secret.XXXXXX").string();
        ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    // In a rank: becomes a user with a key of its own.
    void use_key(const std::string &user) const {
        const std::string cache = folder_ + "/" + user;
        std::filesystem::create_directory(cache);
        setenv("XDG_CACHE_HOME", cache.c_str(), 1);
    }

private:
    std::string folder_;
};

TEST_F(ShortSecret, JoinsRanksOfOneUser) {
    const Job job{.ranks = 3, .per_node = 3, .secret = "x"};
    run(job, [&](int rank) {
        use_key("user");
        vescomm_comm_t *comm = nullptr;
        require(job.create(rank, "", &comm), "create");
        expect_sum(comm, 1, 3);
        require(vescomm_comm_free(comm), "free");
    });
}

TEST_F(ShortSecret, IsNotEnoughForAnotherUser) {
    const Job job{.ranks = 2, .per_node = 2, .timeout_seconds = 3, .secret = "x"};
    run(job, [&](int rank) {
        use_key(rank == 0 ? "user" : "other");
        vescomm_comm_t *comm = nullptr;
        const vescomm_status_t status = job.create(rank, "", &comm);
        if (rank == 0) expect(status == VESCOMM_ERROR_TIMEOUT, "rank 0 waits until its timeout");
        else expect(status == VESCOMM_ERROR_MISMATCH, "rank 1 has another secret");
    });
}

TEST_F(ShortSecret, ALongOneNeedsNoKey) {
    const Job job{.ranks = 2, .per_node = 2, .secret = "sixteen letters!"};
    run(job, [&](int rank) {
        use_key(rank == 0 ? "user" : "other");
        vescomm_comm_t *comm = nullptr;
        require(job.create(rank, "", &comm), "create");
        expect_sum(comm, 1, 2);
        require(vescomm_comm_free(comm), "free");
    });
}

}  // namespace

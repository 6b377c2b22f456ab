// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs ranks as processes that a test forks. They use the public API only.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "support/number_in.h"
#include "vescomm/vescomm.h"

namespace forked_ranks {

// Repetitions of a stress test: VESCOMM_TEST_REPETITIONS if set (in suite slow), else `by_default`.
inline int repetitions(int by_default) {
    return vescomm::testing_support::number_in("VESCOMM_TEST_REPETITIONS", by_default);
}

// Maps a page that the forked processes share.
template <typename Page>
Page *make_shared_page() {
    void *page =
        mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return new (page) Page{};
}

inline std::uint16_t free_port() {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    bind(socket, reinterpret_cast<sockaddr *>(&address), length);
    getsockname(socket, reinterpret_cast<sockaddr *>(&address), &length);
    close(socket);
    return ntohs(address.sin_port);
}

// No other job has it. A dead rank's port may go to a process of a test that runs at the same time,
// which must not pass for a rank of this job.
inline std::string new_secret() {
    static int jobs = 0;
    return "the secret of job " + std::to_string(++jobs) + " of process " +
           std::to_string(getpid());
}

// Ends the process with an error line.
[[noreturn]] inline void fail(const std::string &what) {
    std::fprintf(stderr, "%s: %s\n", what.c_str(), vescomm_get_last_error());
    _exit(1);
}

inline void require(vescomm_status_t status, const char *what) {
    if (status != VESCOMM_OK) fail(what);
}

inline void expect(bool holds, const char *what) {
    if (!holds) fail(std::string("wrong: ") + what);
}

struct Job {
    int ranks;
    int per_node;  // ranks that share a node
    std::uint16_t port = free_port();
    double timeout_seconds = 60;
    std::string secret = new_secret();
    unsigned max_seconds = 100;  // SIGALRM ends a rank that runs longer

    vescomm_status_t create(int rank, const char *tag, vescomm_comm_t **comm) const {
        vescomm_comm_options_t options = vescomm_comm_options_init();
        options.timeout_seconds = timeout_seconds;
        const std::string node = "node " + std::to_string(rank / per_node);
        options.node = node.c_str();
        options.tag = tag;
        return vescomm_comm_create(rank, ranks, ("127.0.0.1:" + std::to_string(port)).c_str(),
                                   secret.c_str(), &options, comm);
    }
};

// Runs every rank as a process. Ranks in `killed` must end by SIGKILL, all others must return.
inline void run(const Job &job, const std::function<void(int rank)> &body,
                const std::vector<int> &killed = {}) {
    std::vector<pid_t> processes;
    for (int rank = 0; rank < job.ranks; ++rank) {
        const pid_t process = fork();
        if (process == 0) {
            alarm(job.max_seconds);
            body(rank);
            _exit(0);
        }
        processes.push_back(process);
    }
    for (int rank = 0; rank < job.ranks; ++rank) {
        int status = 0;
        waitpid(processes[rank], &status, 0);
        const bool dies = std::find(killed.begin(), killed.end(), rank) != killed.end();
        EXPECT_EQ(status, dies ? SIGKILL : 0) << "rank " << rank;
    }
}

inline int rank_of(const vescomm_comm_t *comm) {
    vescomm_comm_info_t info = vescomm_comm_info_init();
    require(vescomm_comm_get_info(comm, &info), "query");
    return info.rank;
}

inline int ranks_of(const vescomm_comm_t *comm) {
    vescomm_comm_info_t info = vescomm_comm_info_init();
    require(vescomm_comm_get_info(comm, &info), "query");
    return info.ranks;
}

// Makes an all_reduce of `elements` times `mine`, and expects `sum` in every element.
inline void expect_sum(vescomm_comm_t *comm, float mine, float sum, std::size_t elements = 1000) {
    std::vector<float> data(elements, mine);
    require(vescomm_all_reduce(comm, data.data(), data.data(), static_cast<int64_t>(elements),
                               VESCOMM_F32, VESCOMM_SUM, nullptr, nullptr, nullptr),
            "all_reduce");
    for (const float each : data) expect(each == sum, "a sum");
}

}  // namespace forked_ranks

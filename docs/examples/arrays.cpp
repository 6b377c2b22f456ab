// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Collectives and messages on arrays: no create call, blocking or not, alone or in groups.
//
//     c++ -std=c++20 arrays.cpp $(pkg-config --cflags --libs vescomm) -o arrays
//     vescomm-run -n 3 ./arrays
//
// Rank 0 of three prints "largest 3, last token 2, gradient 3, left 2".
#include <cstdio>
#include <vescomm/vescomm.hpp>

int main() try {
    vescomm::Communicator comm = vescomm::Communicator::from_environment();
    const int rank = comm.rank();

    std::vector<double> loss = {1.0 + rank}, largest(1);
    vescomm::all_reduce(comm, loss, largest, VESCOMM_MAX);  // returns when it is complete

    // Rank k has k + 1 tokens for every rank. The exchange runs while the program continues.
    std::vector<std::int64_t> sends(comm.ranks(), rank + 1), receives;
    for (int k = 0; k < comm.ranks(); ++k) receives.push_back(k + 1);
    std::vector<int> tokens(comm.ranks() * (rank + 1), rank);
    std::vector<int> got(comm.ranks() * (comm.ranks() + 1) / 2);
    vescomm::Request exchange;
    vescomm::all_to_all_v(comm, tokens, sends, got, receives, &exchange);

    // Many small sums become one operation.
    std::vector<std::vector<float>> gradients(300, std::vector<float>(7, 1.0f));
    vescomm::group(comm, [&] {
        for (auto &gradient : gradients) vescomm::all_reduce(comm, gradient);  // in place
    });

    // Send around a ring. The group prevents a deadlock: all messages of a group run concurrently.
    std::vector<int> mine(50'000, rank), left(50'000);
    vescomm::group(comm, [&] {
        vescomm::send(comm, mine, (rank + 1) % comm.ranks());
        vescomm::receive(comm, left, (rank + comm.ranks() - 1) % comm.ranks());
    });

    // Local peers read registered memory where it is.
    const vescomm::Allocator<float> registered(comm);
    std::vector<float, vescomm::Allocator<float>> weights(1'000'000, 1.0f, registered);
    vescomm::broadcast(comm, weights, 0);

    exchange.wait();
    comm.finalize();  // collective; the destructor then does not wait
    std::printf("largest %g, last token %d, gradient %g, left %d\n", largest[0], got.back(),
                gradients[299][6], left.back());
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}

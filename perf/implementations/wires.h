// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A TCP connection from each rank to each other one, and nothing above it.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "perf/worker/serve.h"

namespace vescomm::perf {

// What passes between this rank and another one.
struct Passing {
    const std::byte *from = nullptr;
    std::size_t to_send = 0;
    std::byte *to = nullptr;
    std::size_t to_receive = 0;
};

class InterNode {
public:
    // Collective: ranks find each other in the folder of their job.
    explicit InterNode(const Worker &worker);
    ~InterNode();
    InterNode(const InterNode &) = delete;
    InterNode &operator=(const InterNode &) = delete;

    // Sends and receives all at once, by rank; this rank's own entry is left alone. After each look
    // at all wires `arrived` is told how many bytes there are of everyone.
    void exchange(
        std::vector<Passing> passing,
        const std::function<void(std::size_t)> &arrived = [](std::size_t) {});

private:
    bool pass(int peer, Passing &passing);
    void wait(const std::vector<Passing> &passing) const;

    int rank_;
    bool crowded_;
    std::vector<int> sockets_;  // by rank; -1: this one
};

}  // namespace vescomm::perf

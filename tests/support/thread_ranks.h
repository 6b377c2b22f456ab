// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs the ranks of a communicator as threads of this process, over any transport.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "transport/loopback.h"

#include "support/local_control.h"

namespace vescomm::internal::testing_support {

enum class Kind { loopback, node, tcp, ucx };

// The transports of this build that reach other nodes.
std::vector<Kind> kinds_between_nodes();

// The emulated node of each rank, and the transport between them.
struct TestSetup {
    Kind kind = Kind::loopback;
    std::vector<int> node_of{0};
    Config config{};

    int ranks() const { return static_cast<int>(node_of.size()); }
};

// The setup with a timeout of one second.
TestSetup hurried(TestSetup setup);

std::string name_of(const TestSetup &setup);

// Every transport on the nodes that it supports: few and many ranks, nodes of different sizes,
// ranks in any order.
std::vector<TestSetup> all_setups();

// Collective.
std::shared_ptr<Communicator> join(const TestSetup &setup, int rank,
                                   std::unique_ptr<Control> control,
                                   const std::shared_ptr<LoopbackNetwork> &network);

// Runs `body` once for each rank, in a thread of its own. An exception in any rank fails the test
// and breaks the communicators of the other ranks.
void run_ranks(const TestSetup &setup,
               const std::function<void(std::shared_ptr<Communicator>)> &body);

}  // namespace vescomm::internal::testing_support

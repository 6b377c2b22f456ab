// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "support/thread_ranks.h"

#include <exception>
#include <thread>
#include <utility>

#include "transport/transports.h"

namespace vescomm::internal::testing_support {

std::vector<Kind> kinds_between_nodes() {
#if VESCOMM_HAVE_UCX
    return {Kind::loopback, Kind::tcp, Kind::ucx};
#else
    return {Kind::loopback, Kind::tcp};
#endif
}

TestSetup hurried(TestSetup setup) {
    setup.config.timeout_seconds = 1;
    return setup;
}

std::string name_of(const TestSetup &setup) {
    static constexpr const char *names[] = {"loopback", "node", "tcp", "ucx"};
    std::string text = names[static_cast<int>(setup.kind)];
    for (const int node : setup.node_of) text += "_" + std::to_string(node);
    return text;
}

std::vector<TestSetup> all_setups() {
    std::vector<TestSetup> setups;
    for (const Kind kind : {Kind::loopback, Kind::node, Kind::tcp, Kind::ucx}) {
        const std::vector<std::vector<int>> one_node = {
            {0}, {0, 0}, {0, 0, 0}, {0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0}};
        const std::vector<std::vector<int>> nodes = {
            {0, 1}, {0, 0, 1}, {0, 1, 2}, {0, 0, 0, 1, 2, 2}, {1, 0, 2, 1, 0}};
        if (kind != Kind::ucx && kind != Kind::tcp)
            for (const auto &node_of : one_node) setups.push_back({kind, node_of});
        if (kind != Kind::node)
            for (const auto &node_of : nodes) setups.push_back({kind, node_of});
    }
#if !VESCOMM_HAVE_UCX
    std::erase_if(setups, [](const TestSetup &setup) { return setup.kind == Kind::ucx; });
#endif
    return setups;
}

std::shared_ptr<Communicator> join(const TestSetup &setup, int rank,
                                   std::unique_ptr<Control> control,
                                   const std::shared_ptr<LoopbackNetwork> &network) {
    Config config = setup.config;
    if (config.timeout_seconds == Config().timeout_seconds) config.timeout_seconds = 60;
    // Every rank maps the pools of all ranks in this process, and loopback allocates them at once.
    if (config.malloc_bytes == Config().malloc_bytes)
        config.malloc_bytes = setup.kind == Kind::loopback ? "4194304" : "67108864";
    const auto make = [&](const Nodes &nodes, Control &c, Failure &failure,
                          std::function<void()> on_signal, Deadline deadline) {
        if (setup.kind != Kind::loopback)
            return make_transports(nodes, c, failure, std::move(on_signal), deadline,
                                   {setup.kind == Kind::ucx ? "ucx" : "tcp", false});
        Transports transports;
        transports.intra_node = make_loopback_transport(network, rank);
        return transports;
    };
    return Communicator::create(std::move(control), std::to_string(setup.node_of[rank]), config,
                                make);
}

void run_ranks(const TestSetup &setup,
               const std::function<void(std::shared_ptr<Communicator>)> &body) {
    auto control_hub = std::make_shared<LocalControlHub>(setup.ranks());
    auto network = make_loopback_network(Nodes::from_numbers(setup.node_of));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < setup.ranks(); ++rank) {
        threads.emplace_back([&, rank] {
            auto control = std::make_unique<LocalControl>(control_hub, rank);
            try {
                const auto comm = join(setup, rank, std::move(control), network);
                body(comm);
                comm->leave();
            } catch (const std::exception &error) {
                ADD_FAILURE() << "rank " << rank << ": " << error.what();
                LocalControl(control_hub, rank)
                    .fail(VESCOMM_ERROR_ABORTED, "rank " + std::to_string(rank) + " failed");
            }
        });
    }
    for (std::thread &thread : threads) thread.join();
}

}  // namespace vescomm::internal::testing_support

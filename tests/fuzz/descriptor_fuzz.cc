// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The process that offers descriptors (bootstrap/descriptor_exchange.h), over a simulated network.
//
//     a script of connections: each sends some bytes of the right ticket, other bytes, or both
//
// Invariants: only a connection that sends the whole ticket gets a descriptor; a withdrawn
// descriptor is given to no connection; a connection with the right ticket is served, however many
// connections stay open.
#include "bootstrap/descriptor_exchange.h"

#include <list>

#include "bootstrap/simulated_network.h"
#include "fuzz/fuzz.h"

namespace {

using namespace vescomm::internal;
using namespace testing_support;
using fuzz::require;

constexpr std::size_t token_size = 64;

// One connection of the script, which stays open.
struct Caller {
    std::string sent;
    bool right = false;
    bool served = false;
    std::unique_ptr<Attempt> attempt;
    std::unique_ptr<Stream> stream;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    fuzz::Input input(fuzz::view(data, size));
    SimulatedWorld world(1);
    SimulatedNetwork network(world, 0), others(world, 1);
    DescriptorServer server(network);
    const std::string ticket = server.offer(0);
    const std::string name = ticket.substr(0, ticket.size() - token_size);
    const std::string token = ticket.substr(ticket.size() - token_size);
    const bool withdrawn = input.below(4) == 3;
    if (withdrawn) server.withdraw(ticket);
    std::list<Caller> callers;
    while (!input.empty() && callers.size() < 200) {
        Caller &caller = callers.emplace_back();
        caller.sent = token.substr(0, input.below(token_size + 1)) + std::string(input.text());
        caller.right = caller.sent == token;
    }
    callers.emplace_back().sent = token;
    callers.back().right = true;
    double moment = 0;
    for (Caller &caller : callers) {
        // Connects one after another, so that the last one is the newest.
        world.at(world.now() + of_seconds(moment += 0.01), 1, [&] {
            caller.attempt = others.connect_local(name, [&caller](std::unique_ptr<Stream> stream,
                                                                  const std::string &) {
                require(stream != nullptr, "a running server can be reached");
                caller.stream = std::move(stream);
                caller.stream->start({[&caller](std::string_view bytes) {
                                          if (bytes != "d") return;
                                          caller.served = caller.stream->take_descriptor().open();
                                      },
                                      [](const std::string &) {}, nullptr});
                caller.stream->write(caller.sent);
            });
        });
    }
    world.run(moment + 1, [](int) {});
    for (const Caller &caller : callers)
        require(!caller.served || (caller.right && !withdrawn), "only the ticket is served");
    require(callers.back().served != withdrawn, "the right ticket is served");
    callers.clear();
    return 0;
}

std::vector<fuzz::Seed> vescomm::internal::fuzz::seeds() {
    return {
        {"right", std::string("\0\x40\0", 3)},
        {"half", std::string("\0\x20\0", 3)},
        {"half-and-more", std::string("\0\x20\3abc", 6)},
        {"too-much", std::string("\0\x40\1x", 4)},
        {"withdrawn", std::string("\3\x40\0", 3)},
        {"nothing", std::string("\0\0\0\0\0\0\0", 7)},
    };
}

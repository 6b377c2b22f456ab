// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fuzz/fuzz.h"
#include "fuzz/tcp_model.h"
#include "transport/tcp_context.h"

namespace vescomm::internal::fuzz {

using Bytes = std::vector<std::byte>;

constexpr MemoryId offered_memory = 1;
constexpr std::size_t memory_bytes = 8192, wall_bytes = 64;
constexpr std::byte wall{0x55};
constexpr std::uint32_t channels = 3;  // channels that a script names unless it changes the field

// One communicator of this rank, and its model.
struct TcpCommunicator {
    // `processes`: as for TcpContext; messages come from `process`.
    TcpCommunicator(std::uint32_t id, int rank, const std::vector<int> &processes, int process)
        : context(id, rank, processes, failure, [] {}), peer(context.rank_of(process)) {
        context.memories.offer(offered_memory, arena.data() + wall_bytes, memory_bytes);
    }

    Failure failure;
    Bytes arena = Bytes(wall_bytes + memory_bytes + wall_bytes, wall);
    TcpContext context;
    const int peer;  // rank of that process; -1: it is not a member
    TcpCommunicatorModel model{offered_memory, Bytes(memory_bytes, wall)};

    std::uint64_t signalled(std::uint32_t channel, std::uint32_t flag) const {
        return context.inbox.signalled(peer, {channel, flag});
    }

    void check() {
        require(std::equal(model.bytes.begin(), model.bytes.end(), arena.begin() + wall_bytes),
                "memory holds what was put");
        for (std::size_t i = 0; i < wall_bytes; ++i)
            require(arena[i] == wall && arena[wall_bytes + memory_bytes + i] == wall,
                    "nothing outside the offered memory is written");
        require(failure.broken() == model.broken,
                "a communicator fails exactly on an invalid message");
        if (peer < 0) return;
        for (const auto &[name, value] : model.signals)
            require(signalled(name[0], name[1]) == value, "a signal is raised after its bytes");
        for (std::uint32_t channel = 0; channel < channels; ++channel)
            for (std::uint32_t flag = 0; flag < flags_per_channel; ++flag)
                require(signalled(channel, flag) == 0 || model.signals.contains({channel, flag}),
                        "no other signal is raised");
        require(context.left[static_cast<std::size_t>(peer)] == model.left,
                "a goodbye is recorded");
    }
};

}  // namespace vescomm::internal::fuzz

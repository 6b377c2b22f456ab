// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "execute/match/mismatch.h"
#include "execute/match/signature.h"
#include "topology/nodes.h"
#include "transport/transport.h"

namespace vescomm::internal {

// The signatures of the latest calls of this rank that used the staging buffer. A rank of another
// node may be many calls behind and wait for one that this rank never made.
class RecentCalls {
public:
    // `sequence`: the slot sequence number of the call.
    void record(std::uint64_t sequence, std::uint32_t signature,
                const PairDigests &pairs) noexcept {
        Call &call = calls_[sequence % calls_.size()];
        call.sequence = sequence;
        call.signature = signature;
        if (call.pairs != pairs) call.pairs = pairs;
    }

    // Compares the signatures that ranks of other nodes advertise with the calls recorded here.
    // `first_channel`: of the staging buffer. `transports`: by rank.
    std::optional<Mismatch> find_mismatch(int rank, const Nodes &nodes, std::uint32_t first_channel,
                                          std::span<Transport *const> transports) const noexcept;

private:
    struct Call {
        std::uint64_t sequence = 0;
        std::uint32_t signature = 0;
        PairDigests pairs;
    };

    // The signature of a call as shown to `peer`. 0: the call is not recorded (any more).
    std::uint32_t shown(std::uint64_t sequence, int peer) const noexcept {
        const Call &call = calls_[sequence % calls_.size()];
        return call.sequence == sequence ? signature_for(peer, call.signature, call.pairs) : 0;
    }

    std::array<Call, 64> calls_{};
};

}  // namespace vescomm::internal

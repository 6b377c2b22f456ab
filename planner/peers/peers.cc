// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/peers/peers.h"

namespace vescomm::planner {
namespace {

constexpr Peer all_peers[] = {
    {"fsdp2", "FSDP2, rows of each tensor", false, fsdp2_shard},
    {"lcm-grid", "Megatron-FSDP, LCM grid of rows", false, lcm_grid_shard},
    {"vescale", "veScale-FSDP, default order", true, vescale_shard},
    {"vescale-ascending", "veScale-FSDP, fine blocks first", true, vescale_ascending_shard},
};

}  // namespace

std::span<const Peer> peers() {
    return all_peers;
}

}  // namespace vescomm::planner

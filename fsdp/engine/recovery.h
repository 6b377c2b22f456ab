// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Recovery after the death of ranks: an engine of the survivors takes the place of the engine of
// all ranks. Either all survivors change to the new engine, or none does, whenever ranks die:
//
//     engine ──► prepared, with all values ──► all ranks meet ──► engine
//
// If ranks die while they meet, some survivors may have changed and others not. A rank that has
// changed proves that all ranks had prepared. So in the next recovery the others change first.
#pragma once

#include <memory>
#include <optional>

#include "fsdp/engine/engine.h"

namespace vescomm::fsdp {

struct Engines {
    std::unique_ptr<Engine> current;
    // Result of a recovery in which ranks died while all met. It has no communicators.
    std::unique_ptr<Engine> prepared;
};

// `survivors`: the communicator of the survivors. `world`: made from it by make_world(). Fills
// the results of `recovery`. Returns an error that all ranks return; throws one of this rank.
// Collective.
std::optional<Failure> recover(Engines &engines, vescomm_comm_t *survivors, Communicator world,
                               const Spec *spec, vescomm_fsdp_recovery_t &recovery);

}  // namespace vescomm::fsdp

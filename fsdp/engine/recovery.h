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

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "fsdp/engine/engine.h"

namespace vescomm::fsdp {

struct Engines {
    // Values that the caller does not know of, because the call that set them has failed.
    struct Unreported {
        std::int64_t steps = 0;  // of the engine that the caller knows
        bool from_checkpoint = false;
    };

    explicit Engines(std::unique_ptr<Engine> first) : current(std::move(first)) {}

    std::unique_ptr<Engine> current;
    std::optional<Unreported> unreported;  // of the current engine
    // Result of a recovery in which ranks died while all met. It has no communicators.
    std::unique_ptr<Engine> prepared;
    bool prepared_from_checkpoint = false;

    // Changes to the prepared engine after a recovery that has failed on this rank.
    void adopt_prepared();
};

// `survivors`: the communicator of the survivors. `world`: made from it by make_world(). Fills
// the results of `recovery`. Returns an error that all ranks return; throws one of this rank.
// Collective.
std::optional<Failure> recover(Engines &engines, vescomm_comm_t *survivors, Communicator world,
                               const Spec *spec, vescomm_fsdp_recovery_t &recovery);

}  // namespace vescomm::fsdp

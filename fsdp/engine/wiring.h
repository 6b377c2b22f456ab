// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of an engine that a failure destroys and that reset() makes again: communicators, slots
// and requests. Shards are not part of it.
#pragma once

#include <cstdint>
#include <utility>

#include "fsdp/engine/comms.h"
#include "fsdp/engine/gathered_units.h"
#include "fsdp/engine/gradient_slots.h"
#include "fsdp/engine/watch.h"

namespace vescomm::fsdp {

// Values that all parts of an engine read. Immutable.
struct Model {
    Spec spec;
    ModelPlan plan;
    std::vector<std::string> unit_names;
};

struct Wiring {
    // `world`: of all ranks. The other arguments must outlive the wiring. Collective.
    Wiring(const Model &model, const Shards &shards, Communicator world,
           vescomm_fsdp_counters_t &counters,
           std::vector<vescomm_fsdp_unit_counters_t> &unit_counters)
        : comms(std::move(world), model.plan.mesh),
          watch(comms, model.unit_names),
          parameters(model.spec, model.plan, shards, model.unit_names, comms, watch, counters,
                     unit_counters),
          gradients(model.spec, model.plan, shards, model.unit_names, comms, watch) {}

    // Running sums write to memory of the slots, and a running request cannot be freed.
    ~Wiring() {
        if (gradients.sending()) comms.abort("the engine was freed in the middle of a step");
    }
    Wiring(const Wiring &) = delete;
    Wiring &operator=(const Wiring &) = delete;

    Comms comms;
    Watch watch;
    GatheredUnits parameters;
    GradientSlots gradients;
};

}  // namespace vescomm::fsdp

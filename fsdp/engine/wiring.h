// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of an engine that a failure destroys and that reset() makes again: communicators, slots
// and requests. Shards are not part of it.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "fsdp/engine/comms.h"
#include "fsdp/engine/device/links.h"
#include "fsdp/engine/device/streams.h"
#include "fsdp/engine/event_times.h"
#include "fsdp/engine/gathered_units.h"
#include "fsdp/engine/model.h"
#include "fsdp/engine/parts.h"
#include "fsdp/engine/shards.h"
#include "fsdp/engine/watch.h"

namespace vescomm::fsdp {

struct Wiring {
    // `world`: of all ranks, of make_world(parent). The other arguments must outlive the wiring;
    // `log` has the events of the wiring. `streams`: nullptr for host memory. Collective.
    Wiring(const Model &model, const Shards &shards, device::Streams *streams, Communicator world,
           vescomm_comm_t *parent, EventLog &log, vescomm_fsdp_counters_t &counters,
           EventTimes &times);

    // Running sums write to memory of the slots, and a running request cannot be freed. Gathers
    // that a step has started end here: other ranks may need progress on all communicators for it.
    // If an exception ends the program on this rank, no rank waits for them.
    //
    // Communicators are freed one by one, and that waits for other ranks. A rank that announces
    // another event than the end would wait in a communicator that this rank frees later. So all
    // ranks announce the end first.
    ~Wiring() {
        comms.forget_parent();
        try {
            if (std::uncaught_exceptions() > exceptions)
                comms.abort("an exception ended its program; see its output");
            if (gradients->sending()) comms.abort("the engine was freed in the middle of a step");
            parameters.complete();
            log.note(Event::free);
            watch.verify(watch.post(log.now()));
        } catch (const std::exception &error) {
            comms.abort(error.what());
        }
        if (links) links->end_broken();  // before memory is freed, which waits for the device
    }
    Wiring(const Wiring &) = delete;
    Wiring &operator=(const Wiring &) = delete;

    EventLog &log;
    Comms comms;
    Watch watch;
    std::optional<device::Links> links;  // with device memory
    GatheredUnits parameters;
    std::unique_ptr<NormMemory> norm;
    std::unique_ptr<GradientMemory> gradients;
    const int exceptions = std::uncaught_exceptions();  // when the wiring was made
};

}  // namespace vescomm::fsdp

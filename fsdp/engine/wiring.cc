// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "fsdp/engine/wiring.h"

#include "fsdp/engine/device/gradients.h"
#include "fsdp/engine/device/norm.h"
#include "fsdp/engine/device/parameters.h"
#include "fsdp/engine/gradient_norm.h"
#include "fsdp/engine/gradient_slots.h"
#include "fsdp/engine/or_abort.h"
#include "fsdp/engine/parameter_slots.h"

namespace vescomm::fsdp {

namespace {

std::unique_ptr<UnitMemory> make_slots(const Model &model, const Shards &shards,
                                       device::Streams *streams, Wiring &wiring,
                                       EventTimes &times) {
    return or_abort(wiring.comms, [&]() -> std::unique_ptr<UnitMemory> {
        if (streams == nullptr)
            return std::make_unique<ParameterSlots>(model.plan, shards, model.unit_names,
                                                    wiring.comms, wiring.watch, times);
        wiring.links.emplace(wiring.comms, model.plan);
        const int position = model.plan.mesh.position(wiring.comms.world().rank());
        return std::make_unique<device::Parameters>(
            model.plan, shards, position,
            device::staged_master_bytes(model.spec, model.plan, position), model.unit_names,
            wiring.watch, *wiring.links, *streams,
            Transfers(Transfer::gather, model.plan.slots.size(), wiring.comms, times));
    });
}

}  // namespace

Wiring::Wiring(const Model &model, const Shards &shards, device::Streams *streams,
               Communicator world, vescomm_comm_t *parent, EventLog &log,
               vescomm_fsdp_counters_t &counters, EventTimes &times)
    : log(log),
      comms(std::move(world), parent, model.plan.mesh),
      watch(comms, model.unit_names),
      parameters(model.spec, model.plan, model.plan.mesh.position(comms.world().rank()),
                 model.unit_names, make_slots(model, shards, streams, *this, times), counters,
                 times.units()) {
    or_abort(comms, [&] {
        if (streams == nullptr) {
            auto made = std::make_unique<GradientNorm>(model.plan, shards, comms, times.phases());
            gradients = std::make_unique<GradientSlots>(model, shards, comms, watch, *made, times);
            norm = std::move(made);
            return;
        }
        norm = std::make_unique<device::Norm>(model.plan, shards, *links, *streams);
        gradients = std::make_unique<device::Gradients>(
            model, shards, model.plan.mesh.position(comms.world().rank()), watch, *links, *streams,
            Transfers(Transfer::reduce, model.plan.gradient_slots.size(), comms, times));
    });
}

}  // namespace vescomm::fsdp

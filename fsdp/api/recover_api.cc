// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The exported function of recovery.
#include <optional>

#include "fsdp/api/guard.h"
#include "fsdp/api/handles.h"
#include "fsdp/engine/or_abort.h"

namespace api = vescomm::fsdp;

vescomm_status_t vescomm_fsdp_recover(vescomm_fsdp_t *engine, vescomm_comm_t *survivors,
                                      vescomm_fsdp_recovery_t *recovery) {
    return api::guarded("vescomm_fsdp_recover", [&] {
        api::require(survivors, "survivors");
        std::optional<api::Failure> refusal;
        {
            // Nothing before this call may fail, because other ranks wait for this rank in it.
            vescomm::Communicator world = api::make_world(survivors);
            api::or_abort(world, [&] {
                api::require(engine, "engine");
                engine->observed().refuse_in_callback();
            });
            auto ours = vescomm_fsdp_recovery_init();
            if (recovery != nullptr) ours = api::read_struct(recovery, "recovery", ours);
            refusal = api::recover(engine->engines, survivors, std::move(world),
                                   ours.spec != nullptr ? &ours.spec->spec : nullptr, ours);
            if (!refusal && recovery != nullptr) api::write_struct(recovery, ours, "recovery");
        }
        if (refusal) throw *refusal;
    });
}

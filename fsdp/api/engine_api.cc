// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The exported functions of the engine.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "fsdp/api/guard.h"
#include "fsdp/api/handles.h"
#include "fsdp/engine/or_abort.h"

namespace api = vescomm::fsdp;

namespace {

using UnitEvent = void (api::Engine::*)(std::uint64_t);

vescomm_status_t unit_event(const char *function, vescomm_fsdp_t *engine, UnitEvent event,
                            std::uint64_t unit, void *stream) {
    return api::guarded(function, [&] {
        api::require(engine, "engine");
        engine->engine().use_stream(stream);
        (engine->engine().*event)(unit);
    });
}

}  // namespace

vescomm_status_t vescomm_fsdp_create(const vescomm_fsdp_spec_t *spec, vescomm_comm_t *const *comms,
                                     size_t comm_count, vescomm_fsdp_t **engine) {
    return api::guarded("vescomm_fsdp_create", [&] {
        api::require(comms, "comms");
        if (comm_count != 1)
            api::refuse("comm_count is {}; pass the communicator of all ranks alone", comm_count);
        api::require(comms[0], "comms[0]");
        std::optional<api::Failure> refusal;
        {
            vescomm::Communicator world = api::make_world(comms[0]);
            api::or_abort(world, [&] {
                api::require(spec, "spec");
                api::require(engine, "engine");
            });
            const auto model = api::agree_on_model(spec->spec, world, refusal);
            if (model)
                *engine = new vescomm_fsdp(api::Engines(
                    std::make_unique<api::Engine>(*model, comms[0], std::move(world))));
            // All ranks have an error: they end the communicator together, without an abort, which
            // could reach a rank before its error.
        }
        if (refusal) throw *refusal;
    });
}

vescomm_status_t vescomm_fsdp_free(vescomm_fsdp_t *engine) {
    return api::free_handle<vescomm_fsdp>(
        "vescomm_fsdp_free", "engine", engine,
        [](const vescomm_fsdp &freed) { freed.observed().refuse_in_callback(); });
}

vescomm_status_t vescomm_fsdp_initialise(vescomm_fsdp_t *engine, vescomm_fsdp_fill_t fill,
                                         void *context) {
    return api::guarded("vescomm_fsdp_initialise", [&] {
        api::require(engine, "engine");
        api::require(reinterpret_cast<const void *>(fill), "fill");
        engine->engine().initialise(fill, context);
    });
}

vescomm_status_t vescomm_fsdp_begin(vescomm_fsdp_t *engine, uint32_t flags) {
    return api::guarded("vescomm_fsdp_begin", [&] {
        api::require(engine, "engine");
        engine->engine().begin(flags);
    });
}

vescomm_status_t vescomm_fsdp_pre_forward(vescomm_fsdp_t *engine, uint64_t unit, void *stream) {
    return unit_event("vescomm_fsdp_pre_forward", engine, &api::Engine::pre_forward, unit, stream);
}

vescomm_status_t vescomm_fsdp_post_forward(vescomm_fsdp_t *engine, uint64_t unit, void *stream) {
    return unit_event("vescomm_fsdp_post_forward", engine, &api::Engine::post_forward, unit,
                      stream);
}

vescomm_status_t vescomm_fsdp_pre_backward(vescomm_fsdp_t *engine, uint64_t unit, void *stream) {
    return unit_event("vescomm_fsdp_pre_backward", engine, &api::Engine::pre_backward, unit,
                      stream);
}

vescomm_status_t vescomm_fsdp_post_backward(vescomm_fsdp_t *engine, uint64_t unit, void *stream) {
    return unit_event("vescomm_fsdp_post_backward", engine, &api::Engine::post_backward, unit,
                      stream);
}

vescomm_status_t vescomm_fsdp_unshard(vescomm_fsdp_t *engine, uint64_t unit, void *stream) {
    return unit_event("vescomm_fsdp_unshard", engine, &api::Engine::unshard, unit, stream);
}

vescomm_status_t vescomm_fsdp_reshard(vescomm_fsdp_t *engine, uint64_t unit, void *stream) {
    return unit_event("vescomm_fsdp_reshard", engine, &api::Engine::reshard, unit, stream);
}

vescomm_status_t vescomm_fsdp_parameter(vescomm_fsdp_t *engine, uint64_t id,
                                        vescomm_fsdp_view_t *view) {
    return api::guarded("vescomm_fsdp_parameter", [&] {
        api::require(engine, "engine");
        api::struct_size(view, "view");
        api::write_struct(view, engine->engine().parameter(id), "view");
    });
}

vescomm_status_t vescomm_fsdp_gradient(vescomm_fsdp_t *engine, uint64_t id,
                                       vescomm_fsdp_view_t *view,
                                       vescomm_fsdp_gradient_mode_t *mode) {
    return api::guarded("vescomm_fsdp_gradient", [&] {
        api::require(engine, "engine");
        api::require(mode, "mode");
        api::struct_size(view, "view");
        const auto [found, how] = engine->engine().gradient(id);
        api::write_struct(view, found, "view");
        *mode = how;
    });
}

vescomm_status_t vescomm_fsdp_push_gradient(vescomm_fsdp_t *engine, uint64_t id, const void *data,
                                            vescomm_type_t type, void *stream) {
    return api::guarded("vescomm_fsdp_push_gradient", [&] {
        api::require(engine, "engine");
        engine->engine().use_stream(stream);
        engine->engine().push_gradient(id, data, type);
    });
}

vescomm_status_t vescomm_fsdp_begin_backward(vescomm_fsdp_t *engine) {
    return api::guarded("vescomm_fsdp_begin_backward", [&] {
        api::require(engine, "engine");
        engine->engine().begin_backward();
    });
}

vescomm_status_t vescomm_fsdp_finish_backward(vescomm_fsdp_t *engine, void *stream) {
    return api::guarded("vescomm_fsdp_finish_backward", [&] {
        api::require(engine, "engine");
        engine->engine().use_stream(stream);
        engine->engine().finish_backward();
    });
}

vescomm_status_t vescomm_fsdp_norm(vescomm_fsdp_t *engine, double *norm, int32_t *finite) {
    return api::guarded("vescomm_fsdp_norm", [&] {
        api::require(engine, "engine");
        const auto [value, is_finite] = engine->engine().norm();
        if (norm != nullptr) *norm = value;
        if (finite != nullptr) *finite = is_finite ? 1 : 0;
    });
}

vescomm_status_t vescomm_fsdp_scale(vescomm_fsdp_t *engine, double factor) {
    return api::guarded("vescomm_fsdp_scale", [&] {
        api::require(engine, "engine");
        engine->engine().scale(factor);
    });
}

vescomm_status_t vescomm_fsdp_step(vescomm_fsdp_t *engine, vescomm_fsdp_step_t *step,
                                   void *stream) {
    return api::guarded("vescomm_fsdp_step", [&] {
        api::require(engine, "engine");
        engine->engine().use_stream(stream);
        auto ours = api::read_struct(step, "step", vescomm_fsdp_step_init());
        engine->engine().step(ours);
        api::write_struct(step, ours, "step");
    });
}

vescomm_status_t vescomm_fsdp_set_group(vescomm_fsdp_t *engine, uint64_t group,
                                        const void *settings) {
    return api::guarded("vescomm_fsdp_set_group", [&] {
        api::require(engine, "engine");
        engine->engine().set_group(group, settings);
    });
}

vescomm_status_t vescomm_fsdp_check_replicas(vescomm_fsdp_t *engine) {
    return api::guarded("vescomm_fsdp_check_replicas", [&] {
        api::require(engine, "engine");
        engine->engine().check_replicas();
    });
}

vescomm_status_t vescomm_fsdp_reset(vescomm_fsdp_t *engine) {
    return api::guarded("vescomm_fsdp_reset", [&] {
        api::require(engine, "engine");
        engine->engine().reset();
    });
}

vescomm_status_t vescomm_fsdp_shard(vescomm_fsdp_t *engine, uint64_t unit, vescomm_fsdp_role_t role,
                                    uint32_t state, vescomm_fsdp_view_t *view) {
    return api::guarded("vescomm_fsdp_shard", [&] {
        api::require(engine, "engine");
        api::write_struct(view, engine->observed().shard(unit, role, state), "view");
    });
}

vescomm_status_t vescomm_fsdp_pieces(const vescomm_fsdp_t *engine, uint64_t unit,
                                     vescomm_optimizer_piece_t *pieces, size_t capacity,
                                     size_t *count) {
    return api::guarded("vescomm_fsdp_pieces", [&] {
        api::require(engine, "engine");
        api::require(count, "count");
        const auto all = engine->observed().pieces(unit);
        if (capacity > 0) {
            // The stride of the array is the size of the caller's struct.
            const std::size_t stride = api::struct_size(pieces, "pieces[0]");
            auto *entry = reinterpret_cast<std::byte *>(pieces);
            for (std::size_t i = 0; i < std::min(capacity, all.size()); ++i, entry += stride) {
                auto *piece = reinterpret_cast<vescomm_optimizer_piece_t *>(entry);
                if (api::struct_size(piece, "a piece") != stride)
                    api::refuse(
                        "struct_size of pieces[{}] is not the {} bytes of pieces[0]; "
                        "initialise all pieces with vescomm_optimizer_piece_init()",
                        i, stride);
                api::write_struct(piece, all[i], "a piece");
            }
        }
        *count = all.size();
    });
}

vescomm_status_t vescomm_fsdp_get_counters(const vescomm_fsdp_t *engine,
                                           vescomm_fsdp_counters_t *counters) {
    return api::guarded("vescomm_fsdp_get_counters", [&] {
        api::require(engine, "engine");
        api::write_struct(counters, engine->observed().counters(), "counters");
    });
}

vescomm_status_t vescomm_fsdp_get_unit_counters(const vescomm_fsdp_t *engine, uint64_t unit,
                                                vescomm_fsdp_unit_counters_t *counters) {
    return api::guarded("vescomm_fsdp_get_unit_counters", [&] {
        api::require(engine, "engine");
        api::write_struct(counters, engine->observed().unit_counters(unit), "counters");
    });
}

vescomm_status_t vescomm_fsdp_get_step_summary(const vescomm_fsdp_t *engine,
                                               vescomm_fsdp_step_summary_t *summary) {
    return api::guarded("vescomm_fsdp_get_step_summary", [&] {
        api::require(engine, "engine");
        api::write_struct(summary, engine->observed().step_summary(), "summary");
    });
}

vescomm_status_t vescomm_fsdp_get_metrics(const vescomm_fsdp_t *engine, char *text, size_t capacity,
                                          size_t *size) {
    return api::guarded("vescomm_fsdp_get_metrics", [&] {
        api::require(engine, "engine");
        api::require(size, "size");
        if (capacity > 0) api::require(text, "text");
        const std::string made = engine->observed().metrics(engine->number);
        if (capacity > made.size()) std::memcpy(text, made.c_str(), made.size() + 1);
        *size = made.size() + 1;
    });
}

vescomm_status_t vescomm_fsdp_get_comm(vescomm_fsdp_t *engine, vescomm_comm_t **comm) {
    return api::guarded("vescomm_fsdp_get_comm", [&] {
        api::require(engine, "engine");
        api::require(comm, "comm");
        *comm = engine->observed().comm();
    });
}

vescomm_status_t vescomm_fsdp_wait_stream(vescomm_fsdp_t *engine, void *stream) {
    return api::guarded("vescomm_fsdp_wait_stream", [&] {
        api::require(engine, "engine");
        engine->engine().wait_stream(stream);
    });
}

vescomm_status_t vescomm_fsdp_progress(vescomm_fsdp_t *engine) {
    return api::guarded("vescomm_fsdp_progress", [&] {
        api::require(engine, "engine");
        engine->observed().progress();
    });
}

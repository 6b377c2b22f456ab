// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Initial values of parameters. Zone: set-up.
#include <vector>

#include "execute/kernels.h"
#include "fsdp/engine/engine.h"
#include "fsdp/engine/event_body.h"

namespace vescomm::fsdp {

namespace {

// Masters in bf16 are set in f32, and rounded. Returns false if `fill` fails.
bool fill_piece(const vescomm_optimizer_piece_t &piece, std::uint64_t key, const Masters &masters,
                vescomm_fsdp_fill_t fill, void *context) {
    const auto set = [&](float *values) {
        return fill(context, piece.parameter, piece.first, piece.elements, values, key) == 0;
    };
    std::byte *to = masters.at(piece.offset);
    if (masters.type == VESCOMM_F32) return set(reinterpret_cast<float *>(to));
    std::vector<float> values(static_cast<std::size_t>(piece.elements));
    internal::kernels().convert(values.data(), VESCOMM_F32, to, masters.type, values.size());
    if (!set(values.data())) return false;
    internal::kernels().convert(to, masters.type, values.data(), VESCOMM_F32, values.size());
    return true;
}

}  // namespace

void Engine::initialise(vescomm_fsdp_fill_t fill, void *context) {
    event(Event::initialise, no_unit, true, 0, [&] {
        states_.require_closed("vescomm_fsdp_initialise()");
        drop_gradients();
        wiring_->parameters.forget();
        values_.begin_change();
        device::Mirror mirrored = mirror();
        const int position = model_.plan.mesh.position(rank_);
        for (std::size_t index = 0; index < model_.plan.buckets.size(); ++index)
            for (const auto &piece : model_.plan.buckets[index].pieces(position)) {
                const Masters masters = mirrored.shards().master(index);
                if (!fill_piece(piece, model_.spec.random_key(piece.parameter), masters, fill,
                                context))
                    refuse("the function that sets parameter \"{}\" failed",
                           model_.spec.full_name(piece.parameter));
            }
        if (values_.generation() > 1) mirrored.shards().zero_states();  // at first they are 0
        optimizer_.set_steps(0);
        mirrored.store();
        refresh_copy(mirrored.shards());
        values_.set_complete();
    });
}

}  // namespace vescomm::fsdp

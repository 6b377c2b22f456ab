// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Initial values of parameters. Zone: set-up.
#include <algorithm>
#include <vector>

#include "execute/kernels.h"
#include "fsdp/engine/engine.h"
#include "fsdp/engine/event_body.h"

namespace vescomm::fsdp {

namespace {

// Masters in bf16 or f16 are set in f32, and rounded, in parts of a piece. Returns false if `fill`
// fails.
bool fill_piece(const vescomm_optimizer_piece_t &piece, std::uint64_t key, const Masters &masters,
                vescomm_fsdp_fill_t fill, void *context) {
    const auto set = [&](std::int64_t begin, std::int64_t count, float *values) {
        return fill(context, piece.parameter, piece.first + begin, count, values, key) == 0;
    };
    if (masters.type == VESCOMM_F32)
        return set(0, piece.elements, reinterpret_cast<float *>(masters.at(piece.offset)));
    constexpr std::int64_t part = 16384;
    std::vector<float> values(static_cast<std::size_t>(std::min(part, piece.elements)));
    for (std::int64_t begin = 0; begin < piece.elements; begin += part) {
        const std::int64_t count = std::min(part, piece.elements - begin);
        const auto elements = static_cast<std::size_t>(count);
        std::byte *to = masters.at(piece.offset + begin);
        internal::kernels().convert(values.data(), VESCOMM_F32, to, masters.type, elements);
        if (!set(begin, count, values.data())) return false;
        internal::kernels().convert(to, masters.type, values.data(), VESCOMM_F32, elements);
    }
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
        {
            in_callback_ = true;
            const AtExit returned{[this] { in_callback_ = false; }};
            for (std::size_t index = 0; index < model_.plan.buckets.size(); ++index)
                for (const auto &piece : model_.plan.buckets[index].pieces(position)) {
                    const Masters masters = mirrored.shards().master(index);
                    if (!fill_piece(piece, model_.spec.random_key(piece.parameter), masters, fill,
                                    context))
                        refuse("the function that sets parameter \"{}\" failed",
                               model_.spec.full_name(piece.parameter));
                }
        }
        if (values_.generation() > 1) mirrored.shards().zero_states();  // at first they are 0
        optimizer_.set_steps(0);
        mirrored.store();
        refresh_copy(mirrored.shards());
        values_.set_complete();
    });
}

}  // namespace vescomm::fsdp

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The shards of an engine as programs see them.
#include <algorithm>
#include <span>

#include "fsdp/engine/engine.h"
#include "fsdp/error.h"

namespace vescomm::fsdp {

vescomm_fsdp_view_t Engine::shard(std::uint64_t unit, vescomm_fsdp_role_t role,
                                  std::uint32_t state) {
    states_.require_unit(unit);
    if (role < VESCOMM_FSDP_MASTER || role > VESCOMM_FSDP_STATE)
        refuse("there is no role {}; use MASTER, GRADIENT or STATE", role);
    if (role != VESCOMM_FSDP_STATE && state != 0)
        refuse("state is {}, and role is not STATE; pass 0", state);
    vescomm_fsdp_view_t view = vescomm_fsdp_view_init();
    if (streams_) streams_->order(streams_->reduce(), streams_->compute());
    // The host reads them, and kernels write them.
    if (streams_ && !shards_.on_device() && role == VESCOMM_FSDP_GRADIENT && wiring_)
        wiring_->links->settle(*streams_);
    view.type = role == VESCOMM_FSDP_MASTER ? model_.spec.options().master_type : VESCOMM_F32;
    view.generation = values_.generation();
    std::vector<std::size_t> buckets = model_.plan.of_unit[unit];
    std::erase_if(buckets, [&](std::size_t b) {
        const Bucket &bucket = model_.plan.buckets[b];
        return bucket.replicated || (role != VESCOMM_FSDP_MASTER && !bucket.trainable);
    });
    if (buckets.empty()) return view;
    if (role == VESCOMM_FSDP_STATE) {
        const Bucket &bucket = model_.plan.buckets[buckets.front()];
        if (buckets.size() > 1)
            throw Failure(VESCOMM_ERROR_UNSUPPORTED,
                          fmt::format("unit \"{}\" has parameters of several types, whose states "
                                      "are not in one array",
                                      model_.unit_names[unit]));
        if (state >= bucket.states.size())
            refuse("unit \"{}\" has {} states, and there is no state {}", model_.unit_names[unit],
                   bucket.states.size(), state);
        view.type = bucket.states[state].type;
        view.data = shards_.state(buckets.front(), state);
        view.elements = bucket.state_elements(state, model_.plan.mesh.position(rank_));
        return view;
    }
    const auto of = [&](std::size_t bucket) {
        return role == VESCOMM_FSDP_MASTER ? shards_.master(bucket).bytes()
                                           : std::as_writable_bytes(shards_.gradient(bucket));
    };
    const std::span<std::byte> first = of(buckets.front()), last = of(buckets.back());
    view.data = first.data();
    view.elements = (last.data() + last.size() - first.data()) /
                    static_cast<std::ptrdiff_t>(vescomm_type_get_bytes(view.type));
    return view;
}

std::vector<vescomm_optimizer_piece_t> Engine::pieces(std::uint64_t unit) const {
    states_.require_unit(unit);
    std::vector<vescomm_optimizer_piece_t> all;
    std::vector<std::size_t> buckets = model_.plan.of_unit[unit];
    std::erase_if(buckets, [&](std::size_t b) { return model_.plan.buckets[b].replicated; });
    for (const std::size_t bucket : buckets) {
        const Masters masters = shards_.master(bucket);
        const auto offset = (masters.data - shards_.master(buckets.front()).data) /
                            static_cast<std::ptrdiff_t>(vescomm_type_get_bytes(masters.type));
        for (auto piece : model_.plan.buckets[bucket].pieces(model_.plan.mesh.position(rank_))) {
            piece.offset += offset;
            all.push_back(piece);
        }
    }
    return all;
}

}  // namespace vescomm::fsdp

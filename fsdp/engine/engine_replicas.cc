// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The comparison of values that several ranks hold. Zone: set-up.
#include "fsdp/engine/engine.h"
#include "fsdp/engine/event_body.h"
#include "fsdp/engine/value_hashes.h"

namespace vescomm::fsdp {

void Engine::check_replicas() {
    require_values();
    std::string difference;
    event(Event::check_replicas, no_unit, true, 0, [&] {
        states_.require_closed("vescomm_fsdp_check_replicas()");
        wiring_->watch.verify(wiring_->watch.post(log_.now()));
        // Otherwise no shard is on several ranks.
        if (model_.plan.mesh.replicas() == 1 && !copy_ && !model_.plan.replicates()) return;
        HeldValues held;
        held.own = hash_values(model_.plan, mirror().shards(), rank_);
        if (copy_) {
            held.copied_rank = copy_->copied_rank();
            held.copy = hash_values(model_.plan, copy_->shards(), copy_->copied_rank());
        }
        const std::vector<std::uint64_t> mine = held.words();
        Communicator &world = wiring_->comms.world();
        std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(world.ranks()));
        check(vescomm_all_gather(world.get(), mine.data(), all.data(),
                                 static_cast<std::int64_t>(mine.size()), VESCOMM_U64, nullptr,
                                 nullptr, nullptr));
        std::vector<HeldValues> of_ranks;
        for (std::size_t begin = 0; begin < all.size(); begin += mine.size())
            of_ranks.push_back(HeldValues::of_words(std::span(all).subspan(begin, mine.size())));
        difference = compare_values(model_.plan, of_ranks, model_.unit_names);
    });
    // All ranks have come to the same conclusion, and the engine goes on.
    if (!difference.empty())
        throw Failure(VESCOMM_ERROR_MISMATCH,
                      difference +
                          "; load a checkpoint, and find out what these ranks do "
                          "differently: an optimizer, a library or a machine");
}

}  // namespace vescomm::fsdp

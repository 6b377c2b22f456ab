// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// How an engine takes the values of one whose ranks have died. Zone: set-up.
#include <algorithm>
#include <cstring>

#include "fsdp/engine/engine.h"
#include "fsdp/engine/event_body.h"

namespace vescomm::fsdp {

namespace {

// The values of a segment in the shards of a position. Role 0 is the master, role i state i - 1.
std::span<std::byte> values_of(const ModelPlan &plan, const Shards &shards, int position,
                               const Segment &segment, std::size_t role) {
    const ParameterPlace &at = *plan.parameter_places[segment.parameter];
    const Bucket &bucket = plan.buckets[at.bucket];
    const Place &place = bucket.places[at.place];
    const std::size_t size =
        role == 0 ? vescomm_type_get_bytes(bucket.master_type) : bucket.states[role - 1].bytes();
    void *data = role == 0 ? shards.master(at.bucket).data : shards.state(at.bucket, role - 1);
    const auto span = [&](std::int64_t first, std::int64_t count) -> std::span<std::byte> {
        return {static_cast<std::byte *>(data) + static_cast<std::size_t>(first) * size,
                static_cast<std::size_t>(count) * size};
    };
    if (role > 0 && bucket.states[role - 1].per_block) {
        const auto pieces = bucket.pieces(position);
        const vescomm_optimizer_piece_t &piece =
            *std::ranges::find(pieces, segment.parameter, &vescomm_optimizer_piece_t::parameter);
        const auto before = [&](std::int64_t element) {
            return blocks_before(element, place.rows * place.columns, place.block);
        };
        const std::int64_t first = before(segment.first);
        return span(piece.block + first - before(piece.first),
                    before(segment.first + segment.elements) - first);
    }
    return span(place.offset + segment.first - bucket.elements_before(place, position) -
                    bucket.begin(position),
                segment.elements);
}

std::size_t roles_of(const ModelPlan &plan, const Segment &segment) {
    return 1 + plan.buckets[plan.parameter_places[segment.parameter]->bucket].states.size();
}

// Calls body(peer, values) for each segment and role of a unit that this rank sends, or receives.
// The values for one peer are consecutive.
template <typename Peer, typename Body>
void for_each_value(const ModelPlan &plan, std::span<const Segment> segments, int ranks,
                    const Peer &peer_of, const Body &body) {
    for (int peer = 0; peer < ranks; ++peer)
        for (const Segment &segment : segments)
            if (peer_of(segment) == peer)
                for (std::size_t role = 0; role < roles_of(plan, segment); ++role)
                    body(peer, segment, role);
}

}  // namespace

Holding Engine::prepare_recovery(Communicator &world) {
    if (wiring_ && !failure_) wiring_->comms.abort("vescomm_fsdp_recover() ended the step");
    disconnect("ranks have failed, and vescomm_fsdp_recover() has not succeeded since");
    states_.reset();
    gradients_ = {};
    log_ = {};
    catch_up(world);
    return {rank_, static_cast<std::int64_t>(values_.generation()), values_.complete() ? 1 : 0,
            copy_ ? copy_->copied_rank() : -1, 0};
}

Spec Engine::spec_for_survivors() const {
    Spec spec = model_.spec;
    for (std::size_t group = 0; group < optimizer_.groups().size(); ++group)
        spec.set_settings(group, optimizer_.groups()[group].settings);
    return spec;
}

void Engine::take_counts(const Engine &before, std::int64_t generation) {
    measures_.counters = before.measures_.counters;
    measures_.times.take(before.measures_.times);
    measures_.summary = before.measures_.summary;
    values_.take_over(before.values_, static_cast<std::uint64_t>(generation));
    measures_.recoveries = before.measures_.recoveries + 1;
}

void Engine::take_over(const Engine &before, const Survivors &survivors) {
    const ModelPlan &from = before.model_.plan;
    const ModelPlan &to = model_.plan;
    Communicator &world = wiring_->comms.world();
    const int ranks = world.ranks();
    const auto sender = [](const Segment &segment) { return segment.from; };
    const auto receiver = [](const Segment &segment) { return segment.to; };
    // The streams of the engine before have no other work than its own, which has ended.
    device::Mirror mirrored = mirror();
    const device::Mirror mirrored_before(from, before.rank_, before.shards_, before.streams_.get(),
                                         streams_ ? &*wiring_->links : nullptr);
    std::vector<std::int64_t> source_counts, output_counts;
    std::vector<std::byte> source, output;
    for (std::size_t unit = 0; unit < to.of_unit.size(); ++unit) {
        const std::vector<Segment> all = segments_of(from, to, unit, survivors);
        std::vector<Segment> given, taken;
        std::ranges::copy_if(all, std::back_inserter(given),
                             [&](const Segment &s) { return s.from == rank_; });
        std::ranges::copy_if(all, std::back_inserter(taken),
                             [&](const Segment &s) { return s.to == rank_; });
        source.clear();
        source_counts.assign(static_cast<std::size_t>(ranks), 0);
        for_each_value(
            from, given, ranks, receiver, [&](int peer, const Segment &segment, std::size_t role) {
                const bool own = survivors.own(rank_, segment.position);
                const auto values =
                    values_of(from, own ? mirrored_before.shards() : before.copy_->shards(),
                              segment.position, segment, role);
                source.insert(source.end(), values.begin(), values.end());
                source_counts[peer] += static_cast<std::int64_t>(values.size());
            });
        const int position = to.mesh.position(rank_);
        output_counts.assign(static_cast<std::size_t>(ranks), 0);
        const auto in_shards = [&](const Segment &segment, std::size_t role) {
            return values_of(to, mirrored.shards(), position, segment, role);
        };
        for_each_value(
            to, taken, ranks, sender, [&](int peer, const Segment &segment, std::size_t role) {
                output_counts[peer] += static_cast<std::int64_t>(in_shards(segment, role).size());
            });
        std::int64_t bytes = 0;
        for (const std::int64_t count : output_counts) bytes += count;
        output.resize(static_cast<std::size_t>(bytes));
        check(vescomm_all_to_all_v(world.get(), source.data(), source_counts.data(), nullptr,
                                   output.data(), output_counts.data(), nullptr, VESCOMM_U8,
                                   nullptr, nullptr, nullptr));
        const std::byte *next = output.data();
        for_each_value(to, taken, ranks, sender,
                       [&](int, const Segment &segment, std::size_t role) {
                           const auto values = in_shards(segment, role);
                           std::memcpy(values.data(), next, values.size());
                           next += values.size();
                       });
    }
    mirrored.store();
    take_counts(before, survivors.generation());
    optimizer_.set_steps(before.optimizer_.steps());
    loaded_.extras = before.loaded_.extras;
    refresh_copy(mirrored.shards());
}

void Engine::take_over_from(const Engine &before, const Survivors &survivors,
                            const std::string &folder) {
    take_counts(before, survivors.generation());
    constexpr double that_of_the_survivors = 0;
    load_within(that_of_the_survivors, folder);
}

void Engine::refresh_copy(const Shards &mine) {
    if (!copy_) return;
    // Copies are messages, which wait for ranks that have come to another event.
    wiring_->watch.verify(wiring_->watch.post(log_.now()));
    copy_->optimizer().set_steps(optimizer_.steps());
    copy_->refresh(wiring_->comms, mine);
}

void Engine::meet() {
    wiring_->comms.meet();
}

void Engine::disconnect(const char *reason) noexcept {
    try {
        failure_.emplace(VESCOMM_ERROR_ABORTED, reason);
    } catch (const std::bad_alloc &) {
        failure_.reset();
    }
    if (wiring_) wiring_->comms.abort(reason);
    wiring_.reset();
    parent_ = nullptr;  // the caller may free it
}

}  // namespace vescomm::fsdp

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "base/types.h"
#include "execute/kernels.h"
#include "execute/program.h"
#include "execute/registered_arrays.h"
#include "schedule/long_step.h"
#include "schedule/rails.h"

namespace vescomm::internal {

namespace {

// Smaller steps take less time than two reads of the clock.
constexpr std::uint64_t min_timed_bytes = 16 * 1024;

constexpr Region all_regions[] = {Region::source,  Region::buffer,  Region::output,
                                  Region::staging, Region::partial, Region::inlined};
static_assert(std::size(all_regions) == regions);

class Binder {
public:
    Binder(const Schedule &schedule, const Bindings &bindings)
        : schedule_(schedule), bindings_(bindings), rails_(bindings.nodes) {
        const auto members = bindings_.nodes.members(bindings_.nodes.node_of(bindings_.rank));
        locals_.assign(members.begin(), members.end());
        for (const Region region : all_regions) {
            for (const Piece &piece : binding(region).pieces) {
                std::vector<std::int64_t> &ends = piece_ends_[static_cast<std::size_t>(region)];
                ends.push_back((ends.empty() ? 0 : ends.back()) + piece.elements);
            }
        }
    }

    Program make() {
        program_.uses_inline_flag = has_inline_flag();
        program_.inline_bytes =
            static_cast<std::uint64_t>(schedule_.inlined) * size_of(bindings_.inlined.type);
        collect_bases();
        for (const Lane &lane : schedule_.lanes) {
            BoundLane &bound = program_.lanes.emplace_back();
            bound.steps.reserve(lane.steps().size());
            for (const Step &step : lane.steps()) bind(bound, lane, step);
            give_credits(bound);
        }
        return std::move(program_);
    }

private:
    const RegionBinding &binding(Region region) const {
        switch (region) {
            case Region::source:
                return bindings_.source;
            case Region::buffer:
                return bindings_.buffer;
            case Region::output:
                return bindings_.output;
            case Region::staging:
                return bindings_.staging;
            case Region::inlined:
                return bindings_.inlined;
            case Region::partial:
                break;
        }
        return bindings_.partial;
    }

    bool has_inline_flag() const {
        return std::ranges::any_of(schedule_.lanes, [](const Lane &lane) {
            return std::ranges::any_of(lane.steps(), [](const Step &step) {
                return !step.moves() && step.flag == inline_flag;
            });
        });
    }

    bool uses(Region region) const {
        if (region == Region::inlined) return !program_.uses_staging();
        return program_.uses_staging() || (region != Region::staging && region != Region::partial);
    }

    void collect_bases() {
        std::vector<std::byte *> bases;
        for (const Region region : all_regions) {
            const RegionBinding &its = binding(region);
            first_base_[static_cast<std::size_t>(region)] = bases.size();
            for (const Piece &piece : its.pieces) bases.push_back(piece.data);
            if (!its.mapping || !uses(region)) continue;
            for (const int peer : locals_)
                bases.push_back(its.mapping->base(peer) + its.offset_bytes);
        }
        program_.bases = Bases(std::move(bases),
                               {.source = first_base(Region::source),
                                .output = first_base(Region::output),
                                .staging = first_base(Region::staging),
                                .inlined = first_base(Region::inlined)},
                               bindings_.staging.slot_bytes, bindings_.inlined.slot_bytes);
    }

    std::size_t first_base(Region region) const {
        return first_base_[static_cast<std::size_t>(region)];
    }
    // Elements of the pieces of a region up to the end of each.
    const std::vector<std::int64_t> &piece_ends(Region region) const {
        return piece_ends_[static_cast<std::size_t>(region)];
    }

    std::size_t piece_at(const Place &place) const {
        const auto &ends = piece_ends(place.region);
        const auto piece = std::ranges::upper_bound(ends, place.offset) - ends.begin();
        // A step of 0 elements may name the end of the array, which is in no piece.
        return std::min(static_cast<std::size_t>(piece), std::max<std::size_t>(1, ends.size()) - 1);
    }

    Address address(const Place &place) const {
        const RegionBinding &its = binding(place.region);
        const auto size = size_of(its.type);
        const auto at = [&](std::size_t index, std::int64_t elements) {
            return Address{static_cast<std::uint32_t>(first_base(place.region) + index),
                           static_cast<std::uint64_t>(elements) * size};
        };
        if (its.mapping)
            return at(static_cast<std::size_t>(bindings_.nodes.local_rank(place.rank)),
                      place.offset);
        const std::size_t piece = piece_at(place);
        const std::int64_t begin = piece == 0 ? 0 : piece_ends(place.region)[piece - 1];
        return at(piece, place.offset - begin);
    }

    BoundSource source(const Place &place, Region array) {
        BoundSource bound{.address = address(place), .registered = {}};
        if (place.registered == only_here || place.rank == bindings_.rank ||
            !bindings_.registration.pools)
            return bound;
        program_.uses_registered = true;
        const auto local = [&](int rank) { return bindings_.nodes.local_rank(rank); };
        bound.registered = {
            .local = local(place.rank),
            .word = !bindings_.registration.blocks.empty()
                        ? first_block_word + static_cast<std::uint32_t>(local(bindings_.rank))
                    : array == Region::source ? source_word
                                              : output_word,
            .offset =
                static_cast<std::uint64_t>(place.registered) * size_of(binding(place.region).type)};
        return bound;
    }

    // Contiguous elements from `place` on, at most `count`.
    std::int64_t contiguous(const Place &place, std::int64_t count) const {
        if (binding(place.region).mapping) return count;
        return std::min(count, piece_ends(place.region).at(piece_at(place)) - place.offset);
    }

    // A step that crosses the end of a piece becomes several steps.
    void bind(BoundLane &lane, const Lane &from, const Step &step) {
        if (!step.moves() || step.count == 0) return bind_whole(lane, from, step);
        const auto sources = from.sources(step);
        for (std::int64_t done = 0; done < step.count;) {
            const auto rest = [done](const Place &place) { return later(place, done); };
            std::int64_t count = contiguous(rest(step.to), step.count - done);
            for (const Place &source : sources)
                count = std::min(count, contiguous(rest(source), count));
            if (count == step.count) return bind_whole(lane, from, step);
            Lane part;
            std::vector<Place> places;
            for (const Place &source : sources) places.push_back(rest(source));
            switch (step.action) {
                case Action::copy:
                    part.copy(places[0], rest(step.to), count, step.when);
                    break;
                case Action::reduce:
                    part.reduce(places, rest(step.to), count, step.finish);
                    break;
                default:
                    // The last part raises the flag; the first part carries the signature.
                    part.put_forwarded(places[0], rest(step.to), count, step.flag,
                                       done + count == step.count ? step.value : 0,
                                       done == 0 ? step.final_peer : no_rank);
            }
            part.steps()[0].array = step.array;
            bind_whole(lane, part, part.steps()[0]);
            done += count;
        }
    }

    void bind_whole(BoundLane &lane, const Lane &from, const Step &step) {
        BoundStep bound{.action = step.action,
                        .conditional = step.conditional,
                        .when = step.when,
                        .array = step.array,
                        .flag = step.flag,
                        .value = step.value,
                        .peer = step.peer == whole_node ? bindings_.rank : step.peer,
                        .final_peer = step.final_peer,
                        .count = static_cast<std::size_t>(step.count)};
        bound.transport = bindings_.transports[static_cast<std::size_t>(bound.peer)];
        bound.eager = step.eager && bound.transport->keeps_unexpected();
        program_.uses_pair_flags |= !step.moves() && step.flag == pair_flag;
        program_.uses_registered |=
            step.when != When::always && bindings_.registration.pools != nullptr;
        bind_match(bound, step);
        switch (step.action) {
            case Action::acquire:
            case Action::signal:
            case Action::wait:
                break;
            case Action::copy:
                bind_places(bound, step);
                if (!can_convert(bound.to_type, bound.from_type))
                    throw Error(VESCOMM_ERROR_UNSUPPORTED,
                                "there is no conversion from " + name_of_type(bound.from_type) +
                                    " to " + name_of_type(bound.to_type) +
                                    "; f32 and f64 convert to and from every float");
                break;
            case Action::reduce:
                bind_places(bound, step);
                bind_reduction(bound, lane, from, step);
                break;
            case Action::put: {
                bind_places(bound, step);
                const RegionBinding &target = binding(step.to.region);
                bound.target.memory = target.memory;
                bound.target.offset_bytes =
                    target.offset_bytes +
                    static_cast<std::uint64_t>(step.to.offset) * size_of(target.type);
                bound.target.in_slot = target.slot_bytes > 0;
                break;
            }
        }
        bound.timed = bound.bytes >= min_timed_bytes && step.action != Action::put;
        // A chunk in the staging buffer, or a partial sum, is read at once.
        bound.streaming = bindings_.streaming && bound.timed && step.action == Action::copy &&
                          step.to.region != Region::staging && step.to.region != Region::partial;
        if (bound.timed && bindings_.distance != nullptr) bind_distance(bound, from, step);
        bound.long_running =
            bound.timed && bound.bytes >= min_long_bytes && bindings_.nodes.count() > 1;
        lane.steps.push_back(bound);
    }

    void bind_distance(BoundStep &bound, const Lane &from, const Step &step) const {
        const auto is_of_peer = [this](const Place &place) {
            return place.region == Region::staging && place.rank != bindings_.rank;
        };
        bound.to_staging = step.action == Action::copy && step.to.region == Region::staging &&
                           step.to.rank == bindings_.rank;
        bound.staged_sources = static_cast<std::uint8_t>(
            std::min<std::ptrdiff_t>(std::ranges::count_if(from.sources(step), is_of_peer), 255));
    }

    void bind_match(BoundStep &bound, const Step &step) {
        if (bindings_.match.signature == 0 || bindings_.is_message() ||
            bound.peer == bindings_.rank)
            return;
        bound.compares = step.action == Action::wait && !lies_beside_data(step.flag);
        bound.shows = step.action == Action::signal && !bound.eager &&
                      !bindings_.nodes.together(bindings_.rank, bound.peer);
        if (step.action == Action::put && step.final_peer != no_rank)
            bound.forwarded = forwarded_index(bindings_.rank, step.final_peer);
        if (step.action == Action::wait && step.conditional)
            bound.forwarded = forwarded_index(step.peer, locals_[0]);
    }

    // The place of a forwarded block in the table of the forwarding rank.
    std::uint32_t forwarded_index(int from, int to) {
        const int node = bindings_.nodes.node_of(to);
        const auto members = static_cast<std::int64_t>(bindings_.nodes.members(node).size());
        return static_cast<std::uint32_t>(rails_.index(from, node) * members +
                                          bindings_.nodes.local_rank(to));
    }

    void bind_places(BoundStep &bound, const Step &step) {
        bound.to_type = binding(step.to.region).type;
        bound.from_type = binding(step.from.region).type;
        bound.from = source(step.from, step.array);
        if (step.action != Action::put) bound.to = address(step.to);
        bound.bytes = bound.count * size_of(bound.to_type);
    }

    void bind_reduction(BoundStep &bound, BoundLane &lane, const Lane &from, const Step &step) {
        bound.sum.finish = step.finish;
        bound.sum.first_source = static_cast<std::uint32_t>(lane.sources.size());
        const auto places = from.sources(step);
        bound.bytes = 0;
        bound.sum.started = starts_with_sum(places);
        for (const Place &place : places) {
            lane.sources.push_back(source(place, step.array));
            bound.bytes += bound.count * size_of(binding(place.region).type);
            if (place.region == Region::partial) {
                ++bound.sum.partials;
            } else {
                ++bound.sum.contributions;
                bound.from_type = binding(place.region).type;
            }
        }
        bound.sum.partials -= bound.sum.started ? 1 : 0;
        // Only partial sums: their contributions have the element type.
        if (bound.sum.contributions == 0)
            bound.from_type =
                (bindings_.staging.mapping ? bindings_.staging : bindings_.buffer).type;
        program_.max_sources = std::max(program_.max_sources, places.size());
        if (!can_reduce(bound.to_type, bound.from_type))
            throw Error(VESCOMM_ERROR_UNSUPPORTED,
                        "cannot reduce " + name_of_type(bound.from_type) + " into " +
                            name_of_type(bound.to_type) + "; use " + name_of_type(bound.from_type) +
                            " or " + name_of_type(accumulator_of(bound.from_type)));
    }

    // Gives every eager put the credit that the wait before it describes. A put of several pieces
    // is several steps.
    static void give_credits(BoundLane &lane) {
        for (std::size_t i = 0; i + 1 < lane.steps.size(); ++i) {
            const BoundStep &wait = lane.steps[i];
            if (wait.action != Action::wait || !wait.eager) continue;
            for (std::size_t k = i + 1; k < lane.steps.size(); ++k) {
                BoundStep &put = lane.steps[k];
                if (put.action != Action::put || put.peer != wait.peer) break;
                put.target.credit_flag = wait.flag;
                put.target.credit = wait.value;
            }
        }
    }

    const Schedule &schedule_;
    const Bindings &bindings_;
    std::vector<int> locals_;
    RailIndex rails_;
    std::size_t first_base_[regions] = {};
    std::vector<std::int64_t> piece_ends_[regions];
    Program program_;
};

}  // namespace

Program bind(const Schedule &schedule, const Bindings &bindings) {
    return Binder(schedule, bindings).make();
}

}  // namespace vescomm::internal

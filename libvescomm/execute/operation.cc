// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "execute/operation.h"

#include <algorithm>
#include <iterator>

#include "base/cache.h"
#include "base/deadline.h"
#include "base/error.h"
#include "base/types.h"
#include "transport/signal_board.h"

namespace vescomm {

namespace {

// Below this a look at the clock would cost more than it tells.
constexpr std::uint64_t worth_timing = 16 * 1024;

// Between nodes, after a step that touches so much, wires get a look: what comes in and goes out
// meanwhile must not wait for long.
constexpr std::uint64_t worth_a_look = 128 * 1024;

constexpr Region all_regions[] = {Region::source, Region::buffer, Region::output, Region::staging,
                                  Region::partial};
static_assert(std::size(all_regions) == regions);

// Whoever counts holds the lock; others only read.
template <typename T>
void add(std::atomic<T> &counter, T more) {
    counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

}  // namespace

Operation::Operation(const Schedule &schedule, const Bindings &bindings, Counters &counters)
    : bindings_(bindings), counters_(counters) {
    const auto members = bindings_.nodes.members(bindings_.nodes.node_of(bindings_.rank));
    locals_.assign(members.begin(), members.end());
    local_ = static_cast<std::size_t>(bindings_.nodes.local_rank(bindings_.rank));
    board_ = bindings_.intra_node->board();
    find_bases();
    const auto ends = [](const std::vector<Piece> &pieces) {
        std::vector<std::int64_t> ends;
        for (const Piece &piece : pieces)
            ends.push_back((ends.empty() ? 0 : ends.back()) + piece.elements);
        return ends;
    };
    source_ends_ = ends(bindings_.source.pieces);
    output_ends_ = ends(bindings_.output.pieces);
    for (const Lane &lane : schedule.lanes) {
        BoundLane &bound = lanes_.emplace_back();
        bound.steps.reserve(lane.steps().size());
        for (const Step &step : lane.steps()) bind(bound, lane, step);
        make_puts_eager(bound);
        bound.at = bound.steps.size();
    }
    receive_mask_ = schedule.receive_mask;
    called_through_.resize(receive_mask_.size());
    const Queue *queue = bindings_.queues;
    agreed_ = waits_for_all_flags(schedule) || bindings_.signature == 0 ||
              (queue != nullptr && !queue->receives);
    advertises_at_once_ = !inlines_ && queue == nullptr;
    heard_channel_ = bindings_.channel;
    if (queue == nullptr) return;
    advertises_with_flag_ =
        !queue->receives && bindings_.nodes.together(bindings_.rank, queue->peer);
    heard_channel_ = bindings_.peer_channel;
}

// Waits for what a put may come before are that put's instead.
void Operation::make_puts_eager(BoundLane &lane) {
    for (std::size_t i = 0; i + 1 < lane.steps.size(); ++i) {
        const BoundStep &wait = lane.steps[i];
        if (wait.action != Action::wait || !wait.eager) continue;
        // Of pieces of arrays, a put has become several.
        for (std::size_t k = i + 1; k < lane.steps.size(); ++k) {
            BoundStep &put = lane.steps[k];
            if (put.action != Action::put || put.peer != wait.peer) break;
            put.credit_flag = wait.flag;
            put.credit = wait.value;
        }
    }
}

const RegionBinding &Operation::binding(Region region) const {
    switch (region) {
        case Region::source:
            return bindings_.source;
        case Region::buffer:
            return bindings_.buffer;
        case Region::output:
            return bindings_.output;
        case Region::staging:
            return bindings_.staging;
        case Region::partial:
            break;
    }
    return bindings_.partial;
}

// A base for each piece of the caller's arrays, and for each rank of the node in what it maps.
std::uint32_t Operation::first_base(Region region) const {
    std::size_t first = 0;
    for (const Region before : all_regions) {
        if (before == region) break;
        const RegionBinding &its = binding(before);
        first += its.mapping ? locals_.size() : its.pieces.size();
    }
    return static_cast<std::uint32_t>(first);
}

void Operation::find_bases() {
    for (const Region region : all_regions) {
        const RegionBinding &its = binding(region);
        if (region == Region::staging) first_slotted_ = bases_.size();
        for (const Piece &piece : its.pieces) bases_.push_back(piece.data);
        if (!its.mapping) continue;
        for (const int peer : locals_) bases_.push_back(its.mapping->base(peer) + its.offset_bytes);
    }
}

// Negative from a later slot to an earlier one.
std::ptrdiff_t Operation::bytes_between_slots(std::uint32_t from, std::uint32_t to) const noexcept {
    return (std::ptrdiff_t{to} - std::ptrdiff_t{from}) *
           static_cast<std::ptrdiff_t>(bindings_.staging.slot_bytes);
}

void Operation::move_to(std::uint32_t slot) noexcept {
    if (slot == slot_) return;
    const std::ptrdiff_t away = bytes_between_slots(slot_, slot);
    for (std::size_t i = first_slotted_; i < bases_.size(); ++i) bases_[i] += away;
    slot_ = slot;
}

void Operation::move_arrays(std::span<const Piece> source, std::span<const Piece> output) {
    const auto move = [&](Region region, RegionBinding &its, std::span<const Piece> to) {
        const std::uint32_t first = first_base(region);
        for (std::size_t i = 0; i < its.pieces.size(); ++i)
            bases_[first + i] = its.pieces[i].data = to[i].data;
    };
    move(Region::source, bindings_.source, source);
    move(Region::output, bindings_.output, output);
}

Operation::Address Operation::address(const Place &place) const {
    const RegionBinding &its = binding(place.region);
    const auto size = size_of(its.type);
    if (its.mapping)
        return {first_base(place.region) +
                    static_cast<std::uint32_t>(bindings_.nodes.local_rank(place.rank)),
                static_cast<std::uint64_t>(place.offset) * size};
    const std::size_t piece = piece_at(place);
    const std::int64_t begin = piece == 0 ? 0 : piece_ends(place.region)[piece - 1];
    return {first_base(place.region) + static_cast<std::uint32_t>(piece),
            static_cast<std::uint64_t>(place.offset - begin) * size};
}

const std::vector<std::int64_t> &Operation::piece_ends(Region region) const {
    return region == Region::source ? source_ends_ : output_ends_;
}

std::size_t Operation::piece_at(const Place &place) const {
    const auto &ends = piece_ends(place.region);
    const auto piece = std::ranges::upper_bound(ends, place.offset) - ends.begin();
    // The end of all, where nothing is copied from, is in none.
    return std::min(static_cast<std::size_t>(piece), std::max<std::size_t>(1, ends.size()) - 1);
}

std::int64_t Operation::together(const Place &place, std::int64_t count) const {
    if (binding(place.region).mapping) return count;
    return std::min(count, piece_ends(place.region).at(piece_at(place)) - place.offset);
}

// A step that passes the end of a piece becomes several.
void Operation::bind(BoundLane &lane, const Lane &from, const Step &step) {
    if (!step.moves() || step.count == 0) return bind_whole(lane, from, step);
    const auto sources = from.sources(step);
    for (std::int64_t done = 0; done < step.count;) {
        const auto rest = [done](const Place &place) { return later(place, done); };
        std::int64_t count = together(rest(step.to), step.count - done);
        for (const Place &source : sources) count = std::min(count, together(rest(source), count));
        if (count == step.count) return bind_whole(lane, from, step);
        Lane part;
        std::vector<Place> places;
        for (const Place &source : sources) places.push_back(rest(source));
        switch (step.action) {
            case Action::copy:
                part.copy(places[0], rest(step.to), count);
                break;
            case Action::reduce:
                part.reduce(places, rest(step.to), count, step.finish);
                break;
            default:
                // Only the last one raises the flag, and only the first one says for whom it is.
                part.put_through(places[0], rest(step.to), count, step.flag,
                                 done + count == step.count ? step.value : 0,
                                 done == 0 ? step.final_peer : no_rank, step.relay);
        }
        bind_whole(lane, part, part.steps()[0]);
        done += count;
    }
}

void Operation::bind_whole(BoundLane &lane, const Lane &from, const Step &step) {
    BoundStep bound{.action = step.action,
                    .conditional = step.conditional,
                    .flag = step.flag,
                    .value = step.value,
                    .peer = step.peer == whole_node ? bindings_.rank : step.peer,
                    .count = static_cast<std::size_t>(step.count)};
    bound.final_peer = step.final_peer;
    bound.relay = step.relay;
    bound.transport = bindings_.transports[bound.peer];
    bound.eager = step.eager && bound.transport->keeps_unexpected();
    if (bindings_.signature != 0 && bindings_.queues == nullptr && bound.peer != bindings_.rank) {
        bound.compares = step.action == Action::wait && step.flag != inline_flag;
        bound.tells = step.action == Action::signal && !bound.eager &&
                      !bindings_.nodes.together(bindings_.rank, bound.peer);
    }
    if (step.moves()) {
        bound.to_type = binding(step.to.region).type;
        bound.from_type = binding(step.from.region).type;
        bound.from = address(step.from);
        if (step.action != Action::put) bound.to = address(step.to);
        bound.bytes = bound.count * size_of(bound.to_type);
    }
    inlines_ |= !step.moves() && step.flag == inline_flag;
    switch (step.action) {
        case Action::acquire:
        case Action::signal:
        case Action::wait:
            break;
        case Action::copy:
            if (!can_convert(bound.to_type, bound.from_type))
                throw Error(VESCOMM_ERROR_UNSUPPORTED,
                            "there is no conversion from " + name_of_type(bound.from_type) +
                                " to " + name_of_type(bound.to_type) +
                                "; f32 and f64 convert to and from every float");
            break;
        case Action::reduce: {
            bound.finish = step.finish;
            bound.sources = static_cast<std::uint32_t>(lane.sources.size());
            const auto places = from.sources(step);
            bound.bytes = 0;
            bound.started = starts_with_sum(places);
            for (const Place &place : places) {
                lane.sources.push_back(address(place));
                bound.bytes += bound.count * size_of(binding(place.region).type);
                if (place.region == Region::partial) {
                    ++bound.partials;
                } else {
                    ++bound.contributions;
                    bound.from_type = binding(place.region).type;
                }
            }
            bound.partials -= bound.started ? 1 : 0;
            // Sums alone are of contributions all the same.
            if (bound.contributions == 0)
                bound.from_type =
                    (bindings_.staging.mapping ? bindings_.staging : bindings_.buffer).type;
            pointers_.resize(std::max(pointers_.size(), places.size()));
            factors_.resize(pointers_.size(), bindings_.factor);
            if (!can_reduce(bound.to_type, bound.from_type))
                throw Error(VESCOMM_ERROR_UNSUPPORTED,
                            "cannot reduce " + name_of_type(bound.from_type) + " into " +
                                name_of_type(bound.to_type) + "; use " +
                                name_of_type(bound.from_type) + " or " +
                                name_of_type(accumulator_of(bound.from_type)));
            break;
        }
        case Action::put: {
            const RegionBinding &target = binding(step.to.region);
            bound.memory = target.memory;
            bound.offset_bytes = target.offset_bytes +
                                 static_cast<std::uint64_t>(step.to.offset) * size_of(target.type);
            bound.in_slot = target.slot_bytes > 0;
            break;
        }
    }
    bound.timed = bound.bytes >= worth_timing && step.action != Action::put;
    bound.takes_long = bound.timed && bound.bytes >= worth_a_look && bindings_.nodes.count() > 1;
    lane.steps.push_back(bound);
}

void Operation::start(const Run &run) noexcept {
    ++runs_;
    run_ = run;
    signature_ = bindings_.signature ^ run.history;
    move_to(run.slot);
    settled_ = false;
    lanes_under_way_ = 0;
    for (BoundLane &lane : lanes_) {
        lane.at = 0;
        lane.told = lane.steps.size();
        if (!lane.steps.empty()) ++lanes_under_way_;
    }
    acquired_ = advertised_ = stopped_ = masks_known_ = false;
    at_forwarder_.reset();
    if (bindings_.turns != nullptr)
        bindings_.turns->call(run.turn, signature_, bindings_.pair_digests);
    add(counters_.operations, std::uint64_t{1});
}

bool Operation::advance() noexcept {
    bool moved = false, pause = false;
    for (bool again = true; again;) {
        again = false;
        for (BoundLane &lane : lanes_) {
            while (lane.at < lane.steps.size() && ready(lane.steps[lane.at])) {
                const BoundStep &step = lane.steps[lane.at];
                execute(lane, step);
                if (++lane.at == lane.steps.size()) --lanes_under_way_;
                again = true;
                if (!step.takes_long) continue;
                pause = true;
                break;
            }
        }
        moved |= again;
        // Only lanes that meet through this rank's own flags can move one another.
        if (lanes_.size() == 1 || pause) break;
    }
    return moved;
}

// From here on what was called can be said: before, others may still compare what was called in the
// slot before. An eager flag says it by itself, and so does a put.
void Operation::acquired() noexcept {
    acquired_ = true;
    if (advertises_at_once_) advertise_to_node();
    // Nothing of another message is taken: this one is at its end.
    if (receives() && disagreement()) lanes_[0].at = lanes_[0].steps.size() - 1;
}

void Operation::settle() noexcept {
    settled_ = true;
    if (bindings_.queues != nullptr) {
        Queue &queue = bindings_.queues[run_.slot];
        queue.settled = run_.number;
        queue.unread = at_this_run(lanes_[0].steps[0].value);
    }
    if (!bindings_.releases) return;
    if (bindings_.turns != nullptr) {
        bindings_.turns->let_go(run_.turn);
        if (inlines_ && locals_.size() > 1) {
            // The operation after the next one will write there, and nobody reads there any more.
            prefetch_to_write(bases_[first_slotted_ + local_] +
                              bytes_between_slots(slot_, (slot_ + 2) % staging_slots));
        }
    }
    bindings_.intra_node->signal(bindings_.rank,
                                 {bindings_.release.channel + run_.slot, bindings_.release.flag},
                                 run_.number);
}

bool Operation::complete() const noexcept {
    return lanes_under_way_ == 0 && !failed_ && puts_pending_.load(std::memory_order_acquire) == 0;
}

bool Operation::released_by(std::size_t local) const noexcept {
    if (bindings_.turns != nullptr && bindings_.turns->free(local, run_.turn)) return true;
    const SignalName name{bindings_.release.channel + run_.slot, bindings_.release.flag};
    return bindings_.intra_node->signalled(locals_[local], name) >= run_.releases;
}

// A receiver takes its turn when it knows what was sent.
bool Operation::has_slot(const BoundStep &step) const noexcept {
    const Queue &queue = bindings_.queues[run_.slot];
    if (queue.settled + 1 != run_.number) return false;
    if (queue.receives) return signature_of(step.peer) != 0;
    return step.transport->signalled(step.peer, heard(step.flag)) >= queue.unread;
}

bool Operation::ready(const BoundStep &step) noexcept {
    if (step.conditional) {
        if (!has_all_masks()) return false;
        if (!any_local_receives(step.peer)) return true;
    }
    if (step.action == Action::wait) {
        if (step.flag != inline_flag) {
            if (step.eager) return true;
            if (step.transport->signalled(step.peer, heard(step.flag)) < at_this_run(step.value))
                return false;
            // What it has done for another call is of no use here, nor for who gets it from here.
            const std::uint32_t theirs = step.compares ? signature_of(step.peer) : 0;
            const bool other = (theirs != 0 && theirs != signature_for(step.peer)) ||
                               (step.conditional && !ends_agree(step));
            stopped_ |= other;
            return !other;
        }
        const auto local = static_cast<std::size_t>(bindings_.nodes.local_rank(step.peer));
        const InlineFlag &flag = inline_flag_of(local);
        if (flag.called.load(std::memory_order_acquire) != at_this_run(signature_)) return false;
        bindings_.turns->hear(local, flag.turns.load(std::memory_order_relaxed));
        return true;
    }
    if (step.action == Action::acquire) {
        if (bindings_.queues != nullptr) return has_slot(step);
        for (std::size_t local = 0; local < locals_.size(); ++local)
            if (!released_by(local)) return false;
    }
    return true;
}

void Operation::raise_inline_flag() noexcept {
    InlineFlag &flag = inline_flag_of(local_);
    flag.turns.store(bindings_.turns->mine(), std::memory_order_relaxed);
    flag.called.store(at_this_run(signature_), std::memory_order_release);
    board_->stored();
}

void Operation::execute(const BoundLane &lane, const BoundStep &step) noexcept {
    switch (step.action) {
        case Action::acquire:
            return acquired();
        case Action::wait:
            return;
        case Action::signal:
            if (step.conditional && !any_local_receives(step.peer)) return;
            if (step.flag == inline_flag) return raise_inline_flag();
            if (advertises_with_flag_) advertise_to_node();
            if (step.eager)
                step.transport->expect(step.peer, signal(step.flag), at_this_run(step.value));
            else if (step.tells)
                step.transport->put({.peer = step.peer,
                                     .signal = signal(step.flag),
                                     .value = at_this_run(step.value),
                                     .called = signature_for(step.peer)});
            else step.transport->signal(step.peer, signal(step.flag), at_this_run(step.value));
            return;
        case Action::put: {
            if (step.final_peer != no_rank) put_called(step);
            puts_pending_.fetch_add(1, std::memory_order_relaxed);
            add(counters_.bytes_sent, step.bytes);
            const RegionBinding &staging = bindings_.staging;
            step.transport->put(
                {.peer = step.peer,
                 .from = at(step.from),
                 .memory = step.memory,
                 .offset = step.offset_bytes + (step.in_slot ? run_.slot * staging.slot_bytes : 0),
                 .bytes = step.bytes,
                 .signal = signal(step.flag),
                 .value = step.value == 0 ? 0 : at_this_run(step.value),
                 .pending = &puts_pending_,
                 .called = step.value == 0 ? 0 : signature_for(step.peer),
                 .eager = step.credit == 0 ? 0 : at_this_run(step.credit),
                 .credit_flag = step.credit_flag});
            return;
        }
        case Action::copy:
        case Action::reduce:
            break;
    }
    const auto begin = step.timed ? Clock::now() : Clock::time_point{};
    if (step.action == Action::copy) {
        kernels_.convert(at(step.to), step.to_type, at(step.from), step.from_type, step.count,
                         bindings_.streaming && step.timed);
        add(counters_.bytes_written, step.bytes);
    } else {
        reduce(lane, step);
        add(counters_.bytes_reduced, step.bytes);
    }
    if (step.timed)
        add(counters_.busy_seconds, std::chrono::duration<double>(Clock::now() - begin).count());
}

void Operation::reduce(const BoundLane &lane, const BoundStep &step) noexcept {
    const std::size_t started = step.started ? 1 : 0;
    const std::size_t count = started + step.contributions + step.partials;
    for (std::size_t i = 0; i < count; ++i) pointers_[i] = at(lane.sources[step.sources + i]);
    const auto pointers = std::span<const void *const>(pointers_).subspan(started, count - started);
    kernels_.reduce(
        {.op = bindings_.op,
         .divisor = step.finish ? bindings_.divisor : 1,
         .factors = bindings_.op == VESCOMM_PREMULTIPLIED_SUM ? factors_.data() : nullptr,
         .start = step.started ? pointers_[0] : nullptr},
        pointers.first(step.contributions), step.from_type, pointers.subspan(step.contributions),
        at(step.to), step.to_type, step.count);
}

std::vector<int> Operation::waiting_for() const {
    std::vector<int> peers;
    for (const BoundLane &lane : lanes_) {
        if (lane.at == lane.steps.size()) continue;
        const BoundStep &step = lane.steps[lane.at];
        if (step.conditional && !masks_known_) {
            std::ranges::copy_if(locals_, std::back_inserter(peers),
                                 [this](int member) { return !has_advertised_mask(member); });
            continue;
        }
        if (step.action == Action::wait) peers.push_back(step.peer);
        if (step.action == Action::wait && step.final_peer != no_rank)
            peers.push_back(step.final_peer);
        if (step.action == Action::acquire && bindings_.queues != nullptr)
            peers.push_back(step.peer);
        else if (step.action == Action::acquire)
            for (std::size_t local = 0; local < locals_.size(); ++local)
                if (!released_by(local)) peers.push_back(locals_[local]);
    }
    std::sort(peers.begin(), peers.end());
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    if (bindings_.queues == nullptr) std::erase(peers, bindings_.rank);
    return peers;
}

}  // namespace vescomm

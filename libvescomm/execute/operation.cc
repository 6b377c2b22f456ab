// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "execute/operation.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/deadline.h"
#include "base/types.h"
#include "execute/read_distance.h"
#include "schedule/send_receive.h"

namespace vescomm::internal {

namespace {

bool puts_eagerly(const Program &program) {
    return std::ranges::any_of(program.lanes, [](const BoundLane &lane) {
        return std::ranges::any_of(lane.steps, [](const BoundStep &step) {
            return step.eager && step.action == Action::wait;
        });
    });
}

}  // namespace

Operation::Operation(const Schedule &schedule, const Bindings &bindings, Counters &counters)
    : bindings_(bindings),
      context_(bindings_),
      program_(bind(schedule, bindings_)),
      registration_(bindings_, context_),
      match_(bindings_, context_, schedule, program_),
      inline_flags_(bindings_, context_, match_, program_),
      counters_(counters),
      loops_(bindings_.reduction, program_.max_sources),
      progress_(program_),
      small_(program_, bindings_, loops_),
      pace_(bindings_.pace != nullptr && puts_eagerly(program_) ? bindings_.pace : nullptr) {
    registration_.set_arrays(bindings_.source.pieces, bindings_.output.pieces);
    if (bindings_.message.arrivals != nullptr) receiver_.emplace(bindings_, context_, program_);
}

void Operation::set_tag(std::int32_t tag) noexcept {
    if (receiver_) receiver_->set_tag(tag);
    else match_.set_tag(tag);
}

void Operation::move_arrays(std::span<const Piece> source, std::span<const Piece> output) {
    program_.bases.move_source(source.first(bindings_.source.pieces.size()));
    program_.bases.move_output(output.first(bindings_.output.pieces.size()));
    registration_.set_arrays(source, output);
}

bool Operation::advance() noexcept {
    if (!is_small()) return advance_lanes();
    const std::size_t &at = progress_.lanes()[0].at;
    const std::size_t before = at;
    if (before < small_.steps.size()) advance_small();
    return at != before;
}

bool Operation::advance_lanes() noexcept {
    bool moved = false, pause = false;
    auto &lanes = progress_.lanes();
    for (bool again = true; again;) {
        again = false;
        for (std::size_t i = 0; i < lanes.size(); ++i) {
            const BoundLane &lane = program_.lanes[i];
            std::size_t &at = lanes[i].at;
            while (at < lane.steps.size() && ready(lane.steps[at])) {
                const BoundStep &step = lane.steps[at];
                if (applies(step)) execute(lane, step);
                if (++at == lane.steps.size()) progress_.end_lane();
                again = true;
                if (!step.long_running) continue;
                pause = true;
                break;
            }
        }
        moved |= again;
        // Another pass helps only lanes that wait for flags of other lanes of this rank.
        if (lanes.size() == 1 || pause) break;
    }
    return moved;
}

bool Operation::advance_small() noexcept {
    std::size_t &at = progress_.lanes()[0].at;
    for (const std::size_t end = small_.steps.size(); at < end; ++at) {
        const SmallStep &step = small_.steps[at];
        switch (step.action) {
            case Action::acquire:
                if (!slot_is_free()) return false;
                match_.acquired();
                break;
            case Action::copy: {
                std::byte *const to = this->at(step.to), *const from = this->at(step.from);
                if (to != from && step.bytes > 0) std::memcpy(to, from, step.bytes);
                Counters::add(counters_.bytes_written, step.bytes);
                break;
            }
            case Action::reduce:
                loops_.reduce(step.loop, step.sources, this->at(step.to), step.count,
                              [&, sources = &small_.sources[step.first_source]](std::size_t i) {
                                  return this->at(sources[i]);
                              });
                Counters::add(counters_.bytes_reduced, step.bytes);
                break;
            case Action::signal:
                inline_flags_.raise(step.pairs);
                break;
            case Action::wait:
                if (!inline_flags_.raised(step.pairs, step.local, step.peer)) return false;
                break;
            case Action::put:
                break;
        }
    }
    progress_.end_lane();
    return true;
}

void Operation::settle_message() noexcept {
    const Run &run = context_.run();
    MessageQueue &queue = bindings_.message.queues[run.slot];
    queue.completed = run.number;
    queue.unread = context_.word(program_.lanes[0].steps[0].value);
}

bool Operation::released_by(std::size_t local) const noexcept {
    const Run &run = context_.run();
    const std::uint64_t released =
        bindings_.intra_node->signalled(context_.locals()[local], bindings_.release);
    if (bindings_.sequences == nullptr) return released >= run.releases;
    bindings_.sequences->observe(local, released);
    return is_known_free(local);
}

bool Operation::slot_is_free() const noexcept {
    for (std::size_t local = 0; local < context_.locals().size(); ++local)
        if (!is_known_free(local) && !released_by(local)) return false;
    return true;
}

// A receiver has its eager buffer once it has found its message.
bool Operation::has_buffer(const BoundStep &step) noexcept {
    if (receiver_) {
        if (!receiver_->find()) return false;
        program_.bases.move_to(context_.run().slot, context_.run().channel);
        return true;
    }
    const Run &run = context_.run();
    const MessageQueue &queue = bindings_.message.queues[run.slot];
    if (queue.completed + 1 != run.number) return false;
    return step.transport->signalled(step.peer, context_.of_peer(step.flag)) >= queue.unread;
}

bool Operation::ready(const BoundStep &step) noexcept {
    if (!applies(step)) return true;
    if (step.conditional) {
        if (!match_.has_masks()) return false;
        if (!match_.forwarded().any_local_receives(step.peer)) return true;
    }
    if (step.action == Action::wait) return ready_to_go_on(step);
    if (step.action == Action::acquire) {
        if (bindings_.is_message()) return has_buffer(step);
        return slot_is_free();
    }
    return true;
}

bool Operation::ready_to_go_on(const BoundStep &wait) noexcept {
    if (lies_beside_data(wait.flag))
        return inline_flags_.raised(wait.flag == pair_flag,
                                    static_cast<std::size_t>(bindings_.nodes.local_rank(wait.peer)),
                                    wait.peer);
    // An eager put leaves at once, unless its receiver keeps many already: it keeps this one until
    // it grants the credit.
    if (wait.eager)
        return wait.transport->may_put_eagerly(wait.peer, context_.of_peer(wait.flag),
                                               context_.word(wait.value), eager_puts_wait_);
    if (wait.transport->signalled(wait.peer, context_.of_peer(wait.flag)) <
        context_.word(wait.value))
        return false;
    return match_.accept(wait);
}

void Operation::acquired() noexcept {
    // Local peers may read the words as soon as one lane has raised a flag.
    if (match_.acquired() && program_.uses_registered) registration_.publish();
    if (receiver_) take_message();
}

// Goes to the step before the first chunk that is to be moved. A receiver takes nothing of a
// message that it does not expect: it goes to its last step.
void Operation::take_message() noexcept {
    if (receiver_->expected() && !receiver_->has_copy()) return;
    const std::size_t last = program_.lanes[0].steps.size() - 1;
    progress_.lanes()[0].at = last;
    if (!receiver_->expected()) return;
    const MessageReceiver::Moved moved = receiver_->take_copy();
    Counters::add(counters_.bytes_written, moved.bytes);
    progress_.lanes()[0].at = std::min(receive_steps_of_chunk * moved.chunks, last);
}

void Operation::signal(const BoundStep &step) noexcept {
    if (step.conditional && !match_.forwarded().any_local_receives(step.peer)) return;
    if (lies_beside_data(step.flag)) return inline_flags_.raise(step.flag == pair_flag);
    match_.before_signal();
    const SignalName name = context_.own(step.flag);
    const std::uint64_t word = context_.word(step.value);
    if (step.eager) step.transport->grant_credit(step.peer, name, word);
    else if (step.shows)
        step.transport->put({.peer = step.peer,
                             .signal = name,
                             .value = word,
                             .signature = match_.shown_to(step.peer)});
    else step.transport->signal(step.peer, name, word);
}

const std::byte *Operation::at(const BoundSource &source, std::uint64_t bytes) noexcept {
    const std::byte *registered =
        source.registered.local < 0 ? nullptr : registration_.find(source.registered, bytes);
    if (registered == nullptr) return at(source.address);
    Counters::add(counters_.bytes_registered, bytes);
    return registered;
}

void Operation::put(const BoundStep &step) noexcept {
    if (step.final_peer != no_rank) match_.put_signature(step, progress_.puts_pending());
    progress_.puts_pending().fetch_add(1, std::memory_order_relaxed);
    Counters::add(counters_.bytes_sent, step.bytes);
    step.transport->put(
        {.peer = step.peer,
         .from = at(step.from.address),
         .memory = step.target.memory,
         .offset = step.target.offset_bytes + (step.target.in_slot ? context_.slot_offset() : 0),
         .bytes = step.bytes,
         .signal = context_.own(step.flag),
         .value = step.value == 0 ? 0 : context_.word(step.value),
         .pending = &progress_.puts_pending(),
         .signature = step.value == 0 ? 0 : match_.shown_to(step.peer),
         .tag = match_.tag(),
         .credit = step.target.credit == 0 ? 0 : context_.word(step.target.credit),
         .credit_flag = step.target.credit_flag});
}

void Operation::execute(const BoundLane &lane, const BoundStep &step) noexcept {
    switch (step.action) {
        case Action::acquire:
            return acquired();
        case Action::wait:
            return;
        case Action::signal:
            return signal(step);
        case Action::put:
            return put(step);
        case Action::copy:
        case Action::reduce:
            return move(lane, step);
    }
}

void Operation::move(const BoundLane &lane, const BoundStep &step) noexcept {
    const auto begin = step.timed ? Clock::now() : Clock::time_point{};
    const std::uint64_t read = std::uint64_t{step.count} * size_of(step.from_type);
    // Registered sources say nothing about the distance of their ranks.
    bool staged = true;
    const auto source_at = [&](const BoundSource &source, std::uint64_t bytes) {
        const std::byte *from = at(source, bytes);
        staged &= from == at(source.address);
        return from;
    };
    if (step.action == Action::copy) {
        const bool streaming =
            step.streaming || (step.to_staging && bindings_.distance->far(context_.run().sequence));
        loops_.copy(step, at(step.to), source_at(step.from, read), streaming);
        Counters::add(counters_.bytes_written, step.bytes);
    } else {
        loops_.reduce(lane, step, at(step.to), source_at);
        Counters::add(counters_.bytes_reduced, step.bytes);
    }
    if (!step.timed) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    Counters::add(counters_.busy_seconds, seconds);
    if (step.staged_sources > 0 && staged && !step.streaming)
        bindings_.distance->observe(context_.run().sequence, step.staged_sources * read, seconds);
}

void Operation::advertise_signature() noexcept {
    if (!match_.advertises()) return;
    match_.advertise_to_node();
    auto &lanes = progress_.lanes();
    for (std::size_t i = 0; i < lanes.size(); ++i) {
        const auto &steps = program_.lanes[i].steps;
        RunProgress::Position &position = lanes[i];
        if (position.at == steps.size() || position.advertised == position.at) continue;
        position.advertised = position.at;
        const BoundStep &step = steps[position.at];
        if (step.action != Action::wait) continue;
        match_.advertise_to(step.peer);
        if (step.final_peer != no_rank) match_.advertise_to(step.final_peer);
        // The wait may be for the credit of the puts after it: their receivers are waited for, too.
        for (std::size_t k = position.at + 1; k < steps.size(); ++k) {
            const BoundStep &next = steps[k];
            if (next.action != Action::put || next.peer != step.peer) break;
            if (next.final_peer != no_rank) match_.advertise_to(next.final_peer);
        }
    }
}

std::vector<int> Operation::waiting_for(bool directly) const {
    std::vector<int> peers;
    const std::vector<int> &locals = context_.locals();
    const auto &lanes = progress_.lanes();
    for (std::size_t i = 0; i < lanes.size(); ++i) {
        const auto &steps = program_.lanes[i].steps;
        if (lanes[i].at == steps.size()) continue;
        const BoundStep &step = steps[lanes[i].at];
        if (step.conditional && !match_.knows_masks()) {
            std::ranges::copy_if(locals, std::back_inserter(peers),
                                 [this](int peer) { return !match_.forwarded().has_mask(peer); });
            continue;
        }
        if (step.action == Action::wait) {
            peers.push_back(step.peer);
            if (step.final_peer != no_rank && !directly) peers.push_back(step.final_peer);
        }
        if (step.action != Action::acquire) continue;
        if (bindings_.is_message()) {
            peers.push_back(receiver_ ? receiver_->awaited() : step.peer);
            continue;
        }
        for (std::size_t local = 0; local < locals.size(); ++local)
            if (!is_known_free(local) && !released_by(local)) peers.push_back(locals[local]);
    }
    std::sort(peers.begin(), peers.end());
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    if (!bindings_.is_message()) std::erase(peers, bindings_.rank);
    return peers;
}

}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The end of a step: norm, clipping, the optimizers. Updates and the first gathers of the next
// forward overlap:
//
//     agree on arguments and norm ─► update u0 ─► update u1 ─► update u2 ─► ...
//                                          └ gather u0 ────┴ gather u1 ─────────► pre_forward
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <utility>

#include "execute/loops/clip.h"
#include "fsdp/engine/engine.h"
#include "fsdp/engine/event_body.h"
#include "fsdp/hash.h"

namespace vescomm::fsdp {

namespace {

using internal::clip_factor;
using internal::is_f32_factor;
using internal::representable;

void require_finite(const char *what, double value, double min) {
    if (!std::isfinite(value) || value < min)
        refuse("{} is {}; it must be a finite number of at least {}", what, value, min);
}

// The units in the order of their updates: those that are gathered first, then the others.
std::vector<int> update_order(const std::vector<int> &first, std::size_t units) {
    std::vector<int> order = first;
    for (int unit = 0; unit < static_cast<int>(units); ++unit)
        if (std::ranges::count(first, unit) == 0) order.push_back(unit);
    return order;
}

}  // namespace

double Engine::measure_norm() {
    if (!gradients_.norm) gradients_.norm = std::sqrt(wiring_->norm->squares());
    return *gradients_.norm;
}

std::pair<double, bool> Engine::norm() {
    std::pair<double, bool> result;
    event(Event::norm, no_unit, true, 0, [&] {
        states_.require_gradients();
        wiring_->watch.verify(wiring_->watch.post(log_.now()));
        const double norm = measure_norm() * std::fabs(gradients_.scale);
        result = {norm, std::isfinite(norm)};
    });
    return result;
}

void Engine::scale(double factor) {
    event(Event::scale, no_unit, true, std::bit_cast<std::uint64_t>(factor), [&] {
        states_.require_gradients();
        if (!std::isfinite(factor)) refuse("the factor is {}; it must be finite", factor);
        if (!std::isfinite(gradients_.scale * factor))
            refuse("the factors of this step multiply to more than a double holds: {} and {}",
                   gradients_.scale, factor);
        gradients_.scale *= factor;
    });
}

void Engine::step(vescomm_fsdp_step_t &step) {
    const StepSummary::Reading begin = reading();
    const double arguments[] = {step.learning_rate_scale, step.max_norm, step.loss_scale};
    event(Event::step, no_unit, true, hash_of(arguments, sizeof arguments), [&] {
        states_.require_gradients();
        states_.require_closed("vescomm_fsdp_step()");
        require_finite("learning_rate_scale", step.learning_rate_scale, 0);
        require_finite("max_norm", step.max_norm, 0);
        require_finite("loss_scale", step.loss_scale, 0);
        if (streams_) streams_->order(streams_->compute(), streams_->reduce());
        // The arguments are compared before anything changes.
        wiring_->watch.verify(wiring_->watch.post(log_.now()));
        const double scale = gradients_.scale / (step.loss_scale > 0 ? step.loss_scale : 1.0);
        if (gradients_.scale != 0 && !is_f32_factor(scale))
            refuse(
                "gradients would be multiplied by {}, which f32 does not hold: the factor {} of "
                "vescomm_fsdp_scale() divided by the loss_scale {}; use values whose quotient is "
                "from 2^-126 to 2^127",
                scale, gradients_.scale, step.loss_scale);
        const double norm = measure_norm() * std::fabs(scale);
        const double factor = scale * clip_factor(step.max_norm, norm);
        if (copy_) {
            copy_->exchange_gradients(wiring_->comms);
            // No rank updates anything before all ranks can.
            wiring_->watch.verify(wiring_->watch.post(log_.now()));
        }
        step.norm = norm;
        step.skipped = representable(norm, scale, factor) ? 0 : 1;
        if (step.skipped == 0) wiring_->parameters.forget();
        states_.step();
        wiring_->gradients->begin_step();
        gradients_ = {};
        apply({last_update_.number + 1, static_cast<std::uint64_t>(step.skipped), factor,
               step.learning_rate_scale},
              true);
        step.step = optimizer_.steps();
    });
    summary_.complete(begin, reading(), step);
}

void Engine::apply(const Update &update, bool gathers) {
    std::vector<int> first;
    if (gathers) first = wiring_->parameters.first_units();
    const std::vector<int> units = update_order(first, model_.plan.of_unit.size());
    const auto factor = static_cast<float>(update.factor);
    double begin = 0;
    const std::function<void(std::size_t)> updated = [&](std::size_t unit) {
        times_.add(Event::update, unit, begin, vescomm_trace_get_seconds(),
                   wiring_ ? wiring_->comms.world().get() : nullptr);
        if (gathers) follow_update(unit, first);
        begin = vescomm_trace_get_seconds();
    };
    // From here on the step counts as complete on this rank. Only a kind of optimizer can fail. The
    // shards of this rank are then partly updated, and `complete_` stays false: reset() does not
    // restore them, and reports it to all ranks.
    last_update_ = update;
    optimizer_.agree_on_settings();
    if (copy_) copy_->optimizer().agree_on_settings();
    if (update.skipped != 0) {
        ++counters_.skipped;
        for (const int unit : first) follow_update(static_cast<std::size_t>(unit), first);
        return;
    }
    ++generation_;
    const PhaseTimes::Scope updating(times_.phases(), &Phases::update);
    const bool complete = std::exchange(complete_, false);
    begin = vescomm_trace_get_seconds();
    optimizer_.step(factor, update.learning_rate_scale, units, updated);
    if (copy_)
        copy_->optimizer().step(factor, update.learning_rate_scale, units, [&](std::size_t unit) {
            if (gathers) follow_update(unit, {});
        });
    complete_ = complete;  // a step does not complete what an earlier one has left
}

void Engine::follow_update(std::size_t unit, std::span<const int> first) noexcept {
    if (failure_) return;
    const PhaseTimes::Scope gathering(times_.phases(), &Phases::gather);
    try {
        guarded(Event::step, no_unit, [&] {
            if (std::ranges::count(first, static_cast<int>(unit)) > 0)
                wiring_->parameters.start_first(static_cast<int>(unit), first, log_.now());
            wiring_->comms.progress();
            wiring_->parameters.advance();
        });
    } catch (const std::exception &) {  // the engine is broken now
    }
}

// A rank that has updated its masters has seen the announcement of this step by every other rank.
// So a rank that is behind was in step(), its gradient shards are complete, and nothing has
// overwritten them; those of its copy are complete too. Its settings are those of the other ranks:
// they are part of the announcement.
//
// A rank that failed before an initialisation or a load, which other ranks have completed, has
// older values than they. It has the generation of the others from then on, and its values count as
// not complete.
void Engine::catch_up(Communicator &world) {
    last_update_.complete = complete_ ? 1 : 0;
    last_update_.generation = generation_;
    std::vector<Update> all(static_cast<std::size_t>(world.ranks()));
    check(vescomm_all_gather(world.get(), &last_update_, all.data(),
                             sizeof(Update) / sizeof(std::uint64_t), VESCOMM_U64, nullptr, nullptr,
                             nullptr));
    meet_in(world);
    const Update newest = *std::ranges::max_element(all, {}, &Update::number);
    // The generation of a rank that has applied the newest update.
    const auto generation_of = [&](const Update &one) {
        return one.generation + (one.number < newest.number && newest.skipped == 0 ? 1 : 0);
    };
    std::uint64_t generation = 0;
    for (const Update &one : all) generation = std::max(generation, generation_of(one));
    incomplete_rank_.reset();
    for (std::size_t rank = 0; rank < all.size() && !incomplete_rank_; ++rank)
        if (all[rank].complete == 0 || generation_of(all[rank]) != generation)
            incomplete_rank_ = static_cast<int>(rank);
    // The time of the update counts as that of an event, from which it is subtracted again.
    const double begin = vescomm_trace_get_seconds();
    for (const Update &other : all)
        if (other.number > last_update_.number) apply(other, false);
    counters_.exposed_seconds += vescomm_trace_get_seconds() - begin;
    if (generation_ != generation) complete_ = false;
    generation_ = generation;
    // Other ranks may not have come to a vescomm_fsdp_set_group() after it.
    optimizer_.restore_settings();
    if (copy_) copy_->optimizer().restore_settings();
}

// An error here has no effect, and is the same on all ranks, unless one has failed meanwhile.
void Engine::require_values() const {
    require_wiring();
    if (complete_ && !incomplete_rank_) return;
    refuse(
        "the parameters of rank {} are partly set or updated, because an optimizer, a load or an "
        "initialisation has failed; call vescomm_fsdp_load() or vescomm_fsdp_initialise() on all "
        "ranks before",
        incomplete_rank_.value_or(rank_));
}

void Engine::set_complete() noexcept {
    complete_ = true;
    incomplete_rank_.reset();
}

}  // namespace vescomm::fsdp

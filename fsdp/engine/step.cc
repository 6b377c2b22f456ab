// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The end of a step: norm, clipping, the optimizers. Updates and the first gathers of the next
// forward overlap:
//
//     agree on arguments and norm ─► update u0 ─► update u1 ─► update u2 ─► ...
//                                          └ gather u0 ────┴ gather u1 ─────────► pre_forward
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "execute/loops/clip.h"
#include "fsdp/engine/engine.h"
#include "fsdp/engine/event_body.h"

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

void Engine::drop_gradients() {
    states_.drop_gradients();
    wiring_->gradients->drop();
    gradients_ = {};
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
    event(Event::scale, no_unit, true, 0, [&] {
        log_.note(Argument::factor, factor);
        states_.require_gradients();
        if (!std::isfinite(factor)) refuse("the factor is {}; it must be finite", factor);
        if (!std::isfinite(gradients_.scale * factor))
            refuse("the factors of this step multiply to more than a double holds: {} and {}",
                   gradients_.scale, factor);
        gradients_.scale *= factor;
    });
}

void Engine::step(vescomm_fsdp_step_t &step) {
    require_values();
    const StepSummary::Reading begin = reading();
    event(Event::step, no_unit, true, 0, [&] {
        // The zeros and what they stand for are the same.
        log_.note(Argument::learning_rate_scale, step.learning_rate_scale);
        log_.note(Argument::max_norm, step.max_norm == 0 ? HUGE_VAL : step.max_norm);
        log_.note(Argument::loss_scale, step.loss_scale == 0 ? 1.0 : step.loss_scale);
        states_.require_gradients();
        states_.require_closed("vescomm_fsdp_step()");
        require_finite("learning_rate_scale", step.learning_rate_scale, 0);
        if (step.learning_rate_scale > std::numeric_limits<float>::max())
            refuse("learning_rate_scale is {}, which f32 does not hold; use at most 3.4e38",
                   step.learning_rate_scale);
        // As in PyTorch's clip_grad_norm_(), an infinite limit only measures the norm.
        if (std::isnan(step.max_norm) || step.max_norm < 0)
            refuse("max_norm is {}; it must be at least 0, or INFINITY for no limit",
                   step.max_norm);
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
            // Work of the trainer may wait for other ranks: this rank looks for failures meanwhile.
            if (streams_) wiring_->links->settle(*streams_);
            copy_->exchange_gradients(wiring_->comms);
        }
        // No rank updates anything before all ranks can: the holders of copies need the gradients,
        // and the devices of replicas complete their sums at different times.
        if (copy_ || (streams_ && model_.plan.mesh.replicas() > 1))
            wiring_->watch.verify(wiring_->watch.post(log_.now()));
        step.norm = norm;
        step.skipped = representable(norm, scale, factor) ? 0 : 1;
        if (step.skipped == 0) wiring_->parameters.forget();
        states_.step();
        wiring_->gradients->begin_step();
        gradients_ = {};
        apply({values_.last_update().number + 1, static_cast<std::uint64_t>(step.skipped), factor,
               step.learning_rate_scale},
              true);
        step.step = optimizer_.steps();
    });
    measures_.summary.complete(begin, reading(), step);
}

void Engine::apply(const Update &update, bool gathers) {
    std::vector<int> first;
    if (gathers) first = wiring_->parameters.first_units();
    const std::vector<int> units = update_order(first, model_.plan.of_unit.size());
    const auto factor = static_cast<float>(update.factor);
    double begin = 0;
    const std::function<void(std::size_t)> updated = [&](std::size_t unit) {
        measures_.times.add(Event::update, unit, begin, vescomm_trace_get_seconds(), {},
                            wiring_ ? wiring_->comms.world().get() : nullptr);
        if (gathers) follow_update(unit, first);
        begin = vescomm_trace_get_seconds();
    };
    // From here on the step counts as complete on this rank. Only a kind of optimizer can fail. The
    // shards of this rank are then partly updated, and their values stay incomplete: reset() does
    // not restore them, and reports it to all ranks.
    values_.begin_update(update);
    optimizer_.agree_on_settings();
    if (copy_) copy_->optimizer().agree_on_settings();
    if (update.skipped != 0) {
        ++measures_.counters.skipped;
        for (const int unit : first) follow_update(static_cast<std::size_t>(unit), first);
        return;
    }
    const PhaseTimes::Scope updating(measures_.times.phases(), &Phases::update);
    const bool were_complete = values_.begin_change();
    begin = vescomm_trace_get_seconds();
    in_callback_ = true;
    const AtExit returned{[this] { in_callback_ = false; }};
    optimizer_.step(factor, update.learning_rate_scale, units, updated);
    if (copy_)
        copy_->optimizer().step(factor, update.learning_rate_scale, units, [&](std::size_t unit) {
            if (gathers) follow_update(unit, {});
        });
    values_.end_change(were_complete);
}

void Engine::follow_update(std::size_t unit, std::span<const int> first) noexcept {
    if (failure_) return;
    const PhaseTimes::Scope gathering(measures_.times.phases(), &Phases::gather);
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
void Engine::catch_up(Communicator &world) {
    const ValueReport own = values_.report();
    std::vector<ValueReport> all(static_cast<std::size_t>(world.ranks()));
    check(vescomm_all_gather(world.get(), &own, all.data(), sizeof own / sizeof(std::uint64_t),
                             VESCOMM_U64, nullptr, nullptr, nullptr));
    meet_in(world);
    const ValueAgreement agreed = agree_on_values(all);
    values_.begin_catching_up(agreed);
    if (wiring_) wiring_->parameters.complete();  // none: the engine ends after its recovery
    // The time of the update counts as that of an event, from which it is subtracted again.
    const double begin = vescomm_trace_get_seconds();
    for (const ValueReport &other : all)
        if (other.last_update.number > values_.last_update().number)
            apply(other.last_update, false);
    measures_.counters.exposed_seconds += vescomm_trace_get_seconds() - begin;
    values_.end_catching_up(agreed);
    // Other ranks may not have come to a vescomm_fsdp_set_group() after it.
    optimizer_.restore_settings();
    if (copy_) copy_->optimizer().restore_settings();
}

// An error here has no effect, and is the same on all ranks, unless one has failed meanwhile.
void Engine::require_values() const {
    require_wiring();
    if (values_.complete() && !values_.incomplete_rank()) return;
    refuse(
        "the parameters of rank {} are partly set or updated, or older than those of other ranks, "
        "because an optimizer, a load or an initialisation has failed or was not called on all "
        "ranks; call vescomm_fsdp_load() or vescomm_fsdp_initialise() on all ranks before",
        values_.incomplete_rank().value_or(rank_));
}

}  // namespace vescomm::fsdp

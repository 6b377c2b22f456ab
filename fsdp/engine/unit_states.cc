// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/unit_states.h"

#include <algorithm>
#include <utility>

#include "fsdp/error.h"

namespace vescomm::fsdp {

UnitStates::UnitStates(const ModelPlan &plan, std::vector<std::string> names)
    : plan_(plan), names_(std::move(names)), users_(names_.size()), units_(names_.size()) {
    for (std::size_t unit = 0; unit < names_.size(); ++unit)
        for (const std::size_t owner : plan.needs[unit]) users_[owner].push_back(unit);
}

void UnitStates::require_unit(std::size_t unit) const {
    if (unit >= units_.size())
        refuse("there is no unit {}; there are {}, counted from 0", unit, units_.size());
}

void UnitStates::require_running(const char *what) const {
    if (phase_ == Phase::forward || phase_ == Phase::backward) return;
    refuse("no micro-batch is running; call vescomm_fsdp_begin() before {}", what);
}

void UnitStates::require_closed(const char *what) const {
    for (std::size_t unit = 0; unit < units_.size(); ++unit) {
        const State &state = units_[unit];
        if (state.forward == 0 && state.held == 0 && !state.backward) continue;
        refuse("unit \"{}\" is still open for {}; close it before {}", names_[unit],
               state.backward      ? "backward"
               : state.forward > 0 ? "forward"
                                   : "unshard",
               what);
    }
}

void UnitStates::begin(std::uint32_t flags) {
    constexpr std::uint32_t known =
        VESCOMM_FSDP_LAST | VESCOMM_FSDP_NO_SYNC | VESCOMM_FSDP_NO_OUTER | VESCOMM_FSDP_EVAL;
    if ((flags & ~known) != 0) refuse("flags {:#x} contain an unknown one", flags);
    const bool last = (flags & VESCOMM_FSDP_LAST) != 0;
    if ((flags & VESCOMM_FSDP_EVAL) != 0 && flags != VESCOMM_FSDP_EVAL)
        refuse("flags {:#x} have EVAL and others; evaluation has no gradients", flags);
    if (last && (flags & (VESCOMM_FSDP_NO_SYNC | VESCOMM_FSDP_NO_OUTER)) != 0)
        refuse(
            "flags {:#x} have LAST and NO_SYNC or NO_OUTER; the last micro-batch completes the "
            "sums",
            flags);
    if ((flags & VESCOMM_FSDP_NO_SYNC) != 0 && !plan_.mesh.keep_gradients)
        refuse("NO_SYNC needs memory for whole gradients; set keep_gradients or use zero1");
    if (phase_ == Phase::backward)
        refuse("the micro-batch before has backward passes; call vescomm_fsdp_finish_backward()");
    if (has_gradients() && (flags & VESCOMM_FSDP_EVAL) == 0)
        refuse("the gradients of a step are complete; call vescomm_fsdp_step() first");
    require_closed("vescomm_fsdp_begin()");
    gradients_wait_ = has_gradients();
    flags_ = flags;
    phase_ = Phase::forward;
    for (State &state : units_) state.forwards = state.backwards = 0;
}

bool UnitStates::pre_forward(std::size_t unit) {
    require_unit(unit);
    require_running("a forward pass");
    State &state = units_[unit];
    ++state.forward;
    if (phase_ == Phase::backward) return true;
    ++state.forwards;
    return false;
}

void UnitStates::post_forward(std::size_t unit) {
    require_unit(unit);
    State &state = units_[unit];
    if (state.forward == 0) refuse("the unit is not open for forward");
    --state.forward;
}

void UnitStates::begin_backward() {
    require_running("its backward pass");
    if (evaluation()) refuse("the micro-batch was begun with EVAL and has no backward");
    phase_ = Phase::backward;
}

void UnitStates::pre_backward(std::size_t unit) {
    require_unit(unit);
    require_running("a backward pass");
    State &state = units_[unit];
    if (evaluation()) refuse("the micro-batch was begun with EVAL and has no backward");
    if (state.backward) refuse("the unit is open for backward already");
    if (state.backwards >= state.forwards)
        refuse("the unit went through forward {} times and would go through backward {} times",
               state.forwards, state.backwards + 1);
    state.backward = true;
    phase_ = Phase::backward;
    for (const std::size_t owner : plan_.needs[unit])
        if (plan_.trainable(owner)) units_[owner].pending = true;
}

bool UnitStates::complete(std::size_t unit) const {
    return std::ranges::all_of(users_[unit], [&](std::size_t user) {
        return !units_[user].backward && units_[user].backwards == units_[user].forwards;
    });
}

std::vector<std::size_t> UnitStates::post_backward(std::size_t unit) {
    require_unit(unit);
    State &state = units_[unit];
    if (!state.backward) refuse("the unit is not open for backward");
    state.backward = false;
    ++state.backwards;
    std::vector<std::size_t> ready;
    if (local()) return ready;
    for (const std::size_t owner : plan_.needs[unit]) {
        if (!units_[owner].pending || !complete(owner)) continue;
        units_[owner].pending = false;
        ready.push_back(owner);
    }
    return ready;
}

void UnitStates::unshard(std::size_t unit) {
    require_unit(unit);
    ++units_[unit].held;
}

void UnitStates::reshard(std::size_t unit) {
    require_unit(unit);
    if (units_[unit].held == 0) refuse("the unit is not held by vescomm_fsdp_unshard()");
    --units_[unit].held;
}

std::vector<std::size_t> UnitStates::finish_backward() {
    require_running("its end");
    if (evaluation()) refuse("the micro-batch was begun with EVAL and has no backward");
    require_closed("vescomm_fsdp_finish_backward()");
    std::vector<std::size_t> rest;
    for (std::size_t unit = 0; unit < units_.size() && !local(); ++unit) {
        if (units_[unit].pending) rest.push_back(unit);
        units_[unit].pending = false;
    }
    phase_ = last() ? Phase::complete : Phase::between;
    return rest;
}

void UnitStates::require_gradients() const {
    if (has_gradients()) return;
    refuse(
        "the gradients of the step are not complete; finish a micro-batch that was begun "
        "with VESCOMM_FSDP_LAST");
}

void UnitStates::step() {
    require_gradients();
    require_closed("vescomm_fsdp_step()");
    forget_gradients();
}

void UnitStates::drop_gradients() {
    if (phase_ == Phase::backward)
        refuse(
            "a micro-batch is in its backward pass; call vescomm_fsdp_finish_backward() or "
            "vescomm_fsdp_reset() before");
    if (has_gradients()) forget_gradients();
    for (State &state : units_) state.pending = false;
}

void UnitStates::reset() {
    units_.assign(units_.size(), {});
    forget_gradients();
    flags_ = 0;
}

void UnitStates::forget_gradients() {
    phase_ = Phase::between;
    gradients_wait_ = false;
}

}  // namespace vescomm::fsdp

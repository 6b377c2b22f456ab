// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The states of units within a step. Decides whether an event is permitted, and when the gradients
// of a unit are complete. Pure: no memory, no requests.
//
//     begin ─► { pre_forward ─► post_forward }* ─► [begin_backward]
//           ─► { pre_backward ─► post_backward }*
//           ─► finish_backward ─► (begin … | step)
//
// An evaluation may come between any two micro-batches, and before the step.
//
// A wrong event throws Failure without the name of the event, and changes nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp {

class UnitStates {
public:
    // `names` of units, for messages.
    UnitStates(const ModelPlan &plan, std::vector<std::string> names);

    void begin(std::uint32_t flags);
    // Returns true if the event recomputes.
    bool pre_forward(std::size_t unit);
    void post_forward(std::size_t unit);
    // Later forward passes of the micro-batch recompute; the first pre_backward() implies it.
    void begin_backward();
    void pre_backward(std::size_t unit);
    // Returns the units whose gradients are complete now.
    std::vector<std::size_t> post_backward(std::size_t unit);
    void unshard(std::size_t unit);
    void reshard(std::size_t unit);
    // Returns the units with gradients that were not complete before.
    std::vector<std::size_t> finish_backward();
    // Throws unless the gradients of a step are complete.
    void require_gradients() const;
    // Throws if a unit is open.
    void require_closed(const char *what) const;
    void step();
    // The gradients of this step are no longer needed. Throws in a backward pass.
    void drop_gradients();
    void reset();

    // Throws if there is no such unit.
    void require_unit(std::size_t unit) const;
    bool open(std::size_t unit) const {
        return units_[unit].forward > 0 || units_[unit].held > 0 || units_[unit].backward;
    }
    bool in_backward(std::size_t unit) const { return units_[unit].backward; }
    bool evaluation() const { return (flags_ & VESCOMM_FSDP_EVAL) != 0; }
    bool last() const { return (flags_ & VESCOMM_FSDP_LAST) != 0; }
    // True if gradients stay on this rank in this micro-batch.
    bool local() const { return plan_.mesh.keep_gradients && !last(); }

private:
    enum class Phase { between, forward, backward, complete };
    struct State {
        int forward = 0;  // pre_forward without post_forward, recomputation included
        int held = 0;  // unshard without reshard
        bool backward = false;  // between pre_backward and post_backward
        int forwards = 0;  // in this micro-batch, without recomputation
        int backwards = 0;
        bool pending = false;  // has gradients that are not sent
    };

    void require_running(const char *what) const;
    // True if the gradients of a step are complete.
    bool has_gradients() const { return phase_ == Phase::complete || gradients_wait_; }
    void forget_gradients();
    // True if no more gradients of the unit are expected in this micro-batch.
    bool complete(std::size_t unit) const;

    const ModelPlan &plan_;
    std::vector<std::string> names_;
    std::vector<std::vector<std::size_t>> users_;  // units that use parameters of a unit
    std::vector<State> units_;
    Phase phase_ = Phase::between;
    std::uint32_t flags_ = 0;
    bool gradients_wait_ = false;  // they are complete while an evaluation runs
};

}  // namespace vescomm::fsdp

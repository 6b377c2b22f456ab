// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Decides whether the values of a rank, its masters and optimizer states, are those of one step,
// and which updates a rank lacks after a failure. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace vescomm::fsdp {

// One update of the masters.
struct Update {
    std::uint64_t number = 0;  // of updates so far, skipped ones included
    std::uint64_t skipped = 0;
    double factor = 1;  // of the gradients
    double learning_rate_scale = 1;
};

// The values of a rank, as it reports them to the others. Only members of 64 bits, which one
// all_gather moves.
struct ValueReport {
    Update last_update;
    std::uint64_t complete = 1;
    std::uint64_t generation = 0;
};

// The conclusion of all ranks from the reports of all.
struct ValueAgreement {
    std::uint64_t generation = 0;  // of all ranks, once each has applied the updates that it lacks
    std::optional<int> incomplete_rank;  // the first one whose values are not complete then
};
ValueAgreement agree_on_values(std::span<const ValueReport> reports);

// The state of the values of this rank.
class ValueState {
public:
    // The last update that this rank has begun.
    const Update &last_update() const noexcept { return last_update_; }
    // Changes of the values so far.
    std::uint64_t generation() const noexcept { return generation_; }
    // False: the values of this rank are partly set, or partly updated.
    bool complete() const noexcept { return complete_; }
    // A rank whose values are not complete, as all ranks know.
    std::optional<int> incomplete_rank() const noexcept { return incomplete_rank_; }
    ValueReport report() const noexcept { return {last_update_, complete_ ? 1U : 0U, generation_}; }

    void begin_update(const Update &update) noexcept { last_update_ = update; }
    // The values begin to change. Returns whether they were complete.
    bool begin_change() noexcept {
        const bool were_complete = complete_;
        ++generation_;
        complete_ = false;
        return were_complete;
    }
    // The change has ended. It completes nothing that was incomplete before.
    void end_change(bool were_complete) noexcept { complete_ = were_complete; }
    // All ranks have set all values.
    void set_complete() noexcept {
        complete_ = true;
        incomplete_rank_.reset();
    }

    // Before this rank applies the updates that it lacks, and after.
    void begin_catching_up(const ValueAgreement &agreed) noexcept {
        incomplete_rank_ = agreed.incomplete_rank;
    }
    void end_catching_up(const ValueAgreement &agreed) noexcept {
        if (generation_ != agreed.generation) complete_ = false;
        generation_ = agreed.generation;
    }

    // Takes the updates of the engine before, whose survivors had this generation.
    void take_over(const ValueState &before, std::uint64_t generation) noexcept {
        last_update_ = before.last_update_;
        generation_ = generation + 1;
    }

private:
    Update last_update_;
    std::uint64_t generation_ = 0;
    bool complete_ = true;
    std::optional<int> incomplete_rank_;
};

}  // namespace vescomm::fsdp

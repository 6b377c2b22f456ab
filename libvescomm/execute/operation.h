// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "execute/bindings.h"
#include "execute/element_loops.h"
#include "execute/inline_flags.h"
#include "execute/match/call_match.h"
#include "execute/message_receiver.h"
#include "execute/one_way_pace.h"
#include "execute/program.h"
#include "execute/registered_arrays.h"
#include "execute/run_context.h"
#include "execute/run_progress.h"
#include "execute/small_program.h"
#include "schedule/schedule.h"

namespace vescomm::internal {

// Totals over the operations of a communicator, for vescomm_comm_get_counters().
struct Counters {
    std::atomic<std::uint64_t> operations{0}, bytes_written{0}, bytes_reduced{0}, bytes_sent{0},
        bytes_registered{0}, sleeps{0};
    std::atomic<double> busy_seconds{0}, waiting_seconds{0};

    // The thread that adds holds the lock of the progress engine; others only read.
    template <typename T>
    static void add(std::atomic<T> &counter, T more) noexcept {
        counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
    }
};

// A schedule bound to memory and transports, made once and run many times: THE executor. It knows
// no collective and no algorithm.
//
// Threads: the owner serialises all calls. start() and advance() allocate nothing; the cost per
// byte is that of the kernels.
class Operation {
public:
    // Throws Error if a step is impossible: no conversion between two types, for example.
    Operation(const Schedule &schedule, const Bindings &bindings, Counters &counters);

    // Before the next run: moves the source and output arrays. The pieces keep their sizes.
    void move_arrays(std::span<const Piece> source, std::span<const Piece> output);

    // Messages: the tag of the next runs.
    void set_tag(std::int32_t tag) noexcept;

    // `run`: not used by an operation that receives a message, which finds the run itself.
    void start(const Run &run) noexcept {
        if (is_small()) return start_small(run);
        match_.start(run);
        if (receiver_) {
            receiver_->start();
        } else {
            context_.start(run);
            program_.bases.move_to(run.slot, run.channel);
            eager_puts_wait_ = pace_ != nullptr && pace_->waits(run.sequence);
        }
        progress_.start(program_);
        count_start();
    }

    // Executes all steps that are possible without waiting. True: at least one was.
    bool advance() noexcept;

    bool complete() const noexcept { return progress_.complete(); }

    // ---- comparison of calls; execute/match/call_match.h ----

    std::optional<Mismatch> find_mismatch() const noexcept {
        return receiver_ ? receiver_->find_mismatch() : match_.find_mismatch();
    }
    // Advertises the signature to this node and to the ranks of other nodes that the run waits for.
    void advertise_signature() noexcept;
    bool agrees_with_node() const noexcept { return match_.agrees_with_node(); }
    // True: a lane has stopped before data of a rank that made another call.
    bool stopped() const noexcept { return match_.stopped(); }
    // True: completion proves that all ranks made the same call.
    bool proven_by_completion() const noexcept { return match_.proven_by_completion(); }
    // The run failed; it never completes.
    void mark_failed() noexcept { progress_.mark_failed(); }

    // Ends a completed run; releases its slot.
    void settle() noexcept {
        progress_.settle();
        if (bindings_.message.queues != nullptr) settle_message();
        if (bindings_.sequences != nullptr) release_slot();
    }

    // ---- small operations: start(), advance() and settle(), with fewer branches ----

    bool is_small() const noexcept { return !small_.steps.empty(); }
    void start_small(const Run &run) noexcept {
        match_.start(run);
        context_.start(run);
        progress_.start_lane(small_.steps.size());
        count_start();
    }
    // Returns true if all steps have been executed.
    bool advance_small() noexcept;
    void settle_small() noexcept {
        progress_.settle();
        release_slot();
    }
    // True: every run that was started has been settled.
    bool settled() const noexcept { return progress_.settled(); }

    std::uint64_t runs() const noexcept { return progress_.runs(); }
    // The current run, as all ranks know it. Messages have none.
    RunId run_id() const noexcept {
        const Run &run = context_.run();
        return {bindings_.channel + run.channel, static_cast<std::uint32_t>(run.number)};
    }
    // The signature of every run, without the history of earlier calls.
    std::uint32_t signature() const noexcept { return bindings_.match.signature; }
    std::uint64_t flight_word() const noexcept { return bindings_.flight_word; }
    // True: local peers read the source of the next run where it is.
    bool registers_source() const noexcept { return registration_.contains(Region::source); }
    // True: they would, if it were in registered memory.
    bool can_register() const noexcept { return program_.uses_registered; }
    // For the owner: the number of this run in the flight recorder.
    std::uint64_t flight = 0;
    // For the owner: how long waits for this run have taken that the program interrupted.
    std::atomic<double> waited_seconds{0};

    bool is_message() const noexcept { return bindings_.is_message(); }
    // Messages: the rank to which, or from which, the next run passes one; and its tag.
    int peer() const noexcept {
        return receiver_ ? bindings_.message.source : bindings_.message.queues->peer;
    }
    std::int32_t tag() const noexcept {
        return receiver_ ? receiver_->tag() : static_cast<std::int32_t>(match_.tag());
    }
    // Receives: the message of the last run, which is complete; otherwise nullptr.
    const MessageHeader *message() const noexcept {
        return receiver_ ? &receiver_->message() : nullptr;
    }

    // The ranks that the run waits for now, ascending; or VESCOMM_ANY_SOURCE alone. The wait for
    // a forwarded block is also one for its sender, which may have put it long ago, unless
    // `directly`.
    std::vector<int> waiting_for(bool directly = false) const;
    // A clause for the error of a wait: why this rank itself keeps the run from completing, and
    // what to do. Empty: it waits for other ranks.
    std::string obstacle() const {
        return receiver_ && !settled() ? receiver_->obstacle() : std::string();
    }

private:
    std::byte *at(const Address &address) const noexcept { return program_.bases.at(address); }
    // The first of `bytes` that a step reads.
    const std::byte *at(const BoundSource &source, std::uint64_t bytes) noexcept;
    // False: the step is skipped in this run.
    bool applies(const BoundStep &step) const noexcept {
        return step.when == When::always ||
               (step.when == When::registered) == registration_.contains(step.array);
    }
    bool has_buffer(const BoundStep &step) noexcept;
    // True in the first runs, which no rank begins more than staging_slots ahead of the others: if
    // their programs differ from the first call on, the error comes after few calls.
    bool is_new() const noexcept { return progress_.runs() <= inline_slots; }
    // Observes anew whether a local peer has released the memory of the run.
    bool released_by(std::size_t local) const noexcept;
    // True: as far as this rank has observed, a local peer has released the slot of the run.
    bool is_known_free(std::size_t local) const noexcept {
        return bindings_.sequences != nullptr &&
               bindings_.sequences->free(local, context_.run().sequence,
                                         program_.uses_staging() || is_new());
    }
    // True: every rank of this node has released the slot of the run.
    bool slot_is_free() const noexcept;
    std::byte *at(const SmallAddress &address) const noexcept {
        return program_.bases.at({address.base, address.offset}) + context_.offset_of(address.slot);
    }
    void count_start() noexcept {
        waited_seconds.store(0, std::memory_order_relaxed);
        Counters::add(counters_.operations, std::uint64_t{1});
    }
    void release_slot() noexcept {
        bindings_.sequences->release(context_.run().sequence);
        inline_flags_.prefetch_next_but_one();
        inline_flags_.publish_releases();
    }
    bool advance_lanes() noexcept;
    void settle_message() noexcept;
    bool ready(const BoundStep &step) noexcept;
    bool ready_to_go_on(const BoundStep &wait) noexcept;
    void execute(const BoundLane &lane, const BoundStep &step) noexcept;
    void acquired() noexcept;
    void take_message() noexcept;
    void signal(const BoundStep &step) noexcept;
    void put(const BoundStep &step) noexcept;
    // A copy or a reduction.
    [[gnu::noinline]] void move(const BoundLane &lane, const BoundStep &step) noexcept;

    Bindings bindings_;
    RunContext context_;
    Program program_;
    ArrayRegistration registration_;
    CallMatch match_;
    InlineFlags inline_flags_;
    std::optional<MessageReceiver> receiver_;
    Counters &counters_;
    ElementLoops loops_;
    RunProgress progress_;
    const SmallProgram small_;
    OneWayPace *const pace_;  // nullptr: this rank does not put eagerly without a wait
    bool eager_puts_wait_ = false;  // in this run, for their receivers
};

}  // namespace vescomm::internal

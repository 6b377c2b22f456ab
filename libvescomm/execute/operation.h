// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "execute/bindings.h"
#include "execute/kernels.h"
#include "schedule/schedule.h"

namespace vescomm {

// What the operations of a communicator did, for vescomm_comm_count().
struct Counters {
    std::atomic<std::uint64_t> operations{0}, bytes_written{0}, bytes_reduced{0}, bytes_sent{0},
        sleeps{0};
    std::atomic<double> busy_seconds{0}, waiting_seconds{0};
};

// A run of an operation: which one it is, and when it may begin.
struct Run {
    std::uint64_t number = 1;  // on its channel, from 1; the same on every rank
    // How often everyone on this node must have released the memory before it may be overwritten.
    std::uint64_t releases = 0;
    // Of the staging buffer; the slot is also added to the channels of Bindings.
    std::uint32_t slot = 0;
    // Changes the digest of the signature: what was called earlier and not compared. 0: nothing.
    std::uint32_t history = 0;
    std::uint64_t turn = 0;
};

// A schedule bound to memory and transports, made once and run many times: THE executor. It knows
// no collective and no algorithm.
//
// Threads: the owner serialises all calls. Zone: per operation; start() and advance() allocate
// nothing, and per byte they only call kernels.
class Operation {
public:
    // Throws Error when a step cannot be done: no conversion between two types, say.
    Operation(const Schedule &schedule, const Bindings &bindings, Counters &counters);

    // Before the next run: the caller's arrays are elsewhere now; their pieces are as long as ever.
    void move_arrays(std::span<const Piece> source, std::span<const Piece> output);

    void start(const Run &run) noexcept;

    // Does whatever can be done without waiting; true when anything was.
    bool advance() noexcept;

    bool complete() const noexcept;

    // Two ranks that have called different things in the place of this run, as far as this one
    // knows, and what: usually this one and another; where it relays, two others.
    struct Disagreement {
        int rank = no_rank;
        std::uint32_t called = 0;
        int other = no_rank;
        std::uint32_t other_called = 0;  // 0: nothing that is for `rank`, or from it
    };
    std::optional<Disagreement> disagreement() const noexcept;
    // Tells this node what was called here, and those of other nodes for whom it waits now: when
    // all that wait for one another have called the same, they do not wait for ever. Puts and eager
    // flags tell it, too.
    void advertise_signature() noexcept;
    // This run has come to nothing, and will never be complete.
    void mark_failed() noexcept { failed_ = true; }

    // A lane has stopped at what a rank did that has called something else.
    bool stopped() const noexcept { return stopped_; }

    // Whether completion proves that all ranks had called the same.
    bool agreed() const noexcept { return agreed_; }
    // It takes a message, which its sender may have sent as something else.
    bool receives() const noexcept {
        return bindings_.queues != nullptr && bindings_.queues->receives;
    }

    // Once for each run that is complete: others may have its slot.
    void settle() noexcept;
    // It has been, or has never been started.
    bool settled() const noexcept { return settled_; }

    std::uint64_t runs() const noexcept { return runs_; }
    // Of every run, without the history.
    std::uint32_t signature() const noexcept { return bindings_.signature; }
    bool has_history() const noexcept { return run_.history != 0; }
    std::uint64_t flight_word() const noexcept { return bindings_.flight_word; }
    // Of the owner's: the number of this run in the flight recorder.
    std::uint64_t flight = 0;

    // The ranks that the operation is waiting for now, ascending.
    std::vector<int> waiting_for() const;

private:
    // Bases move from run to run, what lies at a base does not.
    struct Address {
        std::uint32_t base = 0;
        std::uint64_t offset = 0;
    };
    struct BoundStep {
        Action action;
        bool timed = false;  // large enough to look at the clock
        bool takes_long = false;  // and to look at the wires afterwards
        bool in_slot = false;  // a put into the staging buffer
        bool eager = false;  // see Step
        bool compares = false;  // a wait, for one who may have called something else
        bool tells = false;  // a signal to another node, which compares
        bool conditional = false;  // see Step
        std::uint32_t credit_flag = 0, credit = 0;  // of a put that may come early
        std::uint32_t flag = 0;
        std::uint32_t value = 0;
        int peer = 0;
        std::uint32_t relay = 0;  // see Step
        Transport *transport = nullptr;
        std::size_t count = 0;
        std::uint64_t bytes = 0;  // that are written, read by a reduction, or put
        vescomm_type_t to_type = 0;
        vescomm_type_t from_type = 0;
        Address to = {};
        Address from = {};
        // Of a reduction: in BoundLane::sources, a partial sum that comes first, if there is one,
        // then contributions, then partial sums.
        std::uint32_t sources = 0, contributions = 0, partials = 0;
        bool started = false;
        bool finish = false;
        MemoryId memory = 0;
        int final_peer = no_rank;  // see Step
        std::uint64_t offset_bytes = 0;
    };
    struct BoundLane {
        std::vector<BoundStep> steps;
        std::vector<Address> sources;
        std::size_t at = 0;
        std::size_t told = 0;  // the step at which it last told for whom it waits
    };

    const RegionBinding &binding(Region region) const;
    std::uint32_t first_base(Region region) const;
    void find_bases();
    std::ptrdiff_t bytes_between_slots(std::uint32_t from, std::uint32_t to) const noexcept;
    void move_to(std::uint32_t slot) noexcept;
    Address address(const Place &place) const;
    void bind(BoundLane &lane, const Lane &from, const Step &step);
    static void make_puts_eager(BoundLane &lane);
    void bind_whole(BoundLane &lane, const Lane &from, const Step &step);
    // Where the pieces of source or output end, and in which of them a place lies.
    const std::vector<std::int64_t> &piece_ends(Region region) const;
    std::size_t piece_at(const Place &place) const;
    // Elements from `place` on that lie in one piece, `count` at most.
    std::int64_t together(const Place &place, std::int64_t count) const;

    std::byte *at(const Address &address) const noexcept {
        return bases_[address.base] + address.offset;
    }
    bool ready(const BoundStep &step) noexcept;
    void execute(const BoundLane &lane, const BoundStep &step) noexcept;
    void reduce(const BoundLane &lane, const BoundStep &step) noexcept;
    SignalName signal(std::uint32_t flag) const noexcept {
        return {bindings_.channel + run_.slot, flag};
    }
    // The same, raised by a peer.
    SignalName heard(std::uint32_t flag) const noexcept {
        return {heard_channel_ + run_.slot, flag};
    }
    bool released_by(std::size_t local) const noexcept;
    bool has_slot(const BoundStep &step) const noexcept;
    void acquired() noexcept;
    bool waits_for_all_flags(const Schedule &schedule) const;
    void advertise_to_node() noexcept;
    void raise_inline_flag() noexcept;
    InlineFlag &inline_flag_of(std::size_t local) const noexcept {
        return *reinterpret_cast<InlineFlag *>(bases_[first_slotted_ + local] - sizeof(InlineFlag));
    }
    // Whether all of the node have said what they want of whom, and whether anyone wants something
    // of this one.
    // What was called here, for a peer to compare, and what that has called.
    std::uint32_t signature_for(int peer) const noexcept;
    std::uint32_t signature_of(int peer) const noexcept;
    bool has_advertised_mask(int member) const noexcept;
    bool has_all_masks() noexcept;
    bool any_local_receives(int peer) const noexcept;
    // Whether `step.peer` has sent what the ranks of this node want of it.
    bool ends_agree(const BoundStep &step) noexcept;
    const std::uint32_t *receive_mask_of(int member) const noexcept {
        return reinterpret_cast<const std::uint32_t *>(in_slot(member, bindings_.masks_offset));
    }
    std::byte *in_slot(int member, std::uint64_t offset) const noexcept {
        const RegionBinding &staging = bindings_.staging;
        return staging.mapping->base(member) + run_.slot * staging.slot_bytes + offset;
    }
    void tell(int peer) noexcept;
    void put_called(const BoundStep &step) noexcept;
    // What a rank of the node says of its exchange with another one.
    std::atomic_ref<std::uint32_t> pair_digest(int of, int with) const noexcept;
    std::uint64_t at_this_run(std::uint32_t value) const noexcept {
        return (run_.number << 32) | value;
    }

    Bindings bindings_;
    std::vector<int> locals_;
    Counters &counters_;
    const Kernels &kernels_ = kernels();
    std::vector<std::int64_t> source_ends_, output_ends_;
    std::vector<std::byte *> bases_;
    std::size_t first_slotted_ =
        0;  // from here on they are in the slot: the staging buffer, then sums
    std::uint32_t slot_ = 0;
    bool inlines_ = false;  // the schedule uses inline_flag
    bool agreed_ = false;
    // The node is told what was called once the slot is acquired; of a message, beside its first
    // flag, in the same line of cache.
    bool advertises_at_once_ = false, advertises_with_flag_ = false;
    std::uint32_t heard_channel_ = 0;
    std::size_t local_ = 0;  // this rank among those of its node
    SignalBoard *board_ = nullptr;
    std::vector<BoundLane> lanes_;
    std::vector<const void *> pointers_;  // of a reduction's sources
    std::vector<double> factors_;  // as many
    std::uint64_t runs_ = 0;
    Run run_;
    std::uint32_t signature_ = 0;  // of this run
    bool failed_ = false, stopped_ = false;
    bool settled_ = true;
    std::size_t lanes_under_way_ = 0;
    // Has this run its slot, and does this node know what was called?
    bool acquired_ = false, advertised_ = false;
    std::vector<std::uint8_t> receive_mask_;  // of the schedule
    bool masks_known_ = false;  // of all ranks of the node
    std::optional<Disagreement> at_forwarder_;
    std::vector<std::uint64_t> called_through_;  // by other end: what is put there, in this run
    std::atomic<std::uint32_t> puts_pending_{0};
};

}  // namespace vescomm

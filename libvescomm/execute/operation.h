// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "schedule/schedule.h"
#include "topology/nodes.h"
#include "transport/transport.h"

namespace vescomm {

// Where one region of a schedule is in this process.
struct RegionBinding {
    vescomm_type_t type = VESCOMM_F32;
    // Buffer and scratch: a memory, and the first byte of the region in every slab.
    MemoryId memory = 0;
    std::shared_ptr<Mapping> mapping;
    std::uint64_t offset_bytes = 0;
    // Source and output: the caller's own array.
    std::byte *own = nullptr;
};

// All that turns a schedule, which is a value, into an operation on real memory.
struct Bindings {
    int rank = 0;
    Nodes nodes;
    RegionBinding source, buffer, output, scratch;
    std::uint32_t channel = 0;  // of the operation's flags
    std::uint32_t release_channel = 0;  // of the buffer's memory: who has let go how often
    int divisor = 1;  // of a finished reduction
    Transport *home = nullptr;  // maps the ranks of this node
    std::vector<Transport *> transports;  // by peer
};

// What the operations of a communicator did, for vescomm_comm_count().
struct Counters {
    std::atomic<std::uint64_t> operations{0}, bytes_written{0}, bytes_reduced{0}, bytes_sent{0},
        sleeps{0};
    std::atomic<double> busy_seconds{0}, waiting_seconds{0};
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

    // Begins the next run. `releases`: how often everyone on this node must have released the
    // buffer before it may be overwritten.
    void start(std::uint64_t releases) noexcept;

    // Does whatever can be done without waiting; true when anything was.
    bool advance() noexcept;

    bool complete() const noexcept;
    std::uint64_t runs() const noexcept { return runs_; }

    // The ranks that the operation is waiting for now, ascending.
    std::vector<int> waiting_for() const;

private:
    struct BoundStep {
        Action action;
        std::uint32_t value = 0;
        SignalName signal;
        int peer = 0;
        Transport *transport = nullptr;
        void *to = nullptr;
        vescomm_type_t to_type = 0;
        vescomm_type_t from_type = 0;
        std::size_t count = 0;
        std::vector<const void *> from = {};  // of the buffer's type
        std::vector<const void *> partials = {};  // accumulators, in scratch
        int divisor = 1;
        MemoryId memory = 0;
        std::uint64_t offset_bytes = 0;
        std::uint64_t bytes = 0;
    };
    struct BoundLane {
        std::vector<BoundStep> steps;
        std::size_t at = 0;
    };

    const RegionBinding &binding(Region region) const;
    std::byte *pointer(const Place &place) const;
    BoundStep bind(const Step &step) const;

    bool ready(const BoundStep &step) const noexcept;
    void execute(const BoundStep &step) noexcept;
    void reduce(const BoundStep &step) noexcept;
    bool released_by(int peer) const noexcept;
    std::uint64_t at_this_run(std::uint32_t value) const noexcept { return (runs_ << 32) | value; }

    Bindings bindings_;
    std::vector<int> locals_;
    Counters &counters_;
    std::vector<BoundLane> lanes_;
    std::uint64_t runs_ = 0;
    std::uint64_t releases_ = 0;
    std::atomic<std::uint32_t> puts_pending_{0};
};

}  // namespace vescomm

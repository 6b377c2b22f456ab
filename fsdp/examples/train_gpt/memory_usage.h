// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Memory of ranks and nodes in bytes: the allocations of the engine, and the memory of the process
// according to the operating system.
#pragma once

#include <cstdint>
#include <vector>

#include "vescomm/fsdp.h"
#include "vescomm/vescomm.hpp"

namespace train_gpt {

// A value is 0 if the system does not report it.
struct ProcessMemory {
    // Proportional set size: memory that n processes share counts as one n-th, so that the sum over
    // the ranks of a node is the memory of the node.
    double proportional = 0;
    // Peak resident set, shared memory included.
    double peak = 0;
    double before = 0;  // proportional set size before the model was made
};

// Reads /proc/self/smaps_rollup and /proc/self/status. Cost: a walk over the page tables.
ProcessMemory process_memory();

// Memory of a rank, or of all ranks of a node together.
struct Holdings {
    double shards = 0;
    double gradients = 0;  // shards, slots and scratch
    double gradient_slots = 0;  // and scratch
    double optimizer = 0;
    double slabs = 0;  // parameter slots: set for a node, 0 for a rank
    double replicated = 0;  // memory without sharding
    double activations = 0;  // upper limit; not sharded, and not part of together()
    ProcessMemory process;

    double together() const { return shards + gradients + optimizer + slabs; }
    double saved() const { return replicated / together(); }
};

struct MemoryUse {
    std::vector<Holdings> ranks;
    std::vector<Holdings> nodes;

    // Returns the largest value of each member.
    static Holdings largest(const std::vector<Holdings> &all);
};

// Gathers the memory of all ranks. All processes exist while they are measured. Collective.
// `before`: the proportional set size of this process before it made the model.
MemoryUse measure_memory(const vescomm::Communicator &comm, const vescomm_fsdp_report_t &report,
                         std::size_t activation_bytes, double before);

}  // namespace train_gpt

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Who holds how much: what the engine says it allocated, and what the operating system says this
// process has. All in bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "vescomm/fsdp.hpp"
#include "vescomm/vescomm.hpp"

namespace train_gpt {

// 0 where the system does not say.
struct ProcessMemory {
    // Proportional set size: memory that n processes share counts as one n-th, so that the sum over
    // the ranks of a node is what the node really holds.
    double proportional = 0;
    // The most that was ever resident, memory that others share included.
    double peak = 0;
};

// From /proc/self/smaps_rollup and /proc/self/status. Cost: a walk over the page tables.
ProcessMemory process_memory();

// What a rank, or the ranks of a node together, hold.
struct Holdings {
    double shards = 0;
    double gradients = 0;  // shards and slots
    double gradient_slots = 0;
    double optimizer = 0;
    double slabs = 0;  // parameter slots: of a node, not of a rank
    double replicated = 0;  // what it would be if nothing were sharded
    double activations = 0;  // most that may be touched; not sharded, and in no sum
    ProcessMemory process;

    double together() const { return shards + gradients + optimizer + slabs; }
    double saved() const { return replicated / together(); }
};

struct MemoryUse {
    std::vector<Holdings> ranks;
    std::vector<Holdings> nodes;

    // Each number the largest of its kind.
    static Holdings largest(const std::vector<Holdings> &all);
};

// Asks every rank. Collective; all processes are alive while they are measured.
MemoryUse measure_memory(const vescomm::Communicator &comm,
                         const vescomm::fsdp::MemoryReport &report, std::size_t activation_bytes);

}  // namespace train_gpt

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Chooses the preset with the least traffic among those that fit in memory. Pure.
#pragma once

#include <string>
#include <vector>

#include "fsdp/spec/spec.h"

namespace vescomm::fsdp {

// Ranks and their nodes.
struct Machine {
    int ranks = 1;
    int node_ranks = 1;  // consecutive ranks on each node
};

// A preset, on a machine.
struct Candidate {
    std::string preset;
    vescomm_fsdp_report_t report;  // of the rank with the largest peak
    std::uint64_t node_bytes = 0;  // as vescomm_fsdp_recommendation_t.node_bytes_per_step
    std::uint64_t wire_bytes = 0;  // as vescomm_fsdp_recommendation_t.wire_bytes_per_step

    // Bytes of the memory that is limited: that of the device, if the engine uses one.
    std::uint64_t needed_bytes() const {
        return report.device_bytes > 0 ? report.device_bytes : report.peak_bytes;
    }
};

// The presets for a number of ranks, in the order that decides between equal ones.
std::vector<std::string> presets_for(int ranks);

// Plans the presets that the specification permits, in the order of presets_for(). Throws Failure
// if it permits none.
std::vector<Candidate> candidates(const Spec &spec, const Machine &machine, int micro_batches);

// Returns the best of the candidates that fit. Throws Failure if none does.
const Candidate &recommend(const std::vector<Candidate> &all, std::uint64_t memory_bytes);

}  // namespace vescomm::fsdp

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Hashes of masters and states, by which ranks that hold the same shard compare it: replicas, and a
// rank with the holder of its partner copy. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fsdp/engine/shards.h"
#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp {

// Returns a hash of the masters and one of each state of every bucket of a shard.
std::vector<std::uint64_t> hash_values(const ModelPlan &plan, const Shards &shards, int rank);

// The values that a rank holds, as ranks exchange them.
struct HeldValues {
    std::vector<std::uint64_t> own;  // of hash_values()
    std::optional<int> copied_rank;  // whose shard the rank has a copy of
    std::vector<std::uint64_t> copy;  // of hash_values() for the copied rank

    // Every rank of an engine has the same number of words.
    std::vector<std::uint64_t> words() const;
    static HeldValues of_words(std::span<const std::uint64_t> words);
};

// Returns "" if all ranks that hold a shard have the same values, or a sentence that names the unit
// and the ranks: the one that differs from most others, or two of them. One entry for each rank.
std::string compare_values(const ModelPlan &plan, std::span<const HeldValues> of_ranks,
                           std::span<const std::string> unit_names);

}  // namespace vescomm::fsdp

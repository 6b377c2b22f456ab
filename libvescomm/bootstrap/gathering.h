// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "bootstrap/wire.h"

namespace vescomm::internal {

// State of one group's all-gather: Gathering at the hub, GatherReader at a member. Both are pure.
//
//     member    contribution {sequence, bytes, label}, data ...   ->  hub
//     hub       result {sequence}, data ...                       ->  every member
//               the data are the sizes of all contributions (64 bits each), then the contributions
//
// Ranks are those of the group.

// Limit for the sum of all contributions: this is the control plane.
constexpr std::uint64_t max_gather_bytes = std::uint64_t{1} << 30;

struct ContributionHead {
    std::uint64_t sequence = 0;  // number of the all-gather on its communicator, from 1
    std::uint64_t bytes = 0;
    std::string label;
};

std::string encode(const ContributionHead &head);
// Returns nothing when the rest of the payload is malformed.
std::optional<ContributionHead> read_contribution_head(WireReader &reader);

// "rank 3", "ranks 1, 2 and 5", "ranks 0, 1, …, 15 and 112 more".
std::string list_ranks(std::span<const int> ranks);
// The label of a rank whose call has failed, followed by the reason. All of them are the same call.
constexpr std::string_view failed_call_label = "nothing, because its call failed: ";

// True if two labels are those of the same call.
bool is_same_call(std::string_view first, std::string_view second);

// A label for a sentence: quoted, and shortened when it is very long.
std::string quote(std::string_view label);

class Gathering {
public:
    explicit Gathering(int ranks) : parts_(ranks) {}

    // begin() and add() return the failure of the group that the call causes, if any.
    std::optional<Error> begin(int rank, ContributionHead head);
    std::optional<Error> add(int rank, std::string_view bytes);

    bool complete() const { return finished_ == static_cast<int>(parts_.size()); }
    bool begun() const { return first_ >= 0; }
    bool finished(int rank) const { return parts_[rank].finished; }
    // The first rank that contributed; its label is the expected one.
    int first() const { return first_; }
    const std::string &label() const { return parts_[first_].head.label; }
    std::uint64_t sequence() const { return sequence_; }
    std::vector<int> missing() const;

    // Returns the contributions of a complete all-gather, by rank, and begins the next one.
    std::vector<std::string> take();

private:
    struct Part {
        bool begun = false;
        bool finished = false;
        ContributionHead head;
        std::string bytes;
    };

    void finish_if_whole(Part &part);

    std::vector<Part> parts_;
    std::uint64_t sequence_ = 1;
    std::uint64_t total_bytes_ = 0;
    int first_ = -1;
    int finished_ = 0;
};

// The table of sizes that precedes the contributions.
std::string encode_sizes(std::span<const std::string> contributions);

// Decodes the data of a result from pieces of any size.
class GatherReader {
public:
    explicit GatherReader(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}

    // Returns false when the bytes are malformed.
    bool add(std::string_view bytes);
    bool complete() const;
    std::vector<std::string> take() { return std::move(contributions_); }

private:
    bool read_sizes();
    void skip_whole();

    std::size_t ranks_;
    std::string table_;
    std::vector<std::uint64_t> sizes_;
    std::vector<std::string> contributions_;
    std::size_t current_ = 0;
};

}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/gathering.h"

#include <fmt/format.h>

#include <algorithm>

#include "bootstrap/wire.h"

namespace vescomm::internal {

namespace {

// Labels hold names that users choose. Bytes beyond this limit are neither sent nor compared.
constexpr std::size_t compared_label_bytes = 60000;
constexpr std::size_t shown_label_bytes = 200;
constexpr std::size_t shown_ranks = 16;
// Limit of the memory reserved for a contribution in advance; more is reserved as bytes arrive.
constexpr std::uint64_t trusted_bytes = 1 << 20;

Error defect(int rank) {
    return Error(VESCOMM_ERROR_INTERNAL,
                 fmt::format("rank {} broke the protocol of the control plane; see whether all "
                             "ranks run the same vescomm, and report this if they do",
                             rank));
}

}  // namespace

std::string encode(const ContributionHead &head) {
    std::string payload;
    put_number(payload, head.sequence);
    put_number(payload, head.bytes);
    payload.append(head.label, 0, compared_label_bytes);
    return payload;
}

std::optional<ContributionHead> read_contribution_head(WireReader &reader) {
    ContributionHead head;
    head.sequence = reader.number<std::uint64_t>();
    head.bytes = reader.number<std::uint64_t>();
    head.label = reader.rest();
    if (!reader.good()) return std::nullopt;
    return head;
}

std::string list_ranks(std::span<const int> ranks) {
    if (ranks.empty()) return "no rank";
    if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
    std::string text = fmt::format("ranks {}", ranks[0]);
    const std::size_t shown = std::min(ranks.size() - 1, shown_ranks);
    for (std::size_t i = 1; i < shown; ++i) text += fmt::format(", {}", ranks[i]);
    if (shown == ranks.size() - 1) return text + fmt::format(" and {}", ranks.back());
    return text + fmt::format(" and {} more", ranks.size() - shown);
}

bool is_same_call(std::string_view first, std::string_view second) {
    return first == second ||
           (first.starts_with(failed_call_label) && second.starts_with(failed_call_label));
}

std::string quote(std::string_view label) {
    const bool cut = label.size() > shown_label_bytes;
    return fmt::format("\"{}{}\"", label.substr(0, shown_label_bytes), cut ? "…" : "");
}

std::optional<Error> Gathering::begin(int rank, ContributionHead head) {
    Part &part = parts_[rank];
    if (part.begun || head.sequence != sequence_) return defect(rank);
    head.label.resize(std::min(head.label.size(), compared_label_bytes));
    if (first_ >= 0 && !is_same_call(head.label, label()))
        return Error(
            VESCOMM_ERROR_MISMATCH,
            fmt::format("collective call {} differs between ranks: rank {} calls {}, rank {} "
                        "calls {}; all ranks must make the same calls in the same order",
                        sequence_, first_, quote(label()), rank, quote(head.label)));
    // Compared before the addition, so that the sum cannot overflow.
    if (head.bytes > max_gather_bytes - total_bytes_)
        return Error(
            VESCOMM_ERROR_INVALID_ARGUMENT,
            fmt::format("{} would gather {} bytes from rank {} on top of {} from others; "
                        "the control plane takes {} in all",
                        quote(head.label), head.bytes, rank, total_bytes_, max_gather_bytes));
    if (first_ < 0) first_ = rank;
    total_bytes_ += head.bytes;
    part.begun = true;
    part.bytes.reserve(std::min(head.bytes, trusted_bytes));
    part.head = std::move(head);
    finish_if_whole(part);
    return std::nullopt;
}

std::optional<Error> Gathering::add(int rank, std::string_view bytes) {
    Part &part = parts_[rank];
    if (!part.begun || part.finished || bytes.size() > part.head.bytes - part.bytes.size())
        return defect(rank);
    part.bytes.append(bytes);
    finish_if_whole(part);
    return std::nullopt;
}

void Gathering::finish_if_whole(Part &part) {
    if (part.bytes.size() != part.head.bytes) return;
    part.finished = true;
    ++finished_;
}

std::vector<int> Gathering::missing() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < static_cast<int>(parts_.size()); ++rank)
        if (!parts_[rank].finished) ranks.push_back(rank);
    return ranks;
}

std::vector<std::string> Gathering::take() {
    std::vector<std::string> contributions;
    contributions.reserve(parts_.size());
    for (Part &part : parts_) {
        contributions.push_back(std::move(part.bytes));
        part = Part{};
    }
    ++sequence_;
    total_bytes_ = 0;
    first_ = -1;
    finished_ = 0;
    return contributions;
}

std::string encode_sizes(std::span<const std::string> contributions) {
    std::string table;
    for (const std::string &contribution : contributions)
        put_number(table, std::uint64_t{contribution.size()});
    return table;
}

bool GatherReader::add(std::string_view bytes) {
    if (sizes_.empty()) {
        const std::size_t count = std::min(bytes.size(), 8 * ranks_ - table_.size());
        table_.append(bytes.substr(0, count));
        bytes.remove_prefix(count);
        if (table_.size() < 8 * ranks_) return true;
        if (!read_sizes()) return false;
    }
    while (!bytes.empty()) {
        if (current_ == ranks_) return false;
        std::string &contribution = contributions_[current_];
        const std::size_t count =
            std::min<std::uint64_t>(bytes.size(), sizes_[current_] - contribution.size());
        contribution.append(bytes.substr(0, count));
        bytes.remove_prefix(count);
        skip_whole();
    }
    return true;
}

bool GatherReader::read_sizes() {
    WireReader reader(table_);
    std::uint64_t total = 0;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
        sizes_.push_back(reader.number<std::uint64_t>());
        if (sizes_.back() > max_gather_bytes - total) return false;
        total += sizes_.back();
    }
    contributions_.resize(ranks_);
    for (std::size_t rank = 0; rank < ranks_; ++rank)
        contributions_[rank].reserve(std::min(sizes_[rank], trusted_bytes));
    skip_whole();
    return true;
}

void GatherReader::skip_whole() {
    while (current_ < ranks_ && contributions_[current_].size() == sizes_[current_]) ++current_;
}

bool GatherReader::complete() const {
    return !sizes_.empty() && current_ == ranks_;
}

}  // namespace vescomm::internal

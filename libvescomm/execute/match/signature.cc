// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "execute/match/signature.h"

#include <algorithm>

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/types.h"

namespace vescomm::internal {

namespace {

constexpr int collective_bits = 4, type_bits = 5, op_bits = 4;
constexpr int collective_at = 32 - collective_bits;
constexpr int type_at = collective_at - type_bits;
constexpr int digest_bits = type_at - op_bits;
static_assert(last_type < 1 << type_bits && last_op < 1 << op_bits);
constexpr std::uint32_t digest_mask = (1u << digest_bits) - 1;
// A message signature holds a count below this as it is, and a larger one as a digest.
constexpr std::uint32_t large = 1u << (type_at - 1);

// The upper bits, which collectives and messages share.
constexpr std::uint32_t upper(Collective collective, vescomm_type_t type) {
    return (static_cast<std::uint32_t>(collective) + 1) << collective_at |
           static_cast<std::uint32_t>(type) << type_at;
}

}  // namespace

Signature::Signature(const Problem &problem, std::string_view algorithm, vescomm_type_t type,
                     vescomm_op_t op, double factor, std::uint64_t more) {
    XXH64_hash_t digest =
        XXH3_64bits_withSeed(problem.cuts.data(), problem.cuts.size() * sizeof(std::int64_t),
                             XXH64_hash_t(problem.root));
    digest ^= XXH3_64bits(&factor, sizeof factor) ^ XXH3_64bits(algorithm.data(), algorithm.size());
    digest ^= more;
    bits_ = upper(problem.collective, type) | static_cast<std::uint32_t>(op) << digest_bits |
            (static_cast<std::uint32_t>(digest) & digest_mask);
}

Signature Signature::of_message(vescomm_type_t type, std::int64_t count) {
    const std::uint32_t shown =
        count < large
            ? static_cast<std::uint32_t>(count)
            : large | (static_cast<std::uint32_t>(XXH3_64bits(&count, sizeof count)) & (large - 1));
    return Signature(upper(Collective::send, type) | shown);
}

std::optional<std::uint64_t> Signature::message_bytes() const {
    const auto type = static_cast<vescomm_type_t>(bits_ >> type_at & ((1u << type_bits) - 1));
    const std::uint32_t shown = bits_ & (2 * large - 1);
    const bool is_type = type >= VESCOMM_F32 && type <= last_type;
    if (bits_ >> collective_at != upper(Collective::send, 0) >> collective_at || !is_type ||
        shown >= large)
        return {};
    return shown * size_of(type);
}

std::uint32_t Signature::history(std::uint32_t before, std::uint32_t bits) {
    const std::uint64_t both = std::uint64_t{before} << 32 | bits;
    return static_cast<std::uint32_t>(XXH3_64bits(&both, sizeof both)) & digest_mask;
}

bool Signature::differ_in_digest(std::uint32_t a, std::uint32_t b) {
    return a != b && (a | digest_mask) == (b | digest_mask);
}

std::string Signature::text() const {
    const auto collective = static_cast<Collective>((bits_ >> collective_at) - 1);
    const std::string type =
        name_of_type(static_cast<vescomm_type_t>(bits_ >> type_at & ((1u << type_bits) - 1)));
    if (collective == Collective::send) {
        const std::uint32_t shown = bits_ & (2 * large - 1);
        return shown < large
                   ? fmt::format("{} {}", shown, type)
                   : fmt::format("{} or more {} (digest {:06x})", large, type, shown - large);
    }
    const auto op = static_cast<vescomm_op_t>(bits_ >> digest_bits & ((1u << op_bits) - 1));
    return fmt::format("{} of {} ({}digest {:05x})", name_of(collective), type,
                       reduces(collective) ? name_of_op(op) + ", " : std::string(),
                       bits_ & digest_mask);
}

std::uint64_t digest_of_request(std::uint64_t number) {
    return XXH3_64bits(&number, sizeof number);
}

PairDigests pair_digests(const ArrayProblem &problem, int rank,
                         const std::vector<std::uint64_t> &boundaries) {
    if (problem.collective != Collective::all_to_all_v) return nullptr;
    std::vector<std::uint32_t> digests;
    for (int peer = 0; peer < problem.ranks(); ++peer) {
        const int low = std::min(rank, peer), high = std::max(rank, peer);
        const std::int64_t counts[] = {problem.exchange.count(low, high),
                                       problem.exchange.count(high, low)};
        XXH64_hash_t digest = XXH3_64bits(counts, sizeof counts);
        if (!boundaries.empty()) digest ^= boundaries[static_cast<std::size_t>(peer)];
        digests.push_back(static_cast<std::uint32_t>(digest) & digest_mask);
    }
    return std::make_shared<const std::vector<std::uint32_t>>(std::move(digests));
}

std::uint64_t add_call(std::uint64_t boundaries, std::span<const std::int64_t> counts) {
    return XXH3_64bits_withSeed(counts.data(), counts.size_bytes(), boundaries + 1);
}

std::uint64_t add_call(std::uint64_t boundaries, int rank, int peer, std::int64_t sent,
                       std::int64_t received) {
    const std::int64_t counts[] = {rank < peer ? sent : received, rank < peer ? received : sent};
    return add_call(boundaries, counts);
}

}  // namespace vescomm::internal

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

constexpr int digest_bits = 21;
constexpr std::uint32_t digest_mask = (1u << digest_bits) - 1;
// A message signature holds a count below this as it is, and a larger one as a digest.
constexpr std::uint32_t large = 1u << 23;

}  // namespace

Signature::Signature(const Problem &problem, std::string_view algorithm, vescomm_type_t type,
                     vescomm_op_t op, double factor) {
    XXH64_hash_t digest =
        XXH3_64bits_withSeed(problem.cuts.data(), problem.cuts.size() * sizeof(std::int64_t),
                             XXH64_hash_t(problem.root));
    digest ^= XXH3_64bits(&factor, sizeof factor) ^ XXH3_64bits(algorithm.data(), algorithm.size());
    bits_ = (static_cast<std::uint32_t>(problem.collective) + 1) << 28 |
            static_cast<std::uint32_t>(type) << 24 | static_cast<std::uint32_t>(op) << digest_bits |
            (static_cast<std::uint32_t>(digest) & digest_mask);
}

Signature Signature::of_message(vescomm_type_t type, std::int64_t count) {
    const std::uint32_t shown =
        count < large
            ? static_cast<std::uint32_t>(count)
            : large | (static_cast<std::uint32_t>(XXH3_64bits(&count, sizeof count)) & (large - 1));
    return Signature((static_cast<std::uint32_t>(Collective::send) + 1) << 28 |
                     static_cast<std::uint32_t>(type) << 24 | shown);
}

std::uint32_t Signature::history(std::uint32_t before, std::uint32_t bits) {
    const std::uint64_t both = std::uint64_t{before} << 32 | bits;
    return static_cast<std::uint32_t>(XXH3_64bits(&both, sizeof both)) & digest_mask;
}

bool Signature::differ_in_digest(std::uint32_t a, std::uint32_t b) {
    return a != b && (a | digest_mask) == (b | digest_mask);
}

std::string Signature::text() const {
    const auto collective = static_cast<Collective>((bits_ >> 28) - 1);
    if (collective == Collective::send) {
        const std::string type = name_of_type(static_cast<vescomm_type_t>(bits_ >> 24 & 15));
        const std::uint32_t shown = bits_ & (2 * large - 1);
        return shown < large
                   ? fmt::format("{} {}", shown, type)
                   : fmt::format("{} or more {} (digest {:06x})", large, type, shown - large);
    }
    std::string text = fmt::format("{} of {}", name_of(collective),
                                   name_of_type(static_cast<vescomm_type_t>(bits_ >> 24 & 15)));
    const auto op = static_cast<vescomm_op_t>(bits_ >> digest_bits & 7);
    text += fmt::format(" ({}digest {:06x})",
                        reduces(collective) ? name_of_op(op) + ", " : std::string(),
                        bits_ & digest_mask);
    return text;
}

PairDigests pair_digests(const ArrayProblem &problem, int rank) {
    if (problem.collective != Collective::all_to_all_v) return nullptr;
    std::vector<std::uint32_t> digests;
    for (int peer = 0; peer < problem.ranks(); ++peer) {
        const int low = std::min(rank, peer), high = std::max(rank, peer);
        const std::int64_t counts[] = {problem.exchange.count(low, high),
                                       problem.exchange.count(high, low)};
        digests.push_back(static_cast<std::uint32_t>(XXH3_64bits(counts, sizeof counts)) &
                          digest_mask);
    }
    return std::make_shared<const std::vector<std::uint32_t>>(std::move(digests));
}

}  // namespace vescomm::internal

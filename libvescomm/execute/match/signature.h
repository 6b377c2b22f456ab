// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/problem.h"
#include "vescomm/vescomm.h"

namespace vescomm::internal {

// Digests of the calls that one operation executes for a group: ranks must begin a call where the
// others begin one. Zero and empty for a single call.
struct CallBoundaries {
    std::uint64_t counts = 0;  // of all calls
    std::vector<std::uint64_t> pairs;  // all_to_all_v: of the counts of this rank and each peer
    bool operator==(const CallBoundaries &) const = default;
};

// The signature of a call: 32 bits, so that it fits beside a flag. Different calls have different
// signatures unless their digests collide. The text of a signature describes the call.
//
//     │ collective + 1: 4 bits │ type: 5 bits │ op: 4 bits │ digest of the rest: 19 bits │
class Signature {
public:
    explicit Signature(std::uint32_t bits) : bits_(bits) {}
    // `more`: what else must be the same, CallBoundaries::counts or digest_of_request().
    Signature(const Problem &problem, std::string_view algorithm, vescomm_type_t type,
              vescomm_op_t op, double factor, std::uint64_t more = 0);

    // The signature of a point-to-point message.
    //
    //     │ send + 1: 4 bits │ type: 5 bits │ count, or the digest of a large one: 23 bits │
    static Signature of_message(vescomm_type_t type, std::int64_t count);

    // The length of a message. Nothing if the bits do not contain it: the message has 2^22
    // elements or more, or the bits are not those of a message.
    std::optional<std::uint64_t> message_bytes() const;

    // The digest of a history of signatures, extended by one signature.
    static std::uint32_t history(std::uint32_t before, std::uint32_t bits);
    // True: the two signatures differ in their digests alone.
    static bool differ_in_digest(std::uint32_t a, std::uint32_t b);

    std::uint32_t bits() const { return bits_; }
    // "all_reduce of f32 (max, digest 1f03a)", "10 f32".
    std::string text() const;

private:
    std::uint32_t bits_ = 0;
};

// The digest of a request on a buffer that shares its slots with calls on arrays and with other
// requests. `number`: the same on all ranks, another one for each of these requests.
std::uint64_t digest_of_request(std::uint64_t number);

// all_to_all_v: for each peer, a digest of the two counts that this rank and the peer exchange.
// nullptr: the operation is no all_to_all_v.
using PairDigests = std::shared_ptr<const std::vector<std::uint32_t>>;

// The digests of `rank`. Two ranks that agree on their counts have the same digest for each other.
// `boundaries`: CallBoundaries::pairs.
PairDigests pair_digests(const ArrayProblem &problem, int rank,
                         const std::vector<std::uint64_t> &boundaries = {});
// Extends a digest of CallBoundaries by the counts of one more call.
std::uint64_t add_call(std::uint64_t boundaries, std::span<const std::int64_t> counts);
// As above, by the counts that two ranks exchange: the same for both.
std::uint64_t add_call(std::uint64_t boundaries, int rank, int peer, std::int64_t sent,
                       std::int64_t received);

// The signature that a rank shows to `peer`.
inline std::uint32_t signature_for(int peer, std::uint32_t signature,
                                   const PairDigests &pairs) noexcept {
    return signature ^ (pairs ? (*pairs)[static_cast<std::size_t>(peer)] : 0);
}

}  // namespace vescomm::internal

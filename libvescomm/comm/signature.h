// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "execute/turns.h"
#include "schedule/problem.h"
#include "vescomm/vescomm.h"

namespace vescomm {

// What a rank has called, in so few bits that they travel with a flag: enough to see that two ranks
// have called different things (all but surely), and to say what each of them was.
//
//     │ collective + 1: 4 bits │ type: 4 bits │ op: 3 bits │ digest of the rest: 21 bits │
class Signature {
public:
    explicit Signature(std::uint32_t bits) : bits_(bits) {}
    Signature(const Problem &problem, std::string_view algorithm, vescomm_type_t type,
              vescomm_op_t op, double factor);

    // Of a message.
    //
    //     │ send + 1: 4 bits │ type: 4 bits │ count, or the digest of one that is larger: 24 bits │
    static Signature of_message(vescomm_type_t type, std::int64_t count);

    // A digest, as wide as that of a signature, of one more signature after a history of others.
    static std::uint32_t history(std::uint32_t before, std::uint32_t bits);
    // Whether two differ in their digests alone.
    static bool differ_in_digest(std::uint32_t a, std::uint32_t b);

    std::uint32_t bits() const { return bits_; }
    // "all_reduce of f32 (max, 1f03a)", "10 f32".
    std::string text() const;

private:
    std::uint32_t bits_ = 0;
};

// By peer, what `rank` and the peer exchange: a change of the digest of their signatures, the same
// on both if they expect what the other one has.
PairDigests pair_digests(const Problem &problem, int rank);

}  // namespace vescomm

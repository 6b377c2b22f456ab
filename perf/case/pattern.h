// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The input data and the expected results. An element's value depends on the rank that wrote it,
// its place in the buffer and the iteration, so stale, misplaced and foreign elements are detected.
// Values are whole numbers small enough that every sum is exact in its type.
//
// Values repeat after a prime number of elements, and the rank and the iteration only shift them.
// So one table serves all: input is written at the speed of memcpy, and a result is compared at the
// speed of memcmp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perf/case/case.h"

namespace vescomm::perf {

struct Verdict {
    std::int64_t wrong = 0;  // number of wrong elements
    std::string first;  // description of the first wrong element
};

// Values of one type that repeat through a buffer.
class Repeating {
public:
    static constexpr std::int64_t period = 1021;  // prime: detects displacements by powers of two

    // `values` has one value for each place of the period.
    Repeating(const Type &type, const std::vector<std::int64_t> &values);

    // Write or compare an extent. Element e has the value of place (e + shift) % period. The first
    // element of the extent is at `to` or `found`.
    void write(Extent extent, std::int64_t shift, std::byte *to) const;
    void compare(Extent extent, std::int64_t shift, const std::byte *found, double tolerance,
                 Verdict &verdict) const;

private:
    template <typename Act>
    void each(Extent extent, std::int64_t shift, Act &&act) const;
    void look_at(std::int64_t element, const std::byte *expected, const std::byte *found,
                 double tolerance, Verdict &verdict) const;

    const Type &type_;
    std::int64_t bytes_;
    std::vector<std::byte> table_;
};

// The data of one case on one rank. The row of the collective defines input and output.
class Pattern {
public:
    Pattern(const Case &what, int rank);

    void write_input(std::uint64_t round, std::byte *input) const;
    Verdict verify(std::uint64_t round, const std::byte *output) const;

private:
    Case what_;
    int rank_;
    Extent input_;
    Extent output_;
    Repeating written_;
    std::optional<Repeating> expected_;  // set if the values of ranks are combined
    double tolerance_ = 0;  // relative
};

}  // namespace vescomm::perf

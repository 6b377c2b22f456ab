// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The data that is measured, and what must come out of it. An element's value depends on the rank
// that wrote it, its place in the buffer and the iteration, so what is stale, misplaced or another
// rank's is found. Values are whole numbers so small that every sum is exact in its type.
//
// Values repeat after a prime number of elements, and a rank or an iteration only shifts them: one
// table serves all, input is written at the speed of memcpy, and a result compared at memcmp's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perf/case/case.h"

namespace vescomm::perf {

struct Verdict {
    std::int64_t wrong = 0;  // elements
    std::string first;  // the first of them in words
};

// Values of one type that repeat through a buffer.
class Repeating {
public:
    static constexpr std::int64_t period = 1021;  // prime: what lands a power of two away shows

    // `values` has one for each place of the period.
    Repeating(const Type &type, const std::vector<std::int64_t> &values);

    // Element e of the extent has value (e + shift) % period; its first is at `to`, or `found`.
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

// The data of one case, as one rank sees it. What is written and what is compared, says the row of
// the collective.
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
    std::optional<Repeating> expected_;  // where ranks' values are combined
    double tolerance_ = 0;
};

}  // namespace vescomm::perf

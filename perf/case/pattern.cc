// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per byte, but outside the timed interval.
#include "perf/case/pattern.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "perf/case/collectives.h"
#include "perf/case/ops.h"

namespace vescomm::perf {
namespace {

constexpr std::int64_t period = Repeating::period;
constexpr std::int64_t largest_value = 15;
// Periods copied or compared at once: enough for memcpy to be fast, while the table stays in cache.
constexpr std::int64_t periods_at_once = 4;

// Returns a shift that differs for adjacent ranks and for adjacent rounds.
std::int64_t shift_of(int rank, std::uint64_t round) {
    return static_cast<std::int64_t>((31 * static_cast<std::uint64_t>(rank) + 17 * round) %
                                     static_cast<std::uint64_t>(period));
}

// Returns the limit of the whole numbers that are exact in both types.
std::int64_t exact_in(const Case &what) {
    return std::min(find_type(what.type).exact, find_type(what.output_type).exact);
}

bool is_bool(const Case &what) {
    return find_type(what.type).kind == Kind::truth;
}

std::vector<std::int64_t> combine(const Case &what, const std::vector<std::int64_t> &values) {
    const Op &op = find_op(what.op);
    std::vector<std::int64_t> results;
    for (std::int64_t place = 0; place < period; ++place) {
        std::int64_t result = values[place];
        for (int rank = 1; rank < what.ranks(); ++rank)
            result = op.combine(result, values[(place + shift_of(rank, 0)) % period]);
        // A logical operator makes a truth value of a single contribution.
        if (op.number >= VESCOMM_LOGICAL_AND) result = result != 0 ? 1 : 0;
        results.push_back(what.op == "avg" ? result / what.ranks() : result);
    }
    return results;
}

// Any mixing function suffices; the constant is that of Knuth's multiplicative hashing.
std::uint64_t mixed(std::int64_t place) {
    return static_cast<std::uint64_t>(place) * 2654435761U >> 7;
}

// Returns ones and a few twos, chosen such that no product exceeds the exact numbers.
std::vector<std::int64_t> values_to_multiply(const Case &what) {
    const std::int64_t max = std::max<std::int64_t>(exact_in(what), 2);
    for (std::uint64_t seldom = 2;; ++seldom) {
        std::vector<std::int64_t> values, twos;
        for (std::int64_t place = 0; place < period; ++place) {
            twos.push_back(place == 0 || mixed(place) % seldom == 0 ? 1 : 0);
            values.push_back(1 + twos.back());
        }
        Case counted = what;
        counted.op = "sum";
        const std::vector<std::int64_t> doublings = combine(counted, twos);
        const std::int64_t doubled = *std::ranges::max_element(doublings);
        if (doubled < 62 && std::int64_t{1} << doubled <= max) return values;
    }
}

std::vector<std::int64_t> values_of(const Case &what) {
    if (what.op == "prod" && !is_bool(what)) return values_to_multiply(what);
    const bool added = what.op == "sum" || what.op == "avg";
    const std::int64_t max = added ? exact_in(what) / what.ranks() : exact_in(what);
    const auto different =
        static_cast<std::uint64_t>(std::clamp<std::int64_t>(max, 1, largest_value) + 1);
    // For averages, all values are multiples of the number of ranks, so the average is whole.
    const std::int64_t factor = what.op == "avg" ? what.ranks() : 1;
    std::vector<std::int64_t> values;
    for (std::int64_t place = 0; place < period; ++place)
        values.push_back(static_cast<std::int64_t>(mixed(place) % different) * factor);
    return values;
}

}  // namespace

Repeating::Repeating(const Type &type, const std::vector<std::int64_t> &values)
    : type_(type), bytes_(type.bytes()) {
    const std::int64_t places = (periods_at_once + 1) * period;
    table_.resize(static_cast<std::size_t>(places * bytes_));
    for (std::int64_t place = 0; place < places; ++place)
        type.write(values[place % period], table_.data() + place * bytes_);
}

// Calls `act` for consecutive parts of the extent with the elements done before, the matching
// elements of the table, and their number.
template <typename Act>
void Repeating::each(Extent extent, std::int64_t shift, Act &&act) const {
    for (std::int64_t done = 0; done < extent.elements();) {
        const std::int64_t place = (extent.begin + done + shift) % period;
        const std::int64_t now = std::min(extent.elements() - done, periods_at_once * period);
        act(done, table_.data() + place * bytes_, now);
        done += now;
    }
}

void Repeating::write(Extent extent, std::int64_t shift, std::byte *to) const {
    each(extent, shift, [&](std::int64_t done, const std::byte *from, std::int64_t elements) {
        std::memcpy(to + done * bytes_, from, static_cast<std::size_t>(elements * bytes_));
    });
}

void Repeating::compare(Extent extent, std::int64_t shift, const std::byte *found, double tolerance,
                        Verdict &verdict) const {
    each(extent, shift, [&](std::int64_t done, const std::byte *expected, std::int64_t elements) {
        const std::byte *here = found + done * bytes_;
        if (std::memcmp(here, expected, static_cast<std::size_t>(elements * bytes_)) == 0) return;
        for (std::int64_t i = 0; i < elements; ++i)
            look_at(extent.begin + done + i, expected + i * bytes_, here + i * bytes_, tolerance,
                    verdict);
    });
}

void Repeating::look_at(std::int64_t element, const std::byte *expected, const std::byte *found,
                        double tolerance, Verdict &verdict) const {
    if (std::memcmp(expected, found, static_cast<std::size_t>(bytes_)) == 0) return;
    const double should = type_.read(expected);
    const double is = type_.read(found);
    if (std::abs(is - should) <= tolerance * std::abs(should)) return;
    if (verdict.wrong++ == 0)
        verdict.first = "element " + std::to_string(element) + " is " + std::to_string(is) +
                        ", not " + std::to_string(should);
}

Pattern::Pattern(const Case &what, int rank)
    : what_(what),
      rank_(rank),
      input_(find_collective(what.collective).input(what, rank)),
      output_(find_collective(what.collective).output(what, rank)),
      written_(find_type(what.type), values_of(what)) {
    if (find_collective(what.collective).result != Contents::combined) return;
    expected_.emplace(find_type(what.output_type), combine(what, values_of(what)));
    // Results are exact except averages, which are multiplied by a rounded 1 / ranks, and sums over
    // more ranks than the type has exact numbers.
    if (what.op == "avg" || (what.op == "sum" && !is_bool(what) && exact_in(what) < what.ranks()))
        tolerance_ = 2 / static_cast<double>(find_type(what.output_type).exact);
}

void Pattern::write_input(std::uint64_t round, std::byte *input) const {
    written_.write(input_, shift_of(rank_, round), input);
}

Verdict Pattern::verify(std::uint64_t round, const std::byte *output) const {
    Verdict verdict;
    switch (find_collective(what_.collective).result) {
        case Contents::nothing:
            break;
        case Contents::of_owner:
            if (output_.elements() == 0) break;
            for (int owner = 0; owner < what_.ranks(); ++owner) {
                const Extent shard{what_.cuts[owner], what_.cuts[owner + 1]};
                const std::byte *at =
                    output + (shard.begin - output_.begin) * find_type(what_.type).bytes();
                written_.compare(shard, shift_of(owner, round), at, 0, verdict);
            }
            break;
        case Contents::of_root:
            written_.compare(output_, shift_of(what_.root, round), output, 0, verdict);
            break;
        case Contents::of_previous: {
            const int previous = what_.previous(rank_);
            written_.compare(output_, shift_of(previous, round), output, 0, verdict);
            break;
        }
        case Contents::for_rank: {
            const Extent mine{what_.cuts[rank_], what_.cuts[rank_ + 1]};
            for (int rank = 0; rank < what_.ranks(); ++rank)
                written_.compare(mine, shift_of(rank, round),
                                 output + rank * mine.elements() * find_type(what_.type).bytes(), 0,
                                 verdict);
            break;
        }
        case Contents::combined:
            expected_->compare(output_, shift_of(0, round), output, tolerance_, verdict);
            break;
    }
    return verdict;
}

}  // namespace vescomm::perf

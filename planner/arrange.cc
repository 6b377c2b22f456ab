// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation; the search spends its steps here.
#include "planner/arrange.h"

#include <algorithm>

#include "planner/granule.h"

namespace vescomm::planner {
namespace {

// Row numbers are mixed-radix numbers: one digit for each kind except the first, equal to the
// number of its items. So the row with one item less has a smaller number.
struct Digit {
    std::size_t kind = 0;
    std::int64_t count = 0;  // items in the row
    std::int64_t max = 0;  // items of the kind
    std::int64_t weight = 0;  // added to the row number by one more item
    std::int64_t shortest = 0;  // Filler::shortest() of the kind
    std::int64_t coarse = 0;  // elements of an item that belong to the coarse granule
};

// The range of a row, counted in items of the first kind, that contains all multisets kept.
struct Row {
    std::int64_t first = 0;
    std::int64_t size = 0;
    std::size_t begin = 0;  // index of the first one in Table::ends_
};

// The earliest ends of multisets, padding included; `unbounded` for multisets dropped.
class Table {
public:
    explicit Table(std::int64_t rows) : rows_(static_cast<std::size_t>(rows)) {}

    const Row &row(std::int64_t number) const { return rows_[static_cast<std::size_t>(number)]; }
    std::int64_t at(const Row &row, std::int64_t i) const {
        const std::int64_t at = i - row.first;
        if (at < 0 || at >= row.size) return unbounded;
        return ends_[row.begin + static_cast<std::size_t>(at)];
    }
    // Rows are filled one after another, each in order.
    void start(std::int64_t number, std::int64_t first) {
        rows_[static_cast<std::size_t>(number)] = {first, 0, ends_.size()};
    }
    void add(std::int64_t number, std::int64_t end) {
        ends_.push_back(end);
        ++rows_[static_cast<std::size_t>(number)].size;
    }

private:
    std::vector<Row> rows_;
    std::vector<std::int64_t> ends_;
};

// The items that are not in the current row.
struct Left {
    std::int64_t shortest = 0;  // lower bound of the space that they need
    Granule coarse;
};

class Arranger {
public:
    Arranger(std::span<const Kind> kinds, const Arrangement &arrangement, Filler &filler,
             Budget &budget)
        : arrangement_(arrangement), filler_(filler), budget_(budget), shard_(filler.shard()) {
        std::vector<Granule> granules;
        for (const std::size_t kind : arrangement.kinds) {
            const Grid &grid = kinds[kind].grid();
            granules.push_back({granule_of(grid), kinds[kind].count() * grid.elements()});
        }
        left_.coarse = coarsest(common_granules(std::move(granules)), filler.shard());
        const auto digit = [&](std::size_t kind, std::int64_t weight) {
            const Grid &grid = kinds[kind].grid();
            const bool coarse = granule_of(grid) % left_.coarse.size == 0;
            left_.shortest += kinds[kind].count() * filler.shortest(kind);
            return Digit{.kind = kind,
                         .max = kinds[kind].count(),
                         .weight = weight,
                         .shortest = filler.shortest(kind),
                         .coarse = coarse ? grid.elements() : 0};
        };
        inner_ = digit(arrangement.kinds.front(), 0);
        for (const std::size_t kind : std::span(arrangement.kinds).subspan(1)) {
            digits_.push_back(digit(kind, rows_));
            rows_ *= kinds[kind].count() + 1;
        }
    }

    std::optional<std::vector<std::size_t>> run() {
        Table table(rows_);
        for (std::int64_t row = 0; row < rows_; ++row) {
            if (row > 0) increment();
            fill(table, row);
            if (budget_.steps <= 0) return std::nullopt;
        }
        if (table.at(table.row(rows_ - 1), inner_.max) == unbounded) return {{}};
        return backwards(table);
    }

private:
    // Advances to the next row.
    void increment() {
        for (Digit &digit : digits_) {
            if (digit.count < digit.max) {
                ++digit.count;
                left_.shortest -= digit.shortest;
                left_.coarse.elements -= digit.coarse;
                return;
            }
            left_.shortest += digit.count * digit.shortest;
            left_.coarse.elements += digit.count * digit.coarse;
            digit.count = 0;
        }
    }

    // Returns the end of an item that follows a multiset ending at the cursor, including padding
    // except after the last item.
    std::int64_t after(const Digit &digit, std::int64_t cursor, bool last) {
        --budget_.steps;
        const std::int64_t end = filler_.end(digit.kind, cursor);
        return last ? end : plus(end, filler_.padding(digit.kind));
    }

    void fill(Table &table, std::int64_t number) {
        struct Before {
            const Digit *digit;
            Row row;
        };
        std::vector<Before> before;
        std::int64_t first = number == 0 ? 0 : unbounded;
        std::int64_t end = number == 0 ? 1 : 0;  // from here on, only this row has predecessors
        for (const Digit &digit : digits_) {
            if (digit.count == 0) continue;
            const Row &row = table.row(number - digit.weight);
            if (row.size == 0) continue;
            before.push_back({&digit, row});
            first = std::min(first, row.first);
            end = std::max(end, row.first + row.size);
        }
        --budget_.steps;
        if (first == unbounded) return;
        std::int64_t previous = unbounded;
        bool started = false;
        for (std::int64_t i = first; i <= inner_.max; ++i) {
            if (i >= end && previous == unbounded) break;
            const bool last = number + 1 == rows_ && i == inner_.max;
            std::int64_t best = number == 0 && i == 0 ? arrangement_.begin : unbounded;
            if (previous != unbounded) best = after(inner_, previous, last);
            for (const auto &[digit, row] : before) {
                const std::int64_t cursor = table.at(row, i);
                if (cursor != unbounded) best = std::min(best, after(*digit, cursor, last));
            }
            --budget_.steps;
            if (best != unbounded && out_of_reach(best, i)) best = unbounded;
            previous = best;
            if (!started && best == unbounded) continue;
            if (!started) table.start(number, i);
            started = true;
            table.add(number, best);
        }
    }

    // Returns true when the items that are not in a multiset cannot end before the limit: all of
    // them, or the coarse ones alone, need more space than is left.
    bool out_of_reach(std::int64_t cursor, std::int64_t i) const {
        const std::int64_t space = arrangement_.limit - cursor;
        if (space < left_.shortest - i * inner_.shortest) return true;
        const Granule coarse{left_.coarse.size, left_.coarse.elements - i * inner_.coarse};
        return space < space_of(coarse, shard_);
    }

    // Reconstructs the sequence from the last item to the first, by finding a last item for each
    // multiset.
    std::vector<std::size_t> backwards(const Table &table) {
        std::vector<std::size_t> sequence;
        std::int64_t number = rows_ - 1;
        std::int64_t i = inner_.max;
        bool last = true;
        const auto is = [&](const Digit &digit, std::int64_t before, std::int64_t end) {
            return before != unbounded && after(digit, before, last) == end;
        };
        while (number > 0 || i > 0) {
            const std::int64_t end = table.at(table.row(number), i);
            if (i > 0 && is(inner_, table.at(table.row(number), i - 1), end)) {
                sequence.push_back(inner_.kind);
                --i;
            } else {
                for (Digit &digit : digits_) {
                    if (digit.count == 0) continue;
                    if (!is(digit, table.at(table.row(number - digit.weight), i), end)) continue;
                    sequence.push_back(digit.kind);
                    --digit.count;
                    number -= digit.weight;
                    break;
                }
            }
            last = false;
        }
        std::ranges::reverse(sequence);
        return sequence;
    }

    const Arrangement &arrangement_;
    Filler &filler_;
    Budget &budget_;
    Digit inner_;
    std::vector<Digit> digits_;
    std::int64_t rows_ = 1;
    std::int64_t shard_;
    Left left_;
};

}  // namespace

std::optional<std::vector<std::size_t>> arrange(std::span<const Kind> kinds,
                                                const Arrangement &arrangement, Filler &filler,
                                                Budget &budget) {
    return Arranger(kinds, arrangement, filler, budget).run();
}

}  // namespace vescomm::planner

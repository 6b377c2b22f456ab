// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Draws the owners of one buffer in letters. Zone: set-up.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "planner/tools/report.h"
#include "planner/words.h"

namespace vescomm::planner {
namespace {

constexpr std::size_t cells = 64;  // in the row of the largest shard
constexpr std::size_t max_ranks = 16;
constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
constexpr char padding = '.';
constexpr char hard_blank = '\1';  // unambiguous: printed names have no control characters

class Buffer {
public:
    Buffer(const Unit &unit, const Answer &answer) : answer_(answer) {
        for (const Place &place : answer.places) {
            const Tensor &tensor = unit.tensors[place.tensor];
            const std::int64_t elements = count_elements(tensor.shape).value_or(0);
            if (elements == 0) continue;
            const std::string name = printable(tensor_class(tensor.name, unit.name));
            const auto [found, added] = classes_.emplace(name, names_.size());
            if (added) names_.push_back(name);
            pieces_.push_back({place.offset, place.offset + elements, found->second});
        }
    }

    // Returns one letter for each cell of a shard.
    std::string row(int rank) {
        const std::int64_t begin = answer_.cuts[rank];
        const std::int64_t end = answer_.cuts[rank + 1];
        const double cell =
            static_cast<double>(std::max<std::int64_t>(answer_.largest_shard, 1)) / cells;
        std::string text;
        for (std::size_t i = 0; i < cells; ++i) {
            const auto low = begin + static_cast<std::int64_t>(static_cast<double>(i) * cell);
            const auto high = begin + static_cast<std::int64_t>(static_cast<double>(i + 1) * cell);
            if (low >= end) break;
            text += letter_between(low, std::clamp(high, low + 1, end));
        }
        return text;
    }

    // Entries contain hard blanks, at which wrap() does not break.
    std::string legend() const {
        std::string text;
        for (const std::size_t index : used_)
            text += fmt::format("{}{}{}{}", text.empty() ? "" : " ", letter_of(index), hard_blank,
                                names_[index]);
        return text + (answer_.padding > 0 ? fmt::format(" .{}padding", hard_blank) : "");
    }

private:
    struct Piece {
        std::int64_t begin;
        std::int64_t end;
        std::size_t index;  // of the class
    };

    // Returns the letter of the class that covers most of the cell.
    char letter_between(std::int64_t low, std::int64_t high) {
        std::map<std::size_t, std::int64_t> shares;
        std::int64_t left = high - low;
        auto piece = std::ranges::upper_bound(pieces_, low, {}, &Piece::end);
        for (; piece != pieces_.end() && piece->begin < high; ++piece) {
            const std::int64_t share = std::min(piece->end, high) - std::max(piece->begin, low);
            shares[piece->index] += share;
            left -= share;
        }
        const auto max =
            std::ranges::max_element(shares, {}, [](const auto &share) { return share.second; });
        if (max == shares.end() || max->second < left) return padding;
        if (std::ranges::find(used_, max->first) == used_.end()) used_.push_back(max->first);
        return letter_of(max->first);
    }

    // Letters repeat when there are more classes than letters.
    char letter_of(std::size_t index) const {
        const auto at = std::ranges::find(used_, index) - used_.begin();
        return letters[static_cast<std::size_t>(at) % letters.size()];
    }

    const Answer &answer_;
    std::map<std::string, std::size_t> classes_;
    std::vector<std::string> names_;
    std::vector<Piece> pieces_;  // in order, disjoint
    std::vector<std::size_t> used_;  // classes that have a letter
};

// Returns all ranks, or if there are too many the first ones, the one with the largest shard and
// the last ones.
std::vector<int> ranks_to_show(const Answer &answer) {
    const int ranks = static_cast<int>(answer.cuts.size()) - 1;
    std::vector<int> result;
    int largest = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        const auto shard = [&](int i) { return answer.cuts[i + 1] - answer.cuts[i]; };
        if (shard(rank) > shard(largest)) largest = rank;
        if (ranks <= static_cast<int>(max_ranks) || rank < 4 || rank >= ranks - 2)
            result.push_back(rank);
    }
    if (std::ranges::find(result, largest) == result.end()) result.push_back(largest);
    std::ranges::sort(result);
    return result;
}

}  // namespace

std::string describe_owners(const Report &report, const Alike &alike) {
    const Unit &unit = report.model.units[alike.fullest];
    const Answer &answer = *report.answer.units[alike.fullest];
    if (answer.elements == 0) return "";
    Buffer buffer(unit, answer);
    // The buffers of a unit of several types have one name.
    const bool typed = std::ranges::count(report.model.units, unit.name, &Unit::name) > 1;
    std::string text = wrap(fmt::format(
        "who owns what of {}{}{}", printable(unit.name),
        typed ? fmt::format(", {}", name_of(unit.type)) : "",
        answer.largest_shard < static_cast<std::int64_t>(cells)
            ? ""
            : fmt::format(" (a cell is {} elements)",
                          show_count(static_cast<double>(answer.largest_shard) / cells))));
    const std::size_t digits = std::max<std::size_t>(
        6, with_commas(static_cast<std::int64_t>(report.model.ranks) - 1).size());
    int previous = -1;
    for (const int rank : ranks_to_show(answer)) {
        if (rank != previous + 1) text += fmt::format("{:>{}} ...\n", "", digits);
        previous = rank;
        const std::int64_t shard = answer.cuts[rank + 1] - answer.cuts[rank];
        text += fmt::format("{:>{}} |{:{}}| {:>8}\n", with_commas(std::int64_t{rank}), digits,
                            buffer.row(rank), cells, show_count(static_cast<double>(shard)));
    }
    std::string legend = wrap(std::string(digits + 1, hard_blank) + buffer.legend(), digits + 1);
    std::ranges::replace(legend, hard_blank, ' ');
    return text + legend;
}

}  // namespace vescomm::planner

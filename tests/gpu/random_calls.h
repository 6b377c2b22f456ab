// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Random programs of calls on device memory, and a model of what they leave in the memory of every
// rank. All ranks draw the same program from its number.
#pragma once

#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "gpu/device_ranks.h"
#include "support/dice.h"

namespace vescomm::internal::testing_support {

using vescomm::testing_support::Dice;

// Elements of a shard.
inline std::int64_t draw_elements(Dice &dice) {
    switch (dice.below(8)) {
        case 0:
            return 0;
        case 1:
            return 1 + dice.below(5);
        case 2:
            return 1500 + dice.below(1500);
        case 3:
            return 16 * dice.below(8);
        default:
            return dice.below(60);
    }
}

// Elements of all shards, often the same.
inline std::vector<std::int64_t> draw_counts(Dice &dice, int ranks) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(ranks), draw_elements(dice));
    if (!dice.one_in(4))
        for (std::int64_t &count : all) count = draw_elements(dice);
    return all;
}

// ---- values ----

// Whole numbers that every type represents; so are their sums and products.
using Values = std::vector<int>;
inline constexpr int undefined = -1;

inline constexpr vescomm_type_t value_types[] = {VESCOMM_F32, VESCOMM_BF16, VESCOMM_F64,
                                                 VESCOMM_I32, VESCOMM_U8,   VESCOMM_I64};

inline void encode(vescomm_type_t type, int value, std::uint8_t *to) {
    const auto put = [&](auto number) { std::memcpy(to, &number, sizeof number); };
    switch (type) {
        case VESCOMM_F32:
            return put(static_cast<float>(value));
        case VESCOMM_F64:
            return put(static_cast<double>(value));
        case VESCOMM_I32:
            return put(static_cast<std::int32_t>(value));
        case VESCOMM_I64:
            return put(static_cast<std::int64_t>(value));
        case VESCOMM_U8:
            return put(static_cast<std::uint8_t>(value));
        default:
            break;
    }
    const auto number = static_cast<float>(value);  // bf16: the upper half
    std::memcpy(to, reinterpret_cast<const std::uint8_t *>(&number) + 2, 2);
}

// The values that a program writes before a reduction.
struct Fill {
    unsigned number;  // of the fill in the program
    int limit = 9;  // values from 1 to this one
    int factor = 1;

    int operator()(int rank, std::size_t element) const {
        const std::size_t mixed =
            (number * 7919u + static_cast<unsigned>(rank) * 104729u + element * 31u) ^ element >> 3;
        return (1 + static_cast<int>(mixed % static_cast<unsigned>(limit))) * factor;
    }
};

// Products stay below 256, and averages over 2 or 4 ranks are whole.
inline Fill fill_for(vescomm_op_t op, unsigned number) {
    if (op == VESCOMM_PROD) return {number, 2};
    return {number, 9, op == VESCOMM_AVERAGE ? 4 : 1};
}

inline int reduced(vescomm_op_t op, const Values &from) {
    int result = from[0];
    for (std::size_t k = 1; k < from.size(); ++k) {
        if (op == VESCOMM_PROD) result *= from[k];
        else if (op == VESCOMM_MIN) result = std::min(result, from[k]);
        else if (op == VESCOMM_MAX) result = std::max(result, from[k]);
        else result += from[k];
    }
    return op == VESCOMM_AVERAGE ? result / static_cast<int>(from.size()) : result;
}

// ---- memory ----

// Elements of every rank, and where this rank has its own.
struct Elements {
    struct Piece {
        std::size_t begin, end;  // elements
        std::uint8_t *data;
    };

    std::uint8_t *at(std::size_t element) const {  // of the only piece
        return pieces[0].data + element * vescomm_type_get_bytes(type);
    }
    Values &of(int rank) { return values[static_cast<std::size_t>(rank)]; }

    vescomm_type_t type;
    std::vector<Values> values;  // of each rank
    std::vector<Piece> pieces;
};

// A kernel that writes all elements of this rank.
inline void launch_fill(const Elements &memory, const Fill &fill, int rank, cuda::Stream stream) {
    const std::size_t bytes = vescomm_type_get_bytes(memory.type);
    std::vector<gpu_double::Access> accesses;
    for (const Elements::Piece &piece : memory.pieces)
        if (piece.begin < piece.end)
            accesses.push_back({piece.data, (piece.end - piece.begin) * bytes, true});
    const auto write = [pieces = memory.pieces, type = memory.type, fill, rank, bytes] {
        for (const Elements::Piece &piece : pieces) {
            auto *to = static_cast<std::uint8_t *>(gpu_double::host_view(piece.data));
            for (std::size_t i = piece.begin; i < piece.end; ++i, to += bytes)
                encode(type, fill(rank, i), to);
        }
    };
    EXPECT_EQ(gpu_double::launch(stream, "fill", accesses, write), 0);
}

inline void expect_values(gpu_double::Device &device, Elements &memory, int rank) {
    const std::size_t bytes = vescomm_type_get_bytes(memory.type);
    std::vector<std::uint8_t> expected(bytes);
    for (const Elements::Piece &piece : memory.pieces) {
        if (piece.begin == piece.end) continue;
        const auto found = device.read(piece.data, (piece.end - piece.begin) * bytes);
        for (std::size_t i = piece.begin; i < piece.end; ++i) {
            const int value = memory.of(rank)[i];
            if (value == undefined) continue;
            encode(memory.type, value, expected.data());
            ASSERT_EQ(std::memcmp(&found[(i - piece.begin) * bytes], expected.data(), bytes), 0)
                << "element " << i << " of rank " << rank << ", type " << memory.type << ", is not "
                << value;
        }
    }
}

// ---- communicators ----

// A device buffer of every rank.
struct TestedBuffer {
    Elements memory;
    std::vector<std::int64_t> counts;
    vescomm_gpu_buffer_t *handle = nullptr;
};

// A device communicator of each of several groups of ranks.
struct Groups {
    std::vector<std::vector<int>> ranks;  // of each communicator, in its order
    vescomm_comm_t *comm = nullptr;
    vescomm_gpu_comm_t *gpu = nullptr;  // that of this rank
    std::vector<std::unique_ptr<TestedBuffer>> buffers;

    int largest() const {
        std::size_t most = 0;
        for (const auto &group : ranks) most = std::max(most, group.size());
        return static_cast<int>(most);
    }
    const std::vector<int> &group_of(int rank) const {
        for (const auto &group : ranks)
            for (const int member : group)
                if (member == rank) return group;
        return ranks[0];
    }
    bool can_average() const {
        for (const auto &group : ranks)
            if (group.size() > 4 || group.size() == 3) return false;
        return true;
    }
};

// The shards of a group of ranks: the first counts of a list.
inline VectorLayout layout_for(const std::vector<int> &group, std::vector<std::int64_t> counts) {
    counts.resize(group.size());
    return VectorLayout(counts);
}

// ---- what calls leave ----

inline void model_gather(Elements &from, std::size_t source, Elements &to, std::size_t target,
                         const std::vector<int> &group, const VectorLayout &layout, bool in_place) {
    for (std::size_t k = 0; k < group.size(); ++k) {
        const int shard = static_cast<int>(k);
        for (std::size_t i = 0; i < layout.count(shard); ++i) {
            const std::size_t place = target + layout.begin(shard) + i;
            const int value = in_place ? to.of(group[k])[place] : from.of(group[k])[source + i];
            for (const int rank : group) to.of(rank)[place] = value;
        }
    }
}

// `to` may be `from`: in place.
inline void model_reduce_scatter(Elements &from, std::size_t source, Elements &to,
                                 std::size_t target, const std::vector<int> &group,
                                 const VectorLayout &layout, vescomm_op_t op) {
    const bool in_place = &to == &from;
    std::vector<Values> results(group.size());
    for (std::size_t k = 0; k < group.size(); ++k)
        for (std::size_t i = layout.begin(static_cast<int>(k)); i < layout.end(static_cast<int>(k));
             ++i) {
            Values terms;
            for (const int rank : group) terms.push_back(from.of(rank)[source + i]);
            results[k].push_back(reduced(op, terms));
        }
    for (std::size_t k = 0; k < group.size(); ++k) {
        Values &its = to.of(group[k]);
        if (in_place)
            for (std::size_t i = 0; i < layout.elements(); ++i) its[source + i] = undefined;
        const std::size_t begin = in_place ? source + layout.begin(static_cast<int>(k)) : target;
        std::copy(results[k].begin(), results[k].end(),
                  its.begin() + static_cast<std::ptrdiff_t>(begin));
    }
}

inline void model_all_reduce(Elements &from, Elements &to, std::size_t begin, std::size_t count,
                             const std::vector<int> &group, vescomm_op_t op) {
    for (std::size_t i = begin; i < begin + count; ++i) {
        Values terms;
        for (const int rank : group) terms.push_back(from.of(rank)[i]);
        for (const int rank : group) to.of(rank)[i] = reduced(op, terms);
    }
}

}  // namespace vescomm::internal::testing_support

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/groups.h"

#include <fmt/format.h>

#include <map>
#include <stdexcept>

#include "planner/bounds.h"
#include "planner/formats/quoted.h"

namespace vescomm::planner {
namespace {

constexpr std::int64_t max_bytes = std::int64_t{1} << 62;

std::int64_t bytes_of(vescomm_type_t type) {
    const auto bytes = static_cast<std::int64_t>(vescomm_type_get_bytes(type));
    if (bytes == 0) {
        throw std::invalid_argument(
            fmt::format("type {} is unknown; give one of the VESCOMM_ types", type));
    }
    return bytes;
}

// Returns a key that is equal for units that differ only in names.
std::vector<std::int64_t> key_of(const Unit &unit) {
    std::vector<std::int64_t> key;
    key.reserve(1 + 6 * unit.tensors.size());
    key.push_back(unit.type);
    for (const Tensor &tensor : unit.tensors) {
        key.push_back(static_cast<std::int64_t>(tensor.shape.size()));
        key.insert(key.end(), tensor.shape.begin(), tensor.shape.end());
        key.push_back(tensor.block_rows);
        key.push_back(tensor.batch_dimensions);
        key.push_back(tensor.alignment);
    }
    return key;
}

// Treats all tensors of the model as one buffer of bytes with the same blocks. A bound for that
// buffer also holds for the units, because their cuts are more restricted.
std::int64_t lower_bound_bytes(const Groups &groups) {
    Items everything;
    everything.ranks = groups.ranks;
    for (const Group &group : groups.groups) {
        const std::int64_t bytes = group.element_bytes;
        for (std::int64_t i = 0; i < group.count(); ++i) {
            for (const Item &item : group.items.items) {
                const Grid &grid = item.grid;
                everything.items.push_back(
                    {0, Grid(grid.elements() * bytes, grid.sub_matrix() * bytes,
                             grid.block() * bytes)});
            }
        }
        everything.occupied += group.items.occupied * bytes * group.count();
        everything.elements += group.items.elements * bytes * group.count();
    }
    return everything.items.empty() ? 0 : lower_bound(everything);
}

}  // namespace

Groups to_groups(const Model &model, const Options &options) {
    to_items({{}, model.ranks, model.weights}, options);  // checks what all units have in common
    Groups result;
    result.ranks = model.ranks;
    std::map<std::vector<std::int64_t>, std::size_t> known;
    std::int64_t occupied = 0;
    for (std::size_t i = 0; i < model.units.size(); ++i) {
        const Unit &unit = model.units[i];
        try {
            const auto [place, is_new] = known.try_emplace(key_of(unit), result.groups.size());
            if (is_new) {
                Group group{
                    {unit.tensors, model.ranks, model.weights}, {}, bytes_of(unit.type), {}};
                group.items = to_items(group.problem, options);
                result.groups.push_back(std::move(group));
            }
            Group &group = result.groups[place->second];
            group.units.push_back(i);
            result.of_unit.push_back(place->second);
            occupied = plus(occupied, times(group.items.max_occupied, group.element_bytes));
            if (occupied > max_bytes) {
                throw std::invalid_argument(
                    "it brings the model above 2^62 bytes, the most there may be");
            }
            result.bytes += group.items.elements * group.element_bytes;
        } catch (const std::invalid_argument &error) {
            throw std::invalid_argument(
                fmt::format("unit {}: {}", formats::quoted_text(unit.name), error.what()));
        }
    }
    result.lower_bound_bytes = lower_bound_bytes(result);
    return result;
}

}  // namespace vescomm::planner

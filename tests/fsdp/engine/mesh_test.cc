// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Meshes of every short list of axes.
#include "fsdp/spec/mesh.h"

#include <gtest/gtest.h>

#include "fsdp/error.h"

namespace vescomm::fsdp {
namespace {

constexpr vescomm_fsdp_placement_t shard = VESCOMM_FSDP_SHARD;
constexpr vescomm_fsdp_placement_t replicate = VESCOMM_FSDP_REPLICATE;
constexpr vescomm_fsdp_placement_t partial = VESCOMM_FSDP_PARTIAL;

// The axis of a letter: replicas, zero1, zero2, zero3, zero3 with partial gradients.
Axis axis_of(char role, std::size_t number, int size) {
    const std::string name = "axis " + std::to_string(number);
    if (role == 'r') return {name, size, replicate, replicate, replicate};
    if (role == '1') return {name, size, replicate, partial, shard};
    if (role == '2') return {name, size, replicate, shard, shard};
    return {name, size, shard, role == 'p' ? partial : shard, shard};
}

std::vector<Axis> axes_of(const std::string &roles, const std::vector<int> &sizes) {
    std::vector<Axis> axes;
    for (std::size_t i = 0; i < roles.size(); ++i) axes.push_back(axis_of(roles[i], i, sizes[i]));
    return axes;
}

std::vector<std::string> words_of(const std::string &letters, std::size_t most) {
    std::vector<std::string> words{""};
    for (std::size_t begin = 0; begin < words.size(); ++begin)
        if (words[begin].size() < most)
            for (const char letter : letters) words.push_back(words[begin] + letter);
    words.erase(words.begin());
    return words;
}

// Replicas first, then axes of one row, or zero2 and then zero3.
bool permitted(const std::string &roles) {
    const std::size_t first = roles.find_first_not_of('r');
    if (first == std::string::npos) return true;
    const std::string rest = roles.substr(first);
    if (rest.find_first_not_of(rest[0]) == std::string::npos) return true;
    const std::size_t inner = rest.find_first_not_of('2');
    return inner > 0 && rest.find_first_not_of('3', inner) == std::string::npos;
}

Mesh mesh_of(const std::vector<Axis> &axes, int ranks) {
    Spec spec(vescomm_fsdp_spec_options_init());
    for (const Axis &axis : axes) spec.add_axis(axis);
    return make_mesh(spec, ranks);
}

// Extents 1, 2 and 3, one of them left open or none.
TEST(Mesh, HasAnyListOfAxes) {
    int accepted = 0;
    for (const std::string &roles : words_of("r123p", 4)) {
        std::vector<int> sizes;
        for (std::size_t i = 0; i < roles.size(); ++i) sizes.push_back(1 + static_cast<int>(i) % 3);
        if (!permitted(roles)) {
            EXPECT_THROW(check_axes(axes_of(roles, sizes)), Failure) << roles;
            continue;
        }
        ++accepted;
        int ranks = 1, replicas = 1, inner = 1;
        for (std::size_t i = 0; i < roles.size(); ++i) {
            ranks *= sizes[i];
            if (roles[i] == 'r') replicas *= sizes[i];
            if (roles[i] == '3') inner *= sizes[i];
        }
        const auto has = [&](char role) { return roles.find(role) != std::string::npos; };
        for (std::size_t open = 0; open <= roles.size(); ++open) {
            std::vector<int> given = sizes;
            if (open < roles.size()) given[open] = 0;
            const Mesh mesh = mesh_of(axes_of(roles, given), ranks);
            EXPECT_EQ(mesh.ranks, ranks) << roles;
            EXPECT_EQ(mesh.replicas(), replicas) << roles;
            EXPECT_EQ(mesh.shard_ranks, ranks / replicas) << roles;
            EXPECT_EQ(mesh.gather_ranks(), has('2') && has('3') ? inner : ranks / replicas)
                << roles;
            EXPECT_EQ(mesh.keep_parameters, !has('3') && !has('p')) << roles;
            EXPECT_EQ(mesh.keep_gradients, has('1') || has('p')) << roles;
            if (open == roles.size()) {
                EXPECT_THROW(mesh_of(axes_of(roles, given), 2 * ranks), Failure) << roles;
            } else {
                // The open axis takes what the others leave.
                EXPECT_EQ(mesh_of(axes_of(roles, given), 5 * ranks).ranks, 5 * ranks) << roles;
            }
        }
    }
    EXPECT_EQ(accepted, 54);
}

TEST(Mesh, RefusesTwoOpenAxesAndOtherPlacements) {
    EXPECT_THROW(check_axes(axes_of("r3", {0, 0})), Failure);
    EXPECT_THROW(check_axes(axes_of("r333", {0, 2, 2, 0})), Failure);
    EXPECT_NO_THROW(check_axes(axes_of("r333", {2, 2, 0, 2})));
    for (int code = 0; code < 27; ++code) {
        const Axis axis{"axis", 2, code % 3, code / 3 % 3, code / 9};
        const bool replicas = code == 1 + 3 + 9 || code == 1 + 2 * 3 + 9;
        const bool known = replicas || code == 1 + 2 * 3 || code == 1 || code == 2 * 3 || code == 0;
        if (known) EXPECT_NO_THROW(check_axes({axis})) << code;
        else EXPECT_THROW(check_axes({axis}), Failure) << code;
    }
    EXPECT_THROW(check_axes({{"axis", 2, -1, 0, 0}}), Failure);
    EXPECT_THROW(mesh_of(axes_of("r3", {2, 3}), 8), Failure);
    // The product of the sizes has more than 64 bits.
    EXPECT_THROW(mesh_of(axes_of("rr333", {1 << 30, 1 << 30, 1 << 30, 1 << 30, 0}), 8), Failure);
}

}  // namespace
}  // namespace vescomm::fsdp

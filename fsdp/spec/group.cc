// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/spec/group.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include "fsdp/checkpoint/tensor.h"
#include "fsdp/error.h"
#include "planner/formats/element_types.h"

namespace vescomm::fsdp {

namespace {

// Far above the size of any struct: a larger struct_size was not initialised.
constexpr std::uint32_t max_struct_bytes = 4096;
// Far above the needs of any optimizer, so that a number that was not initialised is an error.
constexpr std::uint32_t max_states = 64;

constexpr std::string_view role_prefix = "state.";
// Letters of the name of a per-block state in its role: "-per-" and any block_elements fit behind
// them.
constexpr std::size_t block_name_bytes = 34;

std::uint32_t read_size(const void *bytes) {
    std::uint32_t size = 0;
    std::memcpy(&size, bytes, sizeof size);
    return size;
}

// Returns settings of the size that the kind knows. The caller's may be shorter or longer.
std::vector<std::byte> copy_settings(const vescomm_optimizer_kind_t &kind, const void *settings) {
    const std::uint32_t known = kind.settings_bytes;
    if (known == 0) return {};
    if (known < sizeof known || known > max_struct_bytes)
        refuse(
            "settings_bytes of \"{}\" is {}; settings begin with a uint32_t struct_size, and have "
            "at most {} bytes",
            kind.name, known, max_struct_bytes);
    if (settings == nullptr)
        refuse("settings is NULL; \"{}\" has {} bytes of settings", kind.name, known);
    const std::uint32_t size = read_size(settings);
    if (size < sizeof size || size > max_struct_bytes)
        refuse(
            "struct_size of the settings of \"{}\" is {}; initialise them with the function of "
            "their name and _init(), which sets it",
            kind.name, size);
    const auto *bytes = static_cast<const std::byte *>(settings);
    for (std::uint32_t i = known; i < size; ++i)
        if (bytes[i] != std::byte{0})
            refuse(
                "the settings of \"{}\" are a struct of {} bytes that uses byte {}, and the kind "
                "knows {} bytes of it; leave newer members zero, or load a newer library",
                kind.name, size, i, known);
    std::vector<std::byte> copy(known);
    if (kind.default_settings != nullptr) std::memcpy(copy.data(), kind.default_settings, known);
    std::memcpy(copy.data(), settings, std::min(size, known));
    std::memcpy(copy.data(), &known, sizeof known);
    return copy;
}

std::vector<Group::State> read_states(const vescomm_optimizer_kind_t &kind,
                                      const vescomm_optimizer_needs_t &needs) {
    if (needs.state_count > max_states || (needs.state_count > 0 && needs.states == nullptr))
        refuse("\"{}\" needs {} states, and states {}; at most {} are possible", kind.name,
               needs.state_count, needs.states == nullptr ? "is NULL" : "is given", max_states);
    std::vector<Group::State> states;
    // The stride of the array is the size of the kind's struct.
    constexpr std::size_t min_size =
        offsetof(vescomm_optimizer_state_t, name) + sizeof(const char *);
    const std::uint32_t stride = needs.state_count > 0 ? needs.states->struct_size : 0;
    for (std::uint32_t i = 0; i < needs.state_count; ++i) {
        const auto *bytes = reinterpret_cast<const std::byte *>(needs.states) + i * stride;
        const std::uint32_t size = read_size(bytes);
        if (size != stride || stride < min_size || stride > max_struct_bytes)
            refuse(
                "struct_size of state {} of \"{}\" is {}; initialise all states with "
                "vescomm_optimizer_state_init()",
                i, kind.name, size);
        vescomm_optimizer_state_t copy = vescomm_optimizer_state_init();
        std::memcpy(&copy, bytes, std::min<std::size_t>(size, sizeof copy));
        const vescomm_optimizer_state_t *const state = &copy;
        if (vescomm_type_get_bytes(state->type) == 0)
            refuse("state {} of \"{}\" has type {}, which does not exist", i, kind.name,
                   state->type);
        if (state->name == nullptr || *state->name == 0)
            refuse("state {} of \"{}\" has no name; give it one", i, kind.name);
        if (!formats::safetensors_name_of(state->type))
            refuse(
                "state {} of \"{}\" has type {}, which checkpoints do not have; use f64, with two "
                "for each element",
                i, kind.name, formats::name_of(state->type));
        if (state->reserved != 0)
            refuse("reserved of state \"{}\" of \"{}\" is {}; leave it zero", state->name,
                   kind.name, state->reserved);
        if (state->per_block != 0 && needs.block_elements == 0)
            refuse(
                "state \"{}\" of \"{}\" has an element for each block, and block_elements is 0; "
                "set "
                "it to the elements of a block, or to -1 for whole matrices",
                state->name, kind.name);
        Group::State made{state->type, state->name, state->per_block != 0};
        const std::string role = role_of_state(made, needs.block_elements);
        for (const Group::State &other : states)
            if (role_of_state(other, needs.block_elements) == role)
                refuse(
                    "two states of \"{}\", \"{}\" and \"{}\", have the role \"{}\" in "
                    "checkpoints; use names that differ in their first {} letters, digits or '-'",
                    kind.name, other.name, state->name, role,
                    made.per_block ? block_name_bytes
                                   : checkpoint::max_role_bytes - role_prefix.size());
        states.push_back(std::move(made));
    }
    return states;
}

}  // namespace

std::string role_of_state(const Group::State &state, std::int64_t block_elements) {
    std::string role(role_prefix);
    const std::size_t letters =
        state.per_block ? block_name_bytes : checkpoint::max_role_bytes - role.size();
    for (const char letter : state.name.substr(0, letters)) {
        const auto byte = static_cast<unsigned char>(letter);
        const bool allowed = byte < 0x80 && (std::isalnum(byte) != 0 || letter == '-');
        role += allowed ? letter : '_';
    }
    if (state.per_block)
        role += "-per-" + (block_elements < 0 ? "matrix" : std::to_string(block_elements));
    return role;
}

Group make_group(const vescomm_optimizer_kind_t &kind, const void *settings) {
    if (kind.name == nullptr || kind.needs == nullptr || kind.step == nullptr)
        refuse("name, needs or step of the kind of a group is NULL; give all of them");
    if (kind.reserved != 0)
        refuse("reserved of the kind \"{}\" is {}; leave it zero", kind.name, kind.reserved);
    Group group;
    group.kind = kind;
    group.settings = copy_settings(kind, settings);
    if (kind.default_settings != nullptr) {
        const auto *bytes = static_cast<const std::byte *>(kind.default_settings);
        group.default_settings.assign(bytes, bytes + kind.settings_bytes);
        group.kind.default_settings = nullptr;  // the program may free them
    }
    vescomm_optimizer_needs_t needs = vescomm_optimizer_needs_init();
    const char *reason = nullptr;
    if (kind.needs(kind.context, group.settings.data(), &needs, &reason) != 0)
        refuse("\"{}\" rejects its settings: {}", kind.name,
               reason != nullptr ? reason : "it gave no reason");
    group.block_elements = needs.block_elements;
    if (group.block_elements < -1)
        refuse("\"{}\" needs blocks of {} elements; at least -1 is possible, for whole matrices",
               kind.name, group.block_elements);
    group.states = read_states(kind, needs);
    return group;
}

Group with_settings(const Group &group, const void *settings) {
    vescomm_optimizer_kind_t kind = group.kind;
    if (!group.default_settings.empty()) kind.default_settings = group.default_settings.data();
    return make_group(kind, settings);
}

}  // namespace vescomm::fsdp

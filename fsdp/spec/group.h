// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Groups of parameters: the settings of a program become those that the kind of optimizer knows.
#pragma once

#include <string>

#include "fsdp/spec/spec.h"

namespace vescomm::fsdp {

// Copies the settings and asks the kind for its needs. Throws Failure if the kind is incomplete or
// rejects the settings.
Group make_group(const vescomm_optimizer_kind_t &kind, const void *settings);

// As make_group(), for other settings of the kind of a group.
Group with_settings(const Group &group, const void *settings);

// The role of masters in checkpoints.
inline constexpr const char *master_role = "master";

// Returns the role that a state has in checkpoints: its name with '_' for letters that no role has.
// That of a per-block state ends with the size of its blocks, so that a checkpoint with other
// blocks is another role.
std::string role_of_state(const Group::State &state, std::int64_t block_elements);

}  // namespace vescomm::fsdp

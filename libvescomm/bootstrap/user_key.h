// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

namespace vescomm::internal {

// A random key that only this user of this machine can read: 32 bytes in the file "vescomm/key"
// below `folder`, which is created if missing. Returns nothing if the file cannot be created,
// belongs to another user, or is readable by others.
std::optional<std::string> user_key(const std::string &folder);

// $XDG_CACHE_HOME, or $HOME/.cache; empty if neither is an absolute path.
std::string user_cache_folder();

}  // namespace vescomm::internal

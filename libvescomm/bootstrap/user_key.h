// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

namespace vescomm {

// A random key that only this user of this machine can read: 32 bytes in the file "vescomm/key"
// below `folder`, made when it is not there. Nothing where there can be no such file, or where it
// belongs to another user or others may read it.
std::optional<std::string> user_key(const std::string &folder);

// $XDG_CACHE_HOME, or .cache in $HOME; empty: the environment names neither.
std::string user_cache_folder();

}  // namespace vescomm

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace vescomm::internal {

// Version and build of this library: "0.1.0, build 1f03a9c2...". The build is a hash of all sources
// of libvescomm: ranks of different builds may choose different algorithms or message formats.
std::string build_name();

}  // namespace vescomm::internal

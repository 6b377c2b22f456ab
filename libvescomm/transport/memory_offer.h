// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "transport/transport.h"

namespace vescomm::internal {

// Describes a memory of a rank into which its peers may put. Sent through the control plane with
// its length and an XXH3 checksum (checksummed.h); parse_offer() throws SYSTEM if it is damaged.
struct Offer {
    MemoryId memory = 0;
    std::uint32_t rank = 0;
    std::uint64_t bytes = 0;
};

std::string serialise(const Offer &offer);
Offer parse_offer(std::string_view serialised, MemoryId memory, int rank);

}  // namespace vescomm::internal

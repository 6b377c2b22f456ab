// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "transport/transport.h"

namespace vescomm::internal {

// Describes a memory of a rank into which its peers may put. Sent through the control plane in
// sealed form (sealed.h); opening a damaged one throws SYSTEM.
struct Offer {
    MemoryId memory = 0;
    std::uint32_t rank = 0;
    std::uint64_t bytes = 0;
};

std::string seal(const Offer &offer);
Offer open_offer(std::string_view sealed, MemoryId memory, int rank);

}  // namespace vescomm::internal

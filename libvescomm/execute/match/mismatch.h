// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "schedule/schedule.h"

namespace vescomm::internal {

// In the sentence about two collectives whose digests differ.
inline constexpr std::string_view arguments_differ = ": they differ in counts, ";

// Two ranks that made different calls instead of the same call. Usually one of them is the rank
// that found the mismatch; a forwarding rank finds mismatches of two other ranks.
struct Mismatch {
    int rank = no_rank;
    std::uint32_t signature = 0;
    int other = no_rank;
    std::uint32_t other_signature = 0;  // 0: the other rank exchanges nothing with `rank`
    bool message = false;  // `rank` receives a point-to-point message that `other` sent
    bool history = false;  // `signature` includes the history of earlier calls

    // A sentence for the error. Throws std::bad_alloc.
    std::string text() const;
};

}  // namespace vescomm::internal

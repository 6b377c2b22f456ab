// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "execute/match/mismatch.h"

#include <fmt/format.h>

#include "execute/match/signature.h"

namespace vescomm::internal {

std::string Mismatch::text() const {
    const std::string mine = Signature(signature).text();
    const std::string theirs =
        other_signature == 0 ? "nothing that fits" : Signature(other_signature).text();
    if (message)
        return fmt::format(
            "rank {} receives {} from rank {}, which sent {} instead; both must give the same "
            "count and type, in the same order",
            rank, mine, other, theirs);
    const bool arguments = Signature::differ_in_digest(signature, other_signature);
    return fmt::format(
        "rank {} called {}, where rank {} called {}{}{}{}; every rank must make the same calls in "
        "the same order",
        rank, mine, other, theirs, arguments ? arguments_differ : "",
        arguments
            ? "root, factor, algorithm, the request on a buffer or the calls of a group, which "
              "vescomm-info --flight shows after a run with VESCOMM_FLIGHT_RECORDER=flight.%r"
            : "",
        arguments && history ? ", or they differ in an earlier gather_v, scatter_v or broadcast"
                             : "");
}

}  // namespace vescomm::internal

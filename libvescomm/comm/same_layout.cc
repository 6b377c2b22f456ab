// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/same_layout.h"

#include <span>

#include "base/error.h"

namespace vescomm::internal {
namespace {

// The hashes differ: ranks exchange the layouts themselves, to find the difference.
[[noreturn]] void explain_mismatch(Communicator &comm, const Layout &layout,
                                   const std::string &label, Deadline deadline) {
    const auto bytes = layout.serialise();
    const auto all =
        comm.gather("layouts that differ",
                    {reinterpret_cast<const char *>(bytes.data()), bytes.size()}, deadline);
    const auto parse = [&](int rank) {
        return Layout::parse(std::as_bytes(std::span(all[rank].data(), all[rank].size())));
    };
    const Layout first = parse(0);
    for (int rank = 1; rank < comm.ranks(); ++rank) {
        const Layout other = parse(rank);
        if (first == other) continue;
        // The sentence begins with this rank's own layout.
        const std::string difference =
            comm.rank() == rank
                ? other.first_difference(first) + " (on rank 0)"
                : first.first_difference(other) + " (on rank " + std::to_string(rank) + ")";
        throw Error(VESCOMM_ERROR_MISMATCH,
                    label + ": the layouts of rank 0 and rank " + std::to_string(rank) +
                        " differ: " + difference +
                        "; make the layout from the same tensors on every rank");
    }
    throw Error(VESCOMM_ERROR_INTERNAL, "layouts differ in their hashes only");
}

}  // namespace

void require_same_layout(Communicator &comm, const std::string &label, Deadline deadline,
                         const Layout &layout) {
    // The hash is compared first and alone, so that a difference can be explained.
    const auto hash = layout.hash();
    const auto hashes =
        comm.gather(label, {reinterpret_cast<const char *>(&hash), sizeof hash}, deadline);
    for (const std::string &other : hashes)
        if (other != hashes[0]) explain_mismatch(comm, layout, label, deadline);
}

}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/value_state.h"

#include <algorithm>

namespace vescomm::fsdp {

// A rank that failed before an initialisation or a load, which other ranks have completed, has
// older values than they. It has the generation of the others from then on, and its values count as
// not complete.
ValueAgreement agree_on_values(std::span<const ValueReport> reports) {
    Update newest;
    for (const ValueReport &each : reports)
        if (each.last_update.number > newest.number) newest = each.last_update;
    // The generation of a rank once it has applied the newest update.
    const auto generation_of = [&newest](const ValueReport &report) {
        const bool lacks = report.last_update.number < newest.number && newest.skipped == 0;
        return report.generation + (lacks ? 1 : 0);
    };
    ValueAgreement agreed;
    for (const ValueReport &each : reports)
        agreed.generation = std::max(agreed.generation, generation_of(each));
    for (std::size_t rank = 0; rank < reports.size() && !agreed.incomplete_rank; ++rank)
        if (reports[rank].complete == 0 || generation_of(reports[rank]) != agreed.generation)
            agreed.incomplete_rank = static_cast<int>(rank);
    return agreed;
}

}  // namespace vescomm::fsdp

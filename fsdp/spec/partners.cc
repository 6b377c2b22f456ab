// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/spec/partners.h"

#include <cstddef>

namespace vescomm::fsdp {

bool has_partner_copies(const Spec &spec, const Mesh &mesh) {
    return spec.options().partner_copy != 0 && mesh.replicas() == 1 && mesh.ranks > 1;
}

int partner_distance(std::span<const int> node_of) {
    const std::size_t ranks = node_of.size();
    std::size_t best = 1;
    std::size_t most = 0;
    for (std::size_t distance = 1; distance < ranks; ++distance) {
        std::size_t elsewhere = 0;
        for (std::size_t rank = 0; rank < ranks; ++rank)
            if (node_of[(rank + distance) % ranks] != node_of[rank]) ++elsewhere;
        if (elsewhere <= most) continue;
        most = elsewhere;
        best = distance;
        if (most == ranks) break;
    }
    return static_cast<int>(best);
}

}  // namespace vescomm::fsdp

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "schedule/problem.h"

namespace vescomm::internal {

// An algorithm is a pure function from a problem and a rank to the schedule of that rank.
using Algorithm = Schedule (*)(const Problem &problem, int rank);

// Growth of the time of an algorithm with the number of nodes, for a constant share of each rank.
enum class Growth : std::uint8_t {
    linear,
    logarithmic,  // one more phase for twice the nodes
};

struct AlgorithmEntry {
    Collective collective;
    std::string_view name;
    // Path in schedule/: <collective>/<name>.cc, or common/<name>.cc for several collectives.
    std::string_view file;
    Algorithm make;
    // True if the algorithm can solve the problem.
    bool (*suits)(const Problem &problem);
    std::string_view summary;  // for users: data movement and cost
    Growth growth = Growth::linear;
    // Every rank has the whole vector, and works on a share of it.
    bool by_share = false;
    // Combines contributions in the order of ranks on several nodes too. All algorithms do so on
    // one node.
    bool in_order = false;

    // True if the algorithm suits, and keeps the order that the problem requires.
    bool solves(const Problem &problem) const {
        return suits(problem) && (in_order || !problem.in_order || problem.nodes.count() == 1 ||
                                  !reduces(problem.collective));
    }
};

// All algorithms of vescomm. Of two with about the same predicted time, select() takes the first.
std::span<const AlgorithmEntry> algorithms();

// Returns nullptr if the collective has no algorithm of that name.
const AlgorithmEntry *find_algorithm(Collective collective, std::string_view name);

namespace all_gather_v {
Schedule slab(const Problem &problem, int rank);
Schedule direct(const Problem &problem, int rank);
Schedule ring(const Problem &problem, int rank);
Schedule bruck(const Problem &problem, int rank);
bool can_bruck(const Problem &problem);
}  // namespace all_gather_v

namespace reduce_scatter_v {
Schedule direct(const Problem &problem, int rank);
Schedule ring(const Problem &problem, int rank);
Schedule balanced(const Problem &problem, int rank);
Schedule staged(const Problem &problem, int rank);
bool can_use_staging(const Problem &problem);
Schedule bruck(const Problem &problem, int rank);
bool can_bruck(const Problem &problem);
Schedule chain(const Problem &problem, int rank);
bool can_chain(const Problem &problem);
}  // namespace reduce_scatter_v

namespace all_reduce {
Schedule flat(const Problem &problem, int rank);
Schedule direct(const Problem &problem, int rank);
Schedule doubling(const Problem &problem, int rank);
bool can_double(const Problem &problem);
Schedule two_phase(const Problem &problem, int rank);
bool can_two_phase(const Problem &problem);
Schedule bruck(const Problem &problem, int rank);
bool can_bruck(const Problem &problem);
Schedule chain(const Problem &problem, int rank);
bool can_chain(const Problem &problem);
}  // namespace all_reduce

namespace reduce {
Schedule at_root(const Problem &problem, int rank);
Schedule chain(const Problem &problem, int rank);
bool can_chain(const Problem &problem);
}  // namespace reduce

namespace broadcast {
Schedule direct(const Problem &problem, int rank);
Schedule tree(const Problem &problem, int rank);
Schedule pipeline(const Problem &problem, int rank);
bool can_pipeline(const Problem &problem);
}  // namespace broadcast

namespace gather_v {
Schedule two_level(const Problem &problem, int rank);
bool can_two_level(const Problem &problem);
}  // namespace gather_v

// For several collectives; common/inline.h, common/staged.h and common/gathered.h declare the
// others.
namespace common {
Schedule two_level(const Problem &problem, int rank);
bool can_two_level(const Problem &problem);
}  // namespace common

namespace barrier {
Schedule dissemination(const Problem &problem, int rank);
}

}  // namespace vescomm::internal

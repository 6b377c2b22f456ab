// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cassert>
#include <span>
#include <string_view>

#include "schedule/problem.h"

namespace vescomm::internal {

// A function of a problem on buffers, of one on arrays, or of either.
template <typename Result, typename... Arguments>
class FunctionOfProblem {
public:
    constexpr FunctionOfProblem(Result (*function)(const BufferProblem &, Arguments...))
        : of_buffers_(function) {}
    constexpr FunctionOfProblem(Result (*function)(const ArrayProblem &, Arguments...))
        : of_arrays_(function) {}
    constexpr FunctionOfProblem(Result (*function)(const AnyProblem &, Arguments...))
        : of_any_(function) {}

    // True if problems of this kind are in the domain of the function.
    bool takes(const AnyProblem &problem) const {
        return of_any_ != nullptr ||
               (problem.buffers() != nullptr ? of_buffers_ != nullptr : of_arrays_ != nullptr);
    }
    // Only if takes(problem).
    Result operator()(const AnyProblem &problem, Arguments... arguments) const {
        assert(takes(problem));
        if (of_any_ != nullptr) return of_any_(problem, arguments...);
        if (const BufferProblem *buffers = problem.buffers())
            return of_buffers_(*buffers, arguments...);
        return of_arrays_(*problem.arrays(), arguments...);
    }

private:
    Result (*of_buffers_)(const BufferProblem &, Arguments...) = nullptr;
    Result (*of_arrays_)(const ArrayProblem &, Arguments...) = nullptr;
    Result (*of_any_)(const AnyProblem &, Arguments...) = nullptr;
};

// An algorithm is a pure function from a problem and a rank to the schedule of that rank.
using Algorithm = FunctionOfProblem<Schedule, int>;
using Condition = FunctionOfProblem<bool>;

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
    Condition condition;  // true if the algorithm can solve a problem that it takes
    std::string_view summary;  // for users: data movement and cost
    Growth growth = Growth::linear;
    // Every rank has the whole vector, and works on a share of it.
    bool by_share = false;
    // Combines contributions in the order of ranks on several nodes too. All algorithms do so on
    // one node.
    bool in_order = false;
    // reduce_scatter_v on buffers: the most elements of partial sums that a rank needs, without
    // making the schedules of all ranks. nullptr for all others.
    std::int64_t (*max_partial)(const BufferProblem &) = nullptr;

    // True if the algorithm can solve the problem.
    bool suits(const AnyProblem &problem) const {
        return make.takes(problem) && condition.takes(problem) && condition(problem);
    }
    // True if the algorithm suits, and keeps the order that the problem requires.
    bool solves(const AnyProblem &problem) const {
        return suits(problem) && (in_order || !problem->in_order || problem->nodes.count() == 1 ||
                                  !reduces(problem->collective));
    }
};

// All algorithms of vescomm. Of two with about the same predicted time, select() takes the first.
std::span<const AlgorithmEntry> algorithms();

// Returns nullptr if the collective has no algorithm of that name.
const AlgorithmEntry *find_algorithm(Collective collective, std::string_view name);

namespace all_gather_v {
Schedule slab(const BufferProblem &problem, int rank);
Schedule direct(const BufferProblem &problem, int rank);
Schedule ring(const BufferProblem &problem, int rank);
Schedule bruck(const AnyProblem &problem, int rank);
bool can_bruck(const AnyProblem &problem);
}  // namespace all_gather_v

namespace reduce_scatter_v {
Schedule direct(const BufferProblem &problem, int rank);
Schedule ring(const BufferProblem &problem, int rank);
Schedule balanced(const BufferProblem &problem, int rank);
std::int64_t max_partial_of_direct(const BufferProblem &problem);
std::int64_t max_partial_of_ring(const BufferProblem &problem);
std::int64_t max_partial_of_balanced(const BufferProblem &problem);
std::int64_t max_partial_of_bruck(const BufferProblem &problem);
Schedule staged(const ArrayProblem &problem, int rank);
bool can_use_staging(const ArrayProblem &problem);
Schedule bruck(const AnyProblem &problem, int rank);
bool can_bruck(const AnyProblem &problem);
Schedule chain(const ArrayProblem &problem, int rank);
bool can_chain(const ArrayProblem &problem);
}  // namespace reduce_scatter_v

namespace all_reduce {
Schedule flat(const ArrayProblem &problem, int rank);
Schedule direct(const BufferProblem &problem, int rank);
Schedule doubling(const AnyProblem &problem, int rank);
bool can_double(const AnyProblem &problem);
Schedule two_phase(const AnyProblem &problem, int rank);
bool can_two_phase(const AnyProblem &problem);
Schedule bruck(const AnyProblem &problem, int rank);
bool can_bruck(const AnyProblem &problem);
Schedule chain(const ArrayProblem &problem, int rank);
bool can_chain(const ArrayProblem &problem);
}  // namespace all_reduce

namespace reduce {
Schedule at_root(const AnyProblem &problem, int rank);
Schedule chain(const ArrayProblem &problem, int rank);
bool can_chain(const ArrayProblem &problem);
}  // namespace reduce

namespace broadcast {
Schedule direct(const BufferProblem &problem, int rank);
Schedule tree(const BufferProblem &problem, int rank);
Schedule pipeline(const AnyProblem &problem, int rank);
bool can_pipeline(const AnyProblem &problem);
}  // namespace broadcast

namespace gather_v {
Schedule two_level(const ArrayProblem &problem, int rank);
bool can_two_level(const ArrayProblem &problem);
}  // namespace gather_v

// For several collectives; common/inline.h, common/staged.h and common/gathered.h declare the
// others.
namespace common {
Schedule two_level(const ArrayProblem &problem, int rank);
bool can_two_level(const ArrayProblem &problem);
}  // namespace common

namespace barrier {
Schedule dissemination(const AnyProblem &problem, int rank);
}

}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Checks of what the caller passes to a collective on arrays. Errors name the function, the
// argument and its value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/handles.h"

namespace vescomm::internal {

// The common arguments of all functions.
struct Caller {
    const char *function;
    vescomm_comm_t *comm;
    vescomm_type_t type;

    int ranks() const { return comm->value->ranks(); }
    int rank() const { return comm->value->rank(); }

    // Throws Error (INVALID_ARGUMENT).
    [[noreturn]] void refuse(const std::string &why) const;

    void require_type() const;
    // Returns a number of elements.
    std::int64_t count(std::int64_t given) const;
    // Returns the tag of a message. Collectives have none.
    std::int32_t tag(const CallArguments &arguments) const;

    // Appends a list with one count for each rank.
    void counts(const std::int64_t *given, const char *name,
                std::vector<std::int64_t> &counts) const;
    // The same count for every rank.
    void equal_counts(std::int64_t given, std::vector<std::int64_t> &counts) const;

    // Returns a block of an array. `offset` and `elements` count elements.
    Piece piece(const void *array, std::int64_t offset, std::int64_t elements,
                const char *name) const;
    // Appends the blocks of an array: at `offsets`, or one after another if there are none.
    void pieces(const void *array, const std::vector<std::int64_t> &counts,
                const std::int64_t *offsets, const char *name, std::vector<Piece> &pieces) const;
};

// Refuses overlapping arrays. A written block must not overlap any other block, with one exception:
// the rank's own block may be at the same place in source and output.
void require_apart(const Caller &caller, const Call &made);

}  // namespace vescomm::internal

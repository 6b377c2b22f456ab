// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "execute/element_loops.h"
#include "execute/program.h"
#include "execute/run_context.h"

namespace vescomm::internal {

// An address in a run of a small program: a base, which stays where it was bound, and an offset.
struct SmallAddress {
    std::uint32_t base = 0;  // index in Bases
    SlotKind slot = SlotKind::none;  // it lies in this slot of the run
    std::uint64_t offset = 0;  // bytes, in slot 0
};

struct SmallStep {
    Action action = Action::acquire;  // no put
    bool pairs = false;  // signal, wait: pair flags instead of inline_flag
    std::uint32_t local = 0;  // wait: local rank of the peer
    std::int32_t peer = 0;  // wait
    std::uint32_t first_source = 0, sources = 0;  // reduction: in SmallProgram::sources
    SmallAddress to = {}, from = {};  // copy; reduction: `to`
    std::uint64_t bytes = 0;  // copy: written; reduction: read
    std::size_t count = 0;  // reduction: elements
    ElementLoops::SingleLoop loop = {};  // reduction
};

// The program of a call on up to some KiB: one lane, on one node, with blocks beside inline or pair
// flags. Such a call spends most of its time in the executor, so the steps are kept in a form that
// takes few cache lines and few branches. Step i is step i of the lane.
struct SmallProgram {
    std::vector<SmallStep> steps;  // none: the program is not small
    std::vector<SmallAddress> sources;  // of reductions

    // `program`: not run yet.
    SmallProgram(const Program &program, const Bindings &bindings, const ElementLoops &loops);
};

}  // namespace vescomm::internal

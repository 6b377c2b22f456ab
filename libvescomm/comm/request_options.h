// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "execute/bindings.h"
#include "execute/match/signature.h"
#include "schedule/problem.h"
#include "vescomm/vescomm.h"

namespace vescomm::internal {

// The arguments of a collective or of a message.
struct RequestOptions {
    Collective collective = Collective::barrier;
    vescomm_op_t op = VESCOMM_SUM;
    double factor = 0;  // with VESCOMM_PREMULTIPLIED_SUM; 0 with every other op
    int root = 0;  // messages: the peer; receive: a rank, or VESCOMM_ANY_SOURCE
    // Arrays: the type of source and output. Buffers: the type of the two arrays below.
    vescomm_type_t type = VESCOMM_F32;
    // Buffers: arrays that replace this rank's shard; nullptr: none. Arrays: not used.
    const void *source = nullptr;
    void *output = nullptr;
    std::string algorithm = {};  // empty: select() decides
    bool operator==(const RequestOptions &) const = default;
};

// The arrays of a call, and the tag of a message: what a request can be given anew for another
// call.
struct RequestArrays {
    std::vector<std::int64_t> cuts;  // Problem::cuts
    Exchange exchange;  // all_to_all_v
    CallBoundaries boundaries;
    std::vector<Piece> source, output;
    std::int32_t tag = 0;
    bool operator==(const RequestArrays &) const = default;
};

// Throws Error (INVALID_ARGUMENT) if op, factor or root is wrong. `combined`: the type of the
// contributions to a reduction.
void check(const Communicator &comm, const RequestOptions &options, vescomm_type_t combined);

// Throws Error with a sentence that begins with the name of the collective.
[[noreturn]] void refuse(vescomm_status_t status, const RequestOptions &options,
                         const std::string &why);

}  // namespace vescomm::internal

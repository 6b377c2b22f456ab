// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The shards of an engine as pieces of a checkpoint. The layout is not part of a checkpoint:
// another number of ranks, preset or block size asks for other pieces of the same tensors.
#pragma once

#include <string>
#include <vector>

#include "fsdp/checkpoint/tensor.h"
#include "fsdp/engine/shards.h"
#include "fsdp/engine/wiring.h"

namespace vescomm::fsdp {

// A part of a tensor and its memory in the shards of this rank.
struct ShardPiece {
    checkpoint::Tensor tensor;
    std::int64_t first = 0;  // element of the tensor
    std::int64_t count = 0;  // at least 1
    void *data = nullptr;
};

// Masters, in the role "master", and states of optimizers, in roles with the names of the states,
// of this rank's shards.
std::vector<ShardPiece> shard_pieces(const Model &model, const Shards &shards, int rank);

// Tensors of parameters without elements, of which no rank has a piece.
std::vector<checkpoint::Tensor> empty_tensors(const Model &model);

}  // namespace vescomm::fsdp

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Loads of masters that were saved in another type: into f32 they are exact, into bf16 or f16
// rounded to the nearest.
#pragma once

#include <span>

#include "fsdp/checkpoint/catalogue.h"
#include "fsdp/checkpoint/load.h"

namespace vescomm::fsdp {

// Returns the type in which to read a tensor of an engine: that of the save, if it is a master in
// f32, bf16 or f16, else its own. Pure.
vescomm_type_t stored_type(const checkpoint::Catalogue &catalogue,
                           const checkpoint::Tensor &wanted);

struct ConvertedPiece {
    checkpoint::WantedPiece piece;  // with the type of the save
    vescomm_type_t type = VESCOMM_F32;  // of its data
};

// Takes memory for some megabytes of a piece at a time. Throws as Checkpoint::read().
void read_converted(checkpoint::Checkpoint &opened, std::span<const ConvertedPiece> pieces);

}  // namespace vescomm::fsdp

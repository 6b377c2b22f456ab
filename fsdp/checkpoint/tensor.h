// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Tensors and their pieces: the values that a checkpoint holds. A tensor is cut into pieces that
// are intervals of its elements in row-major order. A rank saves the pieces that it owns, and any
// number of ranks loads other pieces.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "vescomm/vescomm.h"

namespace vescomm::fsdp::checkpoint {

// A tensor in one role, such as the master or a moment of a parameter.
struct Tensor {
    std::string name;  // at most max_name_bytes of UTF-8
    std::string role;  // 1 to max_role_bytes of letters, digits, '_', '-' and '.'
    std::vector<std::int64_t> shape;  // row-major; empty for a scalar
    vescomm_type_t type = VESCOMM_F32;  // any but c128, which safetensors lacks

    bool operator==(const Tensor &) const = default;
};

constexpr std::size_t max_name_bytes = 896;
constexpr std::size_t max_role_bytes = 64;

// True if a JSON index can have the name.
bool is_utf8(const std::string &text);

// Elements [first, first + count) of a tensor, to be saved.
struct Piece {
    Tensor tensor;
    std::int64_t first = 0;
    std::int64_t count = 0;  // may be 0: the tensor is then declared only
    const void *data = nullptr;  // `count` elements, borrowed until the call has copied them
};

// Elements [first, first + count) of a tensor, to be loaded.
struct WantedPiece {
    Tensor tensor;
    std::int64_t first = 0;
    std::int64_t count = 0;
    void *data = nullptr;  // receives `count` elements
};

// The largest extra: a load keeps those of all ranks in memory, and an index may claim any number.
constexpr std::int64_t max_extra_bytes = std::int64_t{64} << 20;

// Bytes of the program beside the tensors: step, random state, learning-rate schedule. A name is
// given by one rank only.
struct Extra {
    std::string name;  // 1 to max_name_bytes of UTF-8
    std::string bytes;
};

// Throws Error if a save cannot have as many bytes of the program of a rank.
void check_extra_bytes(std::size_t bytes, int rank);

// Returns the number of elements. Throws Error if the tensor is not as described above; `where`
// begins the sentence.
std::int64_t check_tensor(const Tensor &tensor, const std::string &where);

// Throws Error unless [first, first + count) lies in the tensor. Returns the bytes of the piece.
std::int64_t check_piece(const Tensor &tensor, std::int64_t first, std::int64_t count,
                         const std::string &where);

// Returns the tensor's name and role, for messages.
std::string describe(const Tensor &tensor);

// Returns the name of the entry of a safetensors file that holds a piece:
// "master/layers.0.w[0:64]".
std::string entry_name(const Tensor &tensor, std::int64_t first, std::int64_t count);
// Returns the name of the entry that holds an extra. No role contains a colon.
std::string entry_name(const std::string &extra);

}  // namespace vescomm::fsdp::checkpoint

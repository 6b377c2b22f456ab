// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The index of a rank: the contents of its safetensors file, as JSON.
//
//     {"format": "vescomm-checkpoint", "version": 1, "rank": 0, "ranks": 5,
//      "checksum_bytes": 1048576,
//      "tensors": [{"name": "layers.0.w", "role": "master", "dtype": "F32", "shape": [100, 32],
//                   "pieces": [{"first": 0, "count": 640, "checksums": ["0f1e..."]}]}],
//      "extras": [{"name": "step", "bytes": 8, "checksums": ["..."]}]}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fsdp/checkpoint/tensor.h"

namespace vescomm::fsdp::checkpoint {

// Checksums of consecutive chunks of an entry; the last chunk may be shorter. XXH3, 64 bits.
using Checksums = std::vector<std::uint64_t>;

struct IndexedPiece {
    std::int64_t first = 0;  // element of the tensor
    std::int64_t count = 0;
    Checksums checksums;  // none if count is 0, and the file has no entry then

    bool operator==(const IndexedPiece &) const = default;
};

struct IndexedTensor {
    Tensor tensor;
    std::vector<IndexedPiece> pieces;

    bool operator==(const IndexedTensor &) const = default;
};

struct IndexedExtra {
    std::string name;
    std::int64_t bytes = 0;
    Checksums checksums;

    bool operator==(const IndexedExtra &) const = default;
};

struct Index {
    int rank = 0;
    int ranks = 1;  // of the job that saved
    std::int64_t checksum_bytes = 0;  // bytes of a chunk; 1 to max_checksum_bytes
    std::vector<IndexedTensor> tensors;
    std::vector<IndexedExtra> extras;

    bool operator==(const Index &) const = default;
};

// A reader allocates a chunk, so a damaged index must not make it large.
constexpr std::int64_t max_checksum_bytes = std::int64_t{64} << 20;
// Limits of files that are read whole.
constexpr std::int64_t max_index_bytes = std::int64_t{1} << 30;
constexpr int max_ranks = 1 << 20;

// The name and the version of the format, in every JSON file of a checkpoint.
constexpr std::string_view format_name = "vescomm-checkpoint";
constexpr std::int64_t format_version = 1;

// Returns the number of chunks of an entry.
std::int64_t chunks_of(std::int64_t bytes, std::int64_t checksum_bytes);

// Throws Error if a name is no UTF-8.
std::string to_json(const Index &index, const std::string &where);

// Parses an index. Tensors, pieces and checksums have the sizes that this page promises; nothing is
// known yet about other ranks or the safetensors file. Throws formats::InputError.
Index parse_index(std::string_view text, const std::string &where);

// Returns the checksum of bytes that are read whole.
std::uint64_t checksum_of(std::string_view bytes);

}  // namespace vescomm::fsdp::checkpoint

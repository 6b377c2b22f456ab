// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// All tensors of a save, and the rank whose file holds each element. A value, computed from the
// indexes of all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fsdp/checkpoint/index.h"

namespace vescomm::fsdp::checkpoint {

// A piece in the file of a rank.
struct StoredPiece {
    int rank = 0;
    std::int64_t first = 0;  // element of the tensor
    std::int64_t count = 0;  // at least 1
    Checksums checksums;
};

struct StoredTensorPieces {
    Tensor tensor;
    // In order of elements. They cover the tensor without gaps and overlaps.
    std::vector<StoredPiece> pieces;
};

struct StoredExtra {
    int rank = 0;
    std::int64_t bytes = 0;
    Checksums checksums;
};

// A part of a wanted piece: elements of one stored piece.
struct Part {
    const StoredPiece *piece = nullptr;
    std::int64_t first = 0;  // element of the tensor
    std::int64_t count = 0;  // at least 1
};

class Catalogue {
public:
    // `indexes` has the index of each rank, in order of ranks. Throws formats::InputError, which
    // begins with `where`, if two indexes describe a tensor differently, if a tensor has gaps or
    // elements that were saved twice, and if two extras have one name.
    Catalogue(std::vector<Index> indexes, const std::string &where);

    int ranks() const { return ranks_; }  // of the job that saved
    std::int64_t checksum_bytes() const { return checksum_bytes_; }
    // Sorted by role and name.
    const std::map<std::pair<std::string, std::string>, StoredTensorPieces> &tensors() const {
        return tensors_;
    }
    const std::map<std::string, StoredExtra> &extras() const { return extras_; }

    // Returns the tensor of that name and role. Throws Error if there is none, or if its shape or
    // type differs.
    const StoredTensorPieces &find(const Tensor &wanted, const std::string &where) const;

private:
    void add(Index index, const std::string &where);

    int ranks_ = 0;
    std::int64_t checksum_bytes_ = 0;
    std::map<std::pair<std::string, std::string>, StoredTensorPieces> tensors_;
    std::map<std::string, StoredExtra> extras_;
};

// Returns the parts of elements [first, first + count), which lie in the tensor, in order.
std::vector<Part> parts_of(const StoredTensorPieces &stored, std::int64_t first,
                           std::int64_t count);

}  // namespace vescomm::fsdp::checkpoint

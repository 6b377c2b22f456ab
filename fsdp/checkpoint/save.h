// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <span>
#include <string>

#include "fsdp/checkpoint/agreement.h"
#include "fsdp/checkpoint/system_calls.h"
#include "fsdp/checkpoint/tensor.h"

namespace vescomm::fsdp::checkpoint {

struct SaveOptions {
    // Saves that remain in the folder, the new one included. At least 1.
    int keep = 2;
    // Bytes for which a checksum is stored; the same on all ranks. A load reads whole chunks of
    // this size.
    std::int64_t checksum_bytes = std::int64_t{1} << 20;
};

struct SaveResult {
    std::string save;  // name of the save in its folder
    // Empty, or a sentence: an older save could not be removed. The new one is complete.
    std::string warning;
};

// Conditions of one save that its caller may change.
struct SaveContext {
    SystemCalls *calls = &system_calls();
    // Set to true by another thread to end the save with an error. May be null.
    const std::atomic<bool> *cancelled = nullptr;
    // An error that already happened on this rank. The save then fails on all ranks.
    std::exception_ptr failure = nullptr;
};

// Saves the pieces of all ranks into a new save of `folder`, which all ranks must see. The tensors
// must be covered by the pieces of all ranks, each element once.
//
// Before: the folder may have saves, or not exist. After: the new save is the latest one, and older
// ones beyond options.keep are removed. On any error, and if processes end at any moment, the
// latest save is the one before or the new one, and complete.
//
//     all ranks    rank-N.safetensors, rank-N.json, each on the disk (fsync)
//     rank 0       checks all indexes: no gaps, no overlaps
//                  manifest.json, the folder, then the rename of `latest`: the commit
//                  removes old and incomplete saves
//
// Throws Error on all ranks; the sentence names the rank, the file and the system call. Without an
// answer of another rank, the error is that of the agreement.
//
// Collective.  Blocking: yes.  Cost: each rank writes its bytes once; three all-gathers.
SaveResult save(const std::string &folder, std::span<const Piece> pieces,
                std::span<const Extra> extras, Agreement &agreement,
                const SaveOptions &options = {}, const SaveContext &context = {});

}  // namespace vescomm::fsdp::checkpoint

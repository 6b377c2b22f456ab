// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The safetensors file of a rank: an entry of one dimension for each piece, and an entry of bytes
// for each extra.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "fsdp/checkpoint/catalogue.h"
#include "fsdp/checkpoint/files.h"
#include "fsdp/checkpoint/index.h"
#include "fsdp/checkpoint/tensor.h"
#include "planner/formats/safetensors_header.h"

namespace vescomm::fsdp::checkpoint {

// Bytes of an entry of the file that will be written.
struct Entry {
    formats::StoredTensor header;
    std::span<const std::byte> bytes;
    Checksums *checksums = nullptr;  // receives the checksums; in the index
};

// The entries of a file in their order, and its index without checksums. Entries of large types
// precede, so that every entry is aligned in a mapping of the file.
struct DataPlan {
    Index index;
    std::vector<Entry> entries;
};

// Checks all pieces and extras of a rank. Throws Error. The plan borrows the data.
DataPlan plan_data(int rank, int ranks, std::span<const Piece> pieces,
                   std::span<const Extra> extras, std::int64_t checksum_bytes);

// Writes the file, waits until it is on the disk, and fills the checksums of the index. Returns the
// size of the file. `check` is called before each chunk and may throw to end the save.
std::int64_t write_data(SystemCalls &calls, const std::string &path, DataPlan &plan,
                        const std::function<void()> &check);

// Reads entries of the file of one rank.
class DataFile {
public:
    // Opens the file and checks its header. Throws Error(SYSTEM), or formats::InputError if the
    // file is not as `data_bytes` says or damaged.
    DataFile(SystemCalls &calls, const std::string &path, std::int64_t data_bytes,
             std::int64_t checksum_bytes);

    // Reads bytes [begin, begin + output.size()) of an entry, and compares the checksums of all
    // chunks that it touches. Throws formats::InputError if there is no such entry, if it is not of
    // that type and count, or if a checksum differs.
    void read(const std::string &entry, vescomm_type_t type, std::int64_t count,
              const Checksums &checksums, std::int64_t begin, std::span<std::byte> output) const;

private:
    InputFile file_;
    std::string where_;
    std::int64_t data_begin_ = 0;
    std::int64_t checksum_bytes_ = 0;
    std::unordered_map<std::string, formats::StoredTensor> entries_;
};

}  // namespace vescomm::fsdp::checkpoint

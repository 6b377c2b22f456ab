// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The training text and the selection of sequences for each step.
//
//     │◄──────────── training: nine tenths ────────────►│◄─ held out ─►│
//          ▲ sequence 1 of step 7    ▲ sequence 0          ▲     ▲     ▲   evenly spaced
//
// Sequences belong to the step, not to the ranks: a rank computes its share of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace train_gpt {

// Sequences [begin, end).
struct Share {
    int begin = 0;
    int end = 0;

    int size() const { return end - begin; }
    bool operator==(const Share &) const = default;
};

// Returns a rank's share of a number of sequences. Shares are contiguous in rank order and differ
// by at most one sequence. With more ranks than sequences some shares are empty.
Share share_of(int sequences, int rank, int ranks);

// Row-major [sequences][context].
struct Batch {
    int sequences = 0;
    std::vector<std::uint8_t> inputs;
    std::vector<std::uint8_t> targets;  // the byte that follows each input
};

// A text of which a tenth is held out.
class TextData {
public:
    // source: describes the origin of the bytes in reports. Throws std::runtime_error when the text
    // is too short for sequences of this context.
    TextData(std::vector<std::uint8_t> bytes, std::string source, int context);

    // Returns a share of the batch of a step.
    Batch training(std::uint64_t seed, int step, Share share) const;

    int held_out_sequences() const { return held_out_sequences_; }
    // Returns a share of the held-out sequences.
    Batch held_out(Share share) const;

    std::size_t size() const { return bytes_.size(); }
    std::size_t held_out_begin() const { return held_out_begin_; }
    const std::string &source() const { return source_; }
    // Returns a hash of the bytes that is the same on every machine.
    std::uint64_t hash() const;

private:
    std::vector<std::uint8_t> bytes_;
    std::string source_;
    int context_;
    std::size_t held_out_begin_;
    int held_out_sequences_;
};

// Returns the FNV-1a hash.
std::uint64_t hash_of(std::span<const std::uint8_t> bytes);

// Reads a file, or all files of a folder and its subfolders in the order of their names, without
// hidden ones. An empty path means the source of the newest Python standard library. Throws
// std::runtime_error.
TextData load_text(const std::string &path, int context);

// Returns the folder of the newest Python below one of `places`, for instance /usr/lib/python3.11;
// empty when there is none.
std::filesystem::path newest_python(std::span<const std::filesystem::path> places);

}  // namespace train_gpt

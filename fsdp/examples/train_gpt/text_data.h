// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The text to learn, and which bytes of it a step reads.
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

// What a rank computes of a number of sequences: shares of ranks follow one another, and differ by
// one sequence at most. With more ranks than sequences some have none.
Share share_of(int sequences, int rank, int ranks);

// Row-major [sequences][context].
struct Batch {
    int sequences = 0;
    std::vector<std::uint8_t> inputs;
    std::vector<std::uint8_t> targets;  // the byte that follows each input
};

// A text of which a tenth is held out. Throws std::runtime_error when it is too short for sequences
// of this context.
class TextData {
public:
    // source: where the bytes come from, for people.
    TextData(std::vector<std::uint8_t> bytes, std::string source, int context);

    // Part of the batch of a step.
    Batch training(std::uint64_t seed, int step, Share share) const;

    // How many sequences are held out, and some of them.
    int held_out_sequences() const { return held_out_sequences_; }
    Batch held_out(Share share) const;

    std::size_t size() const { return bytes_.size(); }
    std::size_t held_out_begin() const { return held_out_begin_; }
    const std::string &source() const { return source_; }
    // The same for the same bytes, on every machine.
    std::uint64_t hash() const;

private:
    std::vector<std::uint8_t> bytes_;
    std::string source_;
    int context_;
    std::size_t held_out_begin_;
    int held_out_sequences_;
};

// FNV-1a.
std::uint64_t hash_of(std::span<const std::uint8_t> bytes);

// A file; or the files of a folder and those below it, in the order of their names, without hidden
// ones; nothing: the source of the newest Python standard library. Throws std::runtime_error.
TextData load_text(const std::string &path, int context);

// The folder of the newest Python below one of these, say /usr/lib/python3.11; empty when there is
// none.
std::filesystem::path newest_python(std::span<const std::filesystem::path> places);

}  // namespace train_gpt

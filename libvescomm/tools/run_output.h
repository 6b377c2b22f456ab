// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace vescomm::internal {

// One standard stream of the launcher. Output is queued until the stream accepts it, so that a slow
// reader never blocks the launcher.
class OutputSink {
public:
    explicit OutputSink(int descriptor) : descriptor_(descriptor) {}

    int descriptor() const { return descriptor_; }
    void write(std::string_view bytes);
    bool empty() const { return waiting_.empty(); }
    // True if more than 1 MiB is queued; callers should not add more.
    bool full() const { return waiting_.size() > (std::size_t{1} << 20); }
    // True if the reader has closed the stream; output is discarded.
    bool broken() const { return broken_; }

    // Writes a part of the queue. Call it when the stream is ready.
    void write_some();

private:
    int descriptor_;
    std::string waiting_;
    bool broken_ = false;
};

// Splits the output of one rank into lines, and writes each line with a prefix to the sink in one
// piece, so lines of different ranks do not mix. With an empty prefix the bytes are unchanged.
class LineWriter {
public:
    LineWriter(std::string prefix, OutputSink &sink) : prefix_(std::move(prefix)), sink_(sink) {}

    void add(std::string_view bytes);
    // Writes the rest as a line when the rank has closed its stream.
    void finish();

private:
    void write_line(std::string_view line);

    std::string prefix_;
    OutputSink &sink_;
    std::string partial_;
};

}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace vescomm {

// One standard stream of the launcher. What is written waits here until the stream takes it, so
// that a slow reader never keeps the launcher from its ranks.
class OutputSink {
public:
    explicit OutputSink(int descriptor) : descriptor_(descriptor) {}

    int descriptor() const { return descriptor_; }
    void write(std::string_view bytes);
    bool empty() const { return waiting_.empty(); }
    // So much waits that nothing should be added.
    bool full() const { return waiting_.size() > (std::size_t{1} << 20); }
    // The reader is gone; what is written is lost.
    bool broken() const { return broken_; }

    // The stream is ready. Writes a little.
    void write_some();

private:
    int descriptor_;
    std::string waiting_;
    bool broken_ = false;
};

// The output of one rank, cut into lines that reach the sink in one piece, each behind a prefix.
// With an empty prefix the bytes are unchanged; lines of different ranks still do not mix.
class LineWriter {
public:
    LineWriter(std::string prefix, OutputSink &sink) : prefix_(std::move(prefix)), sink_(sink) {}

    void add(std::string_view bytes);
    // The rank has closed its stream: what is left is a line too, even if it does not end as one.
    void finish();

private:
    void write_line(std::string_view line);

    std::string prefix_;
    OutputSink &sink_;
    std::string partial_;
};

}  // namespace vescomm

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/run_output.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace vescomm::internal {

namespace {

// Longer lines are split, so that a rank that never ends a line cannot fill the memory.
constexpr std::size_t max_line_bytes = std::size_t{16} << 20;

}  // namespace

void OutputSink::write(std::string_view bytes) {
    if (!broken_) waiting_.append(bytes);
}

// Writes at most PIPE_BUF bytes: a ready pipe accepts these without blocking.
void OutputSink::write_some() {
    std::size_t done = 0;
    while (done < waiting_.size()) {
        const std::size_t count = std::min<std::size_t>(waiting_.size() - done, PIPE_BUF);
        const ssize_t written = ::write(descriptor_, waiting_.data() + done, count);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            if (errno == EAGAIN) break;
            broken_ = true;
            waiting_.clear();
            return;
        }
        done += static_cast<std::size_t>(written);
        break;
    }
    waiting_.erase(0, done);
}

void LineWriter::add(std::string_view bytes) {
    while (!bytes.empty()) {
        const std::size_t end = bytes.find('\n');
        if (end == std::string_view::npos) {
            partial_.append(bytes);
            if (partial_.size() > max_line_bytes) finish();
            return;
        }
        if (partial_.empty()) {
            write_line(bytes.substr(0, end + 1));
        } else {
            partial_.append(bytes.substr(0, end + 1));
            write_line(partial_);
            partial_.clear();
        }
        bytes.remove_prefix(end + 1);
    }
}

void LineWriter::finish() {
    if (partial_.empty()) return;
    // Without a newline, the next rank's line would continue this one.
    if (!prefix_.empty()) partial_ += '\n';
    write_line(partial_);
    partial_.clear();
}

void LineWriter::write_line(std::string_view line) {
    sink_.write(prefix_);
    sink_.write(line);
}

}  // namespace vescomm::internal

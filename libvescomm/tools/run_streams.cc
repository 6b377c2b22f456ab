// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/run_streams.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace vescomm::internal {

RankStreams::RankStreams() : out_(STDOUT_FILENO), err_(STDERR_FILENO) {}

void RankStreams::add(StartedProcess &process, const std::string &prefix) {
    streams_.push_back({std::move(process.output), LineWriter(prefix, out_), out_});
    streams_.push_back({std::move(process.errors), LineWriter(prefix, err_), err_});
}

void RankStreams::watch(std::vector<pollfd> &entries) const {
    for (const OutputSink *sink : {&out_, &err_})
        entries.push_back({sink->empty() ? -1 : sink->descriptor(), POLLOUT, 0});
    for (const Stream &stream : streams_)
        entries.push_back({stream.sink.full() ? -1 : stream.pipe.get(), POLLIN, 0});
}

void RankStreams::copy(const pollfd *entries) {
    for (OutputSink *sink : {&out_, &err_})
        if (entries++->revents != 0) sink->write_some();
    for (Stream &stream : streams_)
        if (entries++->revents != 0) copy(stream);
    std::erase_if(streams_, [](const Stream &stream) { return !stream.pipe.open(); });
}

void RankStreams::copy(Stream &stream) {
    std::array<char, 65536> buffer;
    while (stream.pipe.open() && !stream.sink.full()) {
        // If the launcher's stream is broken, close the pipe: the rank gets SIGPIPE, as it would
        // without the launcher.
        if (stream.sink.broken()) {
            stream.pipe = Descriptor();
            return;
        }
        const ssize_t got = read(stream.pipe.get(), buffer.data(), buffer.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) {
            stream.lines.finish();
            stream.pipe = Descriptor();
            return;
        }
        stream.lines.add({buffer.data(), static_cast<std::size_t>(got)});
    }
}

void RankStreams::copy_rest() {
    for (Stream &stream : streams_) {
        copy(stream);
        stream.lines.finish();
    }
}

void RankStreams::flush() {
    for (OutputSink *sink : {&out_, &err_})
        while (!sink->empty()) {
            pollfd entry{sink->descriptor(), POLLOUT, 0};
            poll(&entry, 1, -1);
            sink->write_some();
        }
}

void RankStreams::say(const std::string &text) {
    err_.write("vescomm-run: " + text + "\n");
}

}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <cstddef>
#include <list>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "tools/run_output.h"
#include "tools/run_process.h"

namespace vescomm::internal {

// Copies the output of the ranks to the launcher's own streams.
class RankStreams {
public:
    RankStreams();

    // Takes the pipes of a rank. Each line gets the prefix.
    void add(StartedProcess &process, const std::string &prefix);

    // Adds the events for poll(): space in the launcher's streams, and output of ranks.
    void watch(std::vector<pollfd> &entries) const;
    // `entries`: those that watch() has added, from the first on, with the result of poll().
    void copy(const pollfd *entries);
    // Copies what the ranks have written until now, once all of them have ended. It does not wait
    // for the end of the pipes: a process that a rank left behind may hold one open.
    void copy_rest();
    // Writes all that is queued. It may block.
    void flush();
    // Writes a line of the launcher to its standard error.
    void say(const std::string &text);

private:
    struct Stream {
        Descriptor pipe;
        LineWriter lines;
        OutputSink &sink;
    };

    static void copy(Stream &stream);

    OutputSink out_;
    OutputSink err_;
    std::list<Stream> streams_;
};

}  // namespace vescomm::internal

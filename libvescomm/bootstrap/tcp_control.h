// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/descriptor.h"
#include "bootstrap/control.h"
#include "bootstrap/tcp_address.h"

namespace vescomm {

// The control plane as a star of TCP connections around rank 0.
//
//     rank 1 ──┐                 Every rank knows whether rank 0 lives, rank 0 whether each of the
//     rank 2 ──┼── rank 0        others does, and it passes on the first failure: an end of file,
//     rank 3 ──┘                 a silence, or what fail() was told.
//
// One background thread per rank waits for sockets, answers heartbeats while the program computes,
// and wakes about once a second when nothing happens. See frame.h for what keeps strangers out.
//
// An all-gather costs two latencies and sends everything through rank 0, which is right for the few
// kilobytes of set-up and wrong for data.
//
// A rank that dies is known to all at once, by the end of its connections. One whose machine or
// network vanished is known after `silence_seconds`; so is one that was killed while a child that
// it forked (without exec) still holds its connections open.
struct TcpControlOptions {
    int rank = 0;
    int ranks = 1;
    // Where rank 0 listens: rank 0 on the first, the others try all. Ignored for one rank.
    std::vector<TcpAddress> addresses;
    // Not empty, the same on every rank. Ignored for one rank.
    std::string secret;
    // Rank 0: a TCP socket that listens already, used instead of `addresses`. Borrowed: a copy is
    // taken, and the original may serve the next communicator.
    int listen_descriptor = -1;
    // An idle connection carries a sign of life this often.
    double heartbeat_seconds = 1.0;
    // A peer silent for longer is lost. Ten heartbeats: enough for a process that is stopped for a
    // moment or a machine that swaps. Time in which this process itself stood still does not count.
    double silence_seconds = 10.0;
    // After ranks failed to meet, rank 0 stays this long to tell the others why, unless all know.
    double linger_seconds = 3.0;
};

// Blocks until all ranks have met. Throws Error:
//   INVALID_ARGUMENT  an option is wrong, or libvescomm cannot use it
//   TIMEOUT           ranks stayed away, the sentence names them; or rank 0 cannot be reached
//   MISMATCH          two processes claim one rank, ranks differ in the number of ranks or in the
//                     version; every rank is told. Or rank 0 has another secret: only this rank is.
//   PEER_FAILED       a rank died while others were still awaited
//   SYSTEM            the port is in use, or the operating system refused something else
//
// The listener is called from the background thread; it must not destroy the Control. With one rank
// there is neither socket nor thread, and fail() calls it itself.
//
// Failures that happen at the same time on several ranks may leave each rank with its own first
// cause; otherwise all ranks report the same.
std::unique_ptr<Control> connect_tcp_control(const TcpControlOptions &options, Deadline deadline);

// Rank 0 when only somebody else's all-gather connects the ranks: it listens on a free port, hands
// `addresses` to the others, and passes the descriptor on as `listen_descriptor`.
struct TcpMeetingPoint {
    Descriptor listener;
    std::vector<TcpAddress> addresses;
};
TcpMeetingPoint open_tcp_meeting_point();

}  // namespace vescomm

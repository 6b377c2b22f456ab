// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "bootstrap/frame.h"
#include "vescomm/vescomm.h"

namespace vescomm::internal {

class DescriptorExchange;

// Identifies a communicator within its session.
struct Membership {
    // number of the session in this process; 0: the communicator has no session
    std::uint64_t session = 0;
    std::uint32_t group = 0;  // number of the communicator in the session, the same on every rank
    std::vector<int> processes;  // by rank: number of the rank's process in the session
};

// The control plane of one communicator: an all-gather for set-up, and notification of failures. It
// never carries tensor data.
//
// Threads: all-gathers and leaving from one thread at a time; the rest from any thread.
class Control {
public:
    // Called at most once, with the first cause of failure. The caller is a thread of the control
    // plane, or a thread in which an all-gather is about to throw that cause.
    using Listener = std::function<void(vescomm_status_t, const std::string &)>;

    virtual ~Control() = default;

    virtual int rank() const = 0;
    virtual int ranks() const = 0;

    // ---- the all-gather: collective; every rank contributes bytes and receives all contributions
    // ----

    // Starts an all-gather; one may be under way at a time. `label` names the call ("buffer
    // \"block.3\" creation"). If ranks start with different labels, the communicator fails with
    // MISMATCH, naming two of the ranks and both labels. Throws the communicator's failure.
    virtual void start_all_gather(std::string_view label, std::string_view bytes) = 0;
    // Returns the contributions by rank, or nothing while some are missing. Throws the
    // communicator's failure: PEER_FAILED names a rank that died.
    virtual std::optional<std::vector<std::string>> test_all_gather() = 0;
    // Called when the caller's deadline has passed: fails the communicator and throws TIMEOUT,
    // naming the ranks that have not arrived.
    [[noreturn]] virtual void expire_all_gather(double waited_seconds) = 0;
    // Runs one all-gather to its end. Blocking. Throws TIMEOUT at the deadline.
    std::vector<std::string> all_gather(std::string_view label, std::string_view bytes,
                                        Deadline deadline);

    // ---- the end ----

    // Starts an orderly end by sending goodbye. A rank that disappears without goodbye is a
    // failure; a rank that disappears after its goodbye is not.
    virtual void start_leave() = 0;
    // True when every rank has said goodbye, or the communicator is broken.
    virtual bool test_leave() = 0;
    // Called when the caller stops waiting for the other ranks: nothing is reported to it any more.
    virtual void end_leave() noexcept = 0;
    // True when `rank` has said goodbye.
    virtual bool has_left(int rank) const = 0;
    // True when some rank has.
    virtual bool any_has_left() const = 0;
    // start_leave() and wait. Blocks at most until the deadline.
    void leave(Deadline deadline) noexcept;

    // ---- events ----

    // Sets a function that the control thread calls after each event: a result, a goodbye, a
    // failure or the end. An empty function removes it; on_event() does not return while a call
    // runs.
    virtual void on_event(std::function<void()> call) = 0;
    // Waits until events() differs from `seen`, at most until the given time.
    virtual void wait_event(std::uint64_t seen, Clock::time_point until) = 0;
    // Number of events so far.
    virtual std::uint64_t events() const = 0;

    // Sets the function that receives the first failure of the communicator, on whichever rank it
    // happened. A failure that is already known is delivered at once, from the calling thread.
    virtual void listen(Listener listener) = 0;
    // Notifies every rank that the communicator is broken, and why. Does not block.
    virtual void fail(vescomm_status_t status, const std::string &why) noexcept = 0;
    // Once the communicator is broken: waits until this process has notified the others, because
    // the program may end it next. At most max_flush_time.
    virtual void flush_failure() noexcept {}

    // ---- notes: a few bytes from rank to rank, which may get lost ----

    // Sends a note of at most max_note_bytes. Does not block. Returns false if this control plane
    // has no notes.
    virtual bool send_note(int rank, std::string bytes);
    // Returns the notes that have arrived, with the ranks that sent them. The arrival is an event.
    virtual std::vector<std::pair<int, std::string>> take_notes() { return {}; }
    // True when a note has arrived. Cost: a load.
    virtual bool has_notes() const noexcept { return false; }

    // ---- other communicators; not every control plane can make them ----

    // Creates a control plane for a subgroup. Collective over the members, given by rank; this rank
    // must be one of them. `words` must be equal on all members and must differ between the
    // subgroups of this communicator. Throws Error.
    virtual std::unique_ptr<Control> subgroup(std::string_view words,
                                              const std::vector<int> &members, Deadline deadline);
    // Creates a control plane for the surviving ranks except those in `failed`, in the order of
    // their ranks, which are written to `survivors`. Collective over these ranks. If ranks die
    // meanwhile, the others begin again. Throws Error.
    std::unique_ptr<Control> shrink(const std::set<int> &failed, Deadline deadline,
                                    std::vector<int> &survivors) const {
        return shrinking()(failed, deadline, survivors);
    }
    using Shrink = std::function<std::unique_ptr<Control>(
        const std::set<int> &failed, Deadline deadline, std::vector<int> &survivors)>;
    // Returns shrink() as a function that outlives this object.
    virtual Shrink shrinking() const;

    // ---- services for other parts of the library ----

    // A key that only the processes of this job can compute: a keyed hash of the job's secret.
    virtual FrameKey derive_key(std::string_view purpose) const = 0;
    // The numeric address of this process's interface that the other ranks can reach; empty if
    // unknown.
    virtual std::string local_address() const = 0;
    // Transports use it to share connections. By default the communicator is alone in its session.
    virtual Membership membership() const;
    // Passes descriptors between processes of one machine.
    virtual DescriptorExchange &descriptors();
};

}  // namespace vescomm::internal

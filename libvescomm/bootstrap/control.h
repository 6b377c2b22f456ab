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
#include <vector>

#include "base/deadline.h"
#include "bootstrap/frame.h"
#include "vescomm/vescomm.h"

namespace vescomm {

class DescriptorExchange;

// A communicator among all of its session.
struct Membership {
    std::uint64_t session = 0;  // number of the session in this process; 0: it shares with none
    std::uint32_t group = 0;  // number of the communicator in the session, the same on every rank
    std::vector<int> processes;  // by rank: number of its process in the session
};

// The control plane of one communicator: the one operation that set-up needs, and news of peers
// that are gone. Never on the path of data.
//
// Threads: the all-gather and the leaving from one thread at a time; the rest from any.
class Control {
public:
    // Called at most once, with the first cause: from a thread of the control plane, or from one
    // that an all-gather throws that cause in, before it does.
    using Listener = std::function<void(vescomm_status_t, const std::string &)>;

    virtual ~Control() = default;

    virtual int rank() const = 0;
    virtual int ranks() const = 0;

    // ---- the all-gather: collective; every rank contributes bytes and receives everyone's ----

    // Starts one. `label` says which call this is ("buffer \"block.3\" creation"): when ranks meet
    // with different labels the communicator fails with MISMATCH, naming two of the ranks and both
    // labels. One at a time. Throws the communicator's failure.
    virtual void start_all_gather(std::string_view label, std::string_view bytes) = 0;
    // The contributions by rank, once all are here. Throws the communicator's failure: PEER_FAILED
    // names a rank that died.
    virtual std::optional<std::vector<std::string>> test_all_gather() = 0;
    // The caller has waited in vain: fails the communicator and throws TIMEOUT, naming the ranks
    // that have not arrived.
    [[noreturn]] virtual void expire_all_gather(double waited_seconds) = 0;
    // Blocking: all of this. Throws TIMEOUT at the deadline.
    std::vector<std::string> all_gather(std::string_view label, std::string_view bytes,
                                        Deadline deadline);

    // ---- the end ----

    // Orderly end: says goodbye. A rank that disappears without goodbye is a failure; one that has
    // said goodbye is not.
    virtual void start_leave() = 0;
    // Every rank has said goodbye, or the communicator is broken.
    virtual bool test_leave() = 0;
    // The caller no longer waits for the others, and needs no news of them any more.
    virtual void end_leave() noexcept = 0;
    // That rank has said goodbye.
    virtual bool has_left(int rank) const = 0;
    // Blocking, at most until the deadline.
    void leave(Deadline deadline) noexcept;

    // ---- news ----

    // Sets a function that is called from the control thread whenever an answer, a goodbye, a
    // failure or the end has come. An empty one ends that; it does not return while a call runs.
    virtual void on_event(std::function<void()> call) = 0;
    // Returns after something has come, or at that moment.
    virtual void wait_event(std::uint64_t seen, Clock::time_point until) = 0;
    // How often something has come.
    virtual std::uint64_t events() const = 0;

    // Sets who hears of the first failure, wherever it happened. A failure that is already known
    // is delivered at once, from the calling thread.
    virtual void listen(Listener listener) = 0;
    // Tells every rank that the communicator is broken, and why. Does not block.
    virtual void fail(vescomm_status_t status, const std::string &why) noexcept = 0;

    // ---- other communicators; not every control plane can make them ----

    // Collective over the members, given by rank; this one is among them. A control plane for them
    // alone; `words` are the same on all of them, and others for every other subgroup of this
    // communicator. Throws Error.
    virtual std::unique_ptr<Control> subgroup(std::string_view words,
                                              const std::vector<int> &members, Deadline deadline);
    // Collective over the ranks that still live, except those in `failed`: a control plane for
    // them, in the order of their ranks, which are written to `survivors`. Throws Error.
    virtual std::unique_ptr<Control> shrink(const std::set<int> &failed, Deadline deadline,
                                            std::vector<int> &survivors);

    // ---- what the other parts of the library build on ----

    // A key that only the processes of this job can compute: a keyed hash of its secret.
    virtual FrameKey derive_key(std::string_view purpose) const = 0;
    // The numeric address of this process's interface on which the others reach it. Empty: unknown.
    virtual std::string local_address() const = 0;
    // Transports share connections by it. By default the communicator is alone in its session.
    virtual Membership membership() const;
    // Passes descriptors between processes of one machine.
    virtual DescriptorExchange &descriptors();
};

}  // namespace vescomm

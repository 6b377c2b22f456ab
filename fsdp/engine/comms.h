// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The communicators of one engine: all ranks, the shard group of this rank, the ranks with which it
// gathers units, and its replicas. They belong to the engine, so that it can abort them without
// harm to the caller's communicator.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/engine/wait_clock.h"
#include "fsdp/spec/mesh.h"
#include "vescomm/vescomm.hpp"

namespace vescomm::fsdp {

// Returns a communicator of the ranks of `parent`. It is the first call of a collective function of
// the engine: nothing before it may fail, because other ranks wait for this rank in it. If an
// exception leaves the scope of the result, the waits of the other ranks end. Collective.
Communicator make_world(vescomm_comm_t *parent);

// Returns when all ranks have called it. A failure of a rank that has returned reaches no rank that
// has not. Collective.
void meet_in(const Communicator &world);

class Comms {
public:
    // Takes a communicator of all ranks that belongs to the engine, of make_world(parent). A
    // failure of `parent` ends waits too: the program knows no other communicator to abort.
    // `parent` and `mesh` must outlive this object. Collective.
    Comms(Communicator world, vescomm_comm_t *parent, const Mesh &mesh);

    Communicator &world() { return world_; }
    // The ranks that shard a unit.
    Communicator &shard(UnitKind kind = UnitKind::dense) {
        if (kind == UnitKind::experts) return *experts_;
        return shard_ ? *shard_ : world_;
    }
    // The ranks that gather a unit together.
    Communicator &gather(UnitKind kind = UnitKind::dense) {
        return gather_ && kind == UnitKind::dense ? *gather_ : shard(kind);
    }
    Communicator &replica() { return replica_ ? *replica_ : world_; }

    // Sets work that waits do besides progress: other ranks may need it before they come to the
    // request of a wait. advance(): returns true if more is left for later. Empty: none.
    void set_work(std::function<bool()> advance) { advance_ = std::move(advance); }
    // Waits until a request of `comm`, one of the above, is complete. Makes progress on all
    // communicators: ranks of other groups may need it before they come to this request. Throws
    // Failure.
    void wait(const Communicator &comm, vescomm_request_t *request);
    // Notes that a request of `comm` was started, which wait() completes later.
    void started(const Communicator &comm, vescomm_request_t *request);
    // Looks at the parent no more. Called once: programs free it before the engine by mistake.
    void forget_parent() noexcept {
        parent_ = nullptr;
        all_.pop_back();
    }
    // Completes the requests that were started on other communicators than `comm`. Buffers and
    // requests are created collectively, which makes progress on `comm` alone, and ranks that wait
    // for another request may need this rank. Ranks must have started the same requests.
    void complete_others(const Communicator &comm);
    // Makes progress until ready() is true, at most the timeout. late(): the error sentence. The
    // program may end the wait (vescomm_set_interrupt()). Throws Failure.
    void wait_until(const std::function<bool()> &ready, const std::function<std::string()> &late);
    // As wait_until(), but it is no wait for other ranks.
    void poll_until(const std::function<bool()> &ready, const std::function<std::string()> &late);
    void progress();
    // The waits above.
    WaitClock &waits() { return waits_; }
    const WaitClock &waits() const { return waits_; }
    void meet() { meet_in(world_); }
    // Ends the waits of all ranks.
    void abort(const char *reason) noexcept;
    // Says which ranks of the engine those of a communicator are, after an error sentence with
    // numbers of the latter. Empty: the same.
    std::string describe(const Communicator &comm) const;

private:
    struct Running {
        const Communicator *comm;
        vescomm_request_t *request;
        bool operator==(const Running &) const = default;
    };

    // Does the work of set_work() until none is left, or the request is complete.
    void finish_work(vescomm_request_t *request);

    const Mesh &mesh_;
    Communicator world_;
    std::optional<Communicator> shard_;  // none: all ranks
    std::optional<Communicator> gather_;  // none: the shard group
    std::optional<Communicator> replica_;  // none: all ranks
    std::optional<Communicator> experts_;  // of ranks with the same experts; none: all are dense
    std::vector<Running> running_;  // by started(); only with experts
    vescomm_comm_t *parent_;  // nullptr after forget_parent()
    std::vector<vescomm_comm_t *> all_;  // of the above, and behind them the parent
    std::function<bool()> advance_;
    WaitClock waits_;
};

}  // namespace vescomm::fsdp

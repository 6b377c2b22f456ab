// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Communicators of NCCL that are created from another one. All ranks of the parent meet for a
// split, and the ranks that are not excluded for a shrink. A child shares nothing with its parent.
#include <algorithm>
#include <chrono>
#include <utility>

#include "gpu/double/nccl_group.h"

namespace gpu_double {
namespace {

using Part = Derivation::Part;

std::string list_of(const std::vector<int> &ranks) {
    std::string text;
    for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
    return text;
}

bool has_failed_rank(const ncclComm &comm) {
    return comm.error != nccl::success ||
           std::ranges::any_of(comm.group->members, [](const ncclComm *member) {
               return member->dead || member->aborted || member->error != nccl::success;
           });
}

// The ranks of a color, ordered by key, then by rank.
std::vector<int> members_of(const Derivation &meeting, int color) {
    std::vector<std::pair<int, int>> order;
    for (const auto &[rank, part] : meeting.parts)
        if (part.color == color) order.emplace_back(part.key, rank);
    std::ranges::sort(order);
    std::vector<int> ranks;
    for (const auto &[key, rank] : order) ranks.push_back(rank);
    return ranks;
}

// Creates the communicator of a color, under the lock of the parent's group.
void create(const Group &parent, Derivation &meeting, int color) {
    const std::vector<int> ranks = members_of(meeting, color);
    const auto group = std::make_shared<Group>(static_cast<int>(ranks.size()));
    group->arrived = group->ranks();
    for (std::size_t at = 0; at < ranks.size(); ++at) {
        auto *child = new ncclComm;
        child->group = group;
        child->rank = static_cast<int>(at);
        child->process = parent.members[static_cast<std::size_t>(ranks[at])]->process;
        child->dead = child->process_ended = has_ended(child->process);
        child->device = parent.members[static_cast<std::size_t>(ranks[at])]->device;
        child->blocking = meeting.parts.at(ranks[at]).blocking;
        group->members[at] = child;
        group->devices[at] = child->device;
        meeting.made[ranks[at]] = child;
    }
}

// A sentence if the ranks make different calls.
std::string difference(const Derivation &meeting) {
    const auto &[first_rank, first] = *meeting.parts.begin();
    for (const auto &[rank, part] : meeting.parts) {
        const std::string both = "ranks " + std::to_string(first_rank) + " and " +
                                 std::to_string(rank) + " make different calls: ";
        if (part.excluded != first.excluded)
            return both + "they exclude ranks " + list_of(first.excluded) + " and ranks " +
                   list_of(part.excluded);
        if (part.flags != first.flags)
            return both + "flags " + std::to_string(first.flags) + " and " +
                   std::to_string(part.flags);
        if (part.blocking != first.blocking) return both + "one of them does not block";
    }
    return {};
}

// Ranks of the parent that have not come, and are not excluded.
std::vector<int> missing_from(const Derivation &meeting, const Group &group, const Part &part) {
    std::vector<int> missing;
    for (int rank = 0; rank < group.ranks(); ++rank)
        if (!meeting.parts.contains(rank) && !std::ranges::binary_search(part.excluded, rank))
            missing.push_back(rank);
    return missing;
}

void complete(const Group &group, Derivation &meeting) {
    for (const auto &[rank, part] : meeting.parts)
        if (part.color >= 0 && !meeting.made.contains(rank)) create(group, meeting, part.color);
    meeting.done = true;
}

// Waits for the other ranks that `part` does not exclude, under the lock of the group. A
// revocation or an abort ends the wait; a revocation before the call does not, as in NCCL.
nccl::Result wait_for_ranks(std::unique_lock<std::mutex> &lock, ncclComm &comm,
                            const std::string &function, const Part &part, ncclComm *&made) {
    Group &group = *comm.group;
    const std::chrono::duration<double> seconds(patience_seconds());
    const auto ended = [&, was_revoked = comm.revoked] {
        return comm.aborted || comm.revoked != was_revoked || comm.dead;
    };
    if (std::exchange(comm.held, false)) {
        group.changed.wait_for(lock, seconds, ended);
        return nccl::system_error;
    }
    Derivation &meeting =
        group.derivations[function + std::to_string(comm.next_derivation[function]++)];
    meeting.parts[comm.rank] = part;
    if (const std::string why = difference(meeting); !why.empty()) {
        violation(function + "(): " + why);
        meeting.wrong = true;
    } else if (missing_from(meeting, group, part).empty()) complete(group, meeting);
    group.changed.notify_all();
    const auto missing = [&] { return missing_from(meeting, group, part); };
    const auto one_has_died = [&] {
        return std::ranges::any_of(missing(), [&](int rank) {
            return group.members[static_cast<std::size_t>(rank)]->dead;
        });
    };
    const auto over = [&] { return meeting.done || meeting.wrong || ended() || one_has_died(); };
    if (!group.changed.wait_for(lock, seconds, over))
        violation("rank " + std::to_string(comm.rank) + " waits too long in " + function +
                  "() for ranks " + list_of(missing()) + ": a deadlock");
    if (meeting.wrong) return nccl::invalid_usage;
    if (!meeting.done) return one_has_died() ? nccl::remote_error : nccl::system_error;
    if (const auto found = meeting.made.find(comm.rank); found != meeting.made.end())
        made = found->second;
    return nccl::success;
}

nccl::Result meet(ncclComm &comm, const std::string &function, const Part &part, nccl::Comm *out) {
    ncclComm *made = nullptr;
    {
        std::unique_lock<std::mutex> lock(comm.group->mutex);
        ++comm.deriving;
        const nccl::Result result = wait_for_ranks(lock, comm, function, part, made);
        --comm.deriving;
        if (result != nccl::success) return result;
    }
    if (made != nullptr) {
        const std::lock_guard<std::mutex> lock(comms().mutex);
        comms().all.push_back(made);
    }
    *out = made;
    return nccl::success;
}

// The rules that hold for all derivations. Returns NCCL's result.
nccl::Result check(ncclComm *comm, const std::string &function, const nccl::Comm *out,
                   const nccl::Config *config) {
    if (!usable(comm, (function + "()").c_str()) || out == nullptr || !valid(config))
        return nccl::invalid_argument;
    if (!group_is_open().empty())
        violation(function + "() within an open group, which the double does not support");
    const std::lock_guard<std::mutex> lock(comm->group->mutex);
    if (!comm->blocking) {
        violation(function + "() of a communicator that does not block: the double has none");
        return nccl::invalid_usage;
    }
    if (comm->aborted || comm->finalizing) {
        violation(function + "() of a communicator that has ended");
        return nccl::invalid_usage;
    }
    return nccl::success;
}

bool blocks(const ncclComm &comm, const nccl::Config *config) {
    return config == nullptr ? comm.blocking : config->blocking != 0;
}

}  // namespace

bool is_deriving(nccl::Comm comm) {
    const std::lock_guard<std::mutex> lock(comm->group->mutex);
    return comm->deriving > 0;
}

}  // namespace gpu_double

using namespace gpu_double;

extern "C" {

int ncclCommSplit(nccl::Comm comm, int color, int key, nccl::Comm *out, nccl::Config *config) {
    if (const int result = injected_result("ncclCommSplit")) return result;
    if (const int result = check(comm, "ncclCommSplit", out, config)) return result;
    *out = nullptr;
    {
        const std::lock_guard<std::mutex> lock(comm->group->mutex);
        if (comm->outstanding > 0)
            violation("ncclCommSplit() while the communicator has outstanding work");
        if (comm->error != nccl::success) return comm->error;
    }
    if (color < nccl::no_color) {
        violation("ncclCommSplit() with color " + std::to_string(color) +
                  ", which is neither a color nor NCCL_SPLIT_NOCOLOR");
        return nccl::invalid_argument;
    }
    return meet(*comm, "ncclCommSplit", {color, key, {}, 0, blocks(*comm, config)}, out);
}

int ncclCommShrink(nccl::Comm comm, int *excluded, int count, nccl::Comm *out, nccl::Config *config,
                   int flags) {
    if (const int result = injected_result("ncclCommShrink")) return result;
    if (const int result = check(comm, "ncclCommShrink", out, config)) return result;
    *out = nullptr;
    if (excluded == nullptr || count <= 0 || (flags & ~nccl::shrink_abort) != 0)
        return refuse(*comm, nccl::invalid_argument, "no ranks to exclude, or unknown flags");
    std::vector<int> list(excluded, excluded + count);
    std::ranges::sort(list);
    if (list.front() < 0 || list.back() >= comm->group->ranks() ||
        std::ranges::adjacent_find(list) != list.end())
        return refuse(*comm, nccl::invalid_argument, "an excluded rank that is none");
    if (std::ranges::binary_search(list, comm->rank)) {
        violation("rank " + std::to_string(comm->rank) +
                  " calls ncclCommShrink(), which excludes it");
        return nccl::invalid_argument;
    }
    {
        std::unique_lock<std::mutex> lock(comm->group->mutex);
        if ((flags & nccl::shrink_abort) != 0) {
            comm->interrupted = true;
            comm->group->changed.notify_all();
            const bool ended = wait_for_work(lock, *comm);
            comm->interrupted = false;
            if (!ended) return nccl::system_error;
        } else {
            if (comm->outstanding > 0)
                violation(
                    "ncclCommShrink() without NCCL_SHRINK_ABORT while the communicator has "
                    "outstanding work");
            if (has_failed_rank(*comm))
                violation(
                    "ncclCommShrink() without NCCL_SHRINK_ABORT of a communicator with a "
                    "failed rank");
        }
        if (comm->error != nccl::success) return comm->error;
    }
    return meet(*comm, "ncclCommShrink", {0, comm->rank, list, flags, blocks(*comm, config)}, out);
}

}  // extern "C"

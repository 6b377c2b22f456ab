// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Device communicators that NCCL creates from that of a parent: ncclCommSplit() and
// ncclCommShrink(). Ranks agree over communicators of the host before any of them calls NCCL, so
// that all of them make the same call. Decision:
// docs/design/0036-split-and-shrink-through-nccl.md.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "comm/agree.h"
#include "gpu/device_communicator_calls.h"
#include "observe/log.h"

namespace vescomm::internal {
namespace {

// Facts of a rank, which it sends to the others; a sentence may follow.
struct ParentPlace {
    std::int32_t rank = 0;  // in the parent
    std::int32_t ranks = 0;  // of the parent
    std::int32_t color = nccl::no_color;
    std::int32_t key = 0;
    std::int32_t members = 0;  // number of ranks with this color
    std::int32_t broken = 0;  // the parent is broken
};

std::string pack(const ParentPlace &place, const std::string &sentence = {}) {
    return std::string(reinterpret_cast<const char *>(&place), sizeof place) + sentence;
}

ParentPlace unpack(const std::string &text) {
    ParentPlace place;
    if (text.size() < sizeof place)
        throw Error(VESCOMM_ERROR_INTERNAL, "a rank sent its place in the parent in a wrong form");
    std::memcpy(&place, text.data(), sizeof place);
    return place;
}

// The first sentence that follows a place, with the number of its rank; empty: there is none.
std::string first_sentence(const std::vector<std::string> &texts) {
    for (std::size_t rank = 0; rank < texts.size(); ++rank)
        if (texts[rank].size() > sizeof(ParentPlace))
            return texts[rank].substr(sizeof(ParentPlace)) + " (rank " + std::to_string(rank) + ")";
    return {};
}

// A rank that waits until `deadline` has an error then: the others receive it if they wait longer.
Deadline later_than(Deadline deadline) {
    const double left = deadline.seconds_left();
    return Deadline::after(left + std::min(5.0, 1 + left / 10));
}

// ParentPlace of this rank in the new communicator: the color is the rank in the parent of its
// first rank.
ParentPlace place_in(Communicator &comm, ParentPlace place, const char *label, Deadline deadline) {
    const auto texts = comm.gather(label, pack(place), deadline);
    place.color = unpack(texts[0]).rank;
    place.key = comm.rank();
    place.members = comm.ranks();
    return place;
}

// Throws unless the ranks of each color are those of one communicator.
void check_places(const std::vector<std::string> &texts) {
    std::vector<std::vector<int>> keys(texts.size());  // by color
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
        const ParentPlace place = unpack(texts[rank]);
        if (place.color == nccl::no_color) continue;
        if (place.color >= 0 && place.color < static_cast<int>(texts.size()))
            keys[static_cast<std::size_t>(place.color)].push_back(place.key);
    }
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
        const ParentPlace place = unpack(texts[rank]);
        if (place.color == nccl::no_color) continue;
        std::vector<int> found;
        if (place.color >= 0 && place.color < static_cast<int>(texts.size()))
            found = keys[static_cast<std::size_t>(place.color)];
        std::ranges::sort(found);
        std::vector<int> expected(static_cast<std::size_t>(std::max(place.members, 0)));
        std::iota(expected.begin(), expected.end(), 0);
        if (found != expected)
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        "vescomm_gpu_comm_split: the communicator of rank " + std::to_string(rank) +
                            " has " + std::to_string(place.members) + " ranks, of which " +
                            std::to_string(found.size()) +
                            " make this call; all its ranks must be ranks of the parent, and pass "
                            "it");
    }
}

// Ranks of the parent that are no survivors. Throws unless the survivors have the parent's order.
std::vector<int> excluded_by(const std::vector<std::string> &texts) {
    const int ranks = unpack(texts[0]).ranks;
    std::vector<int> excluded;
    int next = 0;  // the first rank of the parent that is not classified
    for (std::size_t at = 0; at < texts.size(); ++at) {
        const ParentPlace place = unpack(texts[at]);
        if (place.ranks != ranks || place.rank < next || place.rank >= ranks)
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        "vescomm_gpu_comm_shrink: rank " + std::to_string(at) +
                            " of the survivors is rank " + std::to_string(place.rank) + " of " +
                            std::to_string(place.ranks) + " in its parent, after rank " +
                            std::to_string(next - 1) + " of " + std::to_string(ranks) +
                            "; survivors must be ranks of one parent, in its order. Use "
                            "vescomm_gpu_comm_split() for another order");
        for (; next < place.rank; ++next) excluded.push_back(next);
        next = place.rank + 1;
    }
    for (; next < ranks; ++next) excluded.push_back(next);
    return excluded;
}

void log_new(const DeviceCommunicator &comm, const std::string &why) noexcept {
    if (!log_enabled(LogLevel::info, "gpu")) return;
    try {
        log(LogLevel::info, "gpu", comm.rank(), comm.ranks(),
            "nccl creates a new communicator, and none from the parent: " + why);
    } catch (const std::bad_alloc &) {
        // The line is lost.
    }
}

}  // namespace

std::string DeviceCommunicator::why_not_derived(const void *function, const char *name) const {
    if (options_.borrowed != nullptr) return "the parent's communicator of NCCL is the program's";
    if (function == nullptr || libraries_.nccl.comm_revoke == nullptr)
        return "NCCL " + nccl_version_text(libraries_.nccl_version) + " lacks " +
               (function == nullptr ? name : "ncclCommRevoke()");
    if (nccl() == nullptr)
        return "a failure has aborted the parent's communicator of NCCL; the option shrinkable "
               "keeps it";
    const nccl::Result error = nccl_.result();
    if (error != nccl::success) return "the parent's communicator of NCCL failed: " + reason(error);
    return {};
}

void DeviceCommunicator::wait_before_derivation(const char *function) {
    const cuda::Error error = wait_for_device("the work of the device, to create a communicator");
    if (error == cuda::capture_unsupported) {
        cuda_reason(error);
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    std::string(function) +
                        ": a stream of the device is captured into a graph, and NCCL's work must "
                        "be complete; end the capture first");
    }
    require_cuda(error, "cudaDeviceSynchronize()");
}

template <typename Call>
void DeviceCommunicator::derive(DeviceCommunicator &waiter, const Communicator *child,
                                const char *function, const std::shared_ptr<Derivation> &made,
                                const Call &call) {
    try {
        nccl_.start_derivation(made, call);
        waiter.poll(function, [&] {
            if (child != nullptr) child->check();
            return nccl_.derivation()->done();
        });
        const nccl::Result result = nccl_.derivation()->result();
        if (result != nccl::success)
            waiter.fail(status_of(result), std::string(function) + " failed on rank " +
                                               std::to_string(waiter.rank()) + ": " +
                                               reason(result));
        nccl_.forget_derivation();
    } catch (const std::exception &error) {
        const auto *known = dynamic_cast<const Error *>(&error);
        if (!comm_->failure().broken())
            comm_->fail(known != nullptr ? known->status : VESCOMM_ERROR_SYSTEM,
                        std::string(function) + " was given up on rank " + std::to_string(rank()) +
                            ": " + error.what());
        nccl_.abandon_derivation();
        throw;
    }
}

void DeviceCommunicator::check_derived(const char *function, nccl::Comm comm) const {
    int its_ranks = -1, its_rank = -1;
    if (comm != nullptr) {
        libraries_.nccl.comm_count(comm, &its_ranks);
        libraries_.nccl.comm_user_rank(comm, &its_rank);
    }
    if (its_ranks != ranks() || its_rank != rank())
        throw Error(VESCOMM_ERROR_INTERNAL,
                    std::string(function) + " made rank " + std::to_string(its_rank) + " of " +
                        std::to_string(its_ranks) + ", which must be rank " +
                        std::to_string(rank()) + " of " + std::to_string(ranks()));
}

std::unique_ptr<DeviceCommunicator> DeviceCommunicator::split(DeviceCommunicator &parent,
                                                              std::shared_ptr<Communicator> comm,
                                                              const Options &options) {
    const char *label = "device communicator split";
    const char *call = "vescomm_gpu_comm_split";
    const RelaxedCapture relaxed(parent.libraries_.cuda);
    Communicator &c = *parent.comm_;
    c.check();
    std::unique_ptr<DeviceCommunicator> made;
    if (comm) made.reset(new DeviceCommunicator(comm, options, parent.libraries_));
    const auto split = parent.libraries_.nccl.comm_split;

    // All ranks have come, with arguments that are accepted.
    parent.begin_call({.kind = DeviceCall::Kind::split});
    const Deadline deadline = c.deadline();
    const std::string why = first_sentence(agree(c, label, later_than(deadline), [&] {
        parent.check_call(call);
        const std::string mine =
            parent.why_not_derived(reinterpret_cast<const void *>(split), "ncclCommSplit()");
        if (mine.empty()) parent.wait_before_derivation(call);
        return pack({}, mine);
    }));
    // Ranks of one new communicator agree there first.
    const Deadline then = c.deadline();
    ParentPlace place;
    const auto derivation = std::make_shared<Derivation>();
    check_places(agree(c, label, later_than(then), [&] {
        place = {parent.rank(), parent.ranks()};
        if (made) {
            made->compare_options(then);
            place = place_in(*comm, place, label, then);
            made->nccl_.use_device(parent.device());
        }
        derivation->config = made ? made->nccl_config() : parent.nccl_config();
        return pack(place);
    }));
    if (!why.empty()) {
        if (made) log_new(*made, why);
        return made;
    }
    parent.derive(parent, comm.get(), "ncclCommSplit()", derivation,
                  [derivation, split, place, from = parent.nccl()](const cuda::Runtime &) {
                      return split(from, place.color, place.key, &derivation->comm,
                                   &derivation->config);
                  });
    try {
        agree(c, label, later_than(c.deadline()), [&] {
            if (made) made->check_derived("ncclCommSplit()", derivation->comm);
            return std::string();
        });
    } catch (...) {
        parent.nccl_.abort_derived(*derivation);
        throw;
    }
    if (!made) return nullptr;
    made->nccl_.set(derivation->comm);
    made->derived_ = true;
    return made;
}

void DeviceCommunicator::complete_split() {
    const RelaxedCapture relaxed(libraries_.cuda);
    if (derived_) complete();
    else connect();
}

std::unique_ptr<DeviceCommunicator> DeviceCommunicator::shrink(
    DeviceCommunicator &parent, std::shared_ptr<Communicator> survivors, const Options &options) {
    const char *label = "device communicator shrink";
    const char *call = "vescomm_gpu_comm_shrink";
    const RelaxedCapture relaxed(parent.libraries_.cuda);
    Communicator &c = *survivors;
    c.check();
    std::unique_ptr<DeviceCommunicator> made(
        new DeviceCommunicator(survivors, options, parent.libraries_));
    const auto shrink = parent.libraries_.nccl.comm_shrink;

    made->compare_options(c.deadline());
    const auto derivation = std::make_shared<Derivation>();
    const auto texts = agree(c, label, later_than(c.deadline()), [&] {
        derivation->config = made->nccl_config();
        parent.check_device(call);
        made->nccl_.use_device(parent.device());
        ParentPlace place{parent.rank(), parent.ranks()};
        const auto why_not = [&] {
            return parent.why_not_derived(reinterpret_cast<const void *>(shrink),
                                          "ncclCommShrink()");
        };
        try {
            if (!parent.comm_->failure().broken() && why_not().empty()) {
                parent.comm_->check();
                parent.wait_before_derivation(call);
            }
        } catch (const Error &) {
            if (!parent.comm_->failure().broken()) throw;
        }
        place.broken = parent.comm_->failure().broken() ? 1 : 0;
        if (place.broken != 0) parent.nccl_.end();
        return pack(place, why_not());
    });
    derivation->excluded = excluded_by(texts);
    std::string why = first_sentence(texts);
    if (derivation->excluded.empty()) why = "no rank of the parent is excluded";
    if (!why.empty()) {
        log_new(*made, why);
        made->connect();
        return made;
    }
    const bool broken = std::ranges::any_of(
        texts, [](const std::string &text) { return unpack(text).broken != 0; });
    const int flags = broken ? nccl::shrink_abort : nccl::shrink_default;
    parent.derive(*made, nullptr, "ncclCommShrink()", derivation,
                  [derivation, shrink, flags, from = parent.nccl()](const cuda::Runtime &) {
                      auto &excluded = derivation->excluded;
                      return shrink(from, excluded.data(), static_cast<int>(excluded.size()),
                                    &derivation->comm, &derivation->config, flags);
                  });
    try {
        agree(c, label, later_than(c.deadline()), [&] {
            made->check_derived("ncclCommShrink()", derivation->comm);
            return std::string();
        });
    } catch (...) {
        parent.nccl_.abort_derived(*derivation);
        throw;
    }
    made->nccl_.set(derivation->comm);
    made->derived_ = true;
    made->complete();
    return made;
}

}  // namespace vescomm::internal

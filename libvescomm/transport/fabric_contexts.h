// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"

namespace vescomm::internal {

// The ranks in one communicator of the processes of a fabric.
class ProcessRanks {
public:
    // `peers`: by rank of the communicator, the number of its process on the fabric, or -1.
    explicit ProcessRanks(const std::vector<int> &peers) {
        for (std::size_t peer = 0; peer < peers.size(); ++peer) {
            if (peers[peer] < 0) continue;
            const auto process = static_cast<std::size_t>(peers[peer]);
            ranks_.resize(std::max(ranks_.size(), process + 1), -1);
            ranks_[process] = static_cast<int>(peer);
        }
    }

    // Returns -1 if the process is not in this communicator.
    int rank_of(int process) const noexcept {
        const auto at = static_cast<std::size_t>(process);
        return at < ranks_.size() ? ranks_[at] : -1;
    }

private:
    std::vector<int> ranks_;  // by number of the process on the fabric
};

// The communicators on one fabric. Context must have `id`, `has_news` and `on_signal`.
template <typename Context>
struct FabricContexts {
    // Returns nullptr if there is no such context.
    Context *find(std::uint32_t id) const noexcept {
        const auto found = contexts.find(id);
        return found == contexts.end() ? nullptr : found->second;
    }

    // Adds a context, so that messages can find it. Throws if its id is in use.
    void add(Context &context, const char *network) {
        news.reserve(contexts.size() + 1);
        if (!contexts.emplace(context.id, &context).second)
            throw Error(VESCOMM_ERROR_INTERNAL, "context " + std::to_string(context.id) +
                                                    " of the " + network + " fabric is in use");
    }

    // Records that a thread of the context's communicator may need to be woken.
    void note(Context &context) noexcept {
        if (context.has_news) return;
        context.has_news = true;
        news.push_back(&context);  // add() reserved the capacity
    }

    // Wakes the threads of all recorded contexts. Returns true if there were any.
    bool deliver_news() noexcept {
        if (news.empty()) return false;
        for (Context *context : news) {
            context->has_news = false;
            if (context->on_signal) context->on_signal();
        }
        news.clear();
        return true;
    }

    std::unordered_map<std::uint32_t, Context *> contexts;
    std::vector<Context *> news;
};

}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"

namespace vescomm {

// The ranks that the processes of a fabric have in one communicator.
class ProcessRanks {
public:
    // `peers`: by rank of the communicator, the number of that process on the fabric, or -1.
    explicit ProcessRanks(const std::vector<int> &peers) {
        for (std::size_t peer = 0; peer < peers.size(); ++peer) {
            if (peers[peer] < 0) continue;
            const auto process = static_cast<std::size_t>(peers[peer]);
            ranks_.resize(std::max(ranks_.size(), process + 1), -1);
            ranks_[process] = static_cast<int>(peer);
        }
    }

    // -1: the process is not in this communicator.
    int rank_of(int process) const noexcept {
        const auto at = static_cast<std::size_t>(process);
        return at < ranks_.size() ? ranks_[at] : -1;
    }

private:
    std::vector<int> ranks_;  // by number on the fabric
};

// The communicators on one fabric. Context: has `id`, `has_news` and `on_signal`.
template <typename Context>
struct FabricContexts {
    // nullptr: there is none.
    Context *find(std::uint32_t id) const noexcept {
        const auto found = contexts.find(id);
        return found == contexts.end() ? nullptr : found->second;
    }

    // From now on messages find a context. Throws where its id is in use.
    void add(Context &context, const char *network) {
        news.reserve(contexts.size() + 1);
        if (!contexts.emplace(context.id, &context).second)
            throw Error(VESCOMM_ERROR_INTERNAL, "context " + std::to_string(context.id) +
                                                    " of the " + network + " fabric is in use");
    }

    // Something happened that a thread of that communicator may sleep for.
    void note(Context &context) noexcept {
        if (context.has_news) return;
        context.has_news = true;
        news.push_back(&context);  // add() reserved the place
    }

    // Wakes the threads of all that were noted. True: there were any.
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

}  // namespace vescomm

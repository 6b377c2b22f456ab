// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "transport/transport.h"

namespace vescomm::internal {

// The ranks in one communicator of the processes of a fabric.
class ProcessRanks {
public:
    // `peers`: by rank of the communicator, the number of its process on the fabric, or -1.
    explicit ProcessRanks(const std::vector<int> &peers) : processes_(peers) {
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
    int process_of(int rank) const noexcept { return processes_[static_cast<std::size_t>(rank)]; }

private:
    std::vector<int> ranks_;  // by number of the process on the fabric
    std::vector<int> processes_;  // by rank
};

// Sends the answers of a context to requests and eager puts of its peers. Under the mutex of the
// fabric, and not while bytes of a connection are being read.
template <typename Fabric, typename Context>
void send_answers(Fabric &fabric, Context &context) noexcept {
    if (!context.inbox.flow.has_answers() || context.failure.broken()) return;
    context.inbox.flow.answer([&](const Put &answer) {
        fabric.put(context, context.process_of(answer.peer), answer, nullptr);
    });
}

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

    // Sends the answers of all recorded contexts, and wakes their threads. Returns true if there
    // were any.
    template <typename Fabric>
    bool deliver_news(Fabric &fabric) noexcept {
        if (news.empty()) return false;
        // Sending may record further ones.
        for (std::size_t i = 0; i < news.size(); ++i) send_answers(fabric, *news[i]);
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

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx_shared.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "transport/ucx_context.h"
#include "transport/ucx_endpoint.h"
#include "transport/ucx_queue.h"

namespace vescomm::internal {

UcxShared::UcxShared(const UcxLibrary &ucx, const UcxWorker &worker, int process,
                     const std::vector<bool> &peers)
    : ucx(ucx), worker(worker), process(process), endpoints(peers.size()) {
    for (std::size_t peer = 0; peer < peers.size(); ++peer)
        if (peers[peer])
            endpoints[peer] = std::make_unique<UcxEndpoint>(*this, static_cast<int>(peer));
}

UcxShared::~UcxShared() = default;

void UcxShared::add(UcxContext &context) {
    // A queue that becomes ready while pump() runs is in the list twice until pump() returns.
    ready.reserve(2 * (queues + context.queues.size()));
    FabricContexts::add(context, "UCX");
    queues += context.queues.size();
}

void UcxShared::remove(const UcxContext &context) noexcept {
    const auto found = contexts.find(context.id);
    if (found != contexts.end() && found->second == &context) contexts.erase(found);
}

void UcxShared::forget(const UcxContext &context) noexcept {
    queues -= context.queues.size();
    std::erase(news, &context);
    for (const auto &queue : context.queues) std::erase(ready, queue.get());
}

void UcxShared::pump() noexcept {
    // Queues that become ready again meanwhile are served in the next call.
    const std::size_t count = ready.size();
    for (std::size_t i = 0; i < count; ++i) ready[i]->pump();
    ready.erase(ready.begin(), ready.begin() + static_cast<std::ptrdiff_t>(count));
}

void UcxShared::end(UcxPut *put) noexcept {
    if (put->put.pending != nullptr) put->put.pending->fetch_sub(1, std::memory_order_release);
    if (put->uses != nullptr) --*put->uses;
    // The caller of put() checks for the end itself.
    if (put->context != putting) note(*put->context);
    put->active = false;
    puts.give_back(put);
}

void UcxShared::end_all() noexcept {
    puts.for_each([this](UcxPut &put) {
        if (put.active) end(&put);
    });
}

}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// What a transport does that leaves an entry of its contract out: nothing, or a defect of the
// caller, who must not ask a transport for what it has said it cannot do.
#include "transport/transport.h"

#include "base/error.h"

namespace vescomm {

std::string Transport::share(std::uint64_t, vescomm_sharing_t, bool) {
    return {};
}

std::shared_ptr<Mapping> Transport::map(std::uint64_t, vescomm_sharing_t,
                                        const std::vector<std::string> &, Deadline) {
    throw Error(VESCOMM_ERROR_INTERNAL, std::string(name()) + " does not map memory");
}

std::string Transport::offer(MemoryId, std::byte *, std::uint64_t) {
    return {};
}

void Transport::accept(MemoryId, int, std::string_view) {}

void Transport::forget(MemoryId) noexcept {}

void Transport::put(const Put &) noexcept {
    std::terminate();
}

}  // namespace vescomm

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Defaults for the optional functions of a transport: no effect, or an error, because the caller
// must not use a function that the transport does not support.
#include "transport/transport.h"

#include "base/error.h"

namespace vescomm::internal {

std::string Transport::share(std::uint64_t, vescomm_sharing_t, std::uint64_t) {
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

}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/memory_offer.h"

#include "transport/checksummed.h"

namespace vescomm::internal {
namespace {

constexpr std::uint32_t offer_magic = 0x4f554356;  // "VCUO"

}  // namespace

std::string serialise(const Offer &offer) {
    return join_checksummed(offer_magic, offer, {});
}

Offer parse_offer(std::string_view serialised, MemoryId memory, int rank) {
    const std::string what =
        "the offer of rank " + std::to_string(rank) + " for memory " + std::to_string(memory);
    Offer offer;
    if (!split_checksummed(offer_magic, serialised, what, offer).empty())
        refuse_damaged(what, "it is too long");
    if (offer.memory != memory || offer.rank != static_cast<std::uint32_t>(rank))
        refuse_damaged(what, "it is that of rank " + std::to_string(offer.rank) + " for memory " +
                                 std::to_string(offer.memory));
    return offer;
}

}  // namespace vescomm::internal

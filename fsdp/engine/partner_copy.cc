// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/partner_copy.h"

#include <memory>
#include <span>

namespace vescomm::fsdp {

PartnerCopy::PartnerCopy(const Spec &spec, const ModelPlan &plan, const Shards &mine, int rank,
                         int distance)
    : plan_(plan),
      mine_(mine),
      copied_((rank + plan.mesh.ranks - distance) % plan.mesh.ranks),
      holder_((rank + distance) % plan.mesh.ranks),
      shards_(plan, copied_, spec.offload_folder()),
      optimizer_(spec, plan, shards_, copied_) {}

void PartnerCopy::exchange(Comms &comms, const void *mine, std::size_t my_bytes, void *copy,
                           std::size_t copy_bytes) const {
    vescomm_comm_t *world = comms.world().get();
    vescomm_request_t *request = nullptr;
    check(vescomm_group_begin(world));
    const auto count = [](std::size_t bytes) { return static_cast<std::int64_t>(bytes); };
    check(
        vescomm_send(world, mine, count(my_bytes), VESCOMM_U8, holder_, nullptr, nullptr, nullptr));
    check(vescomm_receive(world, copy, count(copy_bytes), VESCOMM_U8, copied_, nullptr, nullptr,
                          nullptr));
    check(vescomm_group_end(world, &request));
    const std::unique_ptr<vescomm_request_t, decltype(&vescomm_request_free)> owner(
        request, vescomm_request_free);
    comms.wait(comms.world(), request);
}

void PartnerCopy::refresh(Comms &comms) {
    const auto swap = [&](std::span<const std::byte> mine, std::span<std::byte> copy) {
        exchange(comms, mine.data(), mine.size(), copy.data(), copy.size());
    };
    swap(std::as_bytes(mine_.masters()), std::as_writable_bytes(shards_.masters()));
    for (std::size_t bucket = 0; bucket < plan_.buckets.size(); ++bucket) {
        if (!plan_.buckets[bucket].trainable) continue;
        for (std::size_t state = 0; state < plan_.buckets[bucket].states.size(); ++state)
            swap(mine_.state_bytes(bucket, state), shards_.state_bytes(bucket, state));
    }
}

void PartnerCopy::exchange_gradients(Comms &comms) {
    const auto mine = std::as_bytes(mine_.gradients());
    const auto copy = std::as_writable_bytes(shards_.gradients());
    exchange(comms, mine.data(), mine.size(), copy.data(), copy.size());
}

}  // namespace vescomm::fsdp

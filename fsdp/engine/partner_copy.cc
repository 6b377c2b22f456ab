// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/partner_copy.h"

#include <span>
#include <utility>
#include <vector>

#include "fsdp/spec/partners.h"

namespace vescomm::fsdp {

int partner_distance(const Communicator &world) {
    const vescomm_comm_info_t info = world.info();
    std::vector<std::int32_t> nodes(static_cast<std::size_t>(info.ranks));
    check(vescomm_all_gather(world.get(), &info.node, nodes.data(), 1, VESCOMM_I32, nullptr,
                             nullptr, nullptr));
    return partner_distance(std::vector<int>(nodes.begin(), nodes.end()));
}

PartnerCopy::PartnerCopy(const Spec &spec, const ModelPlan &plan, const Shards &mine, int rank,
                         int distance, std::shared_ptr<UpdateThreads> threads,
                         device::Streams *streams)
    : plan_(plan),
      mine_(mine),
      streams_(mine.on_device() ? streams : nullptr),
      staged_(streams_ != nullptr ? mine.gradients().size_bytes() : 0, device::Place::pinned),
      copied_((rank + plan.mesh.ranks - distance) % plan.mesh.ranks),
      holder_((rank + distance) % plan.mesh.ranks),
      shards_(plan, copied_, spec.offload_folder()),
      optimizer_(spec, plan, shards_, copied_, std::move(threads)) {}

void PartnerCopy::exchange(Comms &comms, const void *mine, std::size_t my_bytes, void *copy,
                           std::size_t copy_bytes) const {
    const Communicator &world = comms.world();
    const auto count = [](std::size_t bytes) { return static_cast<std::int64_t>(bytes); };
    Request request;
    const auto calls = [&] {
        check(vescomm_send(world.get(), mine, count(my_bytes), VESCOMM_U8, holder_, nullptr,
                           nullptr, nullptr));
        check(vescomm_receive(world.get(), copy, count(copy_bytes), VESCOMM_U8, copied_, nullptr,
                              nullptr, nullptr));
    };
    group(world, calls, &request);
    comms.wait(world, request.get());
}

void PartnerCopy::refresh(Comms &comms, const Shards &from) {
    const auto swap = [&](std::span<const std::byte> sent, std::span<std::byte> copy) {
        exchange(comms, sent.data(), sent.size(), copy.data(), copy.size());
    };
    swap(from.masters(), shards_.masters());
    for (std::size_t bucket = 0; bucket < plan_.buckets.size(); ++bucket) {
        if (!plan_.buckets[bucket].trainable) continue;
        for (std::size_t state = 0; state < plan_.buckets[bucket].states.size(); ++state)
            swap(from.state_bytes(bucket, state), shards_.state_bytes(bucket, state));
    }
}

void PartnerCopy::exchange_gradients(Comms &comms) {
    const auto mine = std::as_bytes(mine_.gradients());
    const auto copy = std::as_writable_bytes(shards_.gradients());
    const std::byte *sent = mine.data();
    if (streams_ != nullptr) {
        streams_->to_host(staged_.data(), mine.data(), mine.size());
        sent = staged_.data();
    }
    exchange(comms, sent, mine.size(), copy.data(), copy.size());
}

}  // namespace vescomm::fsdp

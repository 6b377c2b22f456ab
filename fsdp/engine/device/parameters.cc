// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/parameters.h"

#include "fsdp/report/traffic.h"
#include "vescomm/gpu_kernels.h"

namespace vescomm::fsdp::device {

Parameters::Parameters(const ModelPlan &plan, const Shards &shards, int position,
                       std::span<const std::string> unit_names, Watch &watch, Links &links,
                       Streams &streams, const Transfers &transfers)
    : plan_(plan),
      shards_(shards),
      position_(position),
      watch_(watch),
      links_(links),
      streams_(streams),
      buffers_(plan, position, SlotUse::parameters, unit_names, links),
      slots_(plan.slots.size()),
      transfers_(transfers) {}

bool Parameters::gather(int unit, int slot, const Announcement &announcement) {
    const auto number = static_cast<std::size_t>(unit);
    transfers_.begin(slot, gather_bytes(plan_, number, position_), number);
    const auto waits = transfers_.waits(slot);
    start(unit, slot, announcement);
    transfers_.end(slot);
    return false;
}

void Parameters::start(int unit, int slot, const Announcement &announcement) {
    Slot &into = slots_[slot];
    into.unit = unit;
    into.running = true;
    const std::uint64_t announced = watch_.post(announcement);
    const auto buffers = buffers_.of(slot, static_cast<std::size_t>(unit));
    if (buffers.empty()) return;
    // NCCL waits for other ranks at its first call. Those that make another one are found before.
    const UnitKind kind = plan_.kinds[unit];
    bool &connected = connected_[static_cast<int>(kind)];
    if (!connected) watch_.verify(announced);
    connected = true;
    const cuda::Stream stream = streams_.gather();
    into.closed.wait_on(stream);
    streams_.gather_after_writes();
    for (const std::size_t bucket : plan_.of_unit[unit]) {
        if (!buffers_.has(bucket)) continue;
        const std::span<const float> master = shards_.master(bucket);
        const vescomm_gpu_piece_t all = {0, 0, static_cast<std::int64_t>(master.size())};
        if (master.empty()) continue;
        check(vescomm_gpu_copy(buffers_.shard(slot, bucket), buffers_.type(bucket), master.data(),
                               VESCOMM_F32, &all, 1, stream));
    }
    links_.shard(kind).call(stream, [&](vescomm_gpu_comm_t *) {
        return vescomm_gpu_buffer_all_gather_v(buffers.data(), buffers.size(), stream);
    });
    into.gathered.record(stream);
}

void Parameters::await(int slot) {
    Slot &from = slots_[slot];
    if (from.unit < 0 || (!from.running && from.reader == streams_.compute())) return;
    from.gathered.wait_on(streams_.compute());
    from.reader = streams_.compute();
    from.running = false;
}

void Parameters::await_all() {
    if (!shards_.on_device()) return links_.settle(streams_);
    streams_.order(streams_.gather(), streams_.reduce());
}

void Parameters::closed(int slot) {
    Event &closed = slots_[slot].closed;
    closed.wait_on(streams_.compute());
    closed.record(streams_.compute());
}

void *Parameters::data(int slot, std::size_t bucket) const {
    return buffers_.has(bucket) ? buffers_.data(slot, bucket) : nullptr;
}

}  // namespace vescomm::fsdp::device

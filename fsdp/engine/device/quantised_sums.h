// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Sums of gradients that travel between devices in 8 bits, on one stream:
//
//     send    quantise the gradients of a unit; all_to_all_v of codes and scales
//     take    sum the codes of all ranks for this rank's shard, in f32 and in the order of ranks
//
// Codes and sums are those of host memory.
#pragma once

#include <cstddef>
#include <vector>

#include "fsdp/engine/device/slot_buffers.h"
#include "fsdp/engine/device/sum_codes.h"
#include "fsdp/engine/shards.h"
#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp::device {

class QuantisedSums {
public:
    // All arguments must outlive the object.
    QuantisedSums(const Spec &spec, const ModelPlan &plan, const Shards &shards, int position);

    // True if gradients of a unit travel in 8 bits.
    bool any(int unit) const {
        return !places_.sent_blocks(static_cast<std::size_t>(unit)).empty();
    }
    // Puts the exchange of the codes of a unit on a stream. Its gradients in the slot are not
    // needed any more afterwards.
    void send(int unit, int slot, const SlotBuffers &gradients, Link &link, cuda::Stream stream);
    // Puts the sums of the unit that was sent last on the stream. They overwrite the gradient
    // shards, or are added to them. Elements between parameters stay as they are.
    void take(int unit, bool adds, cuda::Stream stream);

    std::uint64_t bytes() const { return places_.bytes(position_); }

private:
    const ModelPlan &plan_;
    const Shards &shards_;
    int position_;
    SumCodes places_;
    std::vector<std::vector<std::int64_t>> received_blocks_;  // by unit
    float dense_factor_, expert_factor_;
    // By bucket: runs of all shards, with places in sent_, and of this rank's shard, with places in
    // each received block.
    std::vector<std::vector<GatherRun>> all_, own_;
    Bytes sent_, received_;
};

}  // namespace vescomm::fsdp::device

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Replicated parameters as the trainer sees them: the masters of this rank, or a copy of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fsdp/engine/shards.h"
#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp {

class ReplicatedParameters {
public:
    // `on_device`: copies are in the memory of the current device. The other arguments must outlive
    // the object.
    ReplicatedParameters(const ModelPlan &plan, const Shards &shards, bool on_device);

    // Calls convert(to, type, bucket) for each copy of a unit that does not have its masters yet.
    template <typename Convert>
    void convert(int unit, Convert &&convert) {
        if (converted_[unit]) return;
        for (const std::size_t index : plan_.of_unit[unit]) {
            const Bucket &bucket = plan_.buckets[index];
            if (bucket.converted_bytes() > 0) convert(data(index), bucket.type, index);
        }
        converted_[unit] = true;
    }
    // The masters change.
    void forget() { converted_.assign(converted_.size(), false); }
    // The values of a replicated bucket whose unit is open.
    std::byte *data(std::size_t bucket) const;

    std::uint64_t bytes() const { return of_host_.size() + of_device_.size(); }

private:
    const ModelPlan &plan_;
    const Shards &shards_;
    std::vector<std::uint64_t> offsets_;  // by bucket: bytes in copies_
    AlignedBytes of_host_;
    device::Bytes of_device_;
    std::byte *copies_ = nullptr;  // one of these
    std::vector<bool> converted_;  // by unit: the copy has the values of the masters
};

}  // namespace vescomm::fsdp

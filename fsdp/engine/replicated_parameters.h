// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Replicated parameters as the trainer sees them: the masters of this rank, or a copy of them in
// another type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fsdp/engine/shards.h"
#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp {

class ReplicatedParameters {
public:
    // The arguments must outlive the object.
    ReplicatedParameters(const ModelPlan &plan, const Shards &shards);

    // Copies the masters of a unit, unless the copy has them already.
    void convert(int unit);
    // The masters change.
    void forget() { converted_.assign(converted_.size(), false); }
    // The values of a replicated bucket whose unit is open.
    void *data(std::size_t bucket) const;

    std::uint64_t bytes() const { return copies_.size(); }

private:
    const ModelPlan &plan_;
    const Shards &shards_;
    std::vector<std::uint64_t> offsets_;  // by bucket: bytes in copies_
    AlignedBytes copies_;
    std::vector<bool> converted_;  // by unit: the copy has the values of the masters
};

}  // namespace vescomm::fsdp

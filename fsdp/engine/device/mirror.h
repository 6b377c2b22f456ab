// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Shards that the host can access, for code that sets, saves or loads values. A copy of those in
// the memory of a device; otherwise the shards themselves, when the work of streams on them has
// ended.
#pragma once

#include <optional>

#include "fsdp/engine/device/links.h"
#include "fsdp/engine/device/streams.h"
#include "fsdp/engine/shards.h"

namespace vescomm::fsdp::device {

class Mirror {
public:
    // `streams` and `links`: nullptr if the engine is on host memory. All arguments must outlive
    // the mirror.
    Mirror(const ModelPlan &plan, int rank, const Shards &shards, Streams *streams, Links *links);

    const Shards &shards() const { return copy_ ? *copy_ : shards_; }
    // Copies masters and states back.
    void store();

private:
    const ModelPlan &plan_;
    const Shards &shards_;
    Streams *streams_;
    Links *links_;
    std::optional<Shards> copy_;
};

}  // namespace vescomm::fsdp::device

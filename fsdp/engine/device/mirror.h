// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Shards in host memory, for code that sets, saves or loads values. Those of an engine on host
// memory are its own; those of one on device memory are a copy.
#pragma once

#include <optional>

#include "fsdp/engine/device/links.h"
#include "fsdp/engine/device/streams.h"
#include "fsdp/engine/shards.h"

namespace vescomm::fsdp::device {

class Mirror {
public:
    // `streams` and `links`: nullptr if the shards are in host memory. Then nothing is copied.
    // Otherwise copies masters and states. All arguments must outlive the mirror.
    Mirror(const ModelPlan &plan, int rank, const Shards &shards, Streams *streams, Links *links);

    const Shards &shards() const { return copy_ ? *copy_ : shards_; }
    // Copies masters and states back.
    void store();

private:
    // Waits for the work on the shards. The wait ends when a rank fails.
    void settle();

    const ModelPlan &plan_;
    const Shards &shards_;
    Streams *streams_;
    Links *links_;
    std::optional<Shards> copy_;
};

}  // namespace vescomm::fsdp::device

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The norm of gradient shards on device memory, and the one wait of the host in a step: no master
// changes before the host knows that the gradients of all ranks are complete, as on host memory.
#pragma once

#include <span>

#include "fsdp/engine/device/links.h"
#include "fsdp/engine/device/streams.h"
#include "fsdp/engine/parts.h"
#include "fsdp/engine/shards.h"

namespace vescomm::fsdp::device {

class Norm : public NormMemory {
public:
    // All arguments must outlive the norm.
    Norm(const ModelPlan &plan, const Shards &shards, Links &links, Streams &streams);

    void begin(bool) override {}
    void finish() override;
    double squares() override;

private:
    const ModelPlan &plan_;
    // The shards of all buckets, and the zeros between them. All ranks have the same values of
    // replicated ones, which only the first rank of the shard group counts.
    const std::span<const float> gradients_;
    Links &links_;
    Streams &streams_;
    Bytes words_;  // of the sum over all ranks of the shard group
    Event complete_;
};

}  // namespace vescomm::fsdp::device

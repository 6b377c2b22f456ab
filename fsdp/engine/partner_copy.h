// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A copy of another rank's shards in memory of the host: masters, states of optimizers, and the
// gradients of a step, also if the shards are in the memory of a device. The copy is updated by the
// same optimizers on the same gradients as the shards themselves, so that a step moves gradients
// only, and the copy never is of another step than the shards.
//
//     rank r ──gradients──► rank (r + distance) mod ranks, which holds the copy of r
#pragma once

#include <cstdint>
#include <memory>

#include "fsdp/engine/comms.h"
#include "fsdp/engine/device/streams.h"
#include "fsdp/engine/optimizer.h"
#include "fsdp/engine/shards.h"

namespace vescomm::fsdp {

// Collective.
int partner_distance(const Communicator &world);

class PartnerCopy {
public:
    // All arguments must outlive the copy. `distance`: of partner_distance(). `streams`: those of
    // an engine on device memory, else nullptr.
    PartnerCopy(const Spec &spec, const ModelPlan &plan, const Shards &mine, int rank, int distance,
                std::shared_ptr<UpdateThreads> threads, device::Streams *streams);

    // Receives masters and states of the copied rank, and sends those of `mine`: this rank's
    // shards, or a copy that the host can access. Collective.
    void refresh(Comms &comms, const Shards &mine);
    // Receives the gradients of the copied rank, and sends this rank's, which are complete.
    // Collective.
    void exchange_gradients(Comms &comms);

    int copied_rank() const { return copied_; }
    const Shards &shards() const { return shards_; }
    Optimizer &optimizer() { return optimizer_; }
    std::uint64_t bytes() const { return shards_.bytes() + staged_.size() + optimizer_.bytes(); }

private:
    void exchange(Comms &comms, const void *mine, std::size_t my_bytes, void *copy,
                  std::size_t copy_bytes) const;

    const ModelPlan &plan_;
    const Shards &mine_;
    device::Streams *streams_;  // nullptr: the host can access this rank's shards
    device::Bytes staged_;  // this rank's gradients in pinned memory, if they are on a device
    int copied_;
    int holder_;
    Shards shards_;
    Optimizer optimizer_;
};

}  // namespace vescomm::fsdp

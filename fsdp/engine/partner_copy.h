// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A copy of another rank's shards in memory: masters, states of optimizers, and the gradients of a
// step. The copy is updated by the same optimizers on the same gradients as the shards themselves,
// so that a step moves gradients only, and the copy never is of another step than the shards.
//
//     rank r ──gradients──► rank (r + distance) mod ranks, which holds the copy of r
#pragma once

#include <cstdint>
#include <memory>

#include "fsdp/engine/comms.h"
#include "fsdp/engine/optimizer.h"
#include "fsdp/engine/shards.h"

namespace vescomm::fsdp {

// Collective.
int partner_distance(const Communicator &world);

class PartnerCopy {
public:
    // All arguments must outlive the copy. `distance`: of partner_distance().
    PartnerCopy(const Spec &spec, const ModelPlan &plan, const Shards &mine, int rank, int distance,
                std::shared_ptr<UpdateThreads> threads);

    // Receives masters and states of the copied rank, and sends this rank's. Collective.
    void refresh(Comms &comms);
    // Receives the gradients of the copied rank, and sends this rank's. Collective.
    void exchange_gradients(Comms &comms);

    int copied_rank() const { return copied_; }
    const Shards &shards() const { return shards_; }
    Optimizer &optimizer() { return optimizer_; }
    std::uint64_t bytes() const { return shards_.bytes(); }

private:
    void exchange(Comms &comms, const void *mine, std::size_t my_bytes, void *copy,
                  std::size_t copy_bytes) const;

    const ModelPlan &plan_;
    const Shards &mine_;
    int copied_;
    int holder_;
    Shards shards_;
    Optimizer optimizer_;
};

}  // namespace vescomm::fsdp

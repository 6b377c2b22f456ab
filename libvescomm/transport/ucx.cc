// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx.h"

#include "transport/fabric_transport.h"

namespace vescomm::internal {

std::unique_ptr<Transport> make_ucx_transport(std::shared_ptr<UcxFabric> fabric,
                                              std::uint32_t context, int rank,
                                              const std::vector<int> &peers, Failure &failure,
                                              std::function<void()> on_signal) {
    UcxShared &shared = fabric->shared();
    return std::make_unique<FabricTransport<UcxFabric, UcxContext>>(
        std::move(fabric), peers, failure, shared, context, rank, peers, failure,
        std::move(on_signal));
}

}  // namespace vescomm::internal

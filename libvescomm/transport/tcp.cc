// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp.h"

#include "transport/fabric_transport.h"

namespace vescomm::internal {

std::unique_ptr<Transport> make_tcp_transport(std::shared_ptr<TcpFabric> fabric,
                                              std::uint32_t context, int rank,
                                              const std::vector<int> &peers, Failure &failure,
                                              std::function<void()> on_signal) {
    return std::make_unique<FabricTransport<TcpFabric, TcpContext>>(
        std::move(fabric), peers, failure, context, rank, peers, failure, std::move(on_signal));
}

}  // namespace vescomm::internal

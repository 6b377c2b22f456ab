// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/transports.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "transport/node.h"
#include "transport/tcp.h"
#if VESCOMM_HAVE_UCX
#include "transport/ucx.h"
#include "transport/ucx_worker.h"
#endif

namespace vescomm::internal {

namespace {

// The table of transports. Only tests make loopback.
constexpr TransportHelp table[] = {
    {"node", "memory shared by the ranks of a node", true},
    {"tcp", "puts into memory of other nodes, over authenticated TCP connections", true},
    {"ucx", "puts into registered memory of other nodes, over UCX: RDMA", VESCOMM_HAVE_UCX != 0},
    {"loopback", "threads of one process as ranks, for tests", true},
};

bool has_rdma() {
#if VESCOMM_HAVE_UCX
    return !only_tcp();
#else
    return false;
#endif
}

// Returns a rank that differs from rank 0, or -1.
int different(const std::vector<std::string> &all) {
    for (std::size_t rank = 1; rank < all.size(); ++rank)
        if (all[rank] != all[0]) return static_cast<int>(rank);
    return -1;
}

// Agrees on the transport between nodes: "tcp" or "ucx".
std::string agree_on_transport(Control &control, const TransportOptions &options,
                               Deadline deadline) {
    const std::string own = "VESCOMM_TRANSPORT=" + options.between_nodes +
                            " VESCOMM_ENCRYPTION=" + (options.encrypted ? "yes" : "no");
    const auto all = control.all_gather("transport between nodes",
                                        (has_rdma() ? "rdma " : "tcp ") + own, deadline);
    std::vector<std::string> requested;
    bool rdma = true;
    for (const std::string &one : all) {
        const std::size_t space = std::min(one.find(' '), one.size());
        rdma = rdma && one.substr(0, space) == "rdma";
        requested.push_back(one.substr(space));
    }
    if (const int rank = different(requested); rank >= 0)
        throw Error(VESCOMM_ERROR_MISMATCH,
                    "rank 0 has" + requested[0] + ", and rank " + std::to_string(rank) + " has" +
                        requested[static_cast<std::size_t>(rank)] + "; set the same on all ranks");
    if (options.between_nodes != "auto") return options.between_nodes;
    return rdma && !options.encrypted ? "ucx" : "tcp";
}

std::unique_ptr<Transport> make_tcp(const std::vector<bool> &away, Control &control,
                                    Failure &failure, std::function<void()> on_signal,
                                    Deadline deadline, const TransportOptions &options) {
    const auto make = [&] {
        return TcpFabric::connect(control, away, {options.encrypted}, failure, deadline);
    };
    const FabricShare share =
        share_fabric(control, options.encrypted ? "encrypted tcp" : "tcp", away, make, deadline);
    auto transport = make_tcp_transport(std::static_pointer_cast<TcpFabric>(share.fabric),
                                        control.membership().group, control.rank(), share.peers,
                                        failure, std::move(on_signal));
    // All ranks must have made their transport before any rank sends.
    control.all_gather("tcp transports", "", deadline);
    return transport;
}

#if VESCOMM_HAVE_UCX
std::unique_ptr<Transport> make_ucx(const std::vector<bool> &away, Control &control,
                                    Failure &failure, std::function<void()> on_signal,
                                    Deadline deadline) {
    const auto make = [&] { return UcxFabric::connect(control, away, failure, deadline); };
    const FabricShare share = share_fabric(control, "ucx", away, make, deadline);
    auto transport = make_ucx_transport(std::static_pointer_cast<UcxFabric>(share.fabric),
                                        control.membership().group, control.rank(), share.peers,
                                        failure, std::move(on_signal));
    // All ranks must have made their transport before any rank sends.
    control.all_gather("ucx transports", "", deadline);
    return transport;
}
#endif

}  // namespace

std::vector<Transport *> Transports::routes(int ranks) const {
    const auto route = [this](int peer) -> Transport * {
        if (intra_node->maps(peer) || intra_node->puts(peer)) return intra_node.get();
        for (const auto &transport : inter_node)
            if (transport->puts(peer)) return transport.get();
        return nullptr;
    };
    std::vector<Transport *> routes;
    for (int peer = 0; peer < ranks; ++peer) {
        routes.push_back(route(peer));
        if (routes.back() == nullptr)
            throw Error(VESCOMM_ERROR_UNSUPPORTED,
                        "rank " + std::to_string(peer) +
                            " is on another node, and no transport of this communicator reaches "
                            "it");
    }
    return routes;
}

std::span<const TransportHelp> transports() {
    return table;
}

bool expects_tcp_links(const std::string &between_nodes) {
    return between_nodes == "tcp" || !has_rdma();
}

Transports make_transports(const Nodes &nodes, Control &control, Failure &failure,
                           std::function<void()> on_signal, Deadline deadline,
                           const TransportOptions &options) {
    Transports transports;
    transports.intra_node = make_node_transport(nodes, control, deadline);
    if (nodes.count() == 1) return transports;
    std::vector<bool> away(static_cast<std::size_t>(nodes.ranks()));
    for (int peer = 0; peer < nodes.ranks(); ++peer)
        away[static_cast<std::size_t>(peer)] = !nodes.together(control.rank(), peer);
    if (agree_on_transport(control, options, deadline) == "tcp") {
        transports.inter_node.push_back(
            make_tcp(away, control, failure, std::move(on_signal), deadline, options));
        return transports;
    }
    if (options.encrypted)
        throw Error(VESCOMM_ERROR_UNSUPPORTED,
                    "VESCOMM_ENCRYPTION=yes needs VESCOMM_TRANSPORT=tcp: UCX does not encrypt");
#if VESCOMM_HAVE_UCX
    static std::atomic<bool> warned{false};
    if (only_tcp() && !warned.exchange(true))
        transports.warning =
            "VESCOMM_TRANSPORT=ucx, and there is no RDMA: UCX will use TCP, whose connections are "
            "neither authenticated nor encrypted, and anyone who reaches its ports can end this "
            "job; VESCOMM_TRANSPORT=tcp is safe, and faster";
    transports.inter_node.push_back(
        make_ucx(away, control, failure, std::move(on_signal), deadline));
#else
    throw Error(VESCOMM_ERROR_UNSUPPORTED,
                "VESCOMM_TRANSPORT=ucx needs a build with UCX; this one has none");
#endif
    return transports;
}

}  // namespace vescomm::internal

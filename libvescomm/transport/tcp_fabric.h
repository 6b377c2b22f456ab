// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/failure.h"
#include "bootstrap/control.h"
#include "transport/fabric.h"
#include "transport/tcp_context.h"
#include "transport/tcp_shared.h"

namespace vescomm::internal {

struct TcpConnection;
struct TcpKeys;

struct TcpFabricOptions {
    bool encrypted = false;  // AES-256-GCM; the same on all ranks
};

// The data connections of one process to processes on other nodes: one TCP connection to each,
// shared by the communicators of the process.
//
// Threads: safe. One mutex covers everything. It is held for a few system calls at a time, and no
// call waits for a peer. on_signal and the Failure of a context are called under it, and must not
// call back.
class TcpFabric final : public Fabric {
public:
    static constexpr const char *name = "tcp";
    static constexpr const char *network = "TCP";

    // Connects this process with its peers. Collective over the ranks of `control`, which number
    // the processes. Listens only on the interface that reaches the peers
    // (Control::local_address()), and only until all peers have connected.
    //
    // peers    by rank: true to connect. If rank a has b as a peer, b must have a.
    // failure  ends the wait when the control plane reports a failure
    //
    // Throws
    //   SYSTEM       a socket cannot be created, or the interface that reaches the peers is unknown
    //   MISMATCH     the ranks disagree on encryption, or have different byte orders
    //   TIMEOUT      names the ranks that cannot be reached
    static std::shared_ptr<TcpFabric> connect(Control &control, const std::vector<bool> &peers,
                                              const TcpFabricOptions &options,
                                              const Failure &failure, Deadline deadline);
    ~TcpFabric() override;
    TcpFabric(const TcpFabric &) = delete;
    TcpFabric &operator=(const TcpFabric &) = delete;

    bool connects(int process) const noexcept override;
    // True if there is or was a connection to the process.
    bool reaches(int process) const noexcept {
        const auto at = static_cast<std::size_t>(process);
        return at < connections_.size() && connections_[at] != nullptr;
    }

    // Delivers messages for this context from now on; its id must not be in use. All ranks must
    // have opened their contexts before any rank sends: messages for a context that is not open are
    // dropped.
    void open(TcpContext &context);
    // Ends delivery and sends the peers a goodbye. After the return no byte of the context's
    // memories is touched. Waits at most `patience_seconds` for the kernel to take the remaining
    // bytes.
    void close(TcpContext &context, double patience_seconds) noexcept;

    // See Transport.
    bool progress() noexcept;
    int descriptor() const noexcept { return shared_.epoll.get(); }
    bool arm() noexcept;

    // The functions below must be called with this mutex held.
    std::mutex &mutex() const noexcept { return mutex_; }

    // `memory`: the target of the put; nullptr if the put has no bytes.
    void put(TcpContext &context, int process, const Put &put, PutMemory *memory) noexcept;
    // Advances all connections once. Returns true if anything advanced.
    bool step() noexcept;

    // True in a child that inherited the fabric by fork(): the connections belong to its parent.
    bool inherited() const noexcept;

private:
    explicit TcpFabric(std::size_t processes);
    void add(int process, Descriptor socket, const TcpKeys *keys, bool accepted);
    bool step(TcpConnection &connection) noexcept;
    bool receive(TcpConnection &connection) noexcept;
    bool arm_locked() noexcept;
    bool watch(TcpConnection &connection, std::uint32_t events) noexcept;
    void lose(TcpConnection &connection, const std::string &why) noexcept;
    void check(TcpConnection &connection) noexcept;
    bool owes(const TcpContext &context) const noexcept;

    const pid_t process_;
    mutable std::mutex mutex_;
    TcpShared shared_;
    // by number of the process; nullptr: none
    std::vector<std::unique_ptr<TcpConnection>> connections_;
    std::vector<TcpConnection *> open_;  // the connections that exist
};

}  // namespace vescomm::internal

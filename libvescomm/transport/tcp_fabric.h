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
#include "transport/tcp_hub.h"

namespace vescomm {

struct TcpConnection;
struct TcpKeys;

struct TcpFabricOptions {
    bool encrypted = false;  // AES-256-GCM; the same on all ranks
};

// The data connections of one process to processes on other nodes: one TCP connection each, which
// the communicators of the process share.
//
// Threads: safe. One mutex covers everything; it is held for the time of a few system calls, and no
// call waits for a peer. on_signal and the Failure of a context are called under it, and must not
// call back.
class TcpFabric final : public Fabric {
public:
    static constexpr const char *name = "tcp";
    static constexpr const char *network = "TCP";

    // Connects this process with its peers: collective over the ranks of `control`, which number
    // the processes. Listens on the one interface that reaches the peers
    // (Control::local_address()), and only until all have come.
    //
    // peers    by rank: whether to connect. If rank a has b as a peer, b must have a.
    // failure  ends the wait when the control plane reports one
    //
    // Throws
    //   SYSTEM       sockets are not to be had, or it is unknown which interface reaches the peers
    //   MISMATCH     the ranks do not agree on encryption, or have different byte orders
    //   TIMEOUT      names the ranks that cannot be reached
    static std::shared_ptr<TcpFabric> connect(Control &control, const std::vector<bool> &peers,
                                              const TcpFabricOptions &options,
                                              const Failure &failure, Deadline deadline);
    ~TcpFabric() override;
    TcpFabric(const TcpFabric &) = delete;
    TcpFabric &operator=(const TcpFabric &) = delete;

    bool connects(int process) const noexcept override;
    // True: there is a connection to a process, or was.
    bool reaches(int process) const noexcept {
        const auto at = static_cast<std::size_t>(process);
        return at < connections_.size() && connections_[at] != nullptr;
    }

    // Messages for this context are delivered from now on; its id must not be in use. Before any
    // rank sends, all must have opened theirs: messages for a context that is not open are dropped.
    void open(TcpContext &context);
    // Ends that: tells the peers, and when it returns no byte of its memories is touched any more.
    // `patience_seconds` for the kernel to take what is still to be sent.
    void close(TcpContext &context, double patience_seconds) noexcept;

    // See Transport.
    bool progress() noexcept;
    int descriptor() const noexcept { return hub_.epoll.get(); }
    bool arm() noexcept;

    // Everything below is called with this mutex held.
    std::mutex &mutex() const noexcept { return mutex_; }

    // `memory`: where the put goes; nullptr where it has no bytes.
    void put(TcpContext &context, int process, const Put &put, PutMemory *memory) noexcept;
    // Moves everything along once. True: something moved.
    bool step() noexcept;

    // This process is a child that inherited the fabric: the connections are its parent's.
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
    TcpHub hub_;
    std::vector<std::unique_ptr<TcpConnection>> connections_;  // by number; nullptr: none
    std::vector<TcpConnection *> open_;  // those that are made
};

}  // namespace vescomm

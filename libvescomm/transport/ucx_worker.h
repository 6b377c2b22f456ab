// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "transport/ucx_library.h"

namespace vescomm::internal {

// True if TCP will carry everything: there is no RDMA device, or the user has chosen TCP.
bool only_tcp();

// A context and a worker of UCX, configured for vescomm: active messages and wake-ups.
//
// Users tune UCX with its own variables (UCX_TLS, UCX_NET_DEVICES, ...). A variable with the prefix
// VESCOMM_ (VESCOMM_UCX_TLS) applies to vescomm only and takes precedence.
class UcxWorker {
public:
    // `peers`: number of ranks to connect to. `interface`: the network interface to which TCP is
    // restricted, unless the user names others; empty: UCX listens on all. Throws.
    UcxWorker(const UcxLibrary &ucx, std::size_t peers, const std::string &interface);
    ~UcxWorker() { destroy(); }
    UcxWorker(const UcxWorker &) = delete;
    UcxWorker &operator=(const UcxWorker &) = delete;

    ucp_context_h context() const { return context_; }
    ucp_worker_h handle() const { return worker_; }
    int descriptor() const { return descriptor_; }
    std::string address() const;

    // Best number of bytes per message; longer messages are only slower.
    std::uint64_t piece_bytes() const { return piece_bytes_; }

    // UCX uses TCP only. It may keep the end of a message that it reports as sent, and send it at a
    // later progress.
    bool over_tcp() const { return over_tcp_; }

    // After the return UCX touches no memory that was registered here. May be repeated. Memory must
    // be unregistered between destroy_worker() and destroy().
    void destroy_worker() noexcept;
    void destroy() noexcept;
    // Leaks the worker and the context until the process ends.
    void abandon() noexcept {
        worker_ = nullptr;
        context_ = nullptr;
    }

private:
    const UcxLibrary &ucx_;
    ucp_context_h context_ = nullptr;
    ucp_worker_h worker_ = nullptr;
    int descriptor_ = -1;
    std::uint64_t piece_bytes_ = 0;
    bool over_tcp_ = false;
};

}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "transport/ucx_library.h"

namespace vescomm {

// Whether TCP will carry everything: there is no device for RDMA, or the user says so.
bool only_tcp();

// A context and a worker of UCX, configured for vescomm: active messages and wake-ups.
//
// Users tune it with UCX's own variables (UCX_TLS, UCX_NET_DEVICES, ...); the same variable behind
// VESCOMM_ (VESCOMM_UCX_TLS) concerns vescomm only and comes before it.
class UcxWorker {
public:
    // `peers`: to how many ranks it will connect. `interface`: the network interface to which TCP
    // is kept, unless the user names others; empty: UCX listens on all. Throws.
    UcxWorker(const UcxLibrary &ucx, std::size_t peers, const std::string &interface);
    ~UcxWorker() { destroy(); }
    UcxWorker(const UcxWorker &) = delete;
    UcxWorker &operator=(const UcxWorker &) = delete;

    ucp_context_h context() const { return context_; }
    ucp_worker_h handle() const { return worker_; }
    int descriptor() const { return descriptor_; }
    std::string address() const;

    // How many bytes go best into one message; longer ones are only slower.
    std::uint64_t piece_bytes() const { return piece_bytes_; }

    // Once it returns, UCX touches no memory that was registered here. Safe to repeat. Memory must
    // be unregistered between the two.
    void destroy_worker() noexcept;
    void destroy() noexcept;
    // Leaves everything to the end of the process.
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
};

}  // namespace vescomm

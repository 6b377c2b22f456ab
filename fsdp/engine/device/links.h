// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The device communicators of an engine: of the ranks that shard units, of a group that has a
// secondary copy, of the replicas, and with replicated parameters of all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/engine/comms.h"
#include "fsdp/engine/device/cuda.h"
#include "fsdp/engine/device/streams.h"
#include "fsdp/error.h"
#include "fsdp/spec/model_plan.h"
#include "vescomm/gpu.h"

namespace vescomm::fsdp::device {

// A device communicator, whose calls come from several streams. They must be ordered, because they
// share a workspace.
class Link {
public:
    // `comm`: one of `comms`, which must outlive the link. Collective.
    Link(const Comms &comms, const Communicator &comm);
    // Its ranks are some of those of the parent. Collective, on all ranks of the parent.
    Link(Link &parent, const Comms &comms, const Communicator &comm);

    vescomm_gpu_comm_t *get() const { return comm_.get(); }
    // True if its communicator of the host is broken. Makes progress on it.
    bool broken() const { return vescomm_comm_progress(host_) != VESCOMM_OK; }
    // Throws Failure unless the status of a call on the communicator is VESCOMM_OK.
    void require(vescomm_status_t status) const {
        if (status != VESCOMM_OK) throw Failure(status, vescomm_get_last_error() + ranks_);
    }
    // True: the communicator asks for reproducible sums, which those of NCCL are not. Throws
    // Failure if it is broken. Collective.
    bool needs_order() const;
    // Calls the body, a collective call on the stream, after the earlier ones of all streams.
    template <typename Body>
    void call(cuda::Stream stream, Body &&body) {
        require(vescomm_gpu_order_stream(comm_.get(), stream));
        require(std::forward<Body>(body)(comm_.get()));
    }

private:
    struct Free {
        void operator()(vescomm_gpu_comm_t *comm) const noexcept { vescomm_gpu_comm_free(comm); }
    };
    vescomm_comm_t *host_;
    std::string ranks_;  // of Comms::describe()
    std::unique_ptr<vescomm_gpu_comm_t, Free> comm_;
};

class Links {
public:
    // `comms` must outlive the links. Collective.
    Links(Comms &comms, const ModelPlan &plan);

    // The communicator of the ranks that shard a unit.
    Link &shard(UnitKind kind = UnitKind::dense) {
        return kind == UnitKind::experts ? *experts_ : shard_;
    }
    // The communicator of the ranks that gather a unit together.
    Link &gather(UnitKind kind = UnitKind::dense) {
        return gather_ && kind == UnitKind::dense ? *gather_ : shard(kind);
    }
    Link &replica() { return replica_ ? *replica_ : shard_; }
    // The communicator of all ranks. There must be replicated parameters.
    Link &world() { return world_ ? *world_ : shard_; }
    Comms &comms() { return comms_; }
    // Waits until an event is reached, at most the timeout, or a rank fails. Throws Failure.
    void wait(const Event &event);
    // Waits as above until all work of a stream of the trainer is complete.
    void wait(cuda::Stream stream);
    // Waits for the work of the engine's streams so far.
    void settle(Streams &streams);
    // If a communicator is broken: ends NCCL's of all broken ones, at the same time. The end of one
    // waits for earlier work in its streams, which may be that of another one.
    void end_broken() noexcept;

private:
    std::vector<Link *> all();
    // Throws the failure of a communicator; NCCL's of broken ones have ended then.
    void check_all();

    Comms &comms_;
    Link shard_;
    std::optional<Link> gather_;  // none: the ranks that shard a unit gather it
    std::optional<Link> replica_;  // none: shard_ has them
    std::optional<Link> experts_;  // none: all units are dense
    std::optional<Link> world_;  // none: shard_ has all ranks, or no parameter is replicated
};

// A device buffer of a shard group.
struct FreeBuffer {
    void operator()(vescomm_gpu_buffer_t *buffer) const noexcept {
        vescomm_gpu_buffer_free(buffer);
    }
};
using Buffer = std::unique_ptr<vescomm_gpu_buffer_t, FreeBuffer>;

// Memory that is registered with NCCL. Collective.
class Registered {
public:
    Registered() = default;
    Registered(Link &link, std::uint64_t bytes) : link_(&link) {
        if (bytes > 0) link.require(vescomm_gpu_malloc(link.get(), bytes, &data_));
    }
    ~Registered() {
        if (data_ != nullptr) vescomm_gpu_mfree(link_->get(), data_);
    }
    Registered(Registered &&other) noexcept
        : link_(other.link_), data_(std::exchange(other.data_, nullptr)) {}
    Registered &operator=(Registered &&other) noexcept {
        std::swap(link_, other.link_);
        std::swap(data_, other.data_);
        return *this;
    }

    std::byte *data() const { return static_cast<std::byte *>(data_); }

private:
    Link *link_ = nullptr;
    void *data_ = nullptr;
};

}  // namespace vescomm::fsdp::device

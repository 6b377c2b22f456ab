// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/comms.h"

#include <chrono>
#include <thread>

#include "fsdp/error.h"

namespace vescomm::fsdp {

namespace {

Communicator dup(vescomm_comm_t *parent) {
    vescomm_comm_t *made = nullptr;
    check(vescomm_comm_dup(parent, nullptr, &made));
    return Communicator(made);
}

Communicator split(vescomm_comm_t *parent, int color, int key) {
    vescomm_comm_t *made = nullptr;
    check(vescomm_comm_split(parent, color, key, nullptr, &made));
    return Communicator(made);
}

}  // namespace

Comms::Comms(vescomm_comm_t *parent, const Mesh &mesh) {
    world_ = dup(parent);
    const int rank = world_->rank();
    if (mesh.replicas() == 1) return;
    shard_ = split(parent, mesh.group(rank), rank);
    if (mesh.shard_ranks > 1) replica_ = split(parent, mesh.position(rank), rank);
}

void Comms::wait(vescomm_request_t *request) {
    if (!shard_) {
        const vescomm_status_t status = vescomm_request_wait(request);
        check(status);
        if (status != VESCOMM_OK)
            throw Failure(VESCOMM_ERROR_ABORTED,
                          "the function of vescomm_set_interrupt() ended the wait");
        return;
    }
    // A blocking wait makes progress on one communicator only, and ranks of other groups may need
    // progress on another one before they come to this request.
    constexpr int polls = 200;
    constexpr std::chrono::microseconds nap(50);
    for (int poll = 0;; ++poll) {
        const vescomm_status_t status = vescomm_request_test(request);
        check(status);
        if (status == VESCOMM_OK) return;
        progress();
        if (poll < polls) std::this_thread::yield();
        else std::this_thread::sleep_for(nap);
    }
}

void Comms::progress() {
    world_->progress();
    if (shard_) shard_->progress();
    if (replica_) replica_->progress();
}

void Comms::abort(const std::string &reason) noexcept {
    for (const auto *comm : {&world_, &shard_, &replica_})
        if (*comm) vescomm_comm_abort((*comm)->get(), reason.c_str());
}

}  // namespace vescomm::fsdp

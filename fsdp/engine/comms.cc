// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/comms.h"

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

Comms::Comms(vescomm_comm_t *parent, const Mesh &mesh) : mesh_(mesh) {
    world_ = dup(parent);
    const int rank = world_->rank();
    if (mesh.replicas() == 1) return;
    shard_ = split(parent, mesh.group(rank), rank);
    if (mesh.shard_ranks > 1) replica_ = split(parent, mesh.position(rank), rank);
    for (auto *comm : {&world_, &shard_, &replica_})
        if (*comm) all_.push_back((*comm)->get());
}

void Comms::wait(const Communicator &comm, vescomm_request_t *request) {
    const vescomm_status_t status = vescomm_request_wait_with(request, all_.data(), all_.size());
    if (status == VESCOMM_OK) return;
    if (status == VESCOMM_IN_PROGRESS)
        throw Failure(VESCOMM_ERROR_ABORTED,
                      "the function of vescomm_set_interrupt() ended the wait");
    std::string why = vescomm_get_last_error();
    const int rank = world_->rank();
    if (shard_ && &comm == &*shard_)
        why += fmt::format(" (rank 0 of the shard group is rank {})",
                           mesh_.group(rank) * mesh_.shard_ranks);
    else if (replica_ && &comm == &*replica_)
        why += fmt::format(" (rank r of the replicas is rank {} + {} * r)", mesh_.position(rank),
                           mesh_.shard_ranks);
    throw Failure(status, why);
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

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The communicators of one engine: all ranks, the shard group of this rank, and its replicas. They
// belong to the engine, so that it can abort them without harm to the caller's communicator.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fsdp/spec/mesh.h"
#include "vescomm/vescomm.hpp"

namespace vescomm::fsdp {

class Comms {
public:
    // `parent` is the communicator of all ranks. Both must outlive this object. Collective.
    Comms(vescomm_comm_t *parent, const Mesh &mesh);

    Communicator &world() { return *world_; }
    Communicator &shard() { return shard_ ? *shard_ : *world_; }
    Communicator &replica() { return replica_ ? *replica_ : *world_; }

    // Waits until a request of `comm`, one of the above, is complete. Makes progress on all
    // communicators: ranks of other groups may need it before they come to this request. Throws
    // Failure.
    void wait(const Communicator &comm, vescomm_request_t *request);
    void progress();
    // Ends the waits of all ranks.
    void abort(const std::string &reason) noexcept;

private:
    const Mesh &mesh_;
    std::optional<Communicator> world_;
    std::optional<Communicator> shard_;  // none: all ranks
    std::optional<Communicator> replica_;  // none: all ranks
    std::vector<vescomm_comm_t *> all_;  // of the above; empty if there is only one
};

}  // namespace vescomm::fsdp

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "support/array_ranks.h"

#include <barrier>
#include <exception>
#include <stdexcept>
#include <utility>

namespace vescomm::internal::testing_support {

void check(vescomm_status_t status) {
    if (status != VESCOMM_OK) throw std::runtime_error(vescomm_get_last_error());
}

std::unique_ptr<vescomm_comm> handle_of(const std::shared_ptr<Communicator> &comm) {
    auto handle = std::make_unique<vescomm_comm>();
    handle->calls = Calls::create(comm);
    handle->value = comm;
    return handle;
}

void run_array_ranks(const TestSetup &setup, const std::function<void(vescomm_comm_t *)> &body) {
    std::barrier meeting(setup.ranks());
    run_ranks(setup, [&](const std::shared_ptr<Communicator> &comm) {
        std::unique_ptr<vescomm_comm> handle;
        try {
            handle = handle_of(comm);
        } catch (...) {
            meeting.arrive_and_drop();
            throw;
        }
        meeting.arrive_and_wait();
        body(handle.get());
    });
}

void run_array_ranks(std::span<const TestSetup> setups,
                     const std::function<void(const std::vector<vescomm_comm_t *> &)> &body) {
    std::vector<std::shared_ptr<LocalControlHub>> controls;
    std::vector<std::shared_ptr<LoopbackNetwork>> networks;
    for (const TestSetup &setup : setups.subspan(1)) {
        controls.push_back(std::make_shared<LocalControlHub>(setup.ranks()));
        networks.push_back(make_loopback_network(Nodes::from_numbers(setup.node_of)));
    }
    run_array_ranks(setups[0], [&](vescomm_comm_t *first) {
        const int rank = first->value->rank();
        std::vector<std::unique_ptr<vescomm_comm>> handles;
        std::vector<vescomm_comm_t *> comms{first};
        try {
            for (std::size_t i = 0; i < controls.size(); ++i) {
                auto control = std::make_unique<LocalControl>(controls[i], rank);
                handles.push_back(
                    handle_of(join(setups[i + 1], rank, std::move(control), networks[i])));
                comms.push_back(handles.back().get());
            }
            body(comms);
        } catch (const std::exception &error) {
            for (const auto &control : controls)
                LocalControl(control, rank).fail(VESCOMM_ERROR_ABORTED, error.what());
            throw;
        }
        for (const auto &handle : handles) handle->value->leave();
    });
}

}  // namespace vescomm::internal::testing_support

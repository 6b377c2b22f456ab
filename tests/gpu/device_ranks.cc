// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_ranks.h"

namespace vescomm::internal::testing_support {

void expect_error(vescomm_status_t status, vescomm_status_t expected, const std::string &says) {
    EXPECT_EQ(status, expected) << vescomm_get_last_error();
    EXPECT_NE(std::string(vescomm_get_last_error()).find(says), std::string::npos)
        << vescomm_get_last_error();
}

vescomm_gpu_comm_options_t device_options(const char *method, std::uint64_t workspace) {
    vescomm_gpu_comm_options_t options = vescomm_gpu_comm_options_init();
    options.method = method;
    options.workspace_bytes = workspace;
    return options;
}

TestSetup node_of_ranks(int ranks) {
    TestSetup setup;
    setup.kind = Kind::loopback;
    setup.node_of.assign(static_cast<std::size_t>(ranks), 0);
    return setup;
}

void run_devices(const TestSetup &setup, const std::function<void(DeviceRank &)> &body) {
    run_ranks(setup, [&](const std::shared_ptr<Communicator> &comm) {
        DeviceRank rank(comm);
        body(rank);
    });
}

void run_device_ranks(int ranks, const vescomm_gpu_comm_options_t &options,
                      const std::function<void(DeviceRank &)> &body) {
    run_devices(node_of_ranks(ranks), [&](DeviceRank &rank) {
        ASSERT_EQ(rank.create(options), VESCOMM_OK) << vescomm_get_last_error();
        body(rank);
    });
}

int calls_in(DeviceRank &r, const char *function, const std::function<void()> &call) {
    r.parent.value->barrier();
    const int before = gpu_double::calls_of(function);
    r.parent.value->barrier();
    call();
    r.parent.value->barrier();
    const int after = gpu_double::calls_of(function);
    r.parent.value->barrier();
    return after - before;
}

std::vector<std::vector<std::int64_t>> shapes(int ranks) {
    std::vector<std::vector<std::int64_t>> all(5);
    for (std::int64_t k = 0; k < ranks; ++k) {
        all[0].push_back(4);
        all[1].push_back(3 + 5 * k);
        all[2].push_back(k % 2 == 0 ? 0 : 7 * k);
        all[3].push_back(k == ranks / 2 ? 33 : 0);
        all[4].push_back(0);
    }
    return all;
}

}  // namespace vescomm::internal::testing_support

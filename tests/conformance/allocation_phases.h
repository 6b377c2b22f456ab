// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The phases of a communicator's life in which allocations_test.cc makes allocations fail.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/handles.h"
#include "support/failing_allocations.h"
#include "support/local_control.h"
#include "transport/loopback.h"

namespace vescomm::internal::testing_support {

constexpr double timeout_seconds = 4;  // of the communicator
constexpr unsigned hang_seconds = 40;  // the test kills a trial after this time

struct Cluster {
    const char *name;
    bool loopback;
    std::vector<int> node_of;
    // `cpp` for UCX, which crashes if its own allocations fail.
    Allocator allocator = Allocator::all;
    // Uses the TCP control plane. Such a cluster runs only if --only selects it.
    bool real_control = false;

    int ranks() const { return static_cast<int>(node_of.size()); }
};

// The result of one trial, in memory that the trial's process shares with the test.
struct Found {
    Allocations allocations;
    vescomm_status_t status[2];  // the first status other than OK, by rank
    bool done[2];
    char what[2][512];  // the first problem of each rank; empty if none
};

struct Trial {
    int phase;
    std::uint64_t number;
    Failing failing;
};

struct World {
    const Cluster &cluster;
    const Trial &trial;
    Found &found;
    std::shared_ptr<LocalControlHub> control_hub;
    std::shared_ptr<LoopbackNetwork> network;
    std::string folder;
    std::string address;
};

struct Rank {
    Rank(World &its_world, int its_rank) : world(its_world), rank(its_rank) {}

    World &world;
    const int rank;
    vescomm_comm_t *comm = nullptr;
    vescomm_layout_t *layout = nullptr;
    vescomm_memory_t *memory = nullptr;
    vescomm_memory_t *slab = nullptr;
    vescomm_buffer_t *buffer = nullptr;
    std::vector<vescomm_request_t *> requests;
    vescomm_request_t *pending = nullptr;
    bool given_up = false;

    int ranks() const { return world.cluster.ranks(); }
    bool victim() const { return rank == 0; }

    void wrong(const std::string &text) {
        char *what = world.found.what[rank];
        if (what[0] == '\0') std::snprintf(what, sizeof world.found.what[0], "%s", text.c_str());
    }

    // Runs a call of the library with failing allocations. Those of the test itself succeed.
    template <typename Body>
    static vescomm_status_t exposed(const Body &body) {
        const FailingAgain again;
        return body();
    }

    // One call of the library. If an allocation failed, here or on the other ranks as well, and the
    // communicator is not broken, the call is repeated and must succeed.
    void call(const char *name, const std::function<vescomm_status_t()> &body) {
        if (given_up) return;
        vescomm_status_t status = exposed(body);
        if (status == VESCOMM_OK) return;
        const Allocations before = victim() ? stop_failing() : Allocations{};
        const std::string sentence = vescomm_get_last_error();
        if (sentence.empty()) wrong(std::string(name) + " failed and said nothing");
        if (status == VESCOMM_ERROR_INTERNAL || status == VESCOMM_ERROR_INVALID_ARGUMENT)
            wrong(std::string(name) + ": " + vescomm_status_get_name(status) + ": " + sentence);
        const bool broken = comm == nullptr || comm->value->failure().broken();
        const bool elsewhere = !victim() && status == VESCOMM_ERROR_OUT_OF_MEMORY;
        if ((before.failed > 0 || elsewhere) && !broken) {
            status = body();
            if (status == VESCOMM_OK) return;
            if (!comm->value->failure().broken())
                wrong(std::string("again, ") + name + ": " + vescomm_status_get_name(status) +
                      ": " + vescomm_get_last_error());
        }
        if (world.found.status[rank] == VESCOMM_OK) world.found.status[rank] = status;
        given_up = true;
    }

    void expect(const char *name, const std::vector<float> &is, const std::vector<float> &should) {
        if (!given_up && is != should) wrong(std::string(name) + ": wrong result");
    }
};

struct Phase {
    const char *name;
    void (*body)(Rank &);
    bool last = false;  // needs only the communicator, and no phase follows it
    // Collective creation: it succeeds on all ranks or on none, so that nobody waits for the
    // timeout.
    bool creates = false;
};

// All phases, in order of execution.
const std::vector<Phase> &all_phases();
// Returns true if a trial of phase `target` runs `phase`: earlier phases that create objects, the
// earlier phase "run", and the target itself.
bool takes_part(int phase, int target);
void free_all(Rank &rank);

}  // namespace vescomm::internal::testing_support

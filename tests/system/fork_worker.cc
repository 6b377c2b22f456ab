// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A rank that forks between its operations:
//
//     fork_worker frees|destroys|unwinds|exits
//
// The child makes every call on the inherited handles. All calls must be rejected. Then the child
// frees the handles (frees), destroys their C++ owners (destroys), destroys them while an exception
// propagates (unwinds), or destroys them and runs exit handlers (exits). The parent continues and
// verifies its results.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "collectives.h"

using vescomm::Buffer;
using vescomm::Communicator;
using vescomm::Layout;
using vescomm::Memory;
using vescomm::Request;

namespace {

constexpr int iterations = 60;

struct Handles {
    vescomm_comm_t *comm;
    vescomm_memory_t *memory;
    vescomm_buffer_t *buffer;
    vescomm_request_t *request;
    const vescomm_layout_t *layout;
};

// Every function that takes a handle. Functions that free come last.
std::vector<std::pair<std::string, std::function<vescomm_status_t()>>> calls(const Handles &h) {
    static std::array<std::byte, 256> bytes;
    static std::array<float, 8> floats;
    static std::array<std::int64_t, 8> counts;
    static vescomm_comm_info_t info = vescomm_comm_info_init();
    static vescomm_comm_counters_t counters = vescomm_comm_counters_init();
    static vescomm_memory_options_t memory_options = vescomm_memory_options_init();
    static vescomm_view_t view;
    static vescomm_memory_t *memory;
    static vescomm_buffer_t *buffer;
    static vescomm_request_t *request;
    static void *data;
    static std::size_t size;
    static const char *text;
    float *f = floats.data();
    std::int64_t *c = counts.data();
    constexpr vescomm_type_t type = VESCOMM_F32;
    constexpr vescomm_op_t op = VESCOMM_SUM;
    return {
        {"comm_get_info", [=] { return vescomm_comm_get_info(h.comm, &info); }},
        {"comm_get_counters", [=] { return vescomm_comm_get_counters(h.comm, &counters); }},
        {"comm_get_metrics",
         [=] {
             return vescomm_comm_get_metrics(h.comm, reinterpret_cast<char *>(bytes.data()),
                                             bytes.size(), &size);
         }},
        {"comm_finalize", [=] { return vescomm_comm_finalize(h.comm); }},
        {"comm_progress", [=] { return vescomm_comm_progress(h.comm); }},
        {"barrier", [=] { return vescomm_barrier(h.comm); }},
        {"comm_abort", [=] { return vescomm_comm_abort(h.comm, "by a child"); }},
        {"memory_create", [=] { return vescomm_memory_create(h.comm, &memory_options, &memory); }},
        {"buffer_create",
         [=] { return vescomm_buffer_create(h.comm, h.layout, nullptr, &buffer); }},
        {"all_gather_v_create",
         [=] { return vescomm_all_gather_v_create(h.comm, h.buffer, nullptr, &request); }},
        {"reduce_scatter_v_create",
         [=] { return vescomm_reduce_scatter_v_create(h.comm, h.buffer, nullptr, &request); }},
        {"all_reduce_create",
         [=] { return vescomm_all_reduce_create(h.comm, h.buffer, nullptr, &request); }},
        {"reduce_create",
         [=] { return vescomm_reduce_create(h.comm, h.buffer, nullptr, &request); }},
        {"broadcast_create",
         [=] { return vescomm_broadcast_create(h.comm, h.buffer, nullptr, &request); }},
        {"barrier_create", [=] { return vescomm_barrier_create(h.comm, nullptr, &request); }},
        {"all_gather_v",
         [=] {
             return vescomm_all_gather_v(h.comm, f, f, c, nullptr, type, nullptr, nullptr, nullptr);
         }},
        {"reduce_scatter_v",
         [=] {
             return vescomm_reduce_scatter_v(h.comm, f, f, c, type, op, nullptr, nullptr, nullptr);
         }},
        {"all_reduce",
         [=] { return vescomm_all_reduce(h.comm, f, f, 1, type, op, nullptr, nullptr, nullptr); }},
        {"reduce",
         [=] { return vescomm_reduce(h.comm, f, f, 1, type, op, 0, nullptr, nullptr, nullptr); }},
        {"broadcast",
         [=] { return vescomm_broadcast(h.comm, f, 1, type, 0, nullptr, nullptr, nullptr); }},
        {"gather_v",
         [=] {
             return vescomm_gather_v(h.comm, f, f, c, nullptr, type, 0, nullptr, nullptr, nullptr);
         }},
        {"scatter_v",
         [=] {
             return vescomm_scatter_v(h.comm, f, f, c, nullptr, type, 0, nullptr, nullptr, nullptr);
         }},
        {"all_to_all_v",
         [=] {
             return vescomm_all_to_all_v(h.comm, f, c, nullptr, f, c, nullptr, type, nullptr,
                                         nullptr, nullptr);
         }},
        {"send", [=] { return vescomm_send(h.comm, f, 1, type, 0, nullptr, nullptr, nullptr); }},
        {"receive",
         [=] { return vescomm_receive(h.comm, f, 1, type, 0, nullptr, nullptr, nullptr); }},
        {"group_begin", [=] { return vescomm_group_begin(h.comm); }},
        {"group_end", [=] { return vescomm_group_end(h.comm, nullptr); }},
        {"trace_start", [=] { return vescomm_trace_start(h.comm, 0); }},
        {"trace_add_span", [=] { return vescomm_trace_add_span(h.comm, "a", "b", 0, 1); }},
        {"trace_add_span_with",
         [=] { return vescomm_trace_add_span_with(h.comm, "a", "b", 0, 1, nullptr, 0); }},
        {"trace_write", [=] { return vescomm_trace_write(h.comm, "/dev/full"); }},
        {"flight_recorder_write",
         [=] { return vescomm_flight_recorder_write(h.comm, "/dev/full"); }},
        {"memory_get_data", [=] { return vescomm_memory_get_data(h.memory, &data, nullptr); }},
        {"buffer_get_data", [=] { return vescomm_buffer_get_data(h.buffer, &view); }},
        {"buffer_get_tensor", [=] { return vescomm_buffer_get_tensor(h.buffer, 0, &view); }},
        {"buffer_get_shard", [=] { return vescomm_buffer_get_shard(h.buffer, &view); }},
        {"buffer_release", [=] { return vescomm_buffer_release(h.buffer); }},
        {"buffer_acquire", [=] { return vescomm_buffer_acquire(h.buffer); }},
        {"request_start", [=] { return vescomm_request_start(h.request, nullptr); }},
        {"request_test", [=] { return vescomm_request_test(h.request); }},
        {"request_wait", [=] { return vescomm_request_wait(h.request); }},
        {"request_explain", [=] { return vescomm_request_explain(h.request, &text); }},
        {"request_free", [=] { return vescomm_request_free(h.request); }},
        {"buffer_free", [=] { return vescomm_buffer_free(h.buffer); }},
        {"memory_free", [=] { return vescomm_memory_free(h.memory); }},
        {"comm_free", [=] { return vescomm_comm_free(h.comm); }},
    };
}

// Runs in the child. With `frees`, also makes the calls that free.
void require_rejected(const Handles &handles, bool frees) {
    for (const auto &[name, call] : calls(handles)) {
        if (!frees && name.ends_with("_free")) continue;
        const vescomm_status_t status = call();
        const std::string sentence = vescomm_get_last_error();
        if (status == VESCOMM_ERROR_INVALID_ARGUMENT &&
            sentence.find("forked") != std::string::npos &&
            sentence.find(name) != std::string::npos)
            continue;
        std::printf("child: vescomm_%s: %s: %s\n", name.c_str(), vescomm_status_get_name(status),
                    sentence.c_str());
        std::fflush(stdout);
        _exit(21);
    }
}

struct Unwound {};

// Returns false in the parent and true in the child, after the C++ owners are destroyed.
bool run(const std::string &how) {
    Communicator comm = Communicator::from_environment();
    const int ranks = comm.ranks();
    const Layout layout =
        Layout::from_counts(std::vector<std::int64_t>(static_cast<std::size_t>(ranks), 1000));
    Memory memory(comm, 1 << 16, VESCOMM_PER_NODE);
    Buffer buffer(comm, layout);
    Request request = Request::all_reduce(comm, buffer);
    system_test::Collectives collectives(comm, 1);
    collectives.run(iterations);

    // One operation is in progress during the fork.
    std::vector<float> mine(100'000, static_cast<float>(comm.rank() + 1)), sums(mine.size());
    vescomm_request_t *running = nullptr;
    vescomm::check(vescomm_all_reduce(comm.get(), mine.data(), sums.data(),
                                      static_cast<std::int64_t>(mine.size()), VESCOMM_F32,
                                      VESCOMM_SUM, nullptr, nullptr, &running));
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);  // ends a child that hangs
        require_rejected({comm.get(), memory.get(), buffer.get(), request.get(), layout.get()},
                         how == "frees");
        if (how == "unwinds") throw Unwound();
        if (how == "frees") _exit(0);
        return true;
    }
    int verified = collectives.run(iterations);
    vescomm::check(vescomm_request_wait(running));
    vescomm::check(vescomm_request_free(running));
    for (const float sum : sums)
        if (sum != static_cast<float>(ranks * (ranks + 1) / 2)) throw std::runtime_error("sum");
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0)
        throw std::runtime_error("the child ended with status " + std::to_string(status));
    verified += collectives.run(2 * iterations);
    request.run();
    std::printf("rank %d: verified %d operations\n", comm.rank(), verified);
    return false;
}

}  // namespace

int main(int count, char **words) {
    const std::string how = count > 1 ? words[1] : "";
    try {
        const bool child = run(how);
        if (child && how != "exits") _exit(0);
        return 0;
    } catch (const Unwound &) {
        _exit(0);
    } catch (const std::exception &error) {
        std::printf("%s\n", error.what());
        return 12;
    }
}

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "worker_phases.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

using vescomm::Buffer;
using vescomm::Communicator;
using vescomm::Layout;
using vescomm::Request;

namespace system_test {

void say(int rank, const std::string &line) {
    std::printf("rank %d: %s\n", rank, line.c_str());
    std::fflush(stdout);
}

namespace {

// Large enough that a kill often hits a rank while it moves bytes.
constexpr std::int64_t shard_elements = 200'000;

Layout ragged(int ranks, std::int64_t max = shard_elements) {
    std::vector<std::int64_t> counts;
    for (int k = 0; k < ranks; ++k) counts.push_back(k % 4 == 3 ? 0 : max / (k + 1));
    return Layout::from_counts(counts);
}

[[noreturn]] void wait_forever() {
    for (;;) pause();
}

void repeat(int rank, const std::string &name, const std::function<void()> &once) {
    constexpr int max_lines = 30;  // more than any test waits for
    for (int i = 0;; ++i) {
        once();
        if (i < max_lines) say(rank, name + " " + std::to_string(i));
    }
}

struct TestSetup {
    TestSetup(const Communicator &comm, vescomm_sharing_t sharing)
        : layout(ragged(comm.ranks())), buffer(comm, layout, options(sharing)) {}

    static vescomm_buffer_options_t options(vescomm_sharing_t sharing) {
        vescomm_buffer_options_t options = vescomm_buffer_options_init();
        options.sharing = sharing;
        options.name = "setup";
        return options;
    }

    Layout layout;
    Buffer buffer;
};

// Requests more memory than three ranks can address. The call fails on all ranks, and the
// communicator still works.
void request_too_much(const Communicator &comm) {
    constexpr std::uint64_t bytes = std::uint64_t{1} << 62;
    vescomm_memory_options_t options = vescomm_memory_options_init();
    options.bytes = bytes;
    vescomm_memory_t *memory = nullptr;
    const vescomm_status_t status = vescomm_memory_create(comm.get(), &options, &memory);
    const std::string why = vescomm_get_last_error();
    vescomm::check(vescomm_barrier(comm.get()));
    say(comm.rank(), "still works");
    say(comm.rank(), std::string(vescomm_status_get_name(status)) + ": " + why);
}

// Collectives on arrays, large enough to pass through the staging buffer in several chunks.
void call_forever(const Communicator &comm) {
    const int rank = comm.rank();
    const auto ranks = static_cast<std::size_t>(comm.ranks());
    std::vector<float> data(shard_elements, 1), blocks(shard_elements * ranks), others(blocks);
    const std::vector<std::int64_t> counts(ranks, shard_elements);
    say(rank, "ready");
    repeat(rank, "arrays", [&] {
        vescomm::all_reduce(comm, data, std::span<float>(data), VESCOMM_MAX);
        vescomm::all_to_all_v(comm, blocks, counts, std::span<float>(others), counts);
    });
}

// Passes large messages around a ring of all ranks.
void send_forever(const Communicator &comm) {
    const int rank = comm.rank(), ranks = comm.ranks();
    std::vector<float> mine(shard_elements, 1), left(shard_elements);
    say(rank, "ready");
    repeat(rank, "messages", [&] {
        vescomm::group(comm, [&] {
            vescomm::send(comm, mine, (rank + 1) % ranks);
            vescomm::receive(comm, left, (rank + ranks - 1) % ranks);
        });
    });
}

void create_forever(const Communicator &comm) {
    const int rank = comm.rank();
    repeat(rank, "create", [&] {
        const TestSetup setup(comm, VESCOMM_PER_NODE);
        Request::all_gather_v(comm, setup.buffer).run();
    });
}

}  // namespace

void run_phase(const Communicator &comm, const std::string &name, const std::set<int> &victims) {
    const int rank = comm.rank();
    const bool victim = victims.contains(rank);
    vescomm_comm_t *c = comm.get();
    if (name == "create") {
        say(rank, "ready");
        return create_forever(comm);
    }
    if (name == "arrays") return call_forever(comm);
    if (name == "messages") return send_forever(comm);
    if (name == "too_much") return request_too_much(comm);
    TestSetup slab(comm, VESCOMM_PER_NODE), own(comm, VESCOMM_PER_RANK);
    Request gather = Request::all_gather_v(comm, slab.buffer);
    Request reduce = Request::reduce_scatter_v(comm, own.buffer);
    Request all_reduce = Request::all_reduce(comm, own.buffer);
    Request broadcast = Request::broadcast(comm, own.buffer);
    vescomm::check(vescomm_barrier(c));
    say(rank, "ready");

    if (name == "gather") return repeat(rank, name, [&] { gather.run(); });
    if (name == "reduce") return repeat(rank, name, [&] { reduce.run(); });
    if (name == "all_reduce") return repeat(rank, name, [&] { all_reduce.run(); });
    if (name == "broadcast") return repeat(rank, name, [&] { broadcast.run(); });
    if (name == "barrier") return repeat(rank, name, [&] { vescomm::check(vescomm_barrier(c)); });

    // In all other phases the victims stop here, and the others wait for them.
    if (name == "acquire") {
        gather.run();
        if (victim) wait_forever();
        slab.buffer.acquire();
        throw std::runtime_error("the slab was acquired although a rank had not released it");
    }
    if (victim && name == "exit") std::_Exit(0);
    if (victim && name == "return") std::exit(0);
    if (victim && name == "abort") {
        vescomm::check(vescomm_comm_abort(c, "the loss is not a number"));
        if (vescomm_barrier(c) != VESCOMM_ERROR_ABORTED)
            throw std::runtime_error("a barrier after an abort did not report it");
        wait_forever();
    }
    // The destructors of the C++ API run before this is caught.
    if (victim && name == "throw") throw std::runtime_error("there is no more data");
    if (victim) wait_forever();
    if (name == "free") return;  // the others free, and the free waits for the victims
    if (name == "receive") {
        std::vector<float> data(10);
        vescomm::receive(comm, data, *victims.begin());
        throw std::runtime_error("received a message from a rank that sends none");
    }
    gather.start();
    if (name == "test")
        while (!gather.test()) std::this_thread::yield();
    else if (name == "progress")
        for (;;) vescomm::check(vescomm_comm_progress(c));
    else if (name == "memory") vescomm::Memory(comm, 4096, VESCOMM_PER_RANK);
    else gather.wait();  // sleep, exit, return, abort
    throw std::runtime_error("a wait for stopped ranks succeeded");
}

void run_mismatch(const Communicator &comm, const std::string &kind) {
    const int rank = comm.rank(), ranks = comm.ranks();
    const bool other = rank == ranks - 1;
    const auto named = [](const char *name) {
        vescomm_buffer_options_t options = vescomm_buffer_options_init();
        options.name = name;
        return options;
    };
    say(rank, "ready");
    if (kind == "arrays") {
        // A rank may complete the first call and fail in a later one.
        std::vector<float> data(100);
        for (int i = 0; i < 10; ++i)
            vescomm::all_reduce(comm, data, std::span<float>(data),
                                other ? VESCOMM_MAX : VESCOMM_SUM);
    } else if (kind == "layout") {
        const Buffer buffer(comm, ragged(ranks, other ? 1'000 : 2'000), named("weights"));
    } else if (kind == "tensor") {
        std::vector<vescomm::Tensor> tensors = {{"block.3.w1", {8, 8}, 0},
                                                {"norm", {other ? 7 : 8}, 64}};
        std::vector<std::int64_t> cuts(static_cast<std::size_t>(ranks) + 1, 72);
        cuts[0] = 0;
        const Buffer buffer(comm, Layout(tensors, 72, cuts), named("weights"));
    } else if (kind == "order") {
        const Buffer first(comm, ragged(ranks), named(other ? "block.1" : "block.0"));
        const Buffer second(comm, ragged(ranks), named(other ? "block.0" : "block.1"));
    } else if (kind == "type") {
        vescomm_buffer_options_t options = named("weights");
        options.type = other ? VESCOMM_BF16 : VESCOMM_F32;
        const Buffer buffer(comm, ragged(ranks), options);
    } else if (kind == "sharing") {
        vescomm::Memory(comm, 1 << 16, other ? VESCOMM_PER_NODE : VESCOMM_PER_RANK);
    } else if (kind == "bytes") {
        vescomm::Memory(comm, other ? 8192 : 4096, VESCOMM_PER_RANK);
    } else if (kind == "free") {
        if (other) return;
        vescomm::Memory(comm, 4096, VESCOMM_PER_RANK);
    } else if (kind == "barrier") {
        if (other) vescomm::check(vescomm_barrier(comm.get()));
        else vescomm::Memory(comm, 4096, VESCOMM_PER_RANK);
    } else {
        const Buffer buffer(comm, ragged(ranks, 100), named("weights"));
        vescomm_request_options_t options = vescomm_request_options_init();
        if (kind == "call") {
            const Request request =
                other ? Request::all_reduce(comm, buffer) : Request::all_gather_v(comm, buffer);
        } else if (kind == "op") {
            options.op = other ? VESCOMM_AVERAGE : VESCOMM_SUM;
            const Request request = Request::all_reduce(comm, buffer, options);
        } else if (kind == "root") {
            options.root = other ? 1 : 0;
            const Request request = Request::broadcast(comm, buffer, options);
        } else {
            throw std::invalid_argument("there is no mismatch " + kind);
        }
    }
    throw std::runtime_error("the mismatch of " + kind + " was not detected");
}

}  // namespace system_test

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "perf/worker/serve.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "perf/worker/cores.h"
#include "perf/worker/gate.h"
#include "perf/worker/line_socket.h"
#include "perf/worker/service.h"

namespace vescomm::perf {
namespace {

std::string variable(const char *name) {
    const char *value = std::getenv(name);
    return value == nullptr ? "" : value;
}

std::string needed(const char *name) {
    std::string value = variable(name);
    if (value.empty())
        throw std::runtime_error(std::string(name) +
                                 " is not set: this program is started by vescomm_perf");
    return value;
}

}  // namespace

Worker Worker::of_environment() {
    Worker worker;
    const std::string rank = variable("VESCOMM_PERF_RANK");
    if (!rank.empty()) worker.rank = std::stoi(rank);
    worker.ranks = std::stoi(needed("VESCOMM_PERF_RANKS"));
    worker.folder = needed("VESCOMM_PERF_FOLDER");
    worker.address = variable("VESCOMM_PERF_ADDRESS");
    worker.shared = variable("VESCOMM_PERF_SHARED");
    const std::string bytes = variable("VESCOMM_PERF_SHARED_BYTES");
    if (!bytes.empty()) worker.shared_bytes = std::stoull(bytes);
    const std::string threads = variable("VESCOMM_PERF_THREADS");
    if (!threads.empty()) worker.threads = std::stoi(threads);
    const std::string padded = variable("VESCOMM_PERF_PADDED_BYTES");
    if (!padded.empty()) worker.padded_bytes = std::stoull(padded);
    return worker;
}

namespace {

int serve_rank(const std::string &name, const MakeImplementation &make, Worker worker) {
    try {
        const std::unique_ptr<Implementation> implementation = make(worker);
        Gate gate(needed("VESCOMM_PERF_GATE"), worker.ranks);
        Service service(*implementation, worker.rank, Fault::of_environment(name, worker.rank),
                        [&] { gate.meet([&] { implementation->progress(); }); });
        // Bind only now, because libraries count the usable cores and create threads when they
        // start.
        if (variable("VESCOMM_PERF_BIND") == "core") take_own_core(worker.rank, worker.ranks);
        LineSocket coordinator = connect_to(worker.folder + "/socket");
        coordinator.write(to_line(service.answer({.name = "hello", .what = {}, .turn = {}})));
        while (const auto line = coordinator.read())
            coordinator.write(to_line(service.answer(command_of(*line))));
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
        return 1;
    }
}

}  // namespace

int serve(const std::string &name, const MakeImplementation &make) {
    Worker worker;
    try {
        worker = Worker::of_environment();
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
        return 1;
    }
    if (worker.threads == 1) return serve_rank(name, make, std::move(worker));
    std::vector<std::thread> threads;
    for (int i = 0; i < worker.threads; ++i) {
        threads.emplace_back([&name, &make, worker, i]() mutable {
            worker.rank += i;
            // The other ranks of the process may wait for this one for ever.
            if (serve_rank(name, make, std::move(worker)) != 0) std::_Exit(1);
        });
    }
    for (std::thread &thread : threads) thread.join();
    return 0;
}

}  // namespace vescomm::perf

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Compares an all_gather_v into a slab that the node shares with a memcpy of this rank's shard. The
// two alternate in the same run, on all ranks at once, and a barrier ends each.
//
//     vescomm-run -n 4 slab_perf --mib 64
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "vescomm/vescomm.hpp"

namespace {

double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
}

int run(double mib, int iterations, bool ragged) {
    vescomm::Communicator comm = vescomm::Communicator::from_environment();
    const int ranks = comm.ranks();
    const auto elements = static_cast<std::int64_t>(mib * 1024 * 1024 / sizeof(float));
    std::vector<std::int64_t> counts;
    std::int64_t given = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        // Linear: rank r owns r + 1 parts.
        const std::int64_t parts = ranks * (ranks + 1) / 2;
        std::int64_t count = ragged ? elements * (rank + 1) / parts : elements / ranks;
        if (rank == ranks - 1) count = elements - given;
        counts.push_back(count);
        given += count;
    }
    vescomm_buffer_options_t options = vescomm_buffer_options_init();
    options.sharing = VESCOMM_PER_NODE;
    options.name = "slab";
    vescomm::Buffer buffer(comm, vescomm::Layout::from_counts(counts), options);
    const std::size_t mine = buffer.shard<float>().size();
    std::vector<float> source(mine + 1, static_cast<float>(comm.rank())), target(mine + 1);
    vescomm_request_options_t request = vescomm_request_options_init();
    request.source = source.data();
    request.type = VESCOMM_F32;
    vescomm::Request gather = vescomm::Request::all_gather_v(comm, buffer, request);

    std::vector<double> gathers, copies, barriers;
    for (int i = 0; i < iterations + 3; ++i) {
        comm.barrier();
        const double begin = seconds();
        gather.run();
        const double gathered = seconds();
        buffer.release();
        comm.barrier();
        const double copy_begin = seconds();
        std::memcpy(target.data(), source.data(), mine * sizeof(float));
        comm.barrier();
        const double copied = seconds();
        comm.barrier();
        const double end = seconds();
        if (i < 3) continue;  // warm-up: touch pages, fill caches
        gathers.push_back(gathered - begin);
        copies.push_back(copied - copy_begin);
        barriers.push_back(end - copied);
    }
    // Verify all data of the last iteration.
    std::size_t wrong = 0, at = 0;
    for (int rank = 0; rank < ranks; ++rank)
        for (std::int64_t i = 0; i < counts[rank]; ++i)
            wrong += buffer.data<float>()[at++] != static_cast<float>(rank);

    if (comm.rank() == 0) {
        const double gather_time = median(gathers), copy_time = median(copies);
        std::printf("# %d ranks, %g MiB, %s shards, median of %d\n", ranks, mib,
                    ragged ? "linear" : "equal", iterations);
        std::printf(
            "all_gather_v %10.1f us\nmemcpy of the shard, and a barrier %10.1f us\n"
            "barrier %10.1f us\nratio %.3f\n",
            gather_time * 1e6, copy_time * 1e6, median(barriers) * 1e6, gather_time / copy_time);
    }
    if (wrong > 0) std::fprintf(stderr, "rank %d: %zu elements are wrong\n", comm.rank(), wrong);
    return wrong > 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char **argv) {
    CLI::App app("Times an all_gather_v into a node-shared slab against a memcpy of the shard.");
    double mib = 64;
    int iterations = 50;
    bool ragged = false;
    app.add_option("--mib", mib, "size of the whole buffer in MiB (2^20 bytes)");
    app.add_option("--iterations", iterations, "counted runs");
    app.add_flag("--ragged", ragged, "shards that grow with the rank, instead of equal ones");
    CLI11_PARSE(app, argc, argv);
    try {
        return run(mib, iterations, ragged);
    } catch (const vescomm::Error &error) {
        std::fprintf(stderr, "slab_perf: %s\n", error.what());
        return 1;
    }
}

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// One rank of the tests with processes. Uses the public API only:
//
//     worker collectives [--iterations N] [--seed S] [--comms C] [--threads T --address HOST:PORT]
//     worker train|create|short [--iterations N]
//     worker weigh                          prints the memory of a gathered slab on this rank
//     worker phase NAME [--victims A,B]     repeats an operation until it fails; victims stop
//     worker mismatch KIND                  the last rank makes another call
//
// A failure prints one line, "rank R: status: sentence", and sets an exit code for each status.
#include <dirent.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "collectives.h"
#include "worker_phases.h"

using namespace system_test;
using vescomm::Buffer;
using vescomm::Communicator;
using vescomm::Layout;
using vescomm::Request;

namespace {

struct Options {
    std::string mode, what, address;
    int iterations = 100, comms = 1, threads = 0;
    unsigned seed = 1;
    std::set<int> victims;
};

Options parse(int argc, char **argv) {
    Options options;
    options.mode = argc > 1 ? argv[1] : "";
    for (int i = 2; i < argc; ++i) {
        const std::string name = argv[i];
        if (name.rfind("--", 0) != 0) {
            options.what = name;
            continue;
        }
        const std::string text = i + 1 < argc ? argv[++i] : "";
        if (name == "--iterations") options.iterations = std::stoi(text);
        else if (name == "--comms") options.comms = std::stoi(text);
        else if (name == "--threads") options.threads = std::stoi(text);
        else if (name == "--seed") options.seed = static_cast<unsigned>(std::stoul(text));
        else if (name == "--address") options.address = text;
        else if (name == "--victims") {
            std::istringstream list(text);
            for (std::string one; std::getline(list, one, ',');) options.victims.insert(stoi(one));
        } else {
            throw std::invalid_argument("there is no option " + name);
        }
    }
    return options;
}

int exit_code(vescomm_status_t status) {
    switch (status) {
        case VESCOMM_ERROR_PEER_FAILED:
            return 3;
        case VESCOMM_ERROR_TIMEOUT:
            return 4;
        case VESCOMM_ERROR_MISMATCH:
            return 5;
        case VESCOMM_ERROR_ABORTED:
            return 6;
        case VESCOMM_ERROR_INVALID_ARGUMENT:
            return 7;
        case VESCOMM_ERROR_UNSUPPORTED:
            return 8;
        case VESCOMM_ERROR_SYSTEM:
            return 9;
        case VESCOMM_ERROR_OUT_OF_MEMORY:
            return 10;
        default:
            return 11;
    }
}

// Runs `body`. Turns an exception into a line and an exit code.
template <typename Body>
int report(int rank, Body &&body) {
    try {
        body();
        return 0;
    } catch (const vescomm::Error &error) {
        say(rank, std::string(vescomm_status_get_name(error.status())) + ": " + error.what());
        return exit_code(error.status());
    } catch (const std::exception &error) {
        say(rank, std::string("wrong: ") + error.what());
        return 12;
    }
}

int environment_rank() {
    for (const char *name : {"VESCOMM_RANK", "RANK"})
        if (const char *text = std::getenv(name)) return std::atoi(text);
    return 0;
}

// Runs `count` bodies in threads. Returns the first code that is not 0, else 0.
int run_threads(int count, const std::function<int(int)> &body) {
    std::vector<int> codes(static_cast<std::size_t>(count));
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i)
        threads.emplace_back([&, i] { codes[static_cast<std::size_t>(i)] = body(i); });
    for (std::thread &thread : threads) thread.join();
    for (const int code : codes)
        if (code != 0) return code;
    return 0;
}

void collectives(const Communicator &comm, int rank, const Options &options, unsigned seed) {
    const int verified = Collectives(comm, seed).run(options.iterations);
    say(rank, "verified " + std::to_string(verified) + " operations");
}

// Uses each communicator in a thread of its own.
int run_collectives(const Options &options, int rank) {
    std::vector<Communicator> comms;
    const int code = report(rank, [&] {
        for (int i = 0; i < options.comms; ++i) comms.push_back(Communicator::from_environment());
    });
    if (code != 0) return code;
    if (options.comms == 1)
        return report(rank, [&] { collectives(comms[0], rank, options, options.seed); });
    return run_threads(options.comms, [&](int i) {
        return report(rank, [&] {
            collectives(comms[static_cast<std::size_t>(i)], rank, options,
                        options.seed + static_cast<unsigned>(i));
        });
    });
}

// Runs all ranks as threads of this process.
int run_thread_ranks(const Options &options) {
    return run_threads(options.threads, [&](int rank) {
        return report(rank, [&] {
            const Communicator comm(rank, options.threads, options.address, "a secret of the test");
            collectives(comm, rank, options, options.seed);
        });
    });
}

// The pattern of a training step: gathers units into alternating slabs, and reduces their
// gradients.
void train(const Communicator &comm, const Options &options) {
    constexpr int units = 4;
    const int rank = comm.rank(), ranks = comm.ranks();
    std::vector<std::int64_t> counts;
    for (int k = 0; k < ranks; ++k) counts.push_back(k % 3 == 1 ? 0 : 5'000 * (k + 1) + k);
    const Layout layout = Layout::from_counts(counts);
    const std::int64_t elements = layout.info().elements;
    const auto [begin, end] = layout.shard(rank);
    const auto mine = static_cast<std::size_t>(end - begin);

    const std::uint64_t bytes = (static_cast<std::uint64_t>(elements) * 2 + 63) / 64 * 64;
    vescomm::Memory slots(comm, 2 * bytes, VESCOMM_PER_NODE);
    std::vector<Buffer> slabs, gradients;
    std::vector<std::vector<float>> masters(units, std::vector<float>(mine + 1)), sums = masters;
    std::vector<Request> gathers, reduces;
    for (std::size_t unit = 0; unit < units; ++unit) {
        vescomm_buffer_options_t slab = vescomm_buffer_options_init();
        slab.type = VESCOMM_BF16;
        slab.memory = slots.get();
        slab.offset_bytes = unit % 2 * bytes;
        slab.sharing = VESCOMM_PER_NODE;
        slabs.emplace_back(comm, layout, slab);
        vescomm_request_options_t gather = vescomm_request_options_init();
        gather.source = masters[unit].data();
        gather.type = VESCOMM_F32;
        gathers.push_back(Request::all_gather_v(comm, slabs.back(), gather));
        vescomm_buffer_options_t gradient = vescomm_buffer_options_init();
        gradient.type = VESCOMM_BF16;
        gradients.emplace_back(comm, layout, gradient);
        vescomm_request_options_t reduce = vescomm_request_options_init();
        reduce.output = sums[unit].data();
        reduce.type = VESCOMM_F32;
        reduces.push_back(Request::reduce_scatter_v(comm, gradients.back(), reduce));
    }
    say(rank, "ready");
    for (int iteration = 0; iteration < options.iterations; ++iteration) {
        for (std::size_t unit = 0; unit < units; ++unit) {
            for (std::int64_t i = begin; i < end; ++i)
                masters[unit][static_cast<std::size_t>(i - begin)] = value(rank, i, iteration);
            gathers[unit].run();
            if (unit > 0) reduces[unit - 1].wait();
            void *data = gradients[unit].data<std::byte>().data();
            for (std::int64_t i = 0; i < elements; ++i)
                store(VESCOMM_BF16, data, i, value(rank, i, iteration));
            reduces[unit].start();
            slabs[unit].release();
        }
        reduces[units - 1].wait();
        for (const auto &sum : sums)
            for (std::int64_t i = begin; i < end; ++i)
                if (sum[static_cast<std::size_t>(i - begin)] != sum_of(ranks, i, iteration))
                    throw std::runtime_error("a gradient is wrong at element " + std::to_string(i));
        vescomm::check(vescomm_barrier(comm.get()));
        say(rank, "iteration " + std::to_string(iteration));
    }
}

std::size_t open_descriptors() {
    std::size_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder) != nullptr) ++count;
    closedir(folder);
    return count;
}

std::size_t mappings() {
    std::ifstream maps("/proc/self/maps");
    std::size_t count = 0;
    for (std::string line; std::getline(maps, line);) count += line.find("memfd:") < line.size();
    return count;
}

// Creates, uses and frees communicators repeatedly. Descriptors and mappings must not grow.
void create(const Options &options, int rank) {
    std::optional<std::size_t> descriptors;
    for (int iteration = 0; iteration < options.iterations; ++iteration) {
        {
            const Communicator comm = Communicator::from_environment();
            for (int i = 0; i < 3; ++i)
                Collectives(comm, options.seed + static_cast<unsigned>(iteration)).run(1);
        }
        // The first iteration loads libraries, which keep descriptors open.
        if (!descriptors) descriptors = open_descriptors();
        if (open_descriptors() != *descriptors || mappings() != 0)
            throw std::runtime_error("there are " + std::to_string(open_descriptors()) +
                                     " descriptors, there were " + std::to_string(*descriptors) +
                                     ", and " + std::to_string(mappings()) +
                                     " mappings of shared memory");
        say(rank, "iteration " + std::to_string(iteration));
    }
}

struct Weight {
    std::int64_t shared = 0;  // this rank's proportional share of slabs, in kilobytes
    std::int64_t own = 0;  // anonymous memory of this rank, in kilobytes
};

// Reads /proc/self/smaps.
Weight weight() {
    Weight weight;
    std::ifstream smaps("/proc/self/smaps");
    bool shared = false;
    for (std::string line; std::getline(smaps, line);) {
        std::istringstream words(line);
        std::string key;
        std::int64_t kilobytes = 0;
        words >> key >> kilobytes;
        if (key.back() != ':') shared = line.find("memfd:") != std::string::npos;
        else if (key == "Pss:" && shared) weight.shared += kilobytes;
        else if (key == "Anonymous:") weight.own += kilobytes;
    }
    return weight;
}

// Gathers 64 MiB into one slab per node, and prints the memory use after every rank has read all.
void weigh(const Communicator &comm, int rank) {
    constexpr std::int64_t elements = 16 << 20;
    const int ranks = comm.ranks();
    std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks));  // rank 1 owns nothing
    for (int k = 0; k < ranks; ++k)
        if (k != 1) counts[static_cast<std::size_t>(k)] = elements / (ranks - 1) + k;
    const Layout layout = Layout::from_counts(counts);
    vescomm_buffer_options_t slab = vescomm_buffer_options_init();
    slab.sharing = VESCOMM_PER_NODE;
    Buffer buffer(comm, layout, slab);
    Request gather = Request::all_gather_v(comm, buffer);
    const Weight before = weight();
    for (float &x : buffer.shard<float>()) x = static_cast<float>(rank);
    gather.run();
    for (int k = 0; k < ranks; ++k) {
        const auto [begin, end] = layout.shard(k);
        for (std::int64_t i = begin; i < end; ++i)
            if (buffer.data<float>()[static_cast<std::size_t>(i)] != static_cast<float>(k))
                throw std::runtime_error("element " + std::to_string(i) + " is wrong");
    }
    vescomm::check(vescomm_barrier(comm.get()));
    const Weight after = weight();
    vescomm::check(vescomm_barrier(comm.get()));
    say(rank, "slab " + std::to_string(layout.info().elements * 4 / 1024) + " share " +
                  std::to_string(after.shared) + " grown " +
                  std::to_string(after.own - before.own));
}

// Creates, uses and frees a communicator once, for deaths at every call.
void run_short(const Options &options, int rank) {
    const Communicator comm = Communicator::from_environment();
    Collectives(comm, options.seed).run(options.iterations);
    say(rank, "freeing");
}

int run(const Options &options, int rank) {
    if (options.mode == "collectives")
        return options.threads > 0 ? run_thread_ranks(options) : run_collectives(options, rank);
    return report(rank, [&] {
        if (options.mode == "create") return create(options, rank);
        if (options.mode == "short") return run_short(options, rank);
        const Communicator comm = Communicator::from_environment();
        if (options.mode == "train") return train(comm, options);
        if (options.mode == "weigh") return weigh(comm, rank);
        if (options.mode == "phase") return run_phase(comm, options.what, options.victims);
        if (options.mode == "mismatch") return run_mismatch(comm, options.what);
        throw std::invalid_argument("there is no mode " + options.mode);
    });
}

}  // namespace

int main(int argc, char **argv) {
    const int rank = environment_rank();
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    try {
        return run(parse(argc, argv), rank);
    } catch (const std::exception &error) {
        std::printf("rank %d: wrong use: %s\n", rank, error.what());
        return 2;
    }
}

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures the time of small schedules, which run on the executor as collectives do.
#include "tools/measure.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>

#include "base/error.h"
#include "comm/connect.h"
#include "comm/machine_exchange.h"
#include "comm/memory.h"
#include "observe/file.h"
#include "schedule/algorithms.h"
#include "tools/fit_machine.h"
#include "topology/node_name.h"

namespace vescomm::internal {

namespace {

constexpr std::int64_t largest_slab = 64 << 20;
constexpr std::int64_t smallest_slab = 256 << 10;
constexpr double seconds_each = 0.15;  // duration of each measurement

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// Adds the steps of the rank to a lane.
using Script = std::function<void(Lane &)>;

class Bench {
public:
    explicit Bench(std::shared_ptr<Communicator> comm)
        : comm_(std::move(comm)),
          memory_(Memory::create(comm_, largest_slab, VESCOMM_HOST, VESCOMM_PER_RANK)) {
        std::memset(memory_->data(), 1, largest_slab);
    }

    Communicator &comm() { return *comm_; }
    std::byte *data() { return memory_->data(); }

    // Measures a schedule: the median of many runs, on the rank where it is largest. `prepare` runs
    // before each run.
    double time(const Script &script, const std::function<void()> &prepare = {},
                vescomm_type_t type = VESCOMM_F32) {
        Schedule schedule;
        script(schedule.lanes.emplace_back());
        Bindings bindings;
        bindings.rank = comm_->rank();
        bindings.nodes = comm_->nodes();
        bindings.flight_word = flight_word(*find_algorithm(Collective::barrier, "dissemination"),
                                           VESCOMM_TYPE_DEFAULT, VESCOMM_SUM, 0);
        bindings.channel = comm_->numbers().next_channel();
        bindings.intra_node = &comm_->intra_node();
        bindings.transports = comm_->routes();
        bindings.buffer = {.type = type,
                           .memory = memory_->id(),
                           .mapping = memory_->mapping(),
                           .offset_bytes = 0};
        operations_.push_back(comm_->admit(schedule, bindings));
        Operation &operation = *operations_.back();
        const auto once = [&] {
            if (prepare) prepare();
            comm_->barrier();
            const double begin = now();
            comm_->start(operation, {.number = operation.runs() + 1});
            comm_->wait(operation, [] { return std::string("a measurement"); });
            return now() - begin;
        };
        const double begin = now();
        constexpr int warm = 3, min = 15, max = 2000;
        for (int i = 0; i < warm; ++i) once();
        const double each = largest((now() - begin) / warm);
        const int runs = static_cast<int>(std::clamp(seconds_each / each, 1.0 * min, 1.0 * max));
        std::vector<double> seconds;
        for (int i = 0; i < runs; ++i) seconds.push_back(once());
        std::ranges::nth_element(seconds, seconds.begin() + runs / 2);
        return largest(seconds[static_cast<std::size_t>(runs / 2)]);
    }

    // The largest value over all ranks.
    double largest(double mine) {
        const auto all = comm_->gather(
            "measurement", {reinterpret_cast<const char *>(&mine), sizeof mine}, comm_->deadline());
        double max = 0;
        for (const std::string &bytes : all) {
            double one = 0;
            std::memcpy(&one, bytes.data(), std::min(sizeof one, bytes.size()));
            max = std::max(max, one);
        }
        return max;
    }

    // True if all ranks are on one machine.
    bool one_host() {
        const auto hosts = comm_->gather("hosts", system_host_name(), comm_->deadline());
        return std::ranges::all_of(hosts, [&](const auto &host) { return host == hosts[0]; });
    }

    void say(const char *format, double figure) {
        if (comm_->rank() > 0) return;
        std::printf(format, figure);
        std::printf("\n");
        std::fflush(stdout);
    }

private:
    std::shared_ptr<Communicator> comm_;
    std::shared_ptr<Memory> memory_;
    std::vector<std::unique_ptr<Operation>> operations_;
};

Place at(int rank, std::int64_t element) {
    return {rank, Region::buffer, element};
}

// Measurements with all ranks of the first node: each rank reads from the next one.
class NodeBench {
public:
    NodeBench(Bench &bench, std::span<const int> members) : bench_(bench), members_(members) {
        const auto found = std::ranges::find(members, bench.comm().rank());
        if (found == members.end()) return;
        local_rank_ = static_cast<int>(found - members.begin());
        next_ = members[static_cast<std::size_t>(local_rank_ + 1) % members.size()];
    }

    MeasuredTimes::Memory copies(std::int64_t slab) {
        return times(slab, 2, 1, [this](Lane &lane, std::int64_t half) {
            lane.copy(at(next_, half), at(rank(), 0), half);
        });
    }
    MeasuredTimes::Memory reductions(std::int64_t slab) {
        return times(slab, 3, 2, [this](Lane &lane, std::int64_t half) {
            const std::array<Place, 2> from{at(rank(), 0), at(next_, half)};
            lane.reduce(from, at(rank(), 0), half, true);
        });
    }
    // A reduction by one rank, in the cache.
    double reduction(vescomm_type_t type, std::int64_t bytes) {
        const std::int64_t half = smallest_slab / 2 / bytes;
        return bench_.time(
                   [&](Lane &lane) {
                       const std::array<Place, 2> from{at(rank(), 0), at(rank(), half)};
                       if (local_rank_ == 0) lane.reduce(from, at(rank(), 0), half, true);
                   },
                   {}, type) -
               empty_operation();
    }
    // An operation without steps.
    double empty_operation() {
        if (empty_operation_ < 0) empty_operation_ = bench_.time([](Lane &) {});
        return empty_operation_;
    }
    double step() {
        constexpr std::uint32_t many = 1000;
        return (bench_.time([&](Lane &lane) {
                   if (local_rank_ == 0)
                       for (std::uint32_t i = 1; i <= many; ++i) lane.signal_node(0, i);
               }) -
                empty_operation()) /
               many;
    }
    // Round trips of flags between the first two ranks.
    double round_trips(std::uint32_t times) {
        return bench_.time([&](Lane &lane) {
            if (local_rank_ != 0 && local_rank_ != 1) return;
            const int peer = members_[static_cast<std::size_t>(1 - local_rank_)];
            for (std::uint32_t i = 1; i <= times; ++i) {
                if (local_rank_ == 0) lane.signal_node(0, i);
                lane.wait(peer, 0, i);
                if (local_rank_ == 1) lane.signal_node(0, i);
            }
        });
    }

private:
    int rank() const { return bench_.comm().rank(); }

    template <typename Add>
    MeasuredTimes::Memory times(std::int64_t slab, int touched, int passes, const Add &add) {
        const std::int64_t half = slab / 2 / static_cast<std::int64_t>(sizeof(float));
        // Write the source before each run, as a program does that has just computed it.
        const auto write = [&] {
            if (local_rank_ < 0) return;
            std::memset(bench_.data() + (passes == 2 ? 0 : slab / 2), 1,
                        static_cast<std::size_t>(passes == 2 ? slab : slab / 2));
        };
        const auto run = [&](bool together) {
            return bench_.time(
                       [&](Lane &lane) {
                           if (local_rank_ == 0 || (local_rank_ > 0 && together)) add(lane, half);
                       },
                       write) -
                   empty_operation();
        };
        return {.footprint = static_cast<double>(slab) * static_cast<double>(members_.size()),
                .bytes = static_cast<double>(slab) / 2 * touched,
                .alone = run(false),
                .together = run(true)};
    }

    Bench &bench_;
    std::span<const int> members_;
    int local_rank_ = -1, next_ = -1;
    double empty_operation_ = -1;
};

// Measurements with the first ranks of two nodes.
class LinkBench {
public:
    LinkBench(Bench &bench, int first, int second) : bench_(bench), ranks_{first, second} {
        for (int i = 0; i < 2; ++i)
            if (bench.comm().rank() == ranks_[static_cast<std::size_t>(i)]) side_ = i;
    }

    double signal() {
        constexpr std::uint32_t times = 50;
        return (round_trips(times) - round_trips(1)) / (times - 1) / 2;
    }
    // `count` puts of `bytes` bytes, and a signal back that they have arrived.
    double puts(std::uint32_t count, std::int64_t bytes, bool both) {
        const auto elements = bytes / static_cast<std::int64_t>(sizeof(float));
        return bench_.time([&](Lane &lane) {
            if (side_ < 0) return;
            if (side_ == 0 || both)
                for (std::uint32_t i = 1; i <= count; ++i)
                    lane.put(at(own(), 0), at(peer(), elements), elements, 0, i);
            if (side_ == 1 || both) lane.wait(peer(), 0, count);
            lane.signal(peer(), 1, 1);
            lane.wait(peer(), 1, 1);
        });
    }

private:
    int own() const { return ranks_[static_cast<std::size_t>(side_)]; }
    int peer() const { return ranks_[static_cast<std::size_t>(1 - side_)]; }
    double round_trips(std::uint32_t times) {
        return bench_.time([&](Lane &lane) {
            if (side_ < 0) return;
            for (std::uint32_t i = 1; i <= times; ++i) {
                if (side_ == 0) lane.signal(peer(), 0, i);
                lane.wait(peer(), 0, i);
                if (side_ == 1) lane.signal(peer(), 0, i);
            }
        });
    }

    Bench &bench_;
    std::array<int, 2> ranks_;
    int side_ = -1;
};

void measure_node(Bench &bench, MeasuredTimes &times) {
    const auto members = bench.comm().nodes().members(0);
    NodeBench node(bench, members);
    times.ranks = static_cast<int>(members.size());
    times.step = node.step();
    if (members.size() > 1) {
        constexpr std::uint32_t many = 100;
        times.call = node.round_trips(1);
        times.flag = (node.round_trips(many) - times.call) / (many - 1) / 2;
        bench.say("a flag is seen after      %8.0f ns", times.flag * 1e9);
        // Between sockets it takes about a microsecond.
        constexpr double longest_flag = 20e-6;
        if (times.flag > longest_flag && bench.comm().rank() == 0)
            std::fprintf(stderr,
                         "warning: other processes used the cores of these ranks, so the times are "
                         "wrong: measure again while the machine is idle, with --bind core\n");
    }
    for (std::int64_t slab = smallest_slab; slab <= largest_slab; slab *= 2) {
        times.copies.push_back(node.copies(slab));
        const auto &last = times.copies.back();
        if (bench.comm().rank() == 0)
            std::printf("copies, %7.1f MiB in all: %6.1f GB/s for one rank, %6.1f for each of %d\n",
                        last.footprint / (1 << 20), last.bytes / last.alone / 1e9,
                        last.bytes / last.together / 1e9, times.ranks);
    }
    for (const std::int64_t slab : {smallest_slab, largest_slab})
        times.reductions.push_back(node.reductions(slab));
    for (const auto &last : times.reductions)
        if (bench.comm().rank() == 0)
            std::printf("sums,   %7.1f MiB in all: %6.1f GB/s for one rank, %6.1f for each of %d\n",
                        last.footprint / (1 << 20), last.bytes / last.alone / 1e9,
                        last.bytes / last.together / 1e9, times.ranks);
    constexpr std::array<std::pair<vescomm_type_t, int>, 4> types{
        {{VESCOMM_I8, 1}, {VESCOMM_BF16, 2}, {VESCOMM_F32, 4}, {VESCOMM_F64, 8}}};
    for (const auto &[type, bytes] : types) times.widths.push_back(node.reduction(type, bytes));
    if (bench.comm().rank() == 0)
        std::printf("sums of i8, bf16, f64:    %.2f, %.2f, %.2f times the speed of f32\n",
                    times.widths[2] / times.widths[0], times.widths[2] / times.widths[1],
                    times.widths[2] / times.widths[3]);
}

void measure_links(Bench &bench, MeasuredTimes &times) {
    const Nodes &nodes = bench.comm().nodes();
    LinkBench link(bench, nodes.members(0)[0], nodes.members(1)[0]);
    times.has_links = true;
    times.one_host = bench.one_host();
    times.signal = link.signal();
    bench.say("a signal arrives after    %8.2f us", times.signal * 1e6);
    constexpr std::uint32_t many = 200;
    constexpr std::int64_t small = 64, large = 4 << 20;
    const double one = link.puts(1, small, false), both = link.puts(1, small, true);
    times.small_one_way = (link.puts(many, small, false) - one) / (many - 1);
    times.small_both_ways = (link.puts(many, small, true) - both) / (many - 1);
    bench.say("a small put costs         %8.2f us one way", times.small_one_way * 1e6);
    bench.say("                          %8.2f us both ways at once", times.small_both_ways * 1e6);
    times.large_bytes = static_cast<double>(large);
    times.large_one_way = link.puts(1, large, false) - one;
    times.large_both_ways = link.puts(1, large, true) - both;
    bench.say("4 MiB travel at           %8.2f GB/s one way", large / times.large_one_way / 1e9);
    bench.say("                          %8.2f GB/s each way at once",
              large / times.large_both_ways / 1e9);
}

// The existing machine file if it was measured on this machine, else an empty one. Fields that are
// not measured now keep their values.
MachineFile earlier(const std::string &name) {
    try {
        const auto file = read_machine_file(name);
        if (file && is_of_this_machine(*file)) return *file;
    } catch (const Error &) {
    }
    MachineFile file;
    file.processor = processor_name();
    file.cores = processor_cores();
    return file;
}

}  // namespace

void measure_machine(std::string name) {
    // Ignore the existing machine file, which is about to be replaced.
    setenv("VESCOMM_MACHINE", "defaults", 1);
    const auto comm = connect_from_environment({});
    if (comm->machine().cores > 0)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    "there are more ranks than cores; start at most " +
                        std::to_string(comm->machine().cores) + " on each machine to measure it");
    if (name.empty()) name = own_machine_file(process_environment());
    if (name.empty())
        throw Error(
            VESCOMM_ERROR_INVALID_ARGUMENT,
            "neither HOME nor XDG_CACHE_HOME names a folder; set VESCOMM_MACHINE to a file");
    const double begin = now();
    {
        Bench bench(comm);
        MeasuredTimes times;
        // A measurement with one rank per node must not replace one with several ranks per node.
        MachineFile file = earlier(name);
        const bool known = bench.largest(comm->rank() == 0 && file.machine != Machine{}) > 0;
        if (!known || comm->nodes().members(0).size() > 1) measure_node(bench, times);
        // The links in use: encryption, or one rank without RDMA, makes all use TCP.
        const Nodes &nodes = comm->nodes();
        const int elsewhere = nodes.count() > 1
                                  ? nodes.members(nodes.node_of(comm->rank()) == 0 ? 1 : 0)[0]
                                  : no_rank;
        const bool tcp = elsewhere == no_rank
                             ? expects_tcp_links(comm->config().transport)
                             : comm->routes()[static_cast<std::size_t>(elsewhere)]->name() == "tcp";
        if (comm->nodes().count() > 1) measure_links(bench, times);
        if (comm->rank() == 0) {
            const auto kind = tcp ? MachineFile::Links::tcp : MachineFile::Links::rdma;
            if (times.has_links && file.links != kind) {
                file.links = kind;
                if (tcp) file.machine = file.machine.with_tcp();
            }
            file.machine = fit_machine(times, tcp, file.machine);
            std::error_code error;
            const auto folder = std::filesystem::path(name).parent_path();
            if (!folder.empty()) std::filesystem::create_directories(folder, error);
            write_file(name, to_text(file), "what was measured");
            std::printf("in %.1f s; written to %s\n", now() - begin, name.c_str());
        }
        comm->barrier();
    }
    comm->leave();
}

}  // namespace vescomm::internal

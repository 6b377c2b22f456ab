// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Allocation number n of one rank fails, for every n, in every phase of a communicator's life:
//
//     allocations_test [--all] [--only CLUSTER/PHASE] [--from N]
//
// Ranks are threads of a process of its own for each trial, and the first of them is the one whose
// allocations fail. Required is that every call of every rank returns a status within the timeout
// and a little more; that the rank can free everything afterwards; that a call after which the
// communicator is not broken can be made again, and has its right result then; and that nothing
// ends the process. The control plane is this test's own, and does not fail, but for the cluster
// "tcp_control".
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "api/guard.h"
#include "api/handles.h"
#include "bootstrap/frame.h"
#include "support/failing_allocations.h"
#include "support/free_port.h"
#include "support/local_control.h"
#include "transport/loopback.h"
#include "transport/transports.h"

namespace vescomm {
namespace {

using namespace testing_support;

// The ranks' own timeout, and when the test gives a process up.
constexpr double timeout_seconds = 4;
constexpr unsigned hang_seconds = 40;

struct Cluster {
    const char *name;
    bool loopback;
    std::vector<int> node_of;
    // UCX does not survive that its own allocations fail.
    Allocator allocator = Allocator::all;
    // With the control plane that users have; only when it is asked for by name.
    bool real_control = false;

    int ranks() const { return static_cast<int>(node_of.size()); }
};

const std::vector<Cluster> clusters = {
    {"one_rank", false, {0}},
    {"one_node", false, {0, 0}},
    {"two_nodes", true, {0, 1}},
#if VESCOMM_HAVE_UCX
    {"ucx", false, {0, 1}, Allocator::cpp},
#endif
    {"tcp_control", false, {0, 0}, Allocator::all, true},
};

// ---- the control plane ----

// Its own allocations do not fail, those of the library that it calls back do.
class Sheltered final : public Control {
public:
    explicit Sheltered(std::unique_ptr<Control> inner) : inner_(std::move(inner)) {}
    ~Sheltered() override {
        const WithoutFailing shelter;
        inner_.reset();
    }
    int rank() const override { return inner_->rank(); }
    int ranks() const override { return inner_->ranks(); }
    std::vector<std::string> all_gather(std::string_view label, std::string_view bytes,
                                        Deadline deadline) override {
        const WithoutFailing shelter;
        return inner_->all_gather(label, bytes, deadline);
    }
    void listen(Listener listener) override {
        const WithoutFailing shelter;
        inner_->listen([listener](vescomm_status_t status, const std::string &why) {
            const FailingAgain again;
            listener(status, why);
        });
    }
    void fail(vescomm_status_t status, const std::string &why) noexcept override {
        const WithoutFailing shelter;
        inner_->fail(status, why);
    }
    void leave(Deadline deadline) noexcept override {
        const WithoutFailing shelter;
        inner_->leave(deadline);
    }

private:
    std::unique_ptr<Control> inner_;
};

// Loopback is a transport of tests alone: what it hands over it keeps in queues that grow.
class ShelteredTransport final : public Transport {
public:
    explicit ShelteredTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

    std::string_view name() const override { return inner_->name(); }
    bool maps(int peer) const noexcept override { return inner_->maps(peer); }
    bool puts(int peer) const noexcept override { return inner_->puts(peer); }
    bool supports(vescomm_memory_kind_t kind) const noexcept override {
        return inner_->supports(kind);
    }
    std::shared_ptr<Mapping> map(std::uint64_t bytes, vescomm_sharing_t sharing,
                                 Deadline deadline) override {
        const WithoutFailing shelter;
        return inner_->map(bytes, sharing, deadline);
    }
    std::string offer(MemoryId memory, std::byte *base, std::uint64_t bytes) override {
        const WithoutFailing shelter;
        return inner_->offer(memory, base, bytes);
    }
    void forget(MemoryId memory) noexcept override {
        const WithoutFailing shelter;
        inner_->forget(memory);
    }
    void put(const Put &put) noexcept override {
        const WithoutFailing shelter;
        inner_->put(put);
    }
    void signal(int peer, SignalName signal, std::uint64_t value) noexcept override {
        const WithoutFailing shelter;
        inner_->signal(peer, signal, value);
    }
    std::uint64_t signalled(int peer, SignalName signal) const noexcept override {
        return inner_->signalled(peer, signal);
    }
    bool progress() noexcept override {
        const WithoutFailing shelter;
        return inner_->progress();
    }
    SignalBoard *board() noexcept override { return inner_->board(); }
    void stop() noexcept override {
        const WithoutFailing shelter;
        inner_->stop();
    }

private:
    std::unique_ptr<Transport> inner_;
};

// ---- what a trial found, in memory that the test shares with its process ----

struct Found {
    Allocations allocations;
    vescomm_status_t status[2];  // the first that is not OK, by rank
    bool done[2];
    char what[2][512];  // was wrong
};

struct Trial {
    int phase;
    std::uint64_t number;
    Failing failing;
};

// ---- a rank ----

struct World {
    const Cluster &cluster;
    const Trial &trial;
    Found &found;
    std::shared_ptr<LocalControlHub> control_hub;
    std::shared_ptr<LoopbackHub> hub;
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

    // Allocations fail in the library alone, not in the test.
    template <typename Body>
    static vescomm_status_t exposed(const Body &body) {
        const FailingAgain again;
        return body();
    }

    // One call of the library. Where its allocation failed and the communicator is whole, it is
    // made once more, and must succeed.
    void call(const char *name, const std::function<vescomm_status_t()> &body) {
        if (given_up) return;
        vescomm_status_t status = exposed(body);
        if (status == VESCOMM_OK) return;
        const Allocations before = victim() ? stop_failing() : Allocations{};
        const std::string sentence = vescomm_last_error();
        if (sentence.empty()) wrong(std::string(name) + " failed and said nothing");
        if (status == VESCOMM_ERROR_INTERNAL || status == VESCOMM_ERROR_INVALID_ARGUMENT)
            wrong(std::string(name) + ": " + vescomm_status_name(status) + ": " + sentence);
        const bool broken = comm == nullptr || comm->value->failure().broken();
        if (before.failed > 0 && !broken) {
            status = body();
            if (status == VESCOMM_OK) return;
            if (!comm->value->failure().broken())
                wrong(std::string("again, ") + name + ": " + vescomm_status_name(status) + ": " +
                      vescomm_last_error());
        }
        if (world.found.status[rank] == VESCOMM_OK) world.found.status[rank] = status;
        given_up = true;
    }

    void expect(const char *name, const std::vector<float> &is, const std::vector<float> &should) {
        if (!given_up && is != should) wrong(std::string(name) + ": wrong result");
    }
};

// Element i of what a rank brings.
float value(int rank, std::size_t i) {
    return static_cast<float>(static_cast<int>(i) * (rank + 1) % 7 + rank);
}

std::vector<float> values(int rank, std::size_t count, std::size_t from = 0) {
    std::vector<float> all(count);
    for (std::size_t i = 0; i < count; ++i) all[i] = value(rank, from + i);
    return all;
}

std::vector<float> sums(int ranks, std::size_t count, std::size_t from = 0) {
    std::vector<float> all(count);
    for (int rank = 0; rank < ranks; ++rank)
        for (std::size_t i = 0; i < count; ++i) all[i] += value(rank, from + i);
    return all;
}

// ---- the phases ----

void create_through_tcp(Rank &r) {
    vescomm_comm_options_t options = vescomm_comm_options();
    options.timeout_seconds = timeout_seconds;
    r.call("vescomm_comm_create", [&] {
        return vescomm_comm_create(r.rank, r.ranks(), r.world.address.c_str(), "a secret", &options,
                                   &r.comm);
    });
}

void create_communicator(Rank &r) {
    if (r.world.cluster.real_control) return create_through_tcp(r);
    r.call("creation", [&] {
        return guarded([&] {
            std::unique_ptr<Control> control;
            {
                const WithoutFailing shelter;
                control = std::make_unique<Sheltered>(
                    std::make_unique<LocalControl>(r.world.control_hub, r.rank));
            }
            Config config;
            config.timeout_seconds = timeout_seconds;
            config.flight_recorder = r.world.folder + "/flight.%r";
            const auto make = [&](const Nodes &nodes, Control &c, Failure &failure,
                                  std::function<void()> on_signal, Deadline deadline) {
                if (!r.world.cluster.loopback)
                    return make_transports(nodes, c, failure, std::move(on_signal), deadline);
                const WithoutFailing shelter;
                Transports transports;
                transports.home = std::make_unique<ShelteredTransport>(
                    make_loopback_transport(r.world.hub, r.rank));
                return transports;
            };
            auto comm = Communicator::create(
                std::move(control), std::to_string(r.world.cluster.node_of[r.rank]), config, make);
            auto handle = std::make_unique<vescomm_comm>();
            handle->calls = Calls::create(comm);
            handle->value = std::move(comm);
            r.comm = handle.release();
        });
    });
}

void make_layout(Rank &r) {
    std::array<std::int64_t, 2> counts{40, 7};
    r.call("vescomm_layout_create_from_counts",
           [&] { return vescomm_layout_create_from_counts(counts.data(), r.ranks(), &r.layout); });
    std::array<std::byte, 4096> bytes;
    std::size_t size = 0;
    r.call("vescomm_layout_serialise",
           [&] { return vescomm_layout_serialise(r.layout, bytes.data(), bytes.size(), &size); });
    vescomm_layout_t *parsed = nullptr;
    r.call("vescomm_layout_parse",
           [&] { return vescomm_layout_parse(bytes.data(), size, &parsed); });
    vescomm_layout_free(parsed);
}

void make_memory(Rank &r) {
    vescomm_memory_options_t options = vescomm_memory_options();
    options.bytes = 1000;
    options.sharing = VESCOMM_PER_RANK;
    r.call("vescomm_memory_create",
           [&] { return vescomm_memory_create(r.comm, &options, &r.memory); });
}

void make_slab(Rank &r) {
    vescomm_memory_options_t options = vescomm_memory_options();
    options.bytes = 1000;
    options.sharing = VESCOMM_PER_NODE;
    r.call("vescomm_memory_create (per node)",
           [&] { return vescomm_memory_create(r.comm, &options, &r.slab); });
}

void make_buffer(Rank &r) {
    vescomm_buffer_options_t options = vescomm_buffer_options();
    options.name = "a buffer with a name that does not fit into a short string";
    r.call("vescomm_buffer_create",
           [&] { return vescomm_buffer_create(r.comm, r.layout, &options, &r.buffer); });
}

using Create = vescomm_status_t(vescomm_comm_t *, vescomm_buffer_t *,
                                const vescomm_request_options_t *, vescomm_request_t **);

void make_request(Rank &r, const char *name, Create *create) {
    r.call(name, [&] {
        vescomm_request_t *made = nullptr;
        const vescomm_status_t status = create(r.comm, r.buffer, nullptr, &made);
        const WithoutFailing not_here;
        if (status == VESCOMM_OK) r.requests.push_back(made);
        return status;
    });
}

void make_all_gather(Rank &r) {
    make_request(r, "vescomm_all_gather_v_create", vescomm_all_gather_v_create);
}

void make_reduce_scatter(Rank &r) {
    make_request(r, "vescomm_reduce_scatter_v_create", vescomm_reduce_scatter_v_create);
}

void make_all_reduce(Rank &r) {
    make_request(r, "vescomm_all_reduce_create", vescomm_all_reduce_create);
}

void make_broadcast(Rank &r) {
    make_request(r, "vescomm_broadcast_create", vescomm_broadcast_create);
}

void run_requests(Rank &r) {
    for (vescomm_request_t *request : r.requests) {
        r.call("vescomm_request_start", [&] { return vescomm_request_start(request, nullptr); });
        r.call("vescomm_request_wait", [&] { return vescomm_request_wait(request); });
    }
    r.call("vescomm_barrier", [&] { return vescomm_barrier(r.comm); });
}

void explain(Rank &r) {
    for (vescomm_request_t *request : r.requests) {
        const char *text = "";
        r.call("vescomm_request_explain", [&] { return vescomm_request_explain(request, &text); });
    }
}

// Every collective on arrays, at once. Counts differ by phase so that each makes a new request.
void call_all_reduce(Rank &r) {
    const std::vector<float> mine = values(r.rank, 33);
    std::vector<float> all(33);
    r.call("vescomm_all_reduce", [&] {
        return vescomm_all_reduce(r.comm, mine.data(), all.data(), 33, VESCOMM_F32, VESCOMM_SUM,
                                  nullptr, nullptr);
    });
    r.expect("vescomm_all_reduce", all, sums(r.ranks(), 33));
}

void call_large_all_reduce(Rank &r) {
    constexpr std::size_t count = 300'000;
    const std::vector<float> mine = values(r.rank, count);
    std::vector<float> all(count);
    r.call("vescomm_all_reduce of more", [&] {
        return vescomm_all_reduce(r.comm, mine.data(), all.data(), count, VESCOMM_F32, VESCOMM_SUM,
                                  nullptr, nullptr);
    });
    r.expect("vescomm_all_reduce of more", all, sums(r.ranks(), count));
}

// Counts of every rank: 5, 6.
std::vector<std::int64_t> counts_of(int ranks) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks));
    std::iota(counts.begin(), counts.end(), 5);
    return counts;
}

std::vector<float> gathered(int ranks) {
    std::vector<float> all;
    for (int rank = 0; rank < ranks; ++rank)
        for (const float x : values(rank, static_cast<std::size_t>(5 + rank))) all.push_back(x);
    return all;
}

void call_all_gather(Rank &r) {
    const auto counts = counts_of(r.ranks());
    const std::vector<float> mine = values(r.rank, static_cast<std::size_t>(5 + r.rank));
    const std::vector<float> should = gathered(r.ranks());
    std::vector<float> all(should.size());
    r.call("vescomm_all_gather_v", [&] {
        return vescomm_all_gather_v(r.comm, mine.data(), all.data(), counts.data(), nullptr,
                                    VESCOMM_F32, nullptr, nullptr);
    });
    r.expect("vescomm_all_gather_v", all, should);
}

void call_reduce_scatter(Rank &r) {
    const auto counts = counts_of(r.ranks());
    const std::size_t before = r.rank == 0 ? 0 : 5, own = static_cast<std::size_t>(5 + r.rank);
    const std::vector<float> mine = values(r.rank, gathered(r.ranks()).size());
    std::vector<float> shard(own);
    r.call("vescomm_reduce_scatter_v", [&] {
        return vescomm_reduce_scatter_v(r.comm, mine.data(), shard.data(), counts.data(),
                                        VESCOMM_F32, VESCOMM_SUM, nullptr, nullptr);
    });
    r.expect("vescomm_reduce_scatter_v", shard, sums(r.ranks(), own, before));
}

void call_rooted(Rank &r) {
    const auto counts = counts_of(r.ranks());
    const std::vector<float> whole = gathered(r.ranks());
    const std::vector<float> mine = values(r.rank, static_cast<std::size_t>(5 + r.rank));
    const bool root = r.rank == 0;
    std::vector<float> all(whole.size()), part(mine.size()), sum(9), data = values(0, 9);
    if (!root) std::ranges::fill(data, 0.f);
    r.call("vescomm_broadcast", [&] {
        return vescomm_broadcast(r.comm, data.data(), 9, VESCOMM_F32, 0, nullptr, nullptr);
    });
    r.expect("vescomm_broadcast", data, values(0, 9));
    r.call("vescomm_gather_v", [&] {
        return vescomm_gather_v(r.comm, mine.data(), all.data(), counts.data(), nullptr,
                                VESCOMM_F32, 0, nullptr, nullptr);
    });
    if (root) r.expect("vescomm_gather_v", all, whole);
    r.call("vescomm_scatter_v", [&] {
        return vescomm_scatter_v(r.comm, whole.data(), part.data(), counts.data(), nullptr,
                                 VESCOMM_F32, 0, nullptr, nullptr);
    });
    r.expect("vescomm_scatter_v", part, mine);
    const std::vector<float> term = values(r.rank, 9);
    r.call("vescomm_reduce", [&] {
        return vescomm_reduce(r.comm, term.data(), sum.data(), 9, VESCOMM_F32, VESCOMM_SUM, 0,
                              nullptr, nullptr);
    });
    if (root) r.expect("vescomm_reduce", sum, sums(r.ranks(), 9));
}

void call_all_to_all(Rank &r) {
    const auto ranks = static_cast<std::size_t>(r.ranks());
    const std::vector<std::int64_t> counts(ranks, 4);
    std::vector<float> mine, should, all(4 * ranks);
    for (std::size_t peer = 0; peer < ranks; ++peer)
        for (const float x : values(r.rank, 4, peer)) mine.push_back(x);
    for (std::size_t peer = 0; peer < ranks; ++peer)
        for (const float x : values(static_cast<int>(peer), 4, static_cast<std::size_t>(r.rank)))
            should.push_back(x);
    r.call("vescomm_all_to_all_v", [&] {
        return vescomm_all_to_all_v(r.comm, mine.data(), counts.data(), nullptr, all.data(),
                                    counts.data(), nullptr, VESCOMM_F32, nullptr, nullptr);
    });
    r.expect("vescomm_all_to_all_v", all, should);
}

// A call that goes on while the program does, and is not at its end when a later one is made.
void call_in_background(Rank &r) {
    const std::vector<float> mine = values(r.rank, 50);
    std::vector<float> all(50);
    r.call("vescomm_all_reduce in the background", [&] {
        return vescomm_all_reduce(r.comm, mine.data(), all.data(), 50, VESCOMM_F32, VESCOMM_SUM,
                                  nullptr, &r.pending);
    });
    r.call("vescomm_request_test", [&] {
        const vescomm_status_t status = vescomm_request_test(r.pending);
        return status == VESCOMM_IN_PROGRESS ? VESCOMM_OK : status;
    });
    r.call("vescomm_request_wait in the background",
           [&] { return vescomm_request_wait(r.pending); });
    r.expect("vescomm_all_reduce in the background", all, sums(r.ranks(), 50));
    r.call("vescomm_request_free", [&] {
        const vescomm_status_t status = vescomm_request_free(r.pending);
        if (status == VESCOMM_OK) r.pending = nullptr;
        return status;
    });
    // Arrays are this function's: the rank must not give them up while anybody writes.
    if (r.given_up && r.comm != nullptr) vescomm_comm_abort(r.comm, "it has given up");
}

void call_group(Rank &r) {
    const std::vector<float> mine = values(r.rank, 12), more = values(r.rank, 8);
    std::vector<float> a(12), b(8), c(12);
    std::fill(c.begin(), c.end(), r.rank == 0 ? 1.f : 0.f);
    r.call("vescomm_group_begin", [&] { return vescomm_group_begin(r.comm); });
    r.call("vescomm_all_reduce in a group", [&] {
        return vescomm_all_reduce(r.comm, mine.data(), a.data(), 12, VESCOMM_F32, VESCOMM_SUM,
                                  nullptr, nullptr);
    });
    r.call("vescomm_broadcast in a group", [&] {
        return vescomm_broadcast(r.comm, c.data(), 12, VESCOMM_F32, 0, nullptr, nullptr);
    });
    r.call("vescomm_all_reduce in a group", [&] {
        return vescomm_all_reduce(r.comm, more.data(), b.data(), 8, VESCOMM_F32, VESCOMM_SUM,
                                  nullptr, nullptr);
    });
    r.call("vescomm_group_end", [&] { return vescomm_group_end(r.comm, nullptr); });
    r.expect("a group", a, sums(r.ranks(), 12));
    r.expect("a group", b, sums(r.ranks(), 8));
    r.expect("a group", c, std::vector<float>(12, 1.f));
    if (r.given_up && r.comm != nullptr) vescomm_comm_abort(r.comm, "it has given up");
}

void send_and_receive(Rank &r) {
    const int peer = r.ranks() - 1 - r.rank;
    const std::vector<float> mine = values(r.rank, 20);
    std::vector<float> theirs(20);
    vescomm_request_t *sent = nullptr;
    r.call("vescomm_send", [&] {
        return vescomm_send(r.comm, mine.data(), 20, VESCOMM_F32, peer, nullptr, &sent);
    });
    r.call("vescomm_receive", [&] {
        return vescomm_receive(r.comm, theirs.data(), 20, VESCOMM_F32, peer, nullptr, nullptr);
    });
    r.expect("vescomm_receive", theirs, values(peer, 20));
    r.call("vescomm_request_wait of a message", [&] { return vescomm_request_wait(sent); });
    if (r.given_up && r.comm != nullptr) vescomm_comm_abort(r.comm, "it has given up");
    if (sent == nullptr) return;
    const bool before = std::exchange(r.given_up, false);
    r.call("vescomm_request_free of a message", [&] { return vescomm_request_free(sent); });
    r.given_up |= before;
}

void look(Rank &r) {
    std::array<char, 8192> text;
    std::size_t size = 0;
    vescomm_comm_info_t info = vescomm_comm_info();
    vescomm_comm_counters_t counters = vescomm_comm_counters();
    r.call("vescomm_comm_query", [&] { return vescomm_comm_query(r.comm, &info); });
    r.call("vescomm_comm_count", [&] { return vescomm_comm_count(r.comm, &counters); });
    r.call("vescomm_comm_metrics",
           [&] { return vescomm_comm_metrics(r.comm, text.data(), text.size(), &size); });
    r.call("vescomm_comm_progress", [&] { return vescomm_comm_progress(r.comm); });
}

void trace(Rank &r) {
    r.call("vescomm_trace_start", [&] { return vescomm_trace_start(r.comm, 100); });
    r.call("vescomm_trace_span", [&] {
        return vescomm_trace_span(r.comm, "a span with a name that is not short", "a track", 0, 1);
    });
    for (vescomm_request_t *request : r.requests) {
        r.call("vescomm_request_start, traced",
               [&] { return vescomm_request_start(request, nullptr); });
        r.call("vescomm_request_wait, traced", [&] { return vescomm_request_wait(request); });
    }
    const std::string path = r.world.folder + "/trace";
    r.call("vescomm_trace_write", [&] { return vescomm_trace_write(r.comm, path.c_str()); });
}

void write_recorder(Rank &r) {
    const std::string path = r.world.folder + "/asked.%r";
    r.call("vescomm_flight_recorder_write",
           [&] { return vescomm_flight_recorder_write(r.comm, path.c_str()); });
}

void release_slab(Rank &r) {
    r.call("vescomm_buffer_release", [&] { return vescomm_buffer_release(r.buffer); });
    r.call("vescomm_buffer_acquire", [&] { return vescomm_buffer_acquire(r.buffer); });
}

// One after another, as programs do.
void free_all(Rank &r) {
    const auto release = [&](const char *name, auto *&object, auto function) {
        if (object == nullptr) return;
        const vescomm_status_t status = Rank::exposed([&] { return function(object); });
        if (status != VESCOMM_OK) {
            stop_failing();
            r.wrong(std::string(name) + ": " + vescomm_status_name(status) + ": " +
                    vescomm_last_error());
        }
        object = nullptr;
    };
    release("vescomm_request_free", r.pending, vescomm_request_free);
    for (vescomm_request_t *&request : r.requests)
        release("vescomm_request_free", request, vescomm_request_free);
    release("vescomm_buffer_free", r.buffer, vescomm_buffer_free);
    release("vescomm_memory_free", r.memory, vescomm_memory_free);
    release("vescomm_memory_free", r.slab, vescomm_memory_free);
    release("vescomm_layout_free", r.layout, vescomm_layout_free);
    release("vescomm_comm_free", r.comm, vescomm_comm_free);
}

void abort_all(Rank &r) {
    if (r.victim())
        r.call("vescomm_comm_abort", [&] { return vescomm_comm_abort(r.comm, "for the test"); });
    // Waits for the abort, which may come late.
    if (Rank::exposed([&] { return vescomm_barrier(r.comm); }) == VESCOMM_OK)
        r.wrong("the communicator is not broken");
    if (r.victim() && Rank::exposed([&] { return vescomm_comm_progress(r.comm); }) == VESCOMM_OK)
        r.wrong("goes on when aborted");
    r.given_up = true;
}

// A rank calls something else than the others: all are told.
void call_something_else(Rank &r) {
    const std::vector<float> mine = values(r.rank, 21);
    std::vector<float> all(21);
    const vescomm_op_t op = r.victim() ? VESCOMM_MAX : VESCOMM_SUM;
    const vescomm_status_t status = Rank::exposed([&] {
        return vescomm_all_reduce(r.comm, mine.data(), all.data(), 21, VESCOMM_F32, op, nullptr,
                                  nullptr);
    });
    if (r.ranks() > 1 && status == VESCOMM_OK) r.wrong("calls that differ succeed");
    if (r.ranks() > 1 || status != VESCOMM_OK) r.given_up = true;
}

// What the control plane sends, whose libcrypto allocates as well.
void seal_frames(Rank &r) {
    if (!r.victim()) return;
    (void)Rank::exposed([] {
        return guarded([] {
            const Nonce mine = random_nonce(), theirs = random_nonce();
            const FrameKey key = session_key("a secret", Direction::to_rank_0, mine, theirs);
            std::string bytes;
            FrameEncoder(key).append(bytes, FrameType{1}, "a payload");
            std::string_view rest = bytes;
            FrameDecoder decoder(key, largest_payload_bytes);
            if (decoder.read(rest) != FrameDecoder::State::complete)
                throw Error(VESCOMM_ERROR_MISMATCH, "a frame was not read");
        });
    });
}

struct Phase {
    const char *name;
    void (*body)(Rank &);
    // Nothing but the communicator and what this phase makes is needed, and nothing follows.
    bool last = false;
};

const std::vector<Phase> phases = {
    {"create", create_communicator},
    {"layout", make_layout},
    {"memory", make_memory},
    {"slab", make_slab},
    {"buffer", make_buffer},
    {"all_gather_v request", make_all_gather},
    {"reduce_scatter_v request", make_reduce_scatter},
    {"all_reduce request", make_all_reduce},
    {"broadcast request", make_broadcast},
    {"run", run_requests},
    {"explain", explain},
    {"all_reduce", call_all_reduce},
    {"large all_reduce", call_large_all_reduce},
    {"all_gather_v", call_all_gather},
    {"reduce_scatter_v", call_reduce_scatter},
    {"rooted", call_rooted},
    {"all_to_all_v", call_all_to_all},
    {"background", call_in_background},
    {"group", call_group},
    {"messages", send_and_receive},
    {"look", look},
    {"trace", trace},
    {"flight recorder", write_recorder},
    {"release", release_slab},
    {"free", free_all},
    {"frames", seal_frames, true},
    {"abort", abort_all, true},
    {"mismatch", call_something_else, true},
};

// ---- a trial ----

// Which phases come before: those that end a communicator come alone after those that make it.
bool takes_part(int phase, int target) {
    if (phase == target) return true;
    const bool makes = phase <= 8;
    return phase < target && !phases[phase].last && (makes || phases[phase].body == run_requests) &&
           phases[phase].body != free_all;
}

void play(World &world, int rank) {
    const WithoutFailing shelter;
    Rank r(world, rank);
    for (int phase = 0; phase <= world.trial.phase && !r.given_up; ++phase) {
        if (!takes_part(phase, world.trial.phase)) continue;
        const bool failing = r.victim() && phase == world.trial.phase;
        if (failing)
            fail_allocation(world.trial.number, world.trial.failing, world.cluster.allocator);
        phases[phase].body(r);
        if (failing) world.found.allocations = stop_failing();
    }
    if (r.given_up && r.comm != nullptr) vescomm_comm_abort(r.comm, "it has given up");
    free_all(r);
    world.found.done[rank] = true;
}

[[noreturn]] void run_trial(const Cluster &cluster, const Trial &trial, Found &found,
                            const std::string &folder) {
    alarm(hang_seconds);
    // What is logged of failures is not of interest here, but must be made.
    vescomm_set_log([](void *, std::int32_t, const char *) {}, nullptr);
    World world{cluster,
                trial,
                found,
                std::make_shared<LocalControlHub>(cluster.ranks()),
                make_loopback_hub(Nodes::from_numbers(cluster.node_of)),
                folder,
                free_address()};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < cluster.ranks(); ++rank)
        threads.emplace_back([&, rank] { play(world, rank); });
    for (std::thread &thread : threads) thread.join();
    _exit(0);
}

// What is wrong; empty: nothing.
std::string judge(const Cluster &cluster, bool ends, const Found &found, int status) {
    if (WIFSIGNALED(status))
        return WTERMSIG(status) == SIGALRM ? "hangs"
                                           : "ends by signal " + std::to_string(WTERMSIG(status));
    if (WEXITSTATUS(status) != 0) return "exits with " + std::to_string(WEXITSTATUS(status));
    for (int rank = 0; rank < cluster.ranks(); ++rank) {
        if (found.what[rank][0] != '\0')
            return "rank " + std::to_string(rank) + ": " + found.what[rank];
        // Who is told of an abort may be told within the call before it.
        if (found.allocations.failed == 0 && !ends && found.status[rank] != VESCOMM_OK)
            return "rank " + std::to_string(rank) +
                   " fails without a reason: " + vescomm_status_name(found.status[rank]);
    }
    return {};
}

struct Totals {
    std::uint64_t trials = 0;
    std::uint64_t problems = 0;
};

class Driver {
public:
    Driver() {
        char name[] = "/tmp/vescomm-allocations-test-XXXXXX";
        if (mkdtemp(name) != nullptr) folder_ = name;
        found_ = static_cast<Found *>(mmap(nullptr, sizeof(Found), PROT_READ | PROT_WRITE,
                                           MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    }
    ~Driver() { std::filesystem::remove_all(folder_); }

    // All numbers, or some of each phase: the first ones, then ever wider apart.
    void sweep(const Cluster &cluster, int phase, bool all, std::uint64_t from, Totals &totals) {
        const std::string name = std::string(cluster.name) + "/" + phases[phase].name;
        std::uint64_t trials = 0, problems = 0, last = 0;
        for (std::uint64_t number = from;; number += all ? 1 : 1 + number / 3) {
            bool failed = false;
            for (const Failing failing : {Failing::one, Failing::and_later}) {
                // Half of them each, when it is not all.
                if (!all && (number + (failing == Failing::one ? 0 : 1)) % 2 == 0) continue;
                const std::string wrong = attempt(cluster, {phase, number, failing});
                ++trials;
                failed |= found_->allocations.failed > 0 || !wrong.empty();
                if (found_->allocations.failed > 0) last = number;
                if (wrong.empty()) continue;
                ++problems;
                std::printf("FAIL  %s, allocation %llu%s: %s\n", name.c_str(),
                            static_cast<unsigned long long>(number),
                            failing == Failing::one ? "" : " and all after it", wrong.c_str());
                std::fflush(stdout);
            }
            if (!failed) break;
            constexpr std::uint64_t most_problems = 25;
            if (problems >= most_problems) break;
        }
        std::printf("%s  %s: %llu trials, up to allocation %llu\n", problems ? "FAIL" : "ok  ",
                    name.c_str(), static_cast<unsigned long long>(trials),
                    static_cast<unsigned long long>(last));
        std::fflush(stdout);
        totals.trials += trials;
        totals.problems += problems;
    }

private:
    std::string attempt(const Cluster &cluster, const Trial &trial) {
        *found_ = {};
        const pid_t child = fork();
        if (child == 0) run_trial(cluster, trial, *found_, folder_);
        int status = 0;
        waitpid(child, &status, 0);
        return judge(cluster, phases[trial.phase].last, *found_, status);
    }

    std::string folder_;
    Found *found_ = nullptr;
};

}  // namespace
}  // namespace vescomm

int main(int count, char **words) {
    using namespace vescomm;
    setenv("UCX_TLS", "tcp,self", 1);
    setenv("UCX_NET_DEVICES", "lo", 1);
    bool all = false;
    std::string only;
    std::uint64_t from = 1;
    for (int i = 1; i < count; ++i) {
        const std::string word = words[i];
        if (word == "--all") all = true;
        else if (word == "--only" && i + 1 < count) only = words[++i];
        else if (word == "--from" && i + 1 < count) from = std::strtoull(words[++i], nullptr, 10);
        else return std::fprintf(stderr, "there is no option %s\n", words[i]), 2;
    }
    Driver driver;
    Totals totals;
    for (const Cluster &cluster : clusters)
        for (std::size_t phase = 0; phase < phases.size(); ++phase)
            if ((std::string(cluster.name) + "/" + phases[phase].name).starts_with(only) &&
                !(only.empty() && cluster.real_control))
                driver.sweep(cluster, static_cast<int>(phase), all, from, totals);
    std::printf("%llu trials, %llu problems\n", static_cast<unsigned long long>(totals.trials),
                static_cast<unsigned long long>(totals.problems));
    return totals.trials == 0 || totals.problems > 0;
}

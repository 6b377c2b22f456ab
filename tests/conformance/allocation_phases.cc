// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "conformance/allocation_phases.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "api/guard.h"
#include "bootstrap/frame.h"
#include "conformance/allocation_shelter.h"
#include "transport/transports.h"

namespace vescomm::internal::testing_support {

namespace {

// Element i of a rank's contribution.
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
    vescomm_comm_options_t options = vescomm_comm_options_init();
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
                    return make_transports(nodes, c, failure, std::move(on_signal), deadline,
                                           {"ucx", false});
                const WithoutFailing shelter;
                Transports transports;
                transports.intra_node = std::make_unique<ShelteredTransport>(
                    make_loopback_transport(r.world.network, r.rank));
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
    vescomm_memory_options_t options = vescomm_memory_options_init();
    options.bytes = 1000;
    options.partial_bytes = 1000;
    options.sharing = VESCOMM_PER_RANK;
    r.call("vescomm_memory_create",
           [&] { return vescomm_memory_create(r.comm, &options, &r.memory); });
}

void make_slab(Rank &r) {
    vescomm_memory_options_t options = vescomm_memory_options_init();
    options.bytes = 1000;
    options.sharing = VESCOMM_PER_NODE;
    r.call("vescomm_memory_create (per node)",
           [&] { return vescomm_memory_create(r.comm, &options, &r.slab); });
}

void make_buffer(Rank &r) {
    vescomm_buffer_options_t options = vescomm_buffer_options_init();
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

// Blocking collectives on arrays. Counts differ by phase, so that each phase creates a new request.
void call_all_reduce(Rank &r) {
    const std::vector<float> mine = values(r.rank, 33);
    std::vector<float> all(33);
    r.call("vescomm_all_reduce", [&] {
        return vescomm_all_reduce(r.comm, mine.data(), all.data(), 33, VESCOMM_F32, VESCOMM_SUM,
                                  nullptr, nullptr, nullptr);
    });
    r.expect("vescomm_all_reduce", all, sums(r.ranks(), 33));
}

void call_large_all_reduce(Rank &r) {
    constexpr std::size_t count = 300'000;
    const std::vector<float> mine = values(r.rank, count);
    std::vector<float> all(count);
    r.call("vescomm_all_reduce of more", [&] {
        return vescomm_all_reduce(r.comm, mine.data(), all.data(), count, VESCOMM_F32, VESCOMM_SUM,
                                  nullptr, nullptr, nullptr);
    });
    r.expect("vescomm_all_reduce of more", all, sums(r.ranks(), count));
}

// 5 elements for rank 0, 6 for rank 1, and so on.
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
                                    VESCOMM_F32, nullptr, nullptr, nullptr);
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
                                        VESCOMM_F32, VESCOMM_SUM, nullptr, nullptr, nullptr);
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
        return vescomm_broadcast(r.comm, data.data(), 9, VESCOMM_F32, 0, nullptr, nullptr, nullptr);
    });
    r.expect("vescomm_broadcast", data, values(0, 9));
    r.call("vescomm_gather_v", [&] {
        return vescomm_gather_v(r.comm, mine.data(), all.data(), counts.data(), nullptr,
                                VESCOMM_F32, 0, nullptr, nullptr, nullptr);
    });
    if (root) r.expect("vescomm_gather_v", all, whole);
    r.call("vescomm_scatter_v", [&] {
        return vescomm_scatter_v(r.comm, whole.data(), part.data(), counts.data(), nullptr,
                                 VESCOMM_F32, 0, nullptr, nullptr, nullptr);
    });
    r.expect("vescomm_scatter_v", part, mine);
    const std::vector<float> term = values(r.rank, 9);
    r.call("vescomm_reduce", [&] {
        return vescomm_reduce(r.comm, term.data(), sum.data(), 9, VESCOMM_F32, VESCOMM_SUM, 0,
                              nullptr, nullptr, nullptr);
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
                                    counts.data(), nullptr, VESCOMM_F32, nullptr, nullptr, nullptr);
    });
    r.expect("vescomm_all_to_all_v", all, should);
}

void call_with_one_count(Rank &r) {
    const auto ranks = static_cast<std::size_t>(r.ranks());
    const std::vector<float> mine = values(r.rank, 4 * ranks);
    std::vector<float> all(4 * ranks), should;
    for (int rank = 0; rank < r.ranks(); ++rank)
        for (const float x : values(rank, 4)) should.push_back(x);
    r.call("vescomm_all_gather", [&] {
        return vescomm_all_gather(r.comm, mine.data(), all.data(), 4, VESCOMM_F32, nullptr, nullptr,
                                  nullptr);
    });
    r.expect("vescomm_all_gather", all, should);
    std::vector<float> sum(4);
    const auto before = 4 * static_cast<std::size_t>(r.rank);
    r.call("vescomm_reduce_scatter", [&] {
        return vescomm_reduce_scatter(r.comm, mine.data(), sum.data(), 4, VESCOMM_F32, VESCOMM_SUM,
                                      nullptr, nullptr, nullptr);
    });
    r.expect("vescomm_reduce_scatter", sum, sums(r.ranks(), 4, before));
    should.clear();
    for (int rank = 0; rank < r.ranks(); ++rank) {
        const std::vector<float> theirs = values(rank, 4 * ranks);
        for (std::size_t i = 0; i < 4; ++i) should.push_back(theirs[before + i]);
    }
    r.call("vescomm_all_to_all", [&] {
        return vescomm_all_to_all(r.comm, mine.data(), all.data(), 4, VESCOMM_F32, nullptr, nullptr,
                                  nullptr);
    });
    r.expect("vescomm_all_to_all", all, should);
}

// A nonblocking call, still in progress when the next call of the library is made.
void call_in_background(Rank &r) {
    const std::vector<float> mine = values(r.rank, 50);
    std::vector<float> all(50);
    r.call("vescomm_all_reduce in the background", [&] {
        return vescomm_all_reduce(r.comm, mine.data(), all.data(), 50, VESCOMM_F32, VESCOMM_SUM,
                                  nullptr, nullptr, &r.pending);
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
    // The arrays are local: abort, so that no rank writes to them after this function returns.
    if (r.given_up && r.comm != nullptr) vescomm_comm_abort(r.comm, "it has given up");
}

void call_group(Rank &r) {
    const std::vector<float> mine = values(r.rank, 12), more = values(r.rank, 8);
    std::vector<float> a(12), b(8), c(12);
    std::fill(c.begin(), c.end(), r.rank == 0 ? 1.f : 0.f);
    r.call("vescomm_group_begin", [&] { return vescomm_group_begin(r.comm); });
    r.call("vescomm_all_reduce in a group", [&] {
        return vescomm_all_reduce(r.comm, mine.data(), a.data(), 12, VESCOMM_F32, VESCOMM_SUM,
                                  nullptr, nullptr, nullptr);
    });
    r.call("vescomm_broadcast in a group", [&] {
        return vescomm_broadcast(r.comm, c.data(), 12, VESCOMM_F32, 0, nullptr, nullptr, nullptr);
    });
    r.call("vescomm_all_reduce in a group", [&] {
        return vescomm_all_reduce(r.comm, more.data(), b.data(), 8, VESCOMM_F32, VESCOMM_SUM,
                                  nullptr, nullptr, nullptr);
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
        return vescomm_send(r.comm, mine.data(), 20, VESCOMM_F32, peer, nullptr, nullptr, &sent);
    });
    r.call("vescomm_receive", [&] {
        return vescomm_receive(r.comm, theirs.data(), 20, VESCOMM_F32, peer, nullptr, nullptr,
                               nullptr);
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
    vescomm_comm_info_t info = vescomm_comm_info_init();
    vescomm_comm_counters_t counters = vescomm_comm_counters_init();
    r.call("vescomm_comm_get_info", [&] { return vescomm_comm_get_info(r.comm, &info); });
    r.call("vescomm_comm_get_counters",
           [&] { return vescomm_comm_get_counters(r.comm, &counters); });
    r.call("vescomm_comm_get_metrics",
           [&] { return vescomm_comm_get_metrics(r.comm, text.data(), text.size(), &size); });
    r.call("vescomm_comm_progress", [&] { return vescomm_comm_progress(r.comm); });
}

void trace(Rank &r) {
    r.call("vescomm_trace_start", [&] { return vescomm_trace_start(r.comm, 100); });
    r.call("vescomm_trace_add_span", [&] {
        return vescomm_trace_add_span(r.comm, "a span with a name that is not short", "a track", 0,
                                      1);
    });
    const vescomm_trace_argument_t arguments[] = {
        {"unit", "a text that is not short enough for the string itself", 0},
        {"bytes", nullptr, 1}};
    r.call("vescomm_trace_add_span_with", [&] {
        return vescomm_trace_add_span_with(r.comm, "a span with a name that is not short",
                                           "a track", 0, 1, arguments, 2);
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

}  // namespace

// Frees all objects in the order that programs use.
void free_all(Rank &r) {
    const auto release = [&](const char *name, auto *&object, auto function) {
        if (object == nullptr) return;
        const vescomm_status_t status = Rank::exposed([&] { return function(object); });
        if (status != VESCOMM_OK) {
            stop_failing();
            r.wrong(std::string(name) + ": " + vescomm_status_get_name(status) + ": " +
                    vescomm_get_last_error());
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

namespace {

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

// The victim calls another operator than its peer. The call fails on all ranks.
void call_something_else(Rank &r) {
    const std::vector<float> mine = values(r.rank, 21);
    std::vector<float> all(21);
    const vescomm_op_t op = r.victim() ? VESCOMM_MAX : VESCOMM_SUM;
    const vescomm_status_t status = Rank::exposed([&] {
        return vescomm_all_reduce(r.comm, mine.data(), all.data(), 21, VESCOMM_F32, op, nullptr,
                                  nullptr, nullptr);
    });
    if (r.ranks() > 1 && status == VESCOMM_OK) r.wrong("calls that differ succeed");
    if (r.ranks() > 1 || status != VESCOMM_OK) r.given_up = true;
}

// Encodes and decodes a frame of the control plane. The MAC uses libcrypto, which allocates too.
void encode_frames(Rank &r) {
    if (!r.victim()) return;
    (void)Rank::exposed([] {
        return guarded([] {
            const Nonce mine = random_nonce(), theirs = random_nonce();
            const FrameKey key = session_key("a secret", Direction::from_joiner, mine, theirs);
            std::string bytes;
            FrameEncoder(key).append(bytes, FrameType{1}, "a payload");
            std::string_view rest = bytes;
            FrameDecoder decoder(key, max_payload_bytes);
            if (decoder.read(rest) != FrameDecoder::State::complete)
                throw Error(VESCOMM_ERROR_MISMATCH, "a frame was not read");
        });
    });
}

const std::vector<Phase> phases = {
    {"create", create_communicator},
    {"layout", make_layout},
    {"memory", make_memory, false, true},
    {"slab", make_slab, false, true},
    {"buffer", make_buffer, false, true},
    {"all_gather_v request", make_all_gather, false, true},
    {"reduce_scatter_v request", make_reduce_scatter, false, true},
    {"all_reduce request", make_all_reduce, false, true},
    {"broadcast request", make_broadcast, false, true},
    {"run", run_requests},
    {"explain", explain},
    {"all_reduce", call_all_reduce},
    {"large all_reduce", call_large_all_reduce},
    {"all_gather_v", call_all_gather},
    {"reduce_scatter_v", call_reduce_scatter},
    {"rooted", call_rooted},
    {"all_to_all_v", call_all_to_all},
    {"one count", call_with_one_count},
    {"background", call_in_background},
    {"group", call_group},
    {"messages", send_and_receive},
    {"look", look},
    {"trace", trace},
    {"flight recorder", write_recorder},
    {"release", release_slab},
    {"free", free_all},
    {"frames", encode_frames, true},
    {"abort", abort_all, true},
    {"mismatch", call_something_else, true},
};

}  // namespace

const std::vector<Phase> &all_phases() {
    return phases;
}

bool takes_part(int phase, int target) {
    if (phase == target) return true;
    const bool makes = phase <= 8;
    return phase < target && !phases[phase].last && (makes || phases[phase].body == run_requests) &&
           phases[phase].body != free_all;
}

}  // namespace vescomm::internal::testing_support

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The suite that every transport passes. Runs every collective several times, on ragged and empty
// shards, in place and out of place, and compares the results with expected values.
#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "comm/request.h"
#include "execute/kernels.h"
#include "support/contributions.h"
#include "support/thread_ranks.h"

namespace vescomm::internal {
namespace {

using testing_support::run_ranks;
using testing_support::TestSetup;

constexpr int runs = 4;

// Values whose sums are exact in any order: in f32, and in bf16 while sums stay below 256.
float value(int rank, std::int64_t element, int run) {
    return static_cast<float>((element * 7 + rank * 3 + run * 5) % 13 - 6);
}

float sum_of(int ranks, std::int64_t element, int run) {
    float sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += value(rank, element, run);
    return sum;
}

std::uint16_t to_bf16(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return static_cast<std::uint16_t>(bits >> 16);  // exact for the values used here
}

float from_bf16(std::uint16_t x) {
    const std::uint32_t bits = static_cast<std::uint32_t>(x) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

void store(const Buffer &buffer, std::int64_t element, float x) {
    if (buffer.type() == VESCOMM_BF16) {
        const std::uint16_t bits = to_bf16(x);
        std::memcpy(buffer.at(element), &bits, sizeof bits);
    } else {
        std::memcpy(buffer.at(element), &x, sizeof x);
    }
}

float load(const Buffer &buffer, std::int64_t element) {
    if (buffer.type() == VESCOMM_BF16) {
        std::uint16_t bits;
        std::memcpy(&bits, buffer.at(element), sizeof bits);
        return from_bf16(bits);
    }
    float x;
    std::memcpy(&x, buffer.at(element), sizeof x);
    return x;
}

// Layouts with equal shards, empty shards, one owner, random shards of which some are empty, and
// large shards.
std::vector<Layout> layouts(int ranks) {
    std::mt19937 random(static_cast<unsigned>(ranks));
    std::vector<std::vector<std::int64_t>> all(5, std::vector<std::int64_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
        all[0][rank] = 64;
        all[1][rank] = 0;
        all[2][rank] = rank == ranks / 2 ? 10'001 : 0;
        all[3][rank] = random() % 3 == 0 ? 0 : static_cast<std::int64_t>(random() % 1'000);
        all[4][rank] = 20'000 + static_cast<std::int64_t>(random() % 30'000);
    }
    std::vector<Layout> layouts;
    for (const auto &counts : all) layouts.push_back(Layout::from_counts(counts));
    return layouts;
}

// All algorithms that solve `collective` on this buffer.
std::vector<std::string> algorithms_for(Collective collective, const Buffer &buffer) {
    BufferProblem problem;
    problem.collective = collective;
    problem.nodes = buffer.comm().nodes();
    problem.per_node = buffer.per_node();
    std::vector<std::string> names;
    for (const AlgorithmEntry &entry : algorithms())
        if (entry.collective == collective && entry.solves(problem)) names.emplace_back(entry.name);
    return names;
}

class Conformance : public testing::TestWithParam<TestSetup> {
protected:
    // Calls `body` for every layout, type and sharing.
    static void for_each_buffer(const std::shared_ptr<Communicator> &comm,
                                std::vector<vescomm_sharing_t> sharings,
                                const std::function<void(const std::shared_ptr<Buffer> &)> &body) {
        for (const Layout &layout : layouts(comm->ranks()))
            for (const vescomm_type_t type : {VESCOMM_F32, VESCOMM_BF16})
                for (const vescomm_sharing_t sharing : sharings) {
                    Buffer::Options options;
                    options.type = type;
                    options.sharing = sharing;
                    options.name = "conformance";
                    body(Buffer::create(comm, layout, options));
                }
    }
};

TEST_P(Conformance, AllGatherVInPlaceDeliversEveryShard) {
    run_ranks(GetParam(), [](const std::shared_ptr<Communicator> &comm) {
        const auto staging = vescomm::internal::StagingBuffer::create(comm);
        for_each_buffer(comm, {VESCOMM_PER_RANK, VESCOMM_PER_NODE}, [&](const auto &buffer) {
            const Layout &layout = buffer->layout();
            for (const auto &name : algorithms_for(Collective::all_gather_v, *buffer)) {
                const auto request = Request::create(
                    staging, buffer, {.collective = Collective::all_gather_v, .algorithm = name});
                for (int run = 0; run < runs; ++run) {
                    buffer->memory().acquire("test");
                    const auto shard = layout.shard(comm->rank());
                    for (auto i = shard.begin; i < shard.end; ++i)
                        store(*buffer, i, value(comm->rank(), i, run));
                    request->start();
                    request->wait();
                    for (int owner = 0; owner < comm->ranks(); ++owner)
                        for (auto i = layout.shard(owner).begin; i < layout.shard(owner).end; ++i)
                            ASSERT_EQ(load(*buffer, i), value(owner, i, run))
                                << name << ", element " << i << " of rank " << owner << " in run "
                                << run;
                }
            }
        });
    });
}

TEST_P(Conformance, AllGatherVConvertsFromASource) {
    run_ranks(GetParam(), [](const std::shared_ptr<Communicator> &comm) {
        const auto staging = vescomm::internal::StagingBuffer::create(comm);
        for_each_buffer(comm, {VESCOMM_PER_RANK, VESCOMM_PER_NODE}, [&](const auto &buffer) {
            const Layout &layout = buffer->layout();
            const auto shard = layout.shard(comm->rank());
            std::vector<float> source(static_cast<std::size_t>(shard.elements()) + 1);
            for (const auto &name : algorithms_for(Collective::all_gather_v, *buffer)) {
                const auto request = Request::create(staging, buffer,
                                                     {.collective = Collective::all_gather_v,
                                                      .source = source.data(),
                                                      .algorithm = name});
                for (int run = 0; run < runs; ++run) {
                    for (auto i = shard.begin; i < shard.end; ++i)
                        source[i - shard.begin] = value(comm->rank(), i, run);
                    request->start();
                    while (!request->test()) std::this_thread::yield();
                    for (int owner = 0; owner < comm->ranks(); ++owner)
                        for (auto i = layout.shard(owner).begin; i < layout.shard(owner).end; ++i)
                            ASSERT_EQ(load(*buffer, i), value(owner, i, run)) << name;
                    if (run % 2 == 0) buffer->memory().release();
                }
            }
        });
    });
}

TEST_P(Conformance, ReduceScatterVGivesEachRankItsSums) {
    run_ranks(GetParam(), [](const std::shared_ptr<Communicator> &comm) {
        const auto staging = vescomm::internal::StagingBuffer::create(comm);
        for_each_buffer(comm, {VESCOMM_PER_RANK}, [&](const auto &buffer) {
            const Layout &layout = buffer->layout();
            const auto shard = layout.shard(comm->rank());
            std::vector<float> output(static_cast<std::size_t>(shard.elements()) + 1);
            for (const auto &name : algorithms_for(Collective::reduce_scatter_v, *buffer)) {
                Request::Options options{.collective = Collective::reduce_scatter_v,
                                         .algorithm = name};
                const auto inside = Request::create(staging, buffer, options);
                options.output = output.data();
                const auto outside = Request::create(staging, buffer, options);
                options.op = VESCOMM_AVERAGE;
                const auto average = Request::create(staging, buffer, options);
                // Only one rank has an output of its own.
                options.op = VESCOMM_SUM;
                if (comm->rank() > 0) options.output = nullptr;
                const auto mixed = Request::create(staging, buffer, options);
                for (int run = 0; run < runs; ++run) {
                    for (std::int64_t i = 0; i < layout.elements(); ++i)
                        store(*buffer, i, value(comm->rank(), i, run));
                    outside->start();
                    outside->wait();
                    for (auto i = shard.begin; i < shard.end; ++i)
                        ASSERT_EQ(output[i - shard.begin], sum_of(comm->ranks(), i, run)) << name;
                    average->start();
                    average->wait();
                    const float scale = 1.0f / static_cast<float>(comm->ranks());
                    for (auto i = shard.begin; i < shard.end; ++i)
                        ASSERT_EQ(output[i - shard.begin], sum_of(comm->ranks(), i, run) * scale);
                    inside->start();
                    inside->wait();
                    for (auto i = shard.begin; i < shard.end; ++i)
                        ASSERT_EQ(load(*buffer, i), sum_of(comm->ranks(), i, run));
                    for (std::int64_t i = 0; i < layout.elements(); ++i) {
                        if (i >= shard.begin && i < shard.end) continue;
                        ASSERT_EQ(load(*buffer, i), value(comm->rank(), i, run));
                    }
                    for (auto i = shard.begin; i < shard.end; ++i)
                        store(*buffer, i, value(comm->rank(), i, run));
                    comm->barrier();
                    mixed->start();
                    mixed->wait();
                    for (auto i = shard.begin; i < shard.end; ++i)
                        ASSERT_EQ(comm->rank() == 0 ? output[i - shard.begin] : load(*buffer, i),
                                  sum_of(comm->ranks(), i, run));
                }
            }
        });
    });
}

TEST_P(Conformance, AllReduceGivesEveryRankTheSums) {
    run_ranks(GetParam(), [](const std::shared_ptr<Communicator> &comm) {
        const auto staging = vescomm::internal::StagingBuffer::create(comm);
        for_each_buffer(comm, {VESCOMM_PER_RANK}, [&](const auto &buffer) {
            for (const auto &name : algorithms_for(Collective::all_reduce, *buffer)) {
                const auto request = Request::create(
                    staging, buffer, {.collective = Collective::all_reduce, .algorithm = name});
                const std::int64_t elements = buffer->layout().elements();
                for (int run = 0; run < runs; ++run) {
                    for (std::int64_t i = 0; i < elements; ++i)
                        store(*buffer, i, value(comm->rank(), i, run));
                    request->start();
                    request->wait();
                    for (std::int64_t i = 0; i < elements; ++i)
                        ASSERT_EQ(load(*buffer, i), sum_of(comm->ranks(), i, run)) << name;
                }
            }
        });
    });
}

TEST_P(Conformance, AllTypesAndOperatorsAreCorrect) {
    run_ranks(GetParam(), [](const std::shared_ptr<Communicator> &comm) {
        const int rank = comm->rank(), ranks = comm->ranks();
        const auto staging = vescomm::internal::StagingBuffer::create(comm);
        std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), 70);
        counts[0] = 3;
        const Layout layout = Layout::from_counts(counts);
        const auto count = static_cast<std::size_t>(layout.elements());
        const bool one_node = comm->nodes().count() == 1;
        for (vescomm_type_t type = VESCOMM_F32; type <= last_type; ++type) {
            const auto buffer = Buffer::create(comm, layout, {.type = type, .name = "types"});
            std::vector<testing_support::Bytes> all;
            for (int k = 0; k < ranks; ++k)
                all.push_back(testing_support::contribution(type, count, k, one_node));
            const auto shard = layout.shard(rank);
            for (vescomm_op_t op = VESCOMM_SUM; op <= last_op; ++op) {
                if (!can_combine(op, type)) continue;
                const double factor = op == VESCOMM_PREMULTIPLIED_SUM ? 3 : 0;
                const auto expected = testing_support::reduction(op, type, all, factor);
                const auto expect = [&](Collective collective, std::int64_t begin,
                                        std::int64_t end) {
                    std::memcpy(buffer->at(0), all[static_cast<std::size_t>(rank)].data(),
                                expected.size());
                    const auto request = Request::create(
                        staging, buffer, {.collective = collective, .op = op, .factor = factor});
                    request->start();
                    request->wait();
                    const std::size_t size = size_of(type);
                    ASSERT_EQ(std::memcmp(buffer->at(begin),
                                          &expected[static_cast<std::size_t>(begin) * size],
                                          static_cast<std::size_t>(end - begin) * size),
                              0)
                        << name_of(collective) << " with " << name_of_op(op) << " of "
                        << name_of_type(type);
                    comm->barrier();
                };
                expect(Collective::all_reduce, 0, layout.elements());
                expect(Collective::reduce_scatter_v, shard.begin, shard.end);
                expect(Collective::reduce, 0, rank == 0 ? layout.elements() : 0);
            }
        }
    });
}

// The minimum: each shard is sent once to every other node, and each node sends one partial sum of
// each shard to its owner.
TEST_P(Conformance, BytesBetweenNodesAreMinimal) {
    std::atomic<std::uint64_t> sent{0}, fewest{0};
    run_ranks(GetParam(), [&](const std::shared_ptr<Communicator> &comm) {
        const auto staging = vescomm::internal::StagingBuffer::create(comm);
        const auto others = static_cast<std::uint64_t>(comm->nodes().count() - 1);
        for_each_buffer(comm, {VESCOMM_PER_RANK, VESCOMM_PER_NODE}, [&](const auto &buffer) {
            const auto elements = static_cast<std::uint64_t>(buffer->layout().elements());
            const auto count = [&](Collective collective, const char *algorithm,
                                   std::uint64_t bytes_each) {
                const auto request = Request::create(
                    staging, buffer, {.collective = collective, .algorithm = algorithm});
                for (std::int64_t i = 0; i < buffer->layout().elements(); ++i)
                    if (!buffer->per_node()) store(*buffer, i, 0);
                const std::uint64_t before = comm->counters().bytes_sent;
                request->start();
                request->wait();
                sent += comm->counters().bytes_sent - before;
                if (comm->rank() == 0) fewest += others * elements * bytes_each;
                comm->barrier();
                EXPECT_EQ(sent, fewest) << name_of(collective) << " " << algorithm;
                comm->barrier();
            };
            const std::uint64_t bytes = size_of(buffer->type());
            const std::uint64_t sum_bytes = size_of(accumulator_of(buffer->type()));
            if (buffer->per_node()) return count(Collective::all_gather_v, "slab", bytes);
            count(Collective::all_gather_v, "direct", bytes);
            count(Collective::reduce_scatter_v, "direct", sum_bytes);
            count(Collective::all_reduce, "two_phase", sum_bytes + bytes);
        });
    });
}

TEST_P(Conformance, BroadcastCopiesFromAnyRoot) {
    run_ranks(GetParam(), [](const std::shared_ptr<Communicator> &comm) {
        const auto staging = vescomm::internal::StagingBuffer::create(comm);
        for_each_buffer(comm, {VESCOMM_PER_RANK, VESCOMM_PER_NODE}, [&](const auto &buffer) {
            const std::int64_t elements = buffer->layout().elements();
            for (const int root : {0, comm->ranks() / 2, comm->ranks() - 1}) {
                for (const auto &name : algorithms_for(Collective::broadcast, *buffer)) {
                    const auto request = Request::create(
                        staging, buffer,
                        {.collective = Collective::broadcast, .root = root, .algorithm = name});
                    for (int run = 0; run < 2; ++run) {
                        if (comm->rank() == root) {
                            buffer->memory().acquire("test");
                            for (std::int64_t i = 0; i < elements; ++i)
                                store(*buffer, i, value(root, i, run));
                        }
                        request->start();
                        request->wait();
                        for (std::int64_t i = 0; i < elements; ++i)
                            ASSERT_EQ(load(*buffer, i), value(root, i, run)) << name;
                    }
                }
            }
        });
    });
}

TEST_P(Conformance, BarrierReturnsAfterAllRanksHaveArrived) {
    std::atomic<int> arrived{0};
    const int ranks = GetParam().ranks();
    run_ranks(GetParam(), [&](const std::shared_ptr<Communicator> &comm) {
        for (int run = 1; run <= 200; ++run) {
            ++arrived;
            comm->barrier();
            ASSERT_GE(arrived, run * ranks);
        }
    });
}

TEST_P(Conformance, BuffersOnOneMemoryWorkAlternately) {
    run_ranks(GetParam(), [](const std::shared_ptr<Communicator> &comm) {
        const auto staging = vescomm::internal::StagingBuffer::create(comm);
        const auto memory = Memory::create(comm, 1 << 20, VESCOMM_HOST, VESCOMM_PER_NODE);
        std::vector<std::shared_ptr<Buffer>> buffers;
        std::vector<std::vector<float>> sources;
        std::vector<std::unique_ptr<Request>> requests;
        for (const Layout &layout : layouts(comm->ranks())) {
            if (layout.elements() * 4 > 1 << 20) continue;
            buffers.push_back(Buffer::create(comm, layout, {.memory = memory, .name = "slot"}));
            sources.emplace_back(layout.shard(comm->rank()).elements() + 1);
            requests.push_back(Request::create(
                staging, buffers.back(),
                {.collective = Collective::all_gather_v, .source = sources.back().data()}));
        }
        for (int run = 0; run < 20; ++run) {
            const std::size_t which = static_cast<std::size_t>(run) % buffers.size();
            const Layout &layout = buffers[which]->layout();
            const auto shard = layout.shard(comm->rank());
            for (auto i = shard.begin; i < shard.end; ++i)
                sources[which][i - shard.begin] = value(comm->rank(), i, run);
            requests[which]->start();
            requests[which]->wait();
            for (int owner = 0; owner < comm->ranks(); ++owner)
                for (auto i = layout.shard(owner).begin; i < layout.shard(owner).end; ++i)
                    ASSERT_EQ(load(*buffers[which], i), value(owner, i, run));
        }
    });
}

TEST_P(Conformance, RequestsOnDifferentBuffersOverlap) {
    run_ranks(GetParam(), [](const std::shared_ptr<Communicator> &comm) {
        const auto staging = vescomm::internal::StagingBuffer::create(comm);
        std::vector<std::shared_ptr<Buffer>> buffers;
        std::vector<std::unique_ptr<Request>> requests;
        for (const Layout &layout : layouts(comm->ranks())) {
            buffers.push_back(Buffer::create(comm, layout, {.name = "overlap"}));
            requests.push_back(
                Request::create(staging, buffers.back(), {.collective = Collective::all_reduce}));
        }
        for (int run = 0; run < runs; ++run) {
            for (std::size_t k = 0; k < buffers.size(); ++k) {
                for (std::int64_t i = 0; i < buffers[k]->layout().elements(); ++i)
                    store(*buffers[k], i, value(comm->rank(), i, run));
                requests[k]->start();
            }
            for (std::size_t k = buffers.size(); k-- > 0;) {
                requests[k]->wait();
                for (std::int64_t i = 0; i < buffers[k]->layout().elements(); ++i)
                    ASSERT_EQ(load(*buffers[k], i), sum_of(comm->ranks(), i, run));
            }
        }
    });
}

INSTANTIATE_TEST_SUITE_P(All, Conformance, testing::ValuesIn(testing_support::all_setups()),
                         [](const auto &info) { return testing_support::name_of(info.param); });

}  // namespace
}  // namespace vescomm::internal

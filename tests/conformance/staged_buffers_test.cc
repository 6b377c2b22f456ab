// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Collectives on buffers that pass through the staging buffer, by every algorithm for arrays. The
// buffer lies in memory of its own or in registered memory, and sources are private or registered,
// of the type of the buffer or of another one. Ranks start in turns, so that the last one to start
// may complete its part before the others read their peers' arrays.
#include <atomic>
#include <cstring>
#include <thread>

#include "comm/memory_pool.h"
#include "comm/request.h"
#include "execute/kernels.h"
#include "support/contributions.h"
#include "support/thread_ranks.h"

namespace vescomm::internal {
namespace {

using testing_support::Kind;
using testing_support::run_ranks;
using testing_support::TestSetup;

// Small whole numbers: sums are exact in bf16 too.
float value(int rank, std::int64_t element, int run) {
    return static_cast<float>((element * 7 + rank * 3 + run * 5) % 13 - 6);
}

void store(vescomm_type_t type, std::byte *at, float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    const auto half = static_cast<std::uint16_t>(bits >> 16);  // exact for the values used here
    if (type == VESCOMM_BF16) std::memcpy(at, &half, sizeof half);
    else std::memcpy(at, &x, sizeof x);
}

float load(vescomm_type_t type, const std::byte *at) {
    std::uint32_t bits = 0;
    std::uint16_t half = 0;
    if (type == VESCOMM_BF16) {
        std::memcpy(&half, at, sizeof half);
        bits = static_cast<std::uint32_t>(half) << 16;
    } else {
        std::memcpy(&bits, at, sizeof bits);
    }
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

constexpr vescomm_type_t types[] = {VESCOMM_F32, VESCOMM_BF16};

// Lets the ranks do something one after the other.
class Turns {
public:
    explicit Turns(int ranks) : ranks_(ranks) {}

    // Runs `body` when all ranks before this one, in a rotated order, have run theirs.
    void take(Communicator &comm, std::int64_t round, const std::function<void()> &body) {
        const std::int64_t place = (comm.rank() + round) % ranks_;
        await(comm, round * ranks_ + place);
        body();
        ++taken_;
        await(comm, (round + 1) * ranks_);
    }

private:
    void await(Communicator &comm, std::int64_t turn) const {
        while (taken_ < turn) {
            comm.failure().check();
            std::this_thread::yield();
        }
    }

    const int ranks_;
    std::atomic<std::int64_t> taken_{0};
};

// A shard of each rank, from one cache line to several chunks.
std::vector<Layout> layouts(int ranks) {
    std::vector<Layout> layouts;
    for (const std::int64_t count : {4, 700, 4'000, 70'000}) {
        std::vector<std::int64_t> counts;
        for (int rank = 0; rank < ranks; ++rank) counts.push_back(rank == 1 ? count / 2 : count);
        layouts.push_back(Layout::from_counts(counts));
    }
    return layouts;
}

struct Ranks {
    std::shared_ptr<Communicator> comm;
    std::shared_ptr<StagingBuffer> staging;
    Turns &turns;
    std::int64_t round = 0;

    int rank() const { return comm->rank(); }
    int ranks() const { return comm->ranks(); }
    float sum_of(std::int64_t element, int run) const {
        float sum = 0;
        for (int k = 0; k < ranks(); ++k) sum += value(k, element, run);
        return sum;
    }

    // The algorithms for arrays.
    std::vector<std::string> algorithms_for(Collective collective, const Buffer &buffer) const {
        BufferProblem problem;
        problem.collective = collective;
        problem.nodes = comm->nodes();
        problem.cuts.assign(buffer.layout().cuts().begin(), buffer.layout().cuts().end());
        ArrayProblem staged(problem);
        staging->give_space(staged, buffer.type());
        std::vector<std::string> names;
        for (const AlgorithmEntry &entry : algorithms())
            if (entry.collective == collective && entry.solves(staged))
                names.emplace_back(entry.name);
        return names;
    }

    // Runs `request` several times between `fill` and `expect`, starting with another rank each
    // time.
    void run(Request &request, const std::function<void(int run)> &fill,
             const std::function<void(int run)> &expect) {
        for (int run = 0; run < 3; ++run) {
            fill(run);
            comm->barrier();
            turns.take(*comm, round++, [&] { request.start(); });
            request.wait();
            expect(run);
            comm->barrier();
        }
    }

    void for_each_buffer(
        const std::function<void(const std::shared_ptr<Buffer> &, const std::string &)> &body) {
        for (const Layout &layout : layouts(ranks()))
            for (const vescomm_type_t type : types)
                for (const bool registered : {false, true}) {
                    const std::uint64_t bytes =
                        static_cast<std::uint64_t>(layout.elements()) * size_of(type);
                    const auto memory = Memory::create(comm, bytes, VESCOMM_HOST, VESCOMM_PER_RANK,
                                                       {.aliases = registered});
                    body(Buffer::create(comm, layout,
                                        {.type = type, .memory = memory, .name = "staged"}),
                         name_of_type(type) + " in " + (registered ? "registered" : "own") +
                             " memory");
                }
    }
};

class StagedBuffers : public testing::TestWithParam<TestSetup> {
protected:
    static void run_each(const std::function<void(Ranks &)> &body) {
        Turns turns(GetParam().ranks());
        run_ranks(GetParam(), [&](const std::shared_ptr<Communicator> &comm) {
            Ranks ranks{comm, StagingBuffer::create(comm), turns};
            body(ranks);
        });
    }
};

TEST_P(StagedBuffers, ReductionsGiveTheSums) {
    run_each([](Ranks &self) {
        self.for_each_buffer([&](const std::shared_ptr<Buffer> &buffer, const std::string &what) {
            const vescomm_type_t type = buffer->type();
            const auto shard = buffer->layout().shard(self.rank());
            for (const Collective collective :
                 {Collective::all_reduce, Collective::reduce_scatter_v, Collective::reduce}) {
                std::int64_t begin = 0, end = buffer->layout().elements();
                if (collective == Collective::reduce_scatter_v)
                    begin = shard.begin, end = shard.end;
                if (collective == Collective::reduce && self.rank() != 0) end = 0;
                for (const auto &name : self.algorithms_for(collective, *buffer)) {
                    const auto request = Request::create(
                        self.staging, buffer, {.collective = collective, .algorithm = name});
                    self.run(
                        *request,
                        [&](int run) {
                            for (std::int64_t i = 0; i < buffer->layout().elements(); ++i)
                                store(type, buffer->at(i), value(self.rank(), i, run));
                        },
                        [&](int run) {
                            for (std::int64_t i = begin; i < end; ++i)
                                ASSERT_EQ(load(type, buffer->at(i)), self.sum_of(i, run))
                                    << name_of(collective) << " " << name << " of " << what
                                    << ", element " << i;
                        });
                }
            }
        });
    });
}

TEST_P(StagedBuffers, ReduceScatterVConvertsToAnOutput) {
    run_each([](Ranks &self) {
        self.for_each_buffer([&](const std::shared_ptr<Buffer> &buffer, const std::string &what) {
            const auto shard = buffer->layout().shard(self.rank());
            const auto output = static_cast<std::byte *>(self.comm->pool().memory->allocate(
                static_cast<std::uint64_t>(shard.elements()) * sizeof(float) + 1));
            for (const auto &name : self.algorithms_for(Collective::reduce_scatter_v, *buffer)) {
                const auto request = Request::create(self.staging, buffer,
                                                     {.collective = Collective::reduce_scatter_v,
                                                      .type = VESCOMM_F32,
                                                      .output = output,
                                                      .algorithm = name});
                self.run(
                    *request,
                    [&](int run) {
                        for (std::int64_t i = 0; i < buffer->layout().elements(); ++i)
                            store(buffer->type(), buffer->at(i), value(self.rank(), i, run));
                    },
                    [&](int run) {
                        for (auto i = shard.begin; i < shard.end; ++i)
                            ASSERT_EQ(load(VESCOMM_F32, output + (i - shard.begin) * 4),
                                      self.sum_of(i, run))
                                << name << " of " << what << ", element " << i;
                    });
            }
            self.comm->pool().memory->free(output);
        });
    });
}

// Some ranks have a source, of this type or that, in private or registered memory; others are in
// place.
TEST_P(StagedBuffers, AllGatherVConvertsFromAnySource) {
    run_each([](Ranks &self) {
        self.for_each_buffer([&](const std::shared_ptr<Buffer> &buffer, const std::string &what) {
            const Layout &layout = buffer->layout();
            const auto shard = layout.shard(self.rank());
            const auto bytes = static_cast<std::uint64_t>(shard.elements()) * sizeof(float) + 1;
            std::vector<std::byte> own(bytes);
            const auto registered =
                static_cast<std::byte *>(self.comm->pool().memory->allocate(bytes));
            for (const auto &name : self.algorithms_for(Collective::all_gather_v, *buffer))
                for (const vescomm_type_t type : types)
                    for (const int kind : {0, 1, 2, 3}) {
                        // 0: private everywhere, 1: registered everywhere, 2: in turns, 3: one in
                        // place.
                        std::byte *source = kind == 0 || (kind == 2 && self.rank() % 2 == 0)
                                                ? own.data()
                                            : kind == 3 && self.rank() == 0 ? nullptr
                                                                            : registered;
                        const auto request =
                            Request::create(self.staging, buffer,
                                            {.collective = Collective::all_gather_v,
                                             .type = type,
                                             .source = source,
                                             .algorithm = name});
                        const vescomm_type_t its = source == nullptr ? buffer->type() : type;
                        std::byte *data = source == nullptr ? buffer->at(shard.begin) : source;
                        self.run(
                            *request,
                            [&](int run) {
                                for (auto i = shard.begin; i < shard.end; ++i)
                                    store(its,
                                          data + static_cast<std::size_t>(i - shard.begin) *
                                                     size_of(its),
                                          value(self.rank(), i, run));
                            },
                            [&](int run) {
                                for (int owner = 0; owner < self.ranks(); ++owner)
                                    for (auto i = layout.shard(owner).begin;
                                         i < layout.shard(owner).end; ++i)
                                        ASSERT_EQ(load(buffer->type(), buffer->at(i)),
                                                  value(owner, i, run))
                                            << name << " from " << name_of_type(type) << ", kind "
                                            << kind << ", to " << what << ", element " << i;
                            });
                    }
            self.comm->pool().memory->free(registered);
        });
    });
}

TEST_P(StagedBuffers, BroadcastCopiesFromAnyRoot) {
    run_each([](Ranks &self) {
        self.for_each_buffer([&](const std::shared_ptr<Buffer> &buffer, const std::string &what) {
            for (int root = 0; root < self.ranks(); ++root)
                for (const auto &name : self.algorithms_for(Collective::broadcast, *buffer)) {
                    const auto request = Request::create(
                        self.staging, buffer,
                        {.collective = Collective::broadcast, .root = root, .algorithm = name});
                    const std::int64_t elements = buffer->layout().elements();
                    self.run(
                        *request,
                        [&](int run) {
                            for (std::int64_t i = 0; i < elements && self.rank() == root; ++i)
                                store(buffer->type(), buffer->at(i), value(root, i, run));
                        },
                        [&](int run) {
                            for (std::int64_t i = 0; i < elements; ++i)
                                ASSERT_EQ(load(buffer->type(), buffer->at(i)), value(root, i, run))
                                    << name << " of " << what << ", element " << i;
                        });
                }
        });
    });
}

INSTANTIATE_TEST_SUITE_P(All, StagedBuffers,
                         testing::Values(TestSetup{Kind::node, {0, 0}},
                                         TestSetup{Kind::node, {0, 0, 0}},
                                         TestSetup{Kind::loopback, {0, 0}},
                                         TestSetup{Kind::loopback, {0, 0, 0, 0, 0}}),
                         [](const auto &info) { return testing_support::name_of(info.param); });

}  // namespace
}  // namespace vescomm::internal

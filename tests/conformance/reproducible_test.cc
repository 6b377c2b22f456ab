// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// On a reproducible communicator every algorithm gives the same bits on any nodes, over any
// transport: those of one loop over the ranks. Contributions are random, so another order shows.
#include <algorithm>
#include <random>

#include "base/types.h"
#include "execute/kernels.h"
#include "support/array_ranks.h"

namespace vescomm {
namespace {

using testing_support::check;
using testing_support::run_array_ranks;

using Bytes = std::vector<std::byte>;

Bytes contribution(vescomm_type_t type, std::size_t count, int rank) {
    std::mt19937 random(static_cast<unsigned>(100 * type + rank));
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float &value : values) value = normal(random);
    Bytes bytes(count * size_of(type));
    kernels().convert(bytes.data(), type, values.data(), VESCOMM_F32, count);
    return bytes;
}

// What everyone has, and what it is together.
struct Contributions {
    std::vector<Bytes> all;
    Bytes average;

    Contributions(vescomm_type_t type, std::size_t count, int ranks)
        : average(count * size_of(type)) {
        std::vector<const void *> pointers;
        for (int rank = 0; rank < ranks; ++rank) all.push_back(contribution(type, count, rank));
        for (const Bytes &bytes : all) pointers.push_back(bytes.data());
        kernels().reduce({.op = VESCOMM_AVERAGE, .divisor = ranks}, pointers, type, {},
                         average.data(), type, count);
    }
};

void expect_same(const void *is, const Bytes &must_be, std::size_t begin, std::size_t bytes,
                 const std::string &what) {
    const auto *at = static_cast<const std::byte *>(is);
    if (!std::equal(at, at + bytes, must_be.begin() + static_cast<std::ptrdiff_t>(begin)))
        throw std::runtime_error(what + " has other bits");
}

// Every algorithm that keeps the order, and the one that is chosen.
std::vector<const char *> algorithms_for(vescomm_comm_t *comm, Collective collective,
                                         vescomm_type_t type,
                                         const std::vector<std::int64_t> &cuts) {
    Problem problem;
    problem.collective = collective;
    problem.nodes = comm->value->nodes();
    problem.in_order = true;
    problem.arrays = true;
    problem.cuts = cuts;
    comm->calls->stage()->give_room(problem, type);
    std::vector<const char *> names{nullptr};
    for (const AlgorithmEntry &entry : algorithms())
        if (entry.collective == collective && entry.solves(problem))
            names.push_back(entry.name.data());
    return names;
}

// Ragged: the last rank has what is left.
std::vector<std::int64_t> ragged_counts(std::size_t count, int ranks) {
    std::vector<std::int64_t> counts;
    auto left = static_cast<std::int64_t>(count);
    for (int rank = 0; rank < ranks; ++rank) {
        counts.push_back(rank + 1 == ranks ? left : left / 3);
        left -= counts.back();
    }
    return counts;
}

std::vector<std::int64_t> cuts_of(const std::vector<std::int64_t> &counts) {
    std::vector<std::int64_t> cuts{0};
    for (const std::int64_t count : counts) cuts.push_back(cuts.back() + count);
    return cuts;
}

class Reproducible : public testing::TestWithParam<testing_support::Stage> {
protected:
    // For little, for what fits the stage, and for what passes through it in many rounds.
    static void for_each_problem(
        const std::function<void(vescomm_comm_t *, vescomm_type_t, std::size_t,
                                 const Contributions &)> &body) {
        testing_support::Stage stage = GetParam();
        stage.config.reproducible = "yes";
        run_array_ranks(stage, [&](vescomm_comm_t *comm) {
            for (const vescomm_type_t type : {VESCOMM_F32, VESCOMM_F16, VESCOMM_BF16})
                for (const std::size_t count : {5, 3'001, 300'007})
                    body(comm, type, count, Contributions(type, count, comm->value->ranks()));
        });
    }
};

TEST_P(Reproducible, ArraysHaveTheBitsOfOneLoopWhateverTheAlgorithm) {
    for_each_problem([](vescomm_comm_t *comm, vescomm_type_t type, std::size_t count,
                        const Contributions &contributions) {
        const int rank = comm->value->rank(), ranks = comm->value->ranks();
        const std::size_t size = size_of(type);
        const Bytes &mine = contributions.all[static_cast<std::size_t>(rank)];
        auto options = vescomm_call_options();

        std::vector<std::int64_t> even;
        cut_evenly(static_cast<std::int64_t>(count), ranks, even);
        for (const char *name : algorithms_for(comm, Collective::all_reduce, type, even)) {
            options.algorithm = name;
            Bytes result(count * size);
            check(vescomm_all_reduce(comm, mine.data(), result.data(),
                                     static_cast<std::int64_t>(count), type, VESCOMM_AVERAGE,
                                     &options, nullptr));
            expect_same(result.data(), contributions.average, 0, result.size(), "all_reduce");
        }
        const int root = ranks / 2;
        for (const char *name : algorithms_for(comm, Collective::reduce, type, even)) {
            options.algorithm = name;
            Bytes result(rank == root ? count * size : 0);
            check(vescomm_reduce(comm, mine.data(), result.data(), static_cast<std::int64_t>(count),
                                 type, VESCOMM_AVERAGE, root, &options, nullptr));
            expect_same(result.data(), contributions.average, 0, result.size(), "reduce");
        }
        const auto counts = ragged_counts(count, ranks);
        const auto cuts = cuts_of(counts);
        for (const char *name : algorithms_for(comm, Collective::reduce_scatter_v, type, cuts)) {
            options.algorithm = name;
            const auto k = static_cast<std::size_t>(rank);
            Bytes result(static_cast<std::size_t>(counts[k]) * size);
            check(vescomm_reduce_scatter_v(comm, mine.data(), result.data(), counts.data(), type,
                                           VESCOMM_AVERAGE, &options, nullptr));
            expect_same(result.data(), contributions.average,
                        static_cast<std::size_t>(cuts[k]) * size, result.size(),
                        "reduce_scatter_v");
        }
    });
}

TEST_P(Reproducible, BuffersHaveThemToo) {
    for_each_problem([](vescomm_comm_t *comm, vescomm_type_t type, std::size_t count,
                        const Contributions &contributions) {
        const int rank = comm->value->rank();
        const std::size_t size = size_of(type);
        const auto counts = ragged_counts(count, comm->value->ranks());
        const vescomm_layout layout{Layout::from_counts(counts)};
        auto options = vescomm_buffer_options();
        options.type = type;
        vescomm_buffer_t *buffer = nullptr;
        check(vescomm_buffer_create(comm, &layout, &options, &buffer));
        vescomm_view_t whole = {}, shard = {};
        check(vescomm_buffer_data(buffer, &whole));
        check(vescomm_buffer_shard(buffer, &shard));
        auto how = vescomm_request_options();
        how.op = VESCOMM_AVERAGE;
        for (const auto create :
             {vescomm_all_reduce_create, vescomm_reduce_scatter_v_create, vescomm_reduce_create}) {
            vescomm_request_t *request = nullptr;
            check(create(comm, buffer, &how, &request));
            std::ranges::copy(contributions.all[static_cast<std::size_t>(rank)],
                              static_cast<std::byte *>(whole.data));
            check(vescomm_request_start(request, nullptr));
            check(vescomm_request_wait(request));
            if (create == vescomm_reduce_scatter_v_create)
                expect_same(
                    shard.data, contributions.average,
                    static_cast<std::size_t>(cuts_of(counts)[static_cast<std::size_t>(rank)]) *
                        size,
                    static_cast<std::size_t>(shard.elements) * size, "reduce_scatter_v");
            else if (create == vescomm_all_reduce_create || rank == 0)
                expect_same(whole.data, contributions.average, 0, count * size, "all of it");
            check(vescomm_request_free(request));
        }
        check(vescomm_buffer_free(buffer));
    });
}

INSTANTIATE_TEST_SUITE_P(All, Reproducible, testing::ValuesIn(testing_support::all_stages()),
                         [](const auto &info) { return testing_support::name_of(info.param); });

}  // namespace
}  // namespace vescomm

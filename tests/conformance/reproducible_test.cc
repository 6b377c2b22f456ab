// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// On a reproducible communicator, every algorithm gives the bits of a sequential loop over the
// ranks, for any placement on nodes and any transport. Contributions are random, so a different
// order of summation changes the bits.
#include <algorithm>
#include <random>
#include <stdexcept>

#include "base/types.h"
#include "execute/kernels.h"
#include "support/array_ranks.h"

namespace vescomm::internal {
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

// The contributions of all ranks, and their reduction.
struct Contributions {
    vescomm_type_t type;
    vescomm_op_t op;
    std::size_t count;
    double factor;  // 0 if the op takes none
    std::vector<Bytes> all;
    Bytes reduced;

    Contributions(vescomm_type_t its_type, vescomm_op_t its_op, std::size_t elements, int ranks)
        : type(its_type),
          op(its_op),
          count(elements),
          factor(op == VESCOMM_PREMULTIPLIED_SUM ? 0.3 : 0),
          reduced(count * size_of(type)) {
        std::vector<const void *> pointers;
        for (int rank = 0; rank < ranks; ++rank) all.push_back(contribution(type, count, rank));
        for (const Bytes &bytes : all) pointers.push_back(bytes.data());
        const std::vector<double> factors(pointers.size(), factor);
        kernels().reduce({.op = op,
                          .divisor = op == VESCOMM_AVERAGE ? ranks : 1,
                          .factors = factor == 0 ? nullptr : factors.data()},
                         pointers, type, {}, reduced.data(), type, count);
    }

    vescomm_call_options_t call_options() const {
        auto options = vescomm_call_options_init();
        options.factor = factor;
        return options;
    }
};

void expect_same(const void *is, const Bytes &must_be, std::size_t begin, std::size_t bytes,
                 const std::string &what) {
    const auto *at = static_cast<const std::byte *>(is);
    if (!std::equal(at, at + bytes, must_be.begin() + static_cast<std::ptrdiff_t>(begin)))
        throw std::runtime_error(what + " has other bits");
}

// nullptr for the chosen algorithm, and every algorithm that sums in the order of ranks.
std::vector<const char *> algorithms_for(vescomm_comm_t *comm, Collective collective,
                                         vescomm_type_t type,
                                         const std::vector<std::int64_t> &cuts) {
    ArrayProblem problem;
    problem.collective = collective;
    problem.nodes = comm->value->nodes();
    problem.in_order = true;
    problem.cuts = cuts;
    comm->calls->staging()->give_space(problem, type);
    std::vector<const char *> names{nullptr};
    for (const AlgorithmEntry &entry : algorithms())
        if (entry.collective == collective && entry.solves(problem))
            names.push_back(entry.name.data());
    return names;
}

// Ragged counts: the last rank has the remainder.
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

class Reproducible : public testing::TestWithParam<testing_support::TestSetup> {
protected:
    // Sizes: small, fitting into the staging buffer, and passing through it in many chunks.
    static void for_each_problem(
        const std::function<void(vescomm_comm_t *, const Contributions &)> &body) {
        testing_support::TestSetup setup = GetParam();
        setup.config.reproducible = "yes";
        run_array_ranks(setup, [&](vescomm_comm_t *comm) {
            const std::pair<vescomm_type_t, vescomm_op_t> ways[] = {
                {VESCOMM_F32, VESCOMM_AVERAGE},
                {VESCOMM_F32, VESCOMM_PREMULTIPLIED_SUM},
                {VESCOMM_F16, VESCOMM_AVERAGE},
                {VESCOMM_BF16, VESCOMM_PREMULTIPLIED_SUM}};
            for (const auto &[type, op] : ways)
                for (const std::size_t count : {5, 3'001, 300'007})
                    body(comm, Contributions(type, op, count, comm->value->ranks()));
        });
    }
};

TEST_P(Reproducible, EveryArrayAlgorithmMatchesASequentialLoop) {
    for_each_problem([](vescomm_comm_t *comm, const Contributions &contributions) {
        const int rank = comm->value->rank(), ranks = comm->value->ranks();
        const auto type = contributions.type;
        const auto op = contributions.op;
        const std::size_t size = size_of(type), count = contributions.count;
        const Bytes &mine = contributions.all[static_cast<std::size_t>(rank)];
        auto options = contributions.call_options();

        std::vector<std::int64_t> even;
        cut_evenly(static_cast<std::int64_t>(count), ranks, even);
        for (const char *name : algorithms_for(comm, Collective::all_reduce, type, even)) {
            options.algorithm = name;
            Bytes result(count * size);
            check(vescomm_all_reduce(comm, mine.data(), result.data(),
                                     static_cast<std::int64_t>(count), type, op, &options, nullptr,
                                     nullptr));
            expect_same(result.data(), contributions.reduced, 0, result.size(), "all_reduce");
        }
        const int root = ranks / 2;
        for (const char *name : algorithms_for(comm, Collective::reduce, type, even)) {
            options.algorithm = name;
            Bytes result(rank == root ? count * size : 0);
            check(vescomm_reduce(comm, mine.data(), result.data(), static_cast<std::int64_t>(count),
                                 type, op, root, &options, nullptr, nullptr));
            expect_same(result.data(), contributions.reduced, 0, result.size(), "reduce");
        }
        const auto counts = ragged_counts(count, ranks);
        const auto cuts = cuts_of(counts);
        for (const char *name : algorithms_for(comm, Collective::reduce_scatter_v, type, cuts)) {
            options.algorithm = name;
            const auto k = static_cast<std::size_t>(rank);
            Bytes result(static_cast<std::size_t>(counts[k]) * size);
            check(vescomm_reduce_scatter_v(comm, mine.data(), result.data(), counts.data(), type,
                                           op, &options, nullptr, nullptr));
            expect_same(result.data(), contributions.reduced,
                        static_cast<std::size_t>(cuts[k]) * size, result.size(),
                        "reduce_scatter_v");
        }
    });
}

// The calls of a group form one operation, with other offsets of the elements but the same bits.
TEST_P(Reproducible, GroupsMatchASequentialLoop) {
    for_each_problem([](vescomm_comm_t *comm, const Contributions &contributions) {
        const int ranks = comm->value->ranks();
        const auto rank = static_cast<std::size_t>(comm->value->rank());
        const std::size_t size = size_of(contributions.type), count = contributions.count;
        const Bytes &mine = contributions.all[rank];
        auto options = contributions.call_options();
        std::vector<std::int64_t> even;
        cut_evenly(static_cast<std::int64_t>(count), ranks, even);
        for (const char *name :
             algorithms_for(comm, Collective::all_reduce, contributions.type, even)) {
            options.algorithm = name;
            Bytes sums(count * size);
            check(vescomm_group_begin(comm));
            for (const auto &[begin, end] :
                 {std::pair{count / 5, count}, {std::size_t{0}, count / 5}})
                check(vescomm_all_reduce(comm, &mine[begin * size], &sums[begin * size],
                                         static_cast<std::int64_t>(end - begin), contributions.type,
                                         contributions.op, &options, nullptr, nullptr));
            check(vescomm_group_end(comm, nullptr));
            expect_same(sums.data(), contributions.reduced, 0, sums.size(), "all_reduce");
        }
        options.algorithm = nullptr;
        const auto counts = ragged_counts(count, ranks);
        const std::size_t begin = static_cast<std::size_t>(cuts_of(counts)[rank]) * size;
        std::vector<Bytes> shards(2, Bytes(static_cast<std::size_t>(counts[rank]) * size));
        check(vescomm_group_begin(comm));
        for (Bytes &shard : shards)
            check(vescomm_reduce_scatter_v(comm, mine.data(), shard.data(), counts.data(),
                                           contributions.type, contributions.op, &options, nullptr,
                                           nullptr));
        check(vescomm_group_end(comm, nullptr));
        for (const Bytes &shard : shards)
            expect_same(shard.data(), contributions.reduced, begin, shard.size(),
                        "reduce_scatter_v");
    });
}

TEST_P(Reproducible, BuffersMatchASequentialLoop) {
    for_each_problem([](vescomm_comm_t *comm, const Contributions &contributions) {
        const int rank = comm->value->rank();
        const std::size_t size = size_of(contributions.type), count = contributions.count;
        const auto counts = ragged_counts(count, comm->value->ranks());
        const vescomm_layout layout{Layout::from_counts(counts)};
        auto options = vescomm_buffer_options_init();
        options.type = contributions.type;
        vescomm_buffer_t *buffer = nullptr;
        check(vescomm_buffer_create(comm, &layout, &options, &buffer));
        vescomm_view_t whole = {}, shard = {};
        check(vescomm_buffer_get_data(buffer, &whole));
        check(vescomm_buffer_get_shard(buffer, &shard));
        auto how = vescomm_request_options_init();
        how.op = contributions.op;
        how.factor = contributions.factor;
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
                    shard.data, contributions.reduced,
                    static_cast<std::size_t>(cuts_of(counts)[static_cast<std::size_t>(rank)]) *
                        size,
                    static_cast<std::size_t>(shard.elements) * size, "reduce_scatter_v");
            else if (create == vescomm_all_reduce_create || rank == 0)
                expect_same(whole.data, contributions.reduced, 0, count * size, "all of it");
            check(vescomm_request_free(request));
        }
        check(vescomm_buffer_free(buffer));
    });
}

INSTANTIATE_TEST_SUITE_P(All, Reproducible, testing::ValuesIn(testing_support::all_setups()),
                         [](const auto &info) { return testing_support::name_of(info.param); });

}  // namespace
}  // namespace vescomm::internal

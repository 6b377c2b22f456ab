// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Collectives on arrays over every transport. Makes random sequences of calls through the C API,
// several in progress at once, alone and in groups, in place and out of place, and compares the
// results with expected values. All ranks draw the same random numbers, so all make the same calls.
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>
#include <stdexcept>

#include "base/thread_sanitizer.h"
#include "base/types.h"
#include "support/array_ranks.h"
#include "support/contributions.h"
#include "support/registered_vector.h"

namespace vescomm::internal {
namespace {

using testing_support::check;
using testing_support::Kind;
using testing_support::run_array_ranks;

template <typename T>
constexpr vescomm_type_t type_of() {
    if constexpr (std::is_same_v<T, float>) return VESCOMM_F32;
    if constexpr (std::is_same_v<T, double>) return VESCOMM_F64;
    if constexpr (std::is_same_v<T, std::uint8_t>) return VESCOMM_U8;
    if constexpr (std::is_same_v<T, std::int32_t>) return VESCOMM_I32;
    return VESCOMM_I64;
}

// One call on one rank, with its arrays and their expected contents.
class Case {
public:
    virtual ~Case() = default;
    // Forces a random one of the suitable algorithms.
    virtual void force(vescomm_comm_t *comm) = 0;
    // Starts the call, or adds it to the open group.
    virtual void call(vescomm_comm_t *comm, vescomm_request_t **request) = 0;
    virtual void fill(int run) = 0;
    virtual void verify(int run) const = 0;
};

using Random = std::mt19937;

std::int64_t random_count(Random &random) {
    switch (random() % 8) {
        case 0:
            return 0;
        case 1:
        case 2:
        case 3:
            return static_cast<std::int64_t>(random() % 20);
        case 4:
        case 5:
        case 6:
            return static_cast<std::int64_t>(random() % 3'000);
        default:
            return static_cast<std::int64_t>(random() % 150'000);
    }
}

template <typename T>
class TypedCase : public Case {
    using Array = testing_support::RegisteredVector<T>;

public:
    TypedCase(Collective collective, vescomm_comm_t *comm, int number, Random &random)
        : collective_(collective),
          rank_(comm->value->rank()),
          ranks_(comm->value->ranks()),
          number_(number) {
        const int rank = rank_, ranks = ranks_;
        root_ = static_cast<int>(random() % static_cast<unsigned>(ranks));
        // AllTypesAndOperatorsAreCorrect tests the other operators.
        static constexpr vescomm_op_t ops[] = {VESCOMM_SUM, VESCOMM_PROD, VESCOMM_MIN, VESCOMM_MAX};
        op_ = ops[random() % std::size(ops)];
        in_place_ = random() % 2 == 0;
        gaps_ = random() % 2 == 0;
        for (int k = 0; k < ranks; ++k) counts_.push_back(random_count(random));
        for (int k = 0; k < ranks * ranks; ++k) matrix_.push_back(random_count(random) % 2'000);
        if (random() % 3 == 0) {
            // Some ranks make the calls with one count.
            gaps_ = false;
            std::ranges::fill(counts_, counts_[0]);
            std::ranges::fill(matrix_, matrix_[0]);
            one_count_ = (random() + static_cast<unsigned>(rank)) % 2 == 0;
        }
        std::int64_t next = 0;
        for (const std::int64_t count : counts_) {
            next += gaps_ ? 3 : 0;
            offsets_.push_back(next);
            next += count;
        }
        end_ = next;
        drawn_ = random();
        // All ranks, some of them, or none have registered arrays.
        const auto registered = [&](std::size_t which) {
            const std::size_t all = drawn_ / 64 % 4;
            return all == 0 || (all == 1 &&
                                (drawn_ / 256 + which + static_cast<std::size_t>(rank)) % 2 == 0)
                       ? comm
                       : nullptr;
        };
        source_ = Array(testing_support::PoolAllocator<T>(registered(0)));
        output_ = Array(testing_support::PoolAllocator<T>(registered(1)));
    }

    void force(vescomm_comm_t *comm) override {
        ArrayProblem problem;
        problem.collective = collective_;
        problem.nodes = comm->value->nodes();
        problem.root = root_;
        problem.in_order = comm->value->reproducible();
        comm->calls->staging()->give_space(problem, type_of<T>());
        const bool by_rank = collective_ != Collective::all_reduce &&
                             collective_ != Collective::reduce &&
                             collective_ != Collective::broadcast;
        problem.cuts = {0};
        for (int k = 0; k < ranks_; ++k)
            problem.cuts.push_back(by_rank ? begin(k + 1) : counts_[0] * (k + 1) / ranks_);
        std::vector<const char *> names;
        for (const AlgorithmEntry &entry : algorithms())
            if (entry.collective == collective_ && entry.solves(problem))
                names.push_back(entry.name.data());
        options_.algorithm = names.at(drawn_ % names.size());
    }

    void fill(int run) override {
        source_.clear();
        output_.assign(output_elements(), T(77));
        switch (collective_) {
            case Collective::all_gather_v:
            case Collective::gather_v:
                append(source_, rank_, 0, counts_[rank_], run);
                break;
            case Collective::reduce_scatter_v:
                append(source_, rank_, 0, total(), run);
                break;
            case Collective::scatter_v:
                if (rank_ != root_) break;
                source_.assign(end_, T(77));
                for (int k = 0; k < ranks_; ++k)
                    for (std::int64_t i = 0; i < counts_[k]; ++i)
                        source_[offsets_[k] + i] = value(root_, 100 * k + i, run);
                break;
            case Collective::all_to_all_v:
                for (int to = 0; to < ranks_; ++to)
                    append(source_, rank_, 100 * to, sent(rank_, to), run);
                break;
            case Collective::broadcast:
                if (rank_ == root_) append(source_, root_, 0, counts_[0], run);
                break;
            default:
                append(source_, rank_, 0, counts_[0], run);
        }
        if (!in_place_) return;  // in place, the output also holds the source
        if (collective_ == Collective::all_gather_v)
            std::copy(source_.begin(), source_.end(), output_.begin() + offsets_[rank_]);
        if (collective_ == Collective::all_reduce || collective_ == Collective::reduce)
            if (!output_.empty()) output_ = source_;
    }

    void call(vescomm_comm_t *comm, vescomm_request_t **request) override {
        constexpr vescomm_type_t type = type_of<T>();
        const std::int64_t *offsets = gaps_ ? offsets_.data() : nullptr;
        const T *source = source_.data();
        T *output = output_.data();
        switch (collective_) {
            case Collective::all_gather_v:
                if (in_place_) source = output + offsets_[rank_];
                if (one_count_)
                    return check(vescomm_all_gather(comm, source, output, counts_[0], type,
                                                    &options_, nullptr, request));
                return check(vescomm_all_gather_v(comm, source, output, counts_.data(), offsets,
                                                  type, &options_, nullptr, request));
            case Collective::reduce_scatter_v:
                // In place the result lies in the source.
                if (in_place_) output = source_.data() + begin(rank_);
                if (one_count_)
                    return check(vescomm_reduce_scatter(comm, source, output, counts_[0], type, op_,
                                                        &options_, nullptr, request));
                return check(vescomm_reduce_scatter_v(comm, source, output, counts_.data(), type,
                                                      op_, &options_, nullptr, request));
            case Collective::all_reduce:
                if (in_place_) source = output;
                return check(vescomm_all_reduce(comm, source, output, counts_[0], type, op_,
                                                &options_, nullptr, request));
            case Collective::reduce:
                if (in_place_ && rank_ == root_) source = output;
                return check(vescomm_reduce(comm, source, output, counts_[0], type, op_, root_,
                                            &options_, nullptr, request));
            case Collective::broadcast:
                return check(vescomm_broadcast(comm, rank_ == root_ ? source_.data() : output,
                                               counts_[0], type, root_, &options_, nullptr,
                                               request));
            case Collective::gather_v:
                return check(vescomm_gather_v(comm, source, output, counts_.data(), offsets, type,
                                              root_, &options_, nullptr, request));
            case Collective::scatter_v:
                return check(vescomm_scatter_v(comm, source, output, counts_.data(),
                                               offsets_.data(), type, root_, &options_, nullptr,
                                               request));
            default: {
                if (one_count_)
                    return check(vescomm_all_to_all(comm, source, output, matrix_[0], type,
                                                    &options_, nullptr, request));
                sends_.clear();
                receives_.clear();
                for (int k = 0; k < ranks_; ++k) {
                    sends_.push_back(sent(rank_, k));
                    receives_.push_back(sent(k, rank_));
                }
                return check(vescomm_all_to_all_v(comm, source, sends_.data(), nullptr, output,
                                                  receives_.data(), nullptr, type, &options_,
                                                  nullptr, request));
            }
        }
    }

    void verify(int run) const override {
        switch (collective_) {
            case Collective::all_gather_v:
            case Collective::gather_v:
                if (collective_ == Collective::gather_v && rank_ != root_) return;
                for (int k = 0; k < ranks_; ++k)
                    for (std::int64_t i = 0; i < counts_[k]; ++i)
                        expect(output_[offsets_[k] + i], value(k, i, run), i);
                if (gaps_) expect(output_[offsets_[0] - 1], T(77), -1);
                return;
            case Collective::reduce_scatter_v: {
                const T *result = in_place_ ? source_.data() + begin(rank_) : output_.data();
                for (std::int64_t i = 0; i < counts_[rank_]; ++i)
                    expect(result[i], combined(begin(rank_) + i, run), i);
                return;
            }
            case Collective::all_reduce:
            case Collective::reduce:
                if (collective_ == Collective::reduce && rank_ != root_) return;
                for (std::int64_t i = 0; i < counts_[0]; ++i)
                    expect(output_[i], combined(i, run), i);
                return;
            case Collective::broadcast:
                for (std::int64_t i = 0; i < counts_[0]; ++i)
                    expect(rank_ == root_ ? source_[i] : output_[i], value(root_, i, run), i);
                return;
            case Collective::scatter_v:
                for (std::int64_t i = 0; i < counts_[rank_]; ++i)
                    expect(output_[i], value(root_, 100 * rank_ + i, run), i);
                return;
            default: {
                std::size_t at = 0;
                for (int from = 0; from < ranks_; ++from)
                    for (std::int64_t i = 0; i < sent(from, rank_); ++i)
                        expect(output_[at++], value(from, 100 * rank_ + i, run), i);
            }
        }
    }

private:
    // Small values: sums and products over all ranks are exact in every type.
    T value(int rank, std::int64_t i, int run) const {
        return static_cast<T>((i * 7 + rank * 3 + number_ * 5 + run) % 3 + 1);
    }
    T combined(std::int64_t i, int run) const {
        T sum = value(0, i, run);
        for (int k = 1; k < ranks_; ++k) {
            const T next = value(k, i, run);
            switch (op_) {
                case VESCOMM_SUM:
                    sum = static_cast<T>(sum + next);
                    break;
                case VESCOMM_PROD:
                    sum = static_cast<T>(sum * next);
                    break;
                case VESCOMM_MIN:
                    sum = std::min(sum, next);
                    break;
                default:
                    sum = std::max(sum, next);
            }
        }
        return sum;
    }
    void append(Array &array, int rank, std::int64_t first, std::int64_t count, int run) const {
        array.reserve(array.size() + static_cast<std::size_t>(count));
        for (std::int64_t i = 0; i < count; ++i) array.push_back(value(rank, first + i, run));
    }
    void expect(T is, T must_be, std::int64_t i) const {
        if (is == must_be) return;
        throw std::runtime_error("call " + std::to_string(number_) + ", " +
                                 std::string(name_of(collective_)) + ": element " +
                                 std::to_string(i) + " is " + std::to_string(is) + ", not " +
                                 std::to_string(must_be));
    }
    std::int64_t sent(int from, int to) const { return matrix_[from * ranks_ + to]; }
    std::int64_t begin(int rank) const {
        return std::accumulate(counts_.begin(), counts_.begin() + rank, std::int64_t{0});
    }
    std::int64_t total() const { return begin(ranks_); }
    std::size_t output_elements() const {
        switch (collective_) {
            case Collective::all_gather_v:
                return end_;
            case Collective::gather_v:
                return rank_ == root_ ? end_ : 0;
            case Collective::scatter_v:
            case Collective::reduce_scatter_v:
                return counts_[rank_];
            case Collective::reduce:
                return rank_ == root_ ? counts_[0] : 0;
            case Collective::all_to_all_v: {
                std::int64_t sum = 0;
                for (int from = 0; from < ranks_; ++from) sum += sent(from, rank_);
                return sum;
            }
            default:
                return counts_[0];
        }
    }

    Collective collective_;
    int rank_, ranks_, number_, root_ = 0;
    vescomm_op_t op_ = VESCOMM_SUM;
    bool in_place_ = false, gaps_ = false;
    bool one_count_ = false;  // this rank calls vescomm_all_gather(), ...
    std::size_t drawn_ = 0;
    vescomm_call_options_t options_ = vescomm_call_options_init();
    std::vector<std::int64_t> counts_, offsets_, matrix_, sends_, receives_;
    std::int64_t end_ = 0;
    Array source_{testing_support::PoolAllocator<T>(nullptr)};
    Array output_{testing_support::PoolAllocator<T>(nullptr)};
};

std::unique_ptr<Case> random_case(vescomm_comm_t *comm, int number, Random &random) {
    static constexpr Collective all[] = {Collective::all_gather_v, Collective::reduce_scatter_v,
                                         Collective::all_reduce,   Collective::broadcast,
                                         Collective::reduce,       Collective::gather_v,
                                         Collective::scatter_v,    Collective::all_to_all_v};
    const Collective collective = all[random() % std::size(all)];
    switch (random() % 5) {
        case 0:
            return std::make_unique<TypedCase<float>>(collective, comm, number, random);
        case 1:
            return std::make_unique<TypedCase<double>>(collective, comm, number, random);
        case 2:
            return std::make_unique<TypedCase<std::uint8_t>>(collective, comm, number, random);
        case 3:
            return std::make_unique<TypedCase<std::int32_t>>(collective, comm, number, random);
        default:
            return std::make_unique<TypedCase<std::int64_t>>(collective, comm, number, random);
    }
}

struct Started {
    std::vector<std::unique_ptr<Case>> cases;
    vescomm_request_t *request = nullptr;
    int runs = 1;

    void finish() {
        check(vescomm_request_wait(request));
        for (const auto &one : cases) one->verify(0);
        // Restarts the request on refilled arrays.
        for (int run = 1; run < runs; ++run) {
            for (const auto &one : cases) one->fill(run);
            check(vescomm_request_start(request, nullptr));
            check(vescomm_request_wait(request));
            for (const auto &one : cases) one->verify(run);
        }
        check(vescomm_request_free(request));
    }
};

// Makes at least `calls` random calls on one rank. All ranks use the same seed.
void call_at_random(vescomm_comm_t *comm, unsigned seed, int calls) {
    Random random(seed);
    std::vector<Started> open;
    for (int number = 0; number < calls;) {
        Started started;
        const bool group = random() % 4 == 0;
        const bool blocking = random() % 3 == 0;
        const int size = group ? 1 + static_cast<int>(random() % 6) : 1;
        if (group) check(vescomm_group_begin(comm));
        for (int i = 0; i < size; ++i, ++number) {
            started.cases.push_back(random_case(comm, number, random));
            if (!group && random() % 2 == 0) started.cases.back()->force(comm);
            started.cases.back()->fill(0);
            started.cases.back()->call(comm, group || blocking ? nullptr : &started.request);
        }
        if (group) check(vescomm_group_end(comm, blocking ? nullptr : &started.request));
        if (blocking) {
            for (const auto &one : started.cases) one->verify(0);
            continue;
        }
        open.push_back(std::move(started));
        if (open.size() < 7 && random() % 3 != 0) continue;
        // Requests are restarted in the same order on every rank.
        const auto which = static_cast<std::ptrdiff_t>(random() % open.size());
        open[which].runs = 1 + static_cast<int>(random() % 3);
        open[which].finish();
        open.erase(open.begin() + which);
    }
    for (Started &started : open) started.finish();
}

class ArrayConformance : public testing::TestWithParam<testing_support::TestSetup> {};

TEST_P(ArrayConformance, RandomSequencesGiveCorrectResults) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) { call_at_random(comm, 12, 150); });
}

// 1 to 7 ranks on up to 4 emulated nodes, with and without a progress thread.
TEST(ArrayConformanceAtRandom, ManyCallsOnManyCommunicators) {
    const char *given = std::getenv("VESCOMM_TEST_ARRAY_CALLS");
    const int calls = given != nullptr ? std::stoi(given) : 500;
    Random random(77);
    const auto kinds = testing_support::kinds_between_nodes();
    for (int done = 0; done < calls; done += 250) {
        testing_support::TestSetup setup{kinds[random() % kinds.size()],
                                         std::vector<int>(1 + random() % 7)};
        const unsigned nodes = 1 + random() % 4;
        for (int &node : setup.node_of) node = static_cast<int>(random() % nodes);
        if (random() % 2 == 0) setup.config.progress = "thread";
        const auto seed = static_cast<unsigned>(random());
        SCOPED_TRACE(testing::Message() << name_of(setup) << ", seed " << seed);
        run_array_ranks(setup, [&](vescomm_comm_t *comm) {
            call_at_random(comm, seed, std::min(250, calls - done));
        });
        if (HasFailure()) return;
    }
}

// ---- types and operators ----

using testing_support::Bytes;
using testing_support::contribution;

TEST_P(ArrayConformance, AllTypesAndOperatorsAreCorrect) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        constexpr std::size_t count = 1'003;
        const double factor = 3;
        const int rank = comm->value->rank(), ranks = comm->value->ranks();
        const bool one_node = comm->value->nodes().count() == 1;
        auto options = vescomm_call_options_init();
        for (vescomm_type_t type = VESCOMM_F32; type <= last_type; ++type) {
            const std::size_t size = size_of(type);
            std::vector<Bytes> all;
            for (int k = 0; k < ranks; ++k) all.push_back(contribution(type, count, k, one_node));
            for (vescomm_op_t op = VESCOMM_SUM; op <= last_op; ++op) {
                if (!can_combine(op, type)) continue;
                const bool scaled = op == VESCOMM_PREMULTIPLIED_SUM;
                const Bytes expected = testing_support::reduction(op, type, all, factor);
                options.factor = scaled ? factor : 0;
                const auto expect = [&](const Bytes &is, std::size_t begin, const char *what) {
                    if (std::equal(is.begin(), is.end(),
                                   expected.begin() + static_cast<std::ptrdiff_t>(begin * size)))
                        return;
                    throw std::runtime_error(std::string(what) + " of " + name_of_type(type) +
                                             " with op " + std::to_string(op) + " is wrong");
                };

                Bytes result = all[rank];
                check(vescomm_all_reduce(comm, result.data(), result.data(), count, type, op,
                                         &options, nullptr, nullptr));
                expect(result, 0, "all_reduce");

                const int root = op % ranks;
                Bytes at_root(rank == root ? count * size : 0);
                check(vescomm_reduce(comm, all[rank].data(), at_root.data(), count, type, op, root,
                                     &options, nullptr, nullptr));
                expect(at_root, 0, "reduce");

                // Ragged counts: the last rank has the remainder.
                std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks));
                std::size_t begin = 0, left = count;
                for (int k = 0; k < ranks; ++k) {
                    const std::size_t mine = k + 1 == ranks ? left : left / 3;
                    counts[k] = static_cast<std::int64_t>(mine);
                    if (k < rank) begin += mine;
                    left -= mine;
                }
                Bytes shard(static_cast<std::size_t>(counts[rank]) * size);
                check(vescomm_reduce_scatter_v(comm, all[rank].data(), shard.data(), counts.data(),
                                               type, op, &options, nullptr, nullptr));
                expect(shard, begin, "reduce_scatter_v");
            }
        }
    });
}

// If ranks make different calls, all of them fail with VESCOMM_ERROR_MISMATCH, before the deadline.
TEST_P(ArrayConformance, DifferentCallsAreReportedToAllRanks) {
#if VESCOMM_THREAD_SANITIZER
    GTEST_SKIP() << "until the mismatch is detected, ranks read staging memory that others write";
#endif
    if (GetParam().ranks() == 1) GTEST_SKIP() << "needs at least two ranks";
    std::vector<std::string> errors(static_cast<std::size_t>(GetParam().ranks()));
    run_array_ranks(GetParam(), [&](vescomm_comm_t *comm) {
        const int rank = comm->value->rank();
        const bool last = rank + 1 == comm->value->ranks();
        std::vector<float> source(1'000), output(1'000);
        vescomm_status_t status = VESCOMM_OK;
        // Some ranks may complete their first calls before the mismatch is detected.
        for (int i = 0; i < 10 && status == VESCOMM_OK; ++i)
            status = vescomm_all_reduce(comm, source.data(), output.data(), last ? 999 : 1'000,
                                        VESCOMM_F32, last ? VESCOMM_MAX : VESCOMM_SUM, nullptr,
                                        nullptr, nullptr);
        EXPECT_EQ(status, VESCOMM_ERROR_MISMATCH) << vescomm_get_last_error();
        errors[rank] = vescomm_get_last_error();
    });
    for (const std::string &sentence : errors) {
        EXPECT_NE(sentence.find("rank " + std::to_string(GetParam().ranks() - 1)),
                  std::string::npos)
            << sentence;
        EXPECT_NE(sentence.find("all_reduce of f32 (max"), std::string::npos) << sentence;
        EXPECT_NE(sentence.find("all_reduce of f32 (sum"), std::string::npos) << sentence;
    }
}

INSTANTIATE_TEST_SUITE_P(All, ArrayConformance, testing::ValuesIn(testing_support::all_setups()),
                         [](const auto &info) { return testing_support::name_of(info.param); });

}  // namespace
}  // namespace vescomm::internal

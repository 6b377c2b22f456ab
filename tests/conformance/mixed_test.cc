// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Random sequences of all kinds of operations on several communicators of the same ranks:
// collectives on fused buffers and on arrays, messages and barriers, with many in progress. All
// results are compared with expected values. All ranks draw the same random numbers, so all make
// the same calls.
#include <cstdlib>
#include <deque>
#include <random>
#include <stdexcept>

#include "support/array_ranks.h"

namespace vescomm::internal {
namespace {

using testing_support::check;
using testing_support::Kind;
using Random = std::mt19937;

std::int64_t value(int rank, std::int64_t i, int number) {
    return (rank * 3 + i * 7 + number) % 11;
}

void expect(std::int64_t is, std::int64_t must_be, const std::string &what, int number) {
    if (is != must_be)
        throw std::runtime_error(what + " " + std::to_string(number) + ": " + std::to_string(is) +
                                 " instead of " + std::to_string(must_be));
}

// A buffer of a communicator, with its requests.
class Fused {
public:
    Fused(vescomm_comm_t *comm, Random &random)
        : rank_(comm->value->rank()), ranks_(comm->value->ranks()) {
        for (int k = 0; k < ranks_; ++k)
            counts_.push_back(random() % 4 == 0 ? 0 : static_cast<std::int64_t>(random() % 5'000));
        vescomm_layout_t *layout = nullptr;
        check(vescomm_layout_create_from_counts(counts_.data(), ranks_, &layout));
        auto options = vescomm_buffer_options_init();
        options.type = VESCOMM_I64;
        check(vescomm_buffer_create(comm, layout, &options, &buffer_));
        check(vescomm_layout_free(layout));
        check(vescomm_all_gather_v_create(comm, buffer_, nullptr, &gather_));
        check(vescomm_reduce_scatter_v_create(comm, buffer_, nullptr, &scatter_));
    }
    ~Fused() {
        vescomm_request_free(gather_);
        vescomm_request_free(scatter_);
        vescomm_buffer_free(buffer_);
    }
    Fused(const Fused &) = delete;
    Fused &operator=(const Fused &) = delete;

    bool under_way() const { return running_ != nullptr; }
    void start(bool gathers, int number) {
        number_ = number;
        running_ = gathers ? gather_ : scatter_;
        auto *data = reinterpret_cast<std::int64_t *>(buffer_->value->at(0));
        std::int64_t at = 0;
        for (int k = 0; k < ranks_; ++k)
            for (std::int64_t i = 0; i < counts_[k]; ++i, ++at)
                if (!gathers || k == rank_) data[at] = value(rank_, at, number);
        check(vescomm_request_start(running_, nullptr));
    }
    void finish() {
        check(vescomm_request_wait(running_));
        const bool gathers = running_ == gather_;
        running_ = nullptr;
        const auto *data = reinterpret_cast<const std::int64_t *>(buffer_->value->at(0));
        std::int64_t at = 0;
        for (int k = 0; k < ranks_; ++k) {
            for (std::int64_t i = 0; i < counts_[k]; ++i, ++at) {
                std::int64_t sum = 0;
                for (int from = 0; from < ranks_; ++from) sum += value(from, at, number_);
                if (gathers) expect(data[at], value(k, at, number_), "gather", number_);
                else if (k == rank_) expect(data[at], sum, "scatter", number_);
            }
        }
    }

private:
    int rank_, ranks_, number_ = 0;
    std::vector<std::int64_t> counts_;
    vescomm_buffer_t *buffer_ = nullptr;
    vescomm_request_t *gather_ = nullptr, *scatter_ = nullptr, *running_ = nullptr;
};

// Waits for a started operation and verifies its result.
using Finish = std::function<void()>;

Finish start_sum(vescomm_comm_t *comm, std::int64_t count, int number) {
    const int rank = comm->value->rank(), ranks = comm->value->ranks();
    const auto data = std::make_shared<std::vector<std::int64_t>>();
    for (std::int64_t i = 0; i < count; ++i) data->push_back(value(rank, i, number));
    vescomm_request_t *request = nullptr;
    check(vescomm_all_reduce(comm, data->data(), data->data(), count, VESCOMM_I64, VESCOMM_SUM,
                             nullptr, nullptr, &request));
    return [=] {
        check(vescomm_request_wait(request));
        check(vescomm_request_free(request));
        for (std::int64_t i = 0; i < count; ++i) {
            std::int64_t sum = 0;
            for (int from = 0; from < ranks; ++from) sum += value(from, i, number);
            expect((*data)[static_cast<std::size_t>(i)], sum, "sum", number);
        }
    };
}

// Every rank sends to the rank at distance `away`.
Finish start_ring(vescomm_comm_t *comm, int away, std::int64_t count, int number) {
    const int rank = comm->value->rank(), ranks = comm->value->ranks();
    const int to = (rank + away) % ranks, from = (rank + ranks - away) % ranks;
    const auto sent = std::make_shared<std::vector<std::int64_t>>();
    const auto received = std::make_shared<std::vector<std::int64_t>>(count);
    for (std::int64_t i = 0; i < count; ++i) sent->push_back(value(rank, i, number));
    vescomm_request_t *out = nullptr, *in = nullptr;
    check(vescomm_send(comm, sent->data(), count, VESCOMM_I64, to, nullptr, nullptr, &out));
    check(vescomm_receive(comm, received->data(), count, VESCOMM_I64, from, nullptr, nullptr, &in));
    return [=] {
        for (vescomm_request_t *request : {in, out}) {
            check(vescomm_request_wait(request));
            check(vescomm_request_free(request));
        }
        for (std::int64_t i = 0; i < count; ++i)
            expect((*received)[static_cast<std::size_t>(i)], value(from, i, number), "ring",
                   number);
        sent->clear();  // keeps the array alive until here
    };
}

void mix(const std::vector<vescomm_comm_t *> &comms, unsigned seed, int calls) {
    Random random(seed);
    std::deque<Fused> fused;
    for (vescomm_comm_t *comm : comms) fused.emplace_back(comm, random);
    std::vector<Finish> open;
    for (int number = 0; number < calls; ++number) {
        const std::size_t which = random() % comms.size();
        vescomm_comm_t *comm = comms[which];
        Fused &buffer = fused[which];
        const auto ranks = static_cast<unsigned>(comm->value->ranks());
        const std::int64_t small = random() % 40, large = random() % 60'000;
        const std::int64_t count = random() % 4 == 0 ? large : small;
        switch (random() % 6) {
            case 0:
                check(vescomm_barrier(comm));
                break;
            case 1:
            case 2:
                if (buffer.under_way()) break;
                buffer.start(random() % 2 == 0, number);
                open.push_back([&buffer] { buffer.finish(); });
                break;
            case 3:
                open.push_back(start_ring(comm, static_cast<int>(random() % ranks), count, number));
                break;
            default:
                open.push_back(start_sum(comm, count, number));
        }
        while (open.size() > 8 || (!open.empty() && random() % 3 == 0)) {
            const auto at = static_cast<std::ptrdiff_t>(random() % open.size());
            open[at]();
            open.erase(open.begin() + at);
        }
    }
    for (const Finish &last : open) last();
}

// 1 to 6 ranks. Each communicator places them on emulated nodes in its own way.
TEST(Mixed, OperationsOnSeveralCommunicatorsGiveCorrectResults) {
    const char *given = std::getenv("VESCOMM_TEST_MIXED_CALLS");
    const int calls = given != nullptr ? std::stoi(given) : 10'000;
    constexpr int at_once = 200;
    Random random(5);
    const auto kinds = testing_support::kinds_between_nodes();
    for (int done = 0; done < calls; done += at_once) {
        const std::size_t ranks = 1 + random() % 6;
        std::vector<testing_support::TestSetup> setups(1 + random() % 3);
        for (auto &setup : setups) {
            setup.kind = kinds[random() % kinds.size()];
            const unsigned nodes = 1 + random() % 3;
            setup.node_of.resize(ranks);
            for (int &node : setup.node_of) node = static_cast<int>(random() % nodes);
            if (random() % 2 == 0) setup.config.progress = "thread";
        }
        const auto seed = static_cast<unsigned>(random());
        SCOPED_TRACE(testing::Message() << name_of(setups[0]) << " and " << setups.size() - 1
                                        << " more, seed " << seed);
        run_array_ranks(setups, [&](const std::vector<vescomm_comm_t *> &comms) {
            mix(comms, seed, std::min(at_once, calls - done));
        });
        if (HasFailure()) return;
    }
}

}  // namespace
}  // namespace vescomm::internal

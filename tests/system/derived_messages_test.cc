// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Messages with tags on communicators from split, dup and shrink: they keep to their communicator,
// whatever the tags of others. Ranks are processes that use the public API only.
#include <atomic>
#include <memory>

#include "system/forked_ranks.h"

namespace {

using namespace forked_ranks;

// Every rank sends a message to every rank with each tag, on a communicator with a number. The
// receives follow in finish(), the last tag first.
class Exchange {
public:
    Exchange(vescomm_comm_t *comm, int number)
        : comm_(comm), number_(number), rank_(rank_of(comm)), ranks_(ranks_of(comm)) {
        sent_.reserve(static_cast<std::size_t>(ranks_) * std::size(tags));
        for (int peer = 0; peer < ranks_; ++peer) {
            for (const int tag : tags) {
                auto options = vescomm_call_options_init();
                options.tag = tag;
                sent_.push_back(contents(rank_, peer, tag));
                require(vescomm_send(comm, &sent_.back(), 1, VESCOMM_I64, peer, &options, nullptr,
                                     &requests_.emplace_back()),
                        "send");
            }
        }
    }

    void finish() {
        for (int peer = ranks_ - 1; peer >= 0; --peer) {
            expect(receive(peer, last).source == peer, "the source");
            expect(receive(peer, first).source == peer, "the source");
        }
        std::vector<int> sources;
        for (int i = 0; i < ranks_; ++i)
            sources.push_back(receive(VESCOMM_ANY_SOURCE, middle).source);
        std::sort(sources.begin(), sources.end());
        for (int peer = 0; peer < ranks_; ++peer)
            expect(sources[static_cast<std::size_t>(peer)] == peer, "one message of each source");
        for (vescomm_request_t *request : requests_) {
            require(vescomm_request_wait(request), "wait for a send");
            require(vescomm_request_free(request), "free a send");
        }
    }

    // Instead of finish(), after the communicator broke.
    void abandon() {
        for (vescomm_request_t *request : requests_)
            require(vescomm_request_free(request), "free a send");
    }

private:
    static constexpr int first = 0, middle = 5, last = 2'147'483'647;
    static constexpr int tags[] = {first, middle, last};

    std::int64_t contents(int from, int to, int tag) const {
        return std::int64_t{(number_ * 100 + from) * 100 + to} << 31 | tag;
    }

    vescomm_message_info_t receive(int source, int tag) {
        auto options = vescomm_call_options_init();
        options.tag = tag;
        std::int64_t output = -1;
        vescomm_request_t *request = nullptr;
        require(
            vescomm_receive(comm_, &output, 1, VESCOMM_I64, source, &options, nullptr, &request),
            "receive");
        require(vescomm_request_wait(request), "wait for a receive");
        auto info = vescomm_message_info_init();
        require(vescomm_request_get_message(request, 0, &info), "the message");
        require(vescomm_request_free(request), "free a receive");
        expect(info.tag == tag, "the tag");
        expect(output == contents(info.source, rank_, tag), "the contents");
        return info;
    }

    vescomm_comm_t *comm_;
    int number_, rank_, ranks_;
    std::vector<std::int64_t> sent_;
    std::vector<vescomm_request_t *> requests_;
};

TEST(DerivedMessages, OfParentDuplicateAndPartsAreNotMixed) {
    for (const int ranks : {1, 2, 3, 5, 7}) {
        for (const int per_node : {ranks, 2}) {
            SCOPED_TRACE(testing::Message() << ranks << " ranks, " << per_node << " on a node");
            const Job job{ranks, per_node};
            run(job, [&](int rank) {
                vescomm_comm_t *all = nullptr, *copy = nullptr, *part = nullptr;
                require(job.create(rank, nullptr, &all), "create");
                require(vescomm_comm_dup(all, nullptr, &copy), "dup");
                require(vescomm_comm_split(all, rank % 2, -rank, nullptr, &part), "split");
                {
                    Exchange in_all(all, 1), in_copy(copy, 2), in_part(part, 3 + rank % 2);
                    in_part.finish();
                    in_all.finish();
                    in_copy.finish();
                }
                require(vescomm_comm_free(all), "free the parent");
                Exchange in_part(part, 5 + rank % 2), in_copy(copy, 7);
                in_copy.finish();
                in_part.finish();
                require(vescomm_comm_free(part), "free");
                require(vescomm_comm_free(copy), "free");
            });
        }
    }
}

// A rank dies when messages wait in the eager buffers, and in the copies, of all others. None of
// them appears in the communicator of the survivors.
TEST(DerivedMessages, OfSurvivorsAreNotThoseOfTheBrokenCommunicator) {
    for (const int per_node : {5, 2}) {
        for (const int victim : {0, 2, 4}) {
            SCOPED_TRACE(testing::Message() << per_node << " on a node, victim " << victim);
            const Job job{5, per_node};
            auto *const sent = make_shared_page<std::atomic<int>>();
            run(job,
                [&](int rank) {
                    vescomm_comm_t *comm = nullptr, *less = nullptr;
                    require(job.create(rank, nullptr, &comm), "create");
                    // The requests of the sends stay with the broken communicator.
                    auto lost = std::make_unique<Exchange>(comm, 1);
                    *sent += 1;
                    std::int64_t output = 0;
                    if (rank == victim) {
                        while (*sent < job.ranks) require(vescomm_comm_progress(comm), "progress");
                        require(vescomm_receive(comm, &output, 1, VESCOMM_I64, VESCOMM_ANY_SOURCE,
                                                nullptr, nullptr, nullptr),
                                "receive");
                        raise(SIGKILL);
                    }
                    auto options = vescomm_call_options_init();
                    options.tag = 77;
                    expect(vescomm_receive(comm, &output, 1, VESCOMM_I64, VESCOMM_ANY_SOURCE,
                                           &options, nullptr, nullptr) < 0,
                           "no message has this tag");
                    require(vescomm_comm_shrink(comm, nullptr, 0, &less), "shrink");
                    Exchange(less, 2).finish();
                    lost->abandon();
                    require(vescomm_comm_free(comm), "free the broken one");
                    Exchange(less, 3).finish();
                    require(vescomm_comm_free(less), "free");
                },
                {victim});
            munmap(sent, sizeof *sent);
        }
    }
}

}  // namespace

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/split.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "comm/agree.h"

namespace vescomm::internal {

namespace {

// The parent's configuration, changed by the options.
Config config_of(const Communicator &comm, const CommOptions &options) {
    Config config = comm.config();
    apply(options, "that of the parent", config);
    return config;
}

struct Choice {
    std::int32_t color = 0;
    std::int32_t key = 0;
};

Choice read_choice(const std::string &text, int rank) {
    Choice choice;
    if (text.size() != sizeof choice)
        throw Error(VESCOMM_ERROR_INTERNAL,
                    "rank " + std::to_string(rank) + " sent its color in the wrong form");
    std::memcpy(&choice, text.data(), sizeof choice);
    return choice;
}

// `ranks`: by rank of the new communicator, the rank in the old one.
void share_pool(const Communicator &from, Communicator &to, const std::vector<int> &ranks) {
    if (!from.pool().memory) return;
    std::vector<int> numbers;
    for (const int rank : ranks)
        numbers.push_back(from.pool().numbers[static_cast<std::size_t>(rank)]);
    to.set_pool(from.pool().memory, std::move(numbers));
}

// Ranks that are neither among the survivors nor named as failed by the caller have ended.
void mark_gone(const Communicator &comm, const std::vector<int> &survivors,
               const std::set<int> &named) {
    const std::shared_ptr<MemoryPool> &pool = comm.pool().memory;
    if (!pool || !pool->aliases()) return;
    std::vector<int> gone;
    for (int rank = 0; rank < comm.ranks(); ++rank)
        if (!named.contains(rank) && std::ranges::find(survivors, rank) == survivors.end())
            gone.push_back(comm.pool().numbers[static_cast<std::size_t>(rank)]);
    pool->aliases()->mark_gone(gone);
}

// Opens the group of the ranks with `color`, and fills `ranks` with them.
std::unique_ptr<Control> open_group(Communicator &comm, const std::vector<Choice> &all, int color,
                                    std::uint64_t number, std::vector<int> &ranks,
                                    Deadline deadline) {
    try {
        std::vector<std::pair<int, int>> members;  // key and rank
        for (int rank = 0; rank < comm.ranks(); ++rank) {
            const Choice its = all[static_cast<std::size_t>(rank)];
            if (its.color == color) members.emplace_back(its.key, rank);
        }
        std::ranges::sort(members);
        for (const auto &[its_key, rank] : members) ranks.push_back(rank);
    } catch (const std::bad_alloc &) {
        comm.run_out();
        throw;
    }
    return open_subgroup(comm, "split " + std::to_string(number) + " " + std::to_string(color),
                         ranks, deadline);
}

}  // namespace

std::unique_ptr<Control> open_subgroup(Communicator &comm, const std::string &words,
                                       const std::vector<int> &ranks, Deadline deadline) {
    try {
        return comm.control().subgroup(words, ranks, deadline);
    } catch (const std::bad_alloc &) {
        // The other ranks wait for this one in a group that it has not opened. The failure of the
        // parent is all that can reach them there.
        comm.run_out();
        throw;
    } catch (const Error &error) {
        // A library that ran out of memory. Other errors of an opening reach all ranks.
        if (error.status != VESCOMM_ERROR_SYSTEM) throw;
        try {
            comm.abort(error.what());
        } catch (const std::bad_alloc &) {
            comm.run_out();
        }
        throw;
    }
}

std::shared_ptr<Communicator> split(Communicator &comm, int color, int key,
                                    const CommOptions &options, const Complete &complete) {
    comm.check();
    const Config config = config_of(comm, options);
    const Deadline deadline = comm.deadline();
    const Choice mine{color, key};
    std::vector<Choice> all(static_cast<std::size_t>(comm.ranks()));
    {
        const auto texts = comm.gather(
            "vescomm_comm_split", {reinterpret_cast<const char *>(&mine), sizeof mine}, deadline);
        for (int rank = 0; rank < comm.ranks(); ++rank)
            all[static_cast<std::size_t>(rank)] =
                read_choice(texts[static_cast<std::size_t>(rank)], rank);
    }
    const std::uint64_t number = comm.numbers().next_child();
    if (std::ranges::all_of(all, [](Choice its) { return its.color < 0; })) return nullptr;
    std::shared_ptr<Communicator> made;
    const auto make = [&]() -> std::string {
        if (color < 0) return {};
        std::vector<int> ranks;
        auto control = open_group(comm, all, color, number, ranks, deadline);
        const Communicator::Parent parent{comm, deadline};
        // An exception ends the new communicator at once: its other ranks may wait for this one.
        auto part = Communicator::create(std::move(control), config.node, config,
                                         transports_for(config), {}, &parent);
        share_pool(comm, *part, ranks);
        if (complete) complete(part);
        part->end_creation();
        made = std::move(part);
        return {};
    };
    // A creation that ended at its deadline has an error that names a rank: the others receive it.
    const double seconds = comm.timeout_seconds();
    const Deadline later =
        Deadline::after(deadline.seconds_left() + std::min(5.0, 1 + seconds / 10));
    // A reference: nothing is allocated here, where a failure would not be reported.
    agree(comm, "the creation of communicators by a split", later, std::ref(make));
    return made;
}

std::shared_ptr<Communicator> duplicate(Communicator &comm, const CommOptions &options,
                                        const Complete &complete) {
    return split(comm, 0, comm.rank(), options, complete);
}

void shrink(Communicator &comm, const std::set<int> &failed,
            const std::function<void(std::shared_ptr<Communicator>)> &complete) {
    for (const int rank : failed)
        if (rank < 0 || rank >= comm.ranks() || rank == comm.rank())
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        "rank " + std::to_string(rank) + " is named as failed on rank " +
                            std::to_string(comm.rank()) + " of " + std::to_string(comm.ranks()) +
                            "; name other ranks of the communicator");
    const Deadline deadline = comm.deadline();
    std::vector<int> survivors;
    auto control = comm.control().shrink(failed, deadline, survivors);
    // From here on no bytes move in the old communicator, on any rank.
    comm.abort("the communicator was shrunk");
    for (;;) {
        const Control::Shrink shrink_again = control->shrinking();
        try {
            auto made = Communicator::create(std::move(control), comm.config().node, comm.config(),
                                             transports_for(comm.config()));
            share_pool(comm, *made, survivors);
            mark_gone(comm, survivors, failed);
            return complete(std::move(made));
        } catch (const Error &error) {
            if (error.status != VESCOMM_ERROR_PEER_FAILED || deadline.expired()) throw;
        }
        // Another rank has died.
        std::vector<int> fewer;
        control = shrink_again({}, deadline, fewer);
        for (int &rank : fewer) rank = survivors[static_cast<std::size_t>(rank)];
        survivors = std::move(fewer);
    }
}

}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A model of how a rank sleeps on the signal board and is woken: all interleavings of one sleeper
// and two raisers, over memory with store buffers as x86 has them. The steps are those of
// SignalBoard::raise(), ring(), begin_sleep() and sleep(), in their order. The sleeper waits for
// both flags. No interleaving may end with a sleeper that nobody wakes.
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <tuple>
#include <vector>

namespace vescomm::internal {
namespace {

enum class Protocol {
    as_it_is,  // the sleeper fences all threads; raisers use plain stores
    raisers_fence,  // a process cannot be fenced by others: raisers fence themselves
    // Broken ones:
    no_fence,
    no_second_check,  // the sleeper does not look at the flags after it has announced itself
    late_look_at_rings,  // the sleeper reads the number of rings after it has looked at the flags
};

constexpr int raisers = 2;

struct Raiser {
    int at = 0;  // its next step
    bool buffered = false;  // its flag is in the store buffer, not in memory
    auto operator<=>(const Raiser &) const = default;
};

struct State {
    std::array<Raiser, raisers> raiser;
    std::array<bool, raisers> flag{};  // in memory
    int asleep = 0, sleeping = 0, rings = 0;
    // The sleeper: its next step, and the rings that it has seen.
    int at = 0, seen = 0;
    bool blocked = false;  // in the futex
    auto operator<=>(const State &) const = default;
};

class Model {
public:
    explicit Model(Protocol protocol) : protocol_(protocol) {}

    // True: the sleeper ends in every interleaving.
    bool explore() {
        std::vector<State> open{State{}};
        seen_.insert(State{});
        while (!open.empty()) {
            const State state = open.back();
            open.pop_back();
            const std::vector<State> next = successors(state);
            if (next.empty() && state.at != done) return false;
            for (const State &one : next)
                if (seen_.insert(one).second) open.push_back(one);
        }
        return true;
    }
    std::size_t states() const { return seen_.size(); }

private:
    static constexpr int done = 100;

    static bool all_raised(const State &state) { return state.flag[0] && state.flag[1]; }
    static void flush(State &state, int raiser) {
        Raiser &it = state.raiser[raiser];
        if (it.buffered) state.flag[raiser] = true;
        it.buffered = false;
    }

    std::vector<State> successors(const State &state) const {
        std::vector<State> next;
        for (int i = 0; i < raisers; ++i) {
            if (state.raiser[i].buffered) {
                next.push_back(state);
                flush(next.back(), i);
            }
            State changed = state;
            if (raise(changed, i)) next.push_back(changed);
        }
        State changed = state;
        if (sleep(changed)) next.push_back(changed);
        return next;
    }

    bool raise(State &state, int i) const {
        Raiser &it = state.raiser[i];
        switch (it.at++) {
            case 0:
                it.buffered = true;
                return true;
            case 1:
                if (protocol_ == Protocol::raisers_fence) flush(state, i);
                return true;
            case 2:
                if (state.asleep == 0) it.at = done;
                return true;
            case 3:  // sequentially consistent on x86: a plain load
                if (state.sleeping == 0) it.at = done;
                return true;
            case 4:  // an atomic addition empties the store buffer
                flush(state, i);
                ++state.rings;
                return true;
            case 5:
                state.blocked = false;
                it.at = done;
                return true;
            default:
                return false;
        }
    }

    bool sleep(State &state) const {
        if (state.blocked) return false;
        const bool late = protocol_ == Protocol::late_look_at_rings;
        switch (state.at++) {
            case 0:  // polls
                if (all_raised(state)) state.at = done;
                return true;
            case 1:
                if (!late) state.seen = state.rings;
                return true;
            case 2:
                ++state.sleeping;
                return true;
            case 3:
                ++state.asleep;
                return true;
            case 4:  // membarrier
                if (protocol_ != Protocol::no_fence && protocol_ != Protocol::raisers_fence)
                    for (int i = 0; i < raisers; ++i) flush(state, i);
                return true;
            case 5:
                if (protocol_ != Protocol::no_second_check && all_raised(state)) state.at = 8;
                return true;
            case 6:
                if (late) state.seen = state.rings;
                return true;
            case 7:
                state.blocked = state.rings == state.seen;
                return true;
            case 8:  // end_sleep(), then another poll
                --state.asleep;
                --state.sleeping;
                state.at = 0;
                return true;
            default:
                state.at = done;
                return false;
        }
    }

    const Protocol protocol_;
    std::set<State> seen_;
};

TEST(WakeModel, ASleeperIsWokenInEveryInterleaving) {
    for (const Protocol protocol : {Protocol::as_it_is, Protocol::raisers_fence}) {
        Model model(protocol);
        EXPECT_TRUE(model.explore());
        EXPECT_GT(model.states(), 100u);
    }
}

TEST(WakeModel, BrokenProtocolsAreFound) {
    for (const Protocol protocol :
         {Protocol::no_fence, Protocol::no_second_check, Protocol::late_look_at_rings})
        EXPECT_FALSE(Model(protocol).explore()) << static_cast<int>(protocol);
}

}  // namespace
}  // namespace vescomm::internal

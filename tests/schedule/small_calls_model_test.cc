// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A model of the protocol of small calls on arrays: all interleavings of two and three ranks that
// make more calls than the staging buffer has slots, over memory with store buffers as x86 has them
// (a store becomes visible later, in order). The steps are those of the real schedules; the slots
// are taken by the real SlotSequences, with fewer slots, so that calls come back to them soon. No
// rank may read data of another call, and none may wait for ever. The model fails for each of
// several broken protocols.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "execute/slot_sequences.h"
#include "schedule/common/inline.h"
#include "schedule/common/staged.h"

namespace vescomm::internal {
namespace {

using Sequences = SlotSequencesOf<2, 4>;

enum class Broken {
    nothing,
    no_acquire,  // a rank writes to its slot before others have released it
    flag_before_data,  // a rank raises its flag before it copies
    no_wait,  // a rank reads without waiting for the flag
    early_release,  // a rank releases its slot before it reads
    one_slot_more,  // SlotSequences is asked for the number after the one that is needed
    staging_as_inline,  // a rank takes its staging slot when its inline slot is free
};

struct Setting {
    std::string name;
    int ranks = 2;
    int calls = 6;
    int overlap = 1;  // calls of a rank that may run at the same time
    std::vector<Collective> collectives;  // of call 1, 2, ...; repeated
    Broken broken = Broken::nothing;
};

// A variable that ranks share. Data holds the number of its call, a flag the run of the last call
// for which it was raised.
using Address = std::uint8_t;
using Value = std::uint8_t;  // number of a call, from 1

struct Store {
    Address address;
    Value value;
};

struct Running {
    Value call = 0;
    std::uint8_t step = 0;
    bool observes = false;  // has seen the flag of a wait, and reads the released number next
};

struct RankState {
    Value started = 0;
    std::vector<Running> running;
    Sequences sequences{0};
    // The content of `sequences`, to compare states.
    std::vector<Value> observed;
    std::vector<Value> released;  // since the first that is missing, ascending
    std::deque<Store> stores;  // not visible to other ranks yet, the oldest first
};

struct State {
    std::vector<RankState> ranks;
    std::vector<Value> memory;
};

std::string text_of(const State &state) {
    std::string text;
    const auto put = [&](std::size_t value) { text.push_back(static_cast<char>(value)); };
    for (const RankState &rank : state.ranks) {
        put(rank.started);
        put(rank.running.size());
        for (const Running &run : rank.running) {
            put(run.call);
            put(run.step * 2 + run.observes);
        }
        for (const Value observed : rank.observed) put(observed);
        put(rank.released.size());
        for (const Value released : rank.released) put(released);
        put(rank.stores.size());
        for (const Store &store : rank.stores) {
            put(store.address);
            put(store.value);
        }
    }
    for (const Value value : state.memory) put(value);
    return text;
}

class Model {
public:
    explicit Model(const Setting &setting) : setting_(setting) {
        for (int call = 0; call < setting.calls; ++call) {
            const auto &collectives = setting.collectives;
            problems_.push_back(
                problem(collectives[static_cast<std::size_t>(call) % collectives.size()]));
            schedules_.push_back({});
            for (int rank = 0; rank < setting.ranks; ++rank)
                schedules_.back().push_back(schedule(problems_.back(), rank));
        }
    }

    // Returns the first fault, or an empty string.
    std::string explore() {
        State first;
        for (int rank = 0; rank < setting_.ranks; ++rank) {
            RankState state;
            state.sequences = Sequences(static_cast<std::size_t>(setting_.ranks));
            state.observed.assign(static_cast<std::size_t>(setting_.ranks), 0);
            first.ranks.push_back(state);
        }
        first.memory.assign(addresses_of_all(), 0);
        for (int rank = 0; rank < setting_.ranks; ++rank) start_calls(first, rank);
        std::vector<State> open{first};
        seen_.insert(text_of(first));
        while (!open.empty()) {
            const State state = std::move(open.back());
            open.pop_back();
            bool moved = false;
            for (int rank = 0; rank < setting_.ranks; ++rank) {
                for (State &next : successors(state, rank)) {
                    if (!fault_.empty()) return fault_;
                    moved = true;
                    if (seen_.insert(text_of(next)).second) open.push_back(std::move(next));
                }
            }
            if (moved) continue;
            for (int rank = 0; rank < setting_.ranks; ++rank)
                if (state.ranks[rank].started < setting_.calls ||
                    !state.ranks[rank].running.empty())
                    return "rank " + std::to_string(rank) + " waits for ever in call " +
                           std::to_string(state.ranks[rank].running.front().call);
        }
        return {};
    }
    std::size_t states() const { return seen_.size(); }

private:
    ArrayProblem problem(Collective collective) const {
        ArrayProblem problem;
        problem.collective = collective;
        problem.nodes = Nodes::single(setting_.ranks);
        problem.root = setting_.ranks - 1;
        problem.in_order = true;
        problem.staging = {0, 64};
        problem.partial = {0, 64};
        problem.inlined = {4, 8};
        problem.pairs = {.begin = 100, .stride = 10, .beside = 4, .count = 6};
        if (collective == Collective::all_to_all_v) {
            std::vector<std::int64_t> counts(
                static_cast<std::size_t>(setting_.ranks * setting_.ranks), 1);
            counts[1] = 0;  // an empty block, from rank 0 to rank 1
            problem.exchange = Exchange::whole(setting_.ranks, counts);
            return problem;
        }
        problem.cuts = {0};  // the shard of rank 0 is empty
        for (int rank = 0; rank < setting_.ranks; ++rank)
            problem.cuts.push_back(problem.cuts.back() + (rank == 0 ? 0 : 1));
        return problem;
    }

    std::vector<Step> schedule(const ArrayProblem &problem, int rank) const {
        const bool pairs = problem.collective == Collective::all_to_all_v;
        const Schedule schedule =
            pairs ? common::pass_blocks(problem, rank) : common::inlined(problem, rank);
        EXPECT_EQ(schedule.lanes.size(), 1u);
        std::vector<Step> steps = schedule.lanes[0].steps();
        // The sources of a reduction in other ranks' staging buffers: as one copy each.
        std::vector<Step> flat;
        for (const Step &step : steps) {
            if (step.action != Action::reduce) {
                flat.push_back(step);
                continue;
            }
            for (const Place &place : schedule.lanes[0].sources(step)) {
                flat.push_back(step);
                flat.back().action = Action::copy;
                flat.back().from = place;
            }
        }
        // No other rank sees these.
        std::erase_if(flat, [](const Step &step) {
            return step.action == Action::copy && !is_slotted(step.from.region) &&
                   !is_slotted(step.to.region);
        });
        if (setting_.broken == Broken::no_acquire)
            std::erase_if(flat, [](const Step &step) { return step.action == Action::acquire; });
        if (setting_.broken == Broken::no_wait)
            std::erase_if(flat, [](const Step &step) { return step.action == Action::wait; });
        if (setting_.broken == Broken::flag_before_data)
            std::stable_partition(flat.begin(), flat.end(), [](const Step &step) {
                return step.action == Action::acquire || step.action == Action::signal;
            });
        return flat;
    }

    // ---- shared variables ----

    static bool is_slotted(Region region) {
        return region == Region::staging || region == Region::inlined;
    }

    // kind 0: flag_released, 1: flag_call, 2: the released number of a rank, 3: data. Inline data
    // and its flag lie in another memory than pair areas and their flags; `slot` differs.
    Address address(int kind, int rank, int slot, std::int64_t offset) {
        const auto [at, isnew] = addresses_.try_emplace({kind, rank, slot, offset},
                                                        static_cast<Address>(addresses_.size()));
        return at->second;
    }
    // All variables that the calls use get their addresses at once.
    std::size_t addresses_of_all() {
        for (Value call = 1; call <= setting_.calls; ++call) {
            const int slot = slot_of(call);
            for (int rank = 0; rank < setting_.ranks; ++rank) {
                address(2, rank, 0, 0);
                for (const Step &step : schedules_[call - 1u][static_cast<std::size_t>(rank)]) {
                    if (!step.moves() && lies_beside_data(step.flag) &&
                        step.action == Action::signal)
                        for (const std::int64_t flag : flags_of(step, rank))
                            address(0, rank, slot, flag), address(1, rank, slot, flag);
                    if (step.action != Action::copy || !is_slotted(step.to.region)) continue;
                    for (std::int64_t i = 0; i < step.count; ++i)
                        address(3, step.to.rank, slot, step.to.offset + i);
                }
            }
        }
        EXPECT_LT(addresses_.size(), 256u);
        return addresses_.size();
    }
    // inline_flag: number -1. Pair flags: the local rank of the receiver.
    std::vector<std::int64_t> flags_of(const Step &signal, int rank) const {
        if (signal.flag == inline_flag) return {-1};
        std::vector<std::int64_t> flags;
        for (int peer = 0; peer < setting_.ranks; ++peer)
            if (peer != rank) flags.push_back(peer);
        return flags;
    }
    bool uses_staging(Value call) const {
        return problems_[call - 1u].collective == Collective::all_to_all_v;
    }
    int slot_of(Value call) const {
        return uses_staging(call) ? 100 + static_cast<int>(Sequences::staging_slot(call))
                                  : static_cast<int>(Sequences::inline_slot(call));
    }
    static Value run_of(Value call) { return static_cast<Value>(Sequences::run(call)); }

    static Value load(const State &state, int rank, Address address) {
        const auto &stores = state.ranks[static_cast<std::size_t>(rank)].stores;
        for (auto store = stores.rbegin(); store != stores.rend(); ++store)
            if (store->address == address) return store->value;
        return state.memory[address];
    }

    // ---- what a rank may do next ----

    std::vector<State> successors(const State &state, int rank) {
        std::vector<State> next;
        const RankState &here = state.ranks[static_cast<std::size_t>(rank)];
        if (!here.stores.empty()) {
            next.push_back(state);
            auto &stores = next.back().ranks[static_cast<std::size_t>(rank)].stores;
            next.back().memory[stores.front().address] = stores.front().value;
            stores.pop_front();
        }
        for (std::size_t i = 0; i < here.running.size(); ++i) {
            State changed = state;
            if (advance(changed, rank, i)) next.push_back(std::move(changed));
        }
        return next;
    }

    // A call that is started later is one that is started now, and does nothing for a while.
    void start_calls(State &state, int rank) {
        RankState &here = state.ranks[static_cast<std::size_t>(rank)];
        while (here.started < setting_.calls &&
               here.running.size() < static_cast<std::size_t>(setting_.overlap)) {
            here.running.push_back({.call = ++here.started, .step = 0, .observes = false});
            if (setting_.broken == Broken::early_release) release(state, rank, here.started);
        }
    }

    bool advance(State &state, int rank, std::size_t index) {
        RankState &here = state.ranks[static_cast<std::size_t>(rank)];
        Running &run = here.running[index];
        const auto &steps = schedules_[run.call - 1u][static_cast<std::size_t>(rank)];
        const int slot = slot_of(run.call);
        if (run.step == steps.size()) {  // Operation::settle()
            if (setting_.broken != Broken::early_release) release(state, rank, run.call);
            here.running.erase(here.running.begin() + static_cast<std::ptrdiff_t>(index));
            start_calls(state, rank);
            return true;
        }
        const Step &step = steps[run.step];
        switch (step.action) {
            case Action::acquire:
                for (int peer = 0; peer < setting_.ranks; ++peer)
                    if (!is_released(state, rank, peer, run.call)) return false;
                break;
            case Action::copy:
                copy(state, rank, step, run.call);
                break;
            case Action::signal:
                for (const std::int64_t flag : flags_of(step, rank)) {
                    here.stores.push_back({address(0, rank, slot, flag),
                                           static_cast<Value>(here.sequences.released())});
                    here.stores.push_back({address(1, rank, slot, flag), run_of(run.call)});
                }
                break;
            case Action::wait: {
                const std::int64_t flag = step.flag == inline_flag ? -1 : rank;
                if (!run.observes) {
                    if (load(state, rank, address(1, step.peer, slot, flag)) != run_of(run.call))
                        return false;
                    run.observes = true;
                    return true;
                }
                run.observes = false;
                const Value released = load(state, rank, address(0, step.peer, slot, flag));
                const auto peer = static_cast<std::size_t>(step.peer);
                here.sequences.observe(peer, released);
                here.observed[peer] = std::max(here.observed[peer], released);
                break;
            }
            default:
                fault_ = "an action that the model does not know";
        }
        ++run.step;
        return true;
    }

    // Operation::released_by()
    bool is_released(const State &state, int rank, int peer, Value call) {
        const RankState &here = state.ranks[static_cast<std::size_t>(rank)];
        const std::uint64_t number = setting_.broken == Broken::one_slot_more ? call - 1u : call;
        const bool staging = uses_staging(call) && setting_.broken != Broken::staging_as_inline;
        const auto at = static_cast<std::size_t>(peer);
        if (here.sequences.free(at, number, staging)) return true;
        Sequences then = here.sequences;
        then.observe(at, load(state, rank, address(2, peer, 0, 0)));
        return then.free(at, number, staging);
    }

    void release(State &state, int rank, Value call) {
        RankState &here = state.ranks[static_cast<std::size_t>(rank)];
        here.sequences.release(call);
        here.released.push_back(call);
        std::ranges::sort(here.released);
        std::erase_if(here.released,
                      [&](Value number) { return number < here.sequences.released(); });
        here.stores.push_back(
            {address(2, rank, 0, 0), static_cast<Value>(here.sequences.released())});
    }

    void copy(State &state, int rank, const Step &step, Value call) {
        const int slot = slot_of(call);
        for (std::int64_t i = 0; i < step.count; ++i) {
            if (is_slotted(step.to.region))
                state.ranks[static_cast<std::size_t>(rank)].stores.push_back(
                    {address(3, step.to.rank, slot, step.to.offset + i), call});
            if (!is_slotted(step.from.region)) continue;
            const Value found =
                load(state, rank, address(3, step.from.rank, slot, step.from.offset + i));
            if (found == call) continue;
            fault_ = "rank " + std::to_string(rank) + " reads data of call " +
                     std::to_string(found) + " of rank " + std::to_string(step.from.rank) +
                     " in call " + std::to_string(call);
        }
    }

    const Setting setting_;
    std::vector<ArrayProblem> problems_;
    std::vector<std::vector<std::vector<Step>>> schedules_;  // by call, by rank
    std::map<std::tuple<int, int, int, std::int64_t>, Address> addresses_;
    std::unordered_set<std::string> seen_;
    std::string fault_;
};

constexpr auto gather = Collective::all_gather_v;
constexpr auto broadcast = Collective::broadcast;
constexpr auto scatter_sum = Collective::reduce_scatter_v;
constexpr auto sum = Collective::all_reduce;
constexpr auto reduce = Collective::reduce;
constexpr auto exchange = Collective::all_to_all_v;

std::string name_of_setting(const testing::TestParamInfo<Setting> &info) {
    return info.param.name;
}

// A flag holds the run of its call: it must say which of the calls on its slot that is.
TEST(SlotNumbers, TwoCallsOnOneSlotAreDifferentRuns) {
    for (std::uint64_t number = 1; number <= 3 * inline_slots; ++number) {
        EXPECT_EQ(
            SlotSequences::number(SlotSequences::run(number), SlotSequences::inline_slot(number)),
            number);
        for (std::uint64_t later = number + 1; later <= number + 2 * inline_slots; ++later) {
            const bool same_slot =
                SlotSequences::inline_slot(number) == SlotSequences::inline_slot(later) ||
                SlotSequences::staging_slot(number) == SlotSequences::staging_slot(later);
            if (same_slot) {
                EXPECT_LT(SlotSequences::run(number), SlotSequences::run(later));
            }
        }
    }
}

class SmallCalls : public testing::TestWithParam<Setting> {};

TEST_P(SmallCalls, ReadNoDataOfAnotherCallInAnyInterleaving) {
    Model model(GetParam());
    EXPECT_EQ(model.explore(), "");
    EXPECT_GT(model.states(), 100u);
    RecordProperty("states", std::to_string(model.states()));
}

INSTANTIATE_TEST_SUITE_P(
    All, SmallCalls,
    testing::Values(Setting{"AllReduceOf2", 2, 6, 1, {sum}, {}},
                    Setting{"AllGatherOf2", 2, 6, 1, {gather}, {}},
                    Setting{"BroadcastOf2", 2, 6, 1, {broadcast}, {}},
                    Setting{"ReduceOf2", 2, 6, 1, {reduce}, {}},
                    Setting{"ReduceScatterOf2", 2, 6, 1, {scatter_sum}, {}},
                    Setting{"AllToAllOf2", 2, 6, 1, {exchange}, {}},
                    Setting{"MixedOf2", 2, 9, 1, {broadcast, reduce, sum, exchange, gather}, {}},
                    Setting{"ExchangesBetweenOthersOf2", 2, 8, 1, {broadcast, exchange}, {}},
                    Setting{"TwoAtATimeOf2", 2, 5, 2, {broadcast}, {}},
                    Setting{"TwoExchangesAtATimeOf2", 2, 5, 2, {exchange}, {}},
                    Setting{"AllReduceOf3", 3, 5, 1, {sum}, {}},
                    Setting{"BroadcastOf3", 3, 5, 1, {broadcast}, {}},
                    Setting{"AllToAllOf3", 3, 5, 1, {exchange}, {}},
                    Setting{"MixedOf3", 3, 5, 1, {sum, broadcast, gather, reduce}, {}}),
    name_of_setting);

class BrokenProtocols : public testing::TestWithParam<Setting> {};

TEST_P(BrokenProtocols, AreFound) {
    EXPECT_NE(Model(GetParam()).explore(), "");
}

INSTANTIATE_TEST_SUITE_P(
    All, BrokenProtocols,
    testing::Values(
        Setting{"NoAcquire", 2, 6, 1, {broadcast}, Broken::no_acquire},
        Setting{"NoAcquireOfPairAreas", 3, 6, 2, {exchange}, Broken::no_acquire},
        Setting{"FlagBeforeData", 2, 2, 1, {sum}, Broken::flag_before_data},
        Setting{"FlagBeforeDataOfPairAreas", 2, 2, 1, {exchange}, Broken::flag_before_data},
        Setting{"NoWait", 2, 2, 1, {gather}, Broken::no_wait},
        Setting{"EarlyRelease", 2, 6, 1, {broadcast}, Broken::early_release},
        Setting{"OneSlotMore", 2, 6, 1, {broadcast}, Broken::one_slot_more},
        Setting{"StagingAsInline", 2, 8, 1, {broadcast, exchange}, Broken::staging_as_inline}),
    name_of_setting);

}  // namespace
}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The deciding parts of the engine, without communicators: slots, order, states of units, meshes,
// comparison of events.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "fsdp/engine/event_log.h"
#include "fsdp/engine/order.h"
#include "fsdp/engine/slot_pool.h"
#include "fsdp/engine/unit_states.h"
#include "fsdp/error.h"
#include "fsdp/report/traffic.h"
#include "fsdp/spec/mesh.h"
#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp {
namespace {

Spec spec_of(int units, const std::string &preset = "zero3",
             vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init()) {
    Spec spec(options);
    spec.use_preset(preset);
    for (int unit = 0; unit < units; ++unit) {
        spec.add_unit("unit." + std::to_string(unit));
        const std::int64_t shape[] = {17 + unit, 6};
        vescomm_fsdp_parameter_t parameter = vescomm_fsdp_parameter_init();
        parameter.name = "weight";
        parameter.shape = shape;
        parameter.dimensions = 2;
        spec.add_parameter(static_cast<std::size_t>(unit), parameter);
    }
    spec.complete();
    return spec;
}

std::vector<std::string> names_of(const Spec &spec) {
    std::vector<std::string> names;
    for (const Unit &unit : spec.units()) names.push_back(unit.name);
    return names;
}

SlotPool pool_of(int units, int slots) {
    return {slot_ranges(std::vector<SlotUse>(static_cast<std::size_t>(units), SlotUse::shared),
                        {static_cast<std::size_t>(slots), 0}),
            static_cast<std::size_t>(slots)};
}

// A pinned unit keeps its slot, and two units never have one slot.
TEST(SlotPool, NeverGivesAPinnedSlotAway) {
    std::mt19937 random(1);
    for (const int slots : {1, 2, 3, 7})
        for (int repetition = 0; repetition < 200; ++repetition) {
            constexpr int units = 7;
            SlotPool pool = pool_of(units, slots);
            std::vector<int> pins(units, 0), slot(units, SlotPool::none);
            for (int event = 0; event < 200; ++event) {
                const int unit = static_cast<int>(random() % units);
                const int next[] = {static_cast<int>(random() % units)};
                switch (random() % 4) {
                    case 0:
                    case 1: {
                        const auto opened = pool.open(unit, next);
                        const auto busy = std::ranges::count_if(pins, [](int n) { return n > 0; });
                        if (opened.slot == SlotPool::none) {
                            // With a slot for each unit there is always one.
                            ASSERT_EQ(busy, slots);
                            ASSERT_EQ(pins[unit], 0);
                            break;
                        }
                        if (pins[unit] > 0) {
                            ASSERT_EQ(opened.slot, slot[unit]);
                            ASSERT_FALSE(opened.gather);
                        }
                        ++pins[unit];
                        slot[unit] = opened.slot;
                        break;
                    }
                    case 2:
                        pool.prefetch(unit, next);
                        break;
                    default:
                        if (pins[unit] > 0) {
                            pool.close(unit);
                            --pins[unit];
                        } else {
                            pool.drop(unit);
                        }
                }
                std::vector<int> held;
                for (int one = 0; one < units; ++one) {
                    ASSERT_EQ(pool.pins(one), pins[one]);
                    if (pins[one] > 0) {
                        ASSERT_EQ(pool.slot_of(one), slot[one]);
                    }
                    if (pool.slot_of(one) != SlotPool::none) held.push_back(pool.slot_of(one));
                }
                std::ranges::sort(held);
                ASSERT_EQ(std::ranges::adjacent_find(held), held.end());
                ASSERT_TRUE(held.empty() || (held.front() >= 0 && held.back() < slots));
            }
        }
}

TEST(SlotPool, LargeUnitsHaveSlotsOfTheirOwn) {
    using enum SlotUse;
    const std::vector<SlotUse> uses = {large, shared, shared, shared, large};
    const auto ranges = slot_ranges(uses, {2, 1});
    const std::uint64_t bytes[] = {1000, 10, 30, 20, 900};
    EXPECT_EQ(slot_bytes(ranges, bytes), (std::vector<std::uint64_t>{30, 30, 1000}));
    SlotPool pool(ranges, 3);
    EXPECT_EQ(pool.open(0).slot, 2);
    EXPECT_EQ(pool.open(4).slot, SlotPool::none);
    EXPECT_EQ(pool.pinned_beside(4), std::vector<int>{0});
    EXPECT_EQ(pool.open(1).slot, 0);
    EXPECT_EQ(pool.open(2).slot, 1);
    EXPECT_EQ(pool.open(3).slot, SlotPool::none);
    pool.close(0);
    const SlotPool::Opened opened = pool.open(4);
    EXPECT_EQ(opened.slot, 2);
    EXPECT_EQ(opened.evicted, 0);
    // As many slots as units of a kind: one each, of its size.
    EXPECT_EQ(slot_bytes(slot_ranges(uses, {7, 2}), bytes),
              (std::vector<std::uint64_t>{10, 30, 20, 1000, 900}));
    EXPECT_EQ(slot_bytes(slot_ranges(std::vector{large, large}, {2, 1}), std::span(bytes).first(2)),
              (std::vector<std::uint64_t>{1000}));
}

TEST(SlotPool, AUnitThatIsKeptHasASlotAlone) {
    using enum SlotUse;
    const auto ranges = slot_ranges(std::vector{kept, shared, large, shared, kept, shared}, {2, 1});
    const std::vector<SlotRange> expected = {{2, 3}, {0, 2}, {4, 5}, {0, 2}, {3, 4}, {0, 2}};
    EXPECT_EQ(ranges, expected);
    SlotPool pool(ranges, 5);
    std::vector<int> gathers(ranges.size());
    for (int pass = 0; pass < 3; ++pass)
        for (int unit = 0; unit < 6; ++unit) {
            gathers[static_cast<std::size_t>(unit)] += pool.open(unit).gather ? 1 : 0;
            pool.close(unit);
        }
    for (const int unit : {0, 2, 4}) EXPECT_EQ(gathers[static_cast<std::size_t>(unit)], 1);
    EXPECT_GT(gathers[1] + gathers[3] + gathers[5], 5);
}

TEST(SlotPool, PrefersTheSameSlotInEveryStep) {
    SlotPool pool = pool_of(10, 3);
    for (int step = 0; step < 3; ++step)
        for (int unit = 0; unit < 10; ++unit) {
            EXPECT_EQ(pool.open(unit).slot, unit % 3);
            pool.close(unit);
            pool.drop(unit);
        }
}

// As in a model of attention and experts in turns.
TEST(SlotPool, UsesAllSlotsOfKindsThatTakeTurns) {
    using enum SlotUse;
    const auto ranges =
        slot_ranges(std::vector{shared, large, shared, large, shared, large}, {2, 2});
    SlotPool pool(ranges, 4);
    std::vector<int> slots;
    for (int unit = 0; unit < 6; ++unit) {
        slots.push_back(pool.open(unit).slot);
        pool.close(unit);
        pool.drop(unit);
    }
    EXPECT_EQ(slots, (std::vector{0, 2, 1, 3, 0, 2}));
}

TEST(Order, DeclaredGoesUpAndDown) {
    Order order(VESCOMM_FSDP_DECLARED, 4);
    order.begin(false);
    EXPECT_EQ(order.upcoming(2), (std::vector{0, 1}));
    order.opened(0, false);
    order.opened(1, false);
    EXPECT_EQ(order.upcoming(9), (std::vector{2, 3, 1, 0}));
    order.opened(2, false);
    order.opened(3, false);
    order.opened(3, true);
    EXPECT_EQ(order.upcoming(2), (std::vector{2, 1}));
    // A unit is skipped: the order continues behind the next one.
    order.opened(1, true);
    EXPECT_EQ(order.upcoming(2), (std::vector{0}));
    EXPECT_EQ(order.deviations(), 1u);
    order.begin(true);
    order.opened(3, false);
    EXPECT_TRUE(order.upcoming(4).empty());
}

TEST(Order, TheFirstUnitsAreThoseOfTheNextMicroBatchOfTraining) {
    Order declared(VESCOMM_FSDP_DECLARED, 3);
    EXPECT_EQ(declared.first(2), (std::vector{0, 1}));
    EXPECT_EQ(declared.first(9), (std::vector{0, 1, 2}));
    Order recorded(VESCOMM_FSDP_RECORDED, 3);
    EXPECT_TRUE(recorded.first(2).empty());
    const auto pass = [&](bool evaluation, const std::vector<int> &units) {
        recorded.begin(evaluation);
        for (const int unit : units) recorded.opened(unit, false);
        recorded.end();
    };
    pass(false, {2, 0, 2, 1});
    EXPECT_EQ(recorded.first(3), (std::vector{2, 0, 1}));
    pass(true, {1, 0});
    EXPECT_EQ(recorded.first(2), (std::vector{2, 0}));
    Order explicitly(VESCOMM_FSDP_EXPLICIT, 3);
    EXPECT_TRUE(explicitly.first(2).empty());
}

TEST(Order, RecordedRepeatsTheMicroBatchBefore) {
    Order order(VESCOMM_FSDP_RECORDED, 4);
    const auto pass = [&](std::vector<int> units) {
        order.begin(false);
        std::vector<std::vector<int>> predicted;
        for (const int unit : units) {
            order.opened(unit, false);
            predicted.push_back(order.upcoming(1));
        }
        order.end();
        return predicted;
    };
    using Predicted = std::vector<std::vector<int>>;
    EXPECT_EQ(pass({2, 0, 3}), (Predicted{{}, {}, {}}));
    EXPECT_EQ(pass({2, 0, 3}), (Predicted{{0}, {3}, {}}));
    EXPECT_EQ(pass({2, 1, 3}), (Predicted{{0}, {}, {}}));
    EXPECT_EQ(pass({2, 1, 3}), (Predicted{{1}, {3}, {}}));
    EXPECT_EQ(order.deviations(), 1u);
    EXPECT_EQ(pass({2, 1}), (Predicted{{1}, {3}}));
    EXPECT_EQ(order.deviations(), 2u);
}

TEST(Order, ExplicitPredictsNothing) {
    Order order(VESCOMM_FSDP_EXPLICIT, 4);
    order.begin(false);
    order.opened(2, false);
    EXPECT_TRUE(order.upcoming(4).empty());
    EXPECT_EQ(order.deviations(), 0u);
}

// The gradients of a unit are complete when all its uses went through backward.
TEST(UnitStates, FindsCompleteGradients) {
    const Spec spec = spec_of(2);
    const ModelPlan plan = plan_model(spec, 1);
    UnitStates states(plan, names_of(spec));
    using Units = std::vector<std::size_t>;
    for (int uses = 1; uses <= 3; ++uses) {
        states.begin(VESCOMM_FSDP_LAST);
        for (int use = 0; use < uses; ++use) {
            EXPECT_FALSE(states.pre_forward(1));
            states.post_forward(1);
        }
        states.pre_forward(0);
        states.post_forward(0);
        for (int use = 1; use <= uses; ++use) {
            states.pre_backward(1);
            EXPECT_TRUE(states.pre_forward(1));  // recomputes
            states.post_forward(1);
            EXPECT_EQ(states.post_backward(1), use == uses ? Units{1} : Units{});
        }
        // Unit 0 has no backward pass, and so no gradients.
        EXPECT_EQ(states.finish_backward(), Units{});
        states.step();
    }
    // A use without a backward pass is complete at the end.
    states.begin(VESCOMM_FSDP_LAST);
    for (int use = 0; use < 2; ++use) {
        states.pre_forward(0);
        states.post_forward(0);
    }
    states.pre_backward(0);
    EXPECT_EQ(states.post_backward(0), Units{});
    EXPECT_EQ(states.finish_backward(), Units{0});
}

// Four units; the last one shares a parameter of the first one.
Spec tied_spec() {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.slots = options.gradient_slots = 4;
    Spec spec = spec_of(3, "zero3", options);
    const std::size_t unit = spec.add_unit("head");
    const std::int64_t shape[] = {17, 6};
    vescomm_fsdp_parameter_t parameter = vescomm_fsdp_parameter_init();
    parameter.name = "tied";
    parameter.shape = shape;
    parameter.dimensions = 2;
    parameter.tied_to = 0;
    spec.add_parameter(unit, parameter);
    parameter.name = "own";
    parameter.tied_to = -1;
    spec.add_parameter(unit, parameter);
    spec.complete();
    return spec;
}

// In any sequence of events, gradients that were written are sent once in a micro-batch, and never
// while a unit that writes them is open for backward or has another backward pass before it.
TEST(UnitStates, SendsEveryGradientOnceInAnySequence) {
    const Spec spec = tied_spec();
    const ModelPlan plan = plan_model(spec, 1);
    ASSERT_EQ(plan.needs[3], (std::vector<std::size_t>{3, 0}));
    UnitStates states(plan, names_of(spec));
    std::mt19937 random(7);
    int accepted = 0, refused = 0;
    for (int micro_batch = 0; micro_batch < 20000; ++micro_batch) {
        states.begin(micro_batch % 3 == 2 ? VESCOMM_FSDP_LAST : 0);
        std::vector<int> sent(4, 0), open(4, 0), forwards(4, 0), backwards(4, 0);
        std::vector<bool> written(4, false);
        const auto check = [&](const std::vector<std::size_t> &ready) {
            for (const std::size_t unit : ready) {
                ++sent[unit];
                for (const std::size_t user : {unit, unit == 0 ? std::size_t{3} : unit}) {
                    ASSERT_EQ(open[user], 0);
                    ASSERT_EQ(forwards[user], backwards[user]);
                }
            }
        };
        std::vector<int> pins(4, 0);
        for (int event = 0; event < 30; ++event) {
            const std::size_t unit = random() % 4;
            try {
                switch (random() % 4) {
                    case 0:
                        if (!states.pre_forward(unit)) ++forwards[unit];
                        ++pins[unit];
                        break;
                    case 1:
                        states.post_forward(unit);
                        --pins[unit];
                        break;
                    case 2:
                        if (event < 12) break;
                        states.pre_backward(unit);
                        open[unit] = 1;
                        for (const std::size_t owner : plan.needs[unit]) written[owner] = true;
                        break;
                    default:
                        const auto ready = states.post_backward(unit);
                        open[unit] = 0;
                        ++backwards[unit];
                        check(ready);
                }
                ++accepted;
            } catch (const Failure &) {
                ++refused;
            }
            ASSERT_EQ(pins[unit] > 0 || open[unit] > 0, states.open(unit));
        }
        for (std::size_t unit = 0; unit < 4; ++unit) {
            for (; pins[unit] > 0; --pins[unit]) states.post_forward(unit);
            if (open[unit] == 0) continue;
            open[unit] = 0;
            ++backwards[unit];
            check(states.post_backward(unit));
        }
        for (const std::size_t unit : states.finish_backward()) ++sent[unit];
        for (std::size_t unit = 0; unit < 4; ++unit) ASSERT_EQ(sent[unit], written[unit] ? 1 : 0);
        if (states.last()) states.step();
    }
    EXPECT_GT(accepted, 100000);
    EXPECT_GT(refused, 50000);
}

TEST(UnitStates, KeepsGradientsUntilTheLastMicroBatch) {
    const Spec spec = spec_of(1, "zero1");
    const ModelPlan plan = plan_model(spec, 1);
    UnitStates states(plan, names_of(spec));
    for (const std::uint32_t flags : {VESCOMM_FSDP_NO_SYNC, std::uint32_t{0}, VESCOMM_FSDP_LAST}) {
        const bool last = flags == VESCOMM_FSDP_LAST;
        states.begin(flags);
        states.pre_forward(0);
        states.post_forward(0);
        states.pre_backward(0);
        EXPECT_EQ(states.post_backward(0).size(), last ? 1u : 0u);
        EXPECT_TRUE(states.finish_backward().empty());
        if (!last) {
            EXPECT_THROW(states.require_gradients(), Failure);
        }
    }
    states.step();
}

TEST(Mesh, DividesRanks) {
    const auto mesh = [](const std::string &preset, int ranks) {
        return make_mesh(spec_of(1, preset), ranks);
    };
    for (int ranks = 1; ranks <= 33; ++ranks) {
        EXPECT_EQ(mesh("zero3", ranks).shard_ranks, ranks);
        EXPECT_EQ(mesh("ddp", ranks).shard_ranks, 1);
        EXPECT_EQ(mesh("ddp", ranks).replicas(), ranks);
        for (int size = 1; size <= 8; ++size) {
            const std::string preset = "hsdp:" + std::to_string(size);
            if (ranks % size != 0) {
                EXPECT_THROW(mesh(preset, ranks), Failure);
                continue;
            }
            EXPECT_EQ(mesh(preset, ranks).shard_ranks, size);
            EXPECT_EQ(mesh(preset, ranks).group(ranks - 1), ranks / size - 1);
            EXPECT_EQ(mesh(preset, ranks).position(ranks - 1), size - 1);
            const Mesh copies = mesh("hpz:" + std::to_string(size), ranks);
            EXPECT_EQ(copies.shard_ranks, ranks);
            EXPECT_EQ(copies.gather_ranks(), size);
            EXPECT_FALSE(copies.keep_parameters);
            // The parts of a group have each shard once.
            for (int shard = 0; shard < ranks; ++shard)
                for (int first = 0; first < ranks; first += size) {
                    int times = 0;
                    for (int rank = first; rank < first + size; ++rank)
                        times += copies.part_has(rank, shard) ? 1 : 0;
                    EXPECT_EQ(times, 1);
                }
        }
    }
    EXPECT_TRUE(mesh("zero2", 4).keep_parameters);
    EXPECT_FALSE(mesh("zero2", 4).keep_gradients);
    EXPECT_TRUE(mesh("zero1", 4).keep_gradients);
    EXPECT_FALSE(mesh("hsdp:2", 4).keep_parameters);
    for (const char *wrong :
         {"", "zero4", "hsdp", "hsdp:", "hsdp:0", "hsdp:2x", "ddp:2", "hpz", "hpz:0"})
        EXPECT_THROW(axes_of_preset(wrong), Failure) << wrong;
}

TEST(ModelPlan, PiecesCoverEveryParameterOnce) {
    for (int ranks = 1; ranks <= 17; ++ranks) {
        const Spec spec = spec_of(5);
        const ModelPlan plan = plan_model(spec, ranks);
        std::vector<std::int64_t> covered(spec.parameters().size(), 0);
        for (int rank = 0; rank < ranks; ++rank)
            for (const Bucket &bucket : plan.buckets)
                for (const auto &piece : bucket.pieces(rank)) {
                    // Ranks are in order, so each piece begins where the last one ended.
                    EXPECT_EQ(piece.first, covered[piece.parameter]);
                    covered[piece.parameter] += piece.elements;
                }
        for (std::size_t id = 0; id < covered.size(); ++id)
            EXPECT_EQ(covered[id], spec.parameters()[id].elements);
    }
}

TEST(EventLog, NamesTheRanksAndEventsThatDiffer) {
    const std::string names[] = {"a", "b"};
    EventLog first, second;
    first.note(Event::begin);
    second.note(Event::begin);
    std::vector<Announcement> all = {first.now(), first.now(), second.now()};
    EXPECT_EQ(compare(all, names), "");
    first.note(Event::pre_forward, 0);
    second.note(Event::pre_backward, 1);
    all = {first.now(), first.now(), second.now()};
    const std::string sentence = compare(all, names);
    EXPECT_NE(sentence.find("rank 0 pre_forward of unit \"a\", rank 2 pre_backward of unit \"b\""),
              std::string::npos)
        << sentence;
    // The same event with other arguments.
    EventLog third = first;
    first.note(Event::step, no_unit, 1);
    third.note(Event::step, no_unit, 2);
    all = {first.now(), third.now()};
    EXPECT_EQ(compare(all, names).find("the arguments of ranks 0 and 1 differ, of step or an"), 0u)
        << compare(all, names);
    EventLog fifth = first, sixth = first;
    fifth.note(Argument::max_norm, 0.1);
    sixth.note(Argument::max_norm, HUGE_VAL);
    all = {fifth.now(), fifth.now(), sixth.now()};
    EXPECT_EQ(compare(all, names),
              "max_norm of vescomm_fsdp_step() is 0.1 on rank 0 and inf on rank 2; use the same on "
              "every rank");
    // The last values are the same, and an earlier one was not.
    for (EventLog *log : {&fifth, &sixth}) log->note(Argument::max_norm, 1);
    all = {fifth.now(), sixth.now()};
    EXPECT_EQ(compare(all, names).find("the arguments of ranks 0 and 1 differ, of step or an"), 0u)
        << compare(all, names);
    // Another number of events before the same one.
    EventLog fourth = second = first;
    second.note(Event::begin);
    second.note(Event::step);
    fourth.note(Event::step);
    all = {second.now(), fourth.now()};
    EXPECT_EQ(compare(all, names)
                  .find("ranks announced different events: rank 0 begin, rank 1 "
                        "step; announce the same events"),
              0u)
        << compare(all, names);
    EXPECT_NE(compare(all, names).find("(these are event 4 of each)"), std::string::npos);
}

// The collectives in which ranks meet may come long after the first different event.
TEST(EventLog, NamesTheFirstDifferentEventAmongTheLastOnes) {
    const std::string names[] = {"a", "b"};
    const std::string advice = "announce the same events in the same order on every rank ";
    const auto compare_two = [&](const EventLog &one, const EventLog &other) {
        const Announcement all[] = {one.now(), other.now()};
        return compare(all, names);
    };
    EventLog first, second;
    for (EventLog *log : {&first, &second}) log->note(Event::begin);
    for (const Event event : {Event::pre_forward, Event::post_forward}) second.note(event, 1);
    for (EventLog *log : {&first, &second})
        for (const std::uint64_t unit : {0, 1}) log->note(Event::pre_forward, unit);
    const std::string different =
        "ranks announced different events: rank 0 pre_forward of unit \"a\", rank 1 pre_forward of "
        "unit \"b\"; ";
    EXPECT_EQ(compare_two(first, second), different + advice + "(these are event 2 of each)");
    // Eight events later it has been overwritten.
    for (int k = 0; k < 4; ++k)
        for (EventLog *log : {&first, &second}) {
            log->note(Event::post_forward, k % 2);
            log->note(Event::pre_forward, k % 2);
        }
    EXPECT_NE(compare_two(first, second).find(" of each; earlier ones may differ, too)"),
              std::string::npos)
        << compare_two(first, second);
    // The ranks share no number any more.
    for (int k = 0; k < 9; ++k) second.note(Event::begin);
    EXPECT_EQ(compare_two(first, second),
              "ranks announced different events: rank 0 pre_forward of unit \"b\", rank 1 begin; " +
                  advice + "(these are event 11 of rank 0, 22 of rank 1)");
    second.note(Event::pre_forward, 1);
    EXPECT_EQ(compare_two(first, second),
              "the events of ranks 0 and 1 differ before pre_forward of unit \"b\" (event 11 of "
              "rank 0, 23 of rank 1); announce the same events in the same order on every rank");
}

// Ranks do not meet in an initialisation, so that the events after it are those that differ.
TEST(EventLog, NamesAnInitialisationThatARankHasNotMade) {
    const std::string names[] = {"a", "b"};
    EventLog first, second;
    first.note(Event::initialise);
    for (EventLog *log : {&first, &second}) log->note(Event::begin);
    first.note(Event::pre_forward, 0);
    second.note(Event::pre_forward, 1);
    const Announcement all[] = {first.now(), second.now()};
    const std::string sentence = compare(all, names);
    EXPECT_EQ(sentence.find("rank 0 has called vescomm_fsdp_initialise() 1 times"), 0) << sentence;
    EXPECT_NE(sentence.find("rank 1 0 times before pre_forward of unit \"b\""), std::string::npos)
        << sentence;
}

TEST(Report, AddsUpForAnyNumberOfRanks) {
    for (const char *preset : {"zero1", "zero2", "zero3"})
        for (int ranks = 1; ranks <= 9; ++ranks) {
            const Spec spec = spec_of(4, preset);
            const ModelPlan plan = plan_model(spec, ranks);
            std::int64_t elements = 0;
            vescomm_fsdp_report_t asked = vescomm_fsdp_report_init();
            const vescomm_fsdp_report_t largest = make_report(spec, plan, asked);
            for (asked.rank = 0; asked.rank < ranks; ++asked.rank) {
                const vescomm_fsdp_report_t one = make_report(spec, plan, asked);
                elements += one.shard_elements;
                EXPECT_LE(one.persistent_bytes, largest.persistent_bytes);
                EXPECT_EQ(one.persistent_bytes,
                          one.master_bytes + one.gradient_bytes + one.optimizer_bytes);
            }
            EXPECT_EQ(elements, largest.parameters + largest.padding);
        }
}

}  // namespace
}  // namespace vescomm::fsdp

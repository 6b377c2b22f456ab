// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Random events. Permitted ones give exact numbers; a wrong one, on all ranks or on one, also in
// the middle of a step, gives an error on all ranks that names an event, and after a reset the
// numbers are exact again.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>
#include <utility>

#include "fsdp/training.h"
#include "support/number_in.h"

namespace vescomm::fsdp::testing {
namespace {

using vescomm::testing_support::number_in;

// Four units, SGD with p -= g, so that the parameters are known exactly. One unit has experts,
// which may be divided among ranks; others have parameters that are frozen, replicated, and tied.
struct Small {
    Small(const std::string &preset, int expert_ranks, std::mt19937 &random)
        : Small(preset, options(preset, expert_ranks, random)) {}

    Small(const std::string &preset, const vescomm_fsdp_spec_options_t &options)
        : spec(options),
          quantised(options.gather_type != 0 || options.reduce_type != 0),
          expert_ranks(options.expert_ranks),
          keeps_gradients(options.keep_gradients != 0) {
        spec.preset(preset);
        const std::int64_t rows[] = {5, 48, 0, 13};
        for (int unit = 0; unit < 4; ++unit) {
            const std::uint32_t experts = unit == expert_unit ? VESCOMM_FSDP_EXPERTS : 0;
            const bool kept = unit == (options.slots + options.gradient_slots) % 5;
            spec.add_unit("unit." + std::to_string(unit),
                          experts | (kept ? VESCOMM_FSDP_KEEP_GATHERED : 0));
            add(unit, {.name = "w", .shape = {rows[unit], 3}});
        }
        add(0, {.name = "frozen", .shape = {7}, .flags = VESCOMM_FSDP_FROZEN});
        add(2, {.name = "replicated", .shape = {2, 2}, .flags = VESCOMM_FSDP_REPLICATED});
        // Unit 3 is then open together with unit 0.
        if (options.slots > 1 && options.gradient_slots > 1)
            add(3, {.name = "tied", .shape = {rows[0], 3}, .tied_to = 0});
        std::vector<std::uint64_t> updated;
        for (std::uint64_t id = 0; id < parameters.size(); ++id)
            if (parameters[id].owner == id && parameters[id].trainable) updated.push_back(id);
        vescomm_sgd_settings_t settings = vescomm_sgd_settings_init();
        settings.learning_rate = 1;
        spec.add_group(updated, vescomm_optimizer_get_sgd(), &settings);
    }

    void add(std::uint64_t unit, const ParameterSpec &parameter) {
        const std::uint64_t id = spec.add_parameter(unit, parameter);
        const std::uint64_t owner =
            parameter.tied_to < 0 ? id : static_cast<std::uint64_t>(parameter.tied_to);
        parameters.push_back({unit, owner, parameter.flags != VESCOMM_FSDP_FROZEN});
        expected.push_back(static_cast<float>(id));
    }
    void fill(Engine &engine) const {
        engine.initialise([&](std::uint64_t id, std::int64_t, std::span<float> values,
                              std::uint64_t) { std::ranges::fill(values, expected[id]); });
    }
    float value_of(std::uint64_t id) const { return expected[parameters[id].owner]; }

    static vescomm_fsdp_spec_options_t options(const std::string &preset, int expert_ranks,
                                               std::mt19937 &random) {
        vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
        options.slots = 1 + static_cast<int>(random() % 4);
        options.gradient_slots = 1 + static_cast<int>(random() % 4);
        options.order = static_cast<int>(random() % 3);
        options.keep_gradients = static_cast<int>(random() % 2);
        const vescomm_type_t gather_types[] = {0, 0, VESCOMM_I8, VESCOMM_F8E4M3};
        options.gather_type = gather_types[random() % 4];
        options.reduce_type = gather_types[random() % 4];
        options.large_unit_bytes = random() % 3 == 0 ? 100 : 0;
        options.expert_ranks = expert_ranks;
        options.update_threads = static_cast<int>(random() % 3);
        options.partner_copy = random() % 3 == 0 ? 1 : 0;
        if (preset == "ddp" || preset == "hsdp:1") options.reduce_type = 0;  // an error
        return options;
    }

    static constexpr int expert_unit = 1;
    struct Parameter {
        std::uint64_t unit;
        std::uint64_t owner;  // the parameter whose values it has
        bool trainable;
    };

    Spec spec;
    bool quantised;  // parameters or gradients travel in 8 bits
    int expert_ranks;
    bool keeps_gradients;  // NO_SYNC is permitted
    std::vector<Parameter> parameters;  // by id
    std::vector<float> expected;  // by owner: the value of every element
};

void expect_values(Engine &engine, const Small &small, std::uint64_t unit) {
    for (std::uint64_t id = 0; id < small.parameters.size(); ++id) {
        if (small.parameters[id].unit != unit) continue;
        const vescomm_fsdp_view_t view = engine.parameter(id);
        // A block of equal values in 8 bits is its scale multiplied by the largest code.
        const float exact = small.value_of(id);
        const float error = small.quantised ? std::fabs(exact) * 2e-6f : 0;
        for (std::int64_t i = 0; i < view.elements; ++i)
            ASSERT_NEAR(read(view, i), exact, error) << "parameter " << id;
    }
}

// The events of one rank in a step, with what they add up to.
class Events {
public:
    Events(Engine &engine, const Small &small)
        : engine_(engine), small_(small), sums_(small.parameters.size(), 0) {}

    // A call before each event.
    void set_interference(std::function<void()> interfere) { interfere_ = std::move(interfere); }

    Engine &next() {
        if (interfere_) interfere_();
        return engine_;
    }
    Engine &engine() { return engine_; }
    const Small &small() const { return small_; }

    // Adds `value` on this rank to the gradients of a parameter.
    void add(std::uint64_t id, float value, bool push) {
        if (push) {
            const std::vector<float> values(
                static_cast<std::size_t>(engine_.parameter(id).elements), value);
            engine_.push_gradient(id, values.data(), VESCOMM_F32);
        } else {
            const auto [view, mode] = engine_.gradient(id);
            for (std::int64_t i = 0; i < view.elements; ++i)
                write(view, i, mode == VESCOMM_FSDP_ADD ? read(view, i) + value : value);
        }
        sums_[small_.parameters[id].owner] += value;
    }
    void scale(float factor) {
        engine_.scale(factor);
        for (float &sum : sums_) sum *= factor;
    }
    // By owner: what this rank has added to every element.
    const std::vector<float> &sums() const { return sums_; }

private:
    Engine &engine_;
    const Small &small_;
    std::vector<float> sums_;
    std::function<void()> interfere_;
};

// Compares all values in an evaluation.
void evaluate(Events &events) {
    events.next().begin(VESCOMM_FSDP_EVAL);
    for (std::uint64_t unit = 0; unit < 4; ++unit) {
        events.next().pre_forward(unit);
        expect_values(events.engine(), events.small(), unit);
        events.next().post_forward(unit);
    }
}

// One step of random, permitted events. `random` is the same on every rank.
void random_step(Events &events, std::mt19937 &random) {
    const Small &small = events.small();
    const int micro_batches = 1 + static_cast<int>(random() % 3);
    for (int micro = 0; micro < micro_batches; ++micro) {
        const bool without_sum = small.keeps_gradients && random() % 2 == 0;
        events.next().begin(micro + 1 == micro_batches ? VESCOMM_FSDP_LAST
                            : without_sum              ? VESCOMM_FSDP_NO_SYNC
                                                       : 0);
        // A unit that stays gathered, also while it is open otherwise.
        const std::uint64_t held = random() % 8;
        if (held < 4) {
            events.next().unshard(held);
            if (random() % 2 == 0) expect_values(events.engine(), small, held);
        }
        std::vector<std::uint64_t> used;
        for (std::uint32_t i = random() % 6; i > 0; --i) used.push_back(random() % 4);
        for (const std::uint64_t unit : used) {
            events.next().pre_forward(unit);
            expect_values(events.engine(), small, unit);
            events.next().post_forward(unit);
        }
        std::ranges::shuffle(used, random);
        // Gradients of a unit stay in a slot until all its uses are done, so slots can run out.
        std::ranges::sort(used);
        for (const std::uint64_t unit : used) {
            if (random() % 8 == 0) continue;  // no backward pass for this use
            events.next().pre_backward(unit);
            if (random() % 3 == 0) {
                events.next().pre_forward(unit);
                events.next().post_forward(unit);
            }
            expect_values(events.engine(), small, unit);
            for (std::uint64_t id = 0; id < small.parameters.size(); ++id) {
                const Small::Parameter &parameter = small.parameters[id];
                if (parameter.unit != unit || !parameter.trainable || random() % 5 == 0) continue;
                const float value = static_cast<float>(random() % 7);
                events.next();
                events.add(id, value, random() % 2 == 0);
            }
            events.next().post_backward(unit);
        }
        if (held < 4) {
            expect_values(events.engine(), small, held);
            events.next().reshard(held);
        }
        events.next().finish_backward();
        if (random() % 4 == 0) evaluate(events);
    }
    events.next().step();
}

// A random event, with its arguments.
struct Random {
    explicit Random(const Small &small, std::mt19937 &random)
        : kind(random() % 14),
          unit(random() % 5),
          id(random() % small.parameters.size()),
          flags(static_cast<std::uint32_t>(random() % 16)) {}

    bool adds() const { return kind == 9; }
    // True: ranks must announce it together.
    bool collective() const { return !adds() && kind != 13; }

    void announce(Events &events) const {
        Engine &engine = events.engine();
        switch (kind) {
            case 0:
                return engine.begin(flags);
            case 1:
            case 2:
                return engine.pre_forward(unit);
            case 3:
                return engine.post_forward(unit);
            case 4:
            case 5:
                return engine.pre_backward(unit);
            case 6:
                return engine.post_backward(unit);
            case 7:
                return flags % 2 == 0 ? engine.unshard(unit) : engine.reshard(unit);
            case 8:
                return engine.finish_backward();
            case 9:
                return events.add(id, 1, flags % 2 == 0);
            case 10:
                return static_cast<void>(engine.norm());
            case 11:
                return engine.begin_backward();
            case 12:
                return events.scale(2);
            default:
                return static_cast<void>(engine.parameter(id));
        }
    }

    std::uint64_t kind, unit, id;
    std::uint32_t flags;
};

bool names_an_event(const std::string &sentence) {
    for (const char *event : {"begin", "pre_forward", "post_forward", "pre_backward",
                              "post_backward", "unshard", "reshard", "finish_backward",
                              "begin_backward", "gradient", "norm", "scale", "parameter", "step"})
        if (sentence.find(event) != std::string::npos) return true;
    return false;
}

unsigned repetitions() {
    return static_cast<unsigned>(number_in("VESCOMM_TEST_REPETITIONS", 6));
}

// Sequences of each seed, which share an engine.
unsigned rounds() {
    return static_cast<unsigned>(number_in("VESCOMM_TEST_ROUNDS", 12));
}

// Steps of rank 0.
struct Steps {
    int done = 0;
    int out_of_slots = 0;
    int interfered_done = 0;  // with events in between, which the engine accepted
    int interfered_refused = 0;
};

// How a step ended, on all ranks.
struct End {
    int failures = 0;  // ranks on which it failed
    bool interfered = false;  // a rank announced an event in between
    bool alone = false;  // one that all ranks must announce, and they did not
};

// Updates the expected parameters if the step succeeded. Uses the communicator of the program.
End settle(Communicator &comm, const Events &events, bool failed, bool interfered, bool alone,
           Small &small) {
    std::vector<float> all = events.sums();
    for (const bool flag : {failed, interfered, alone}) all.push_back(flag ? 1 : 0);
    all_reduce(comm, all);
    const std::size_t owners = small.expected.size();
    const End end{static_cast<int>(all[owners]), all[owners + 1] > 0, all[owners + 2] > 0};
    if (end.failures > 0) return end;
    for (std::size_t owner = 0; owner < owners; ++owner) {
        // The ranks that have other experts.
        const bool experts = small.parameters[owner].unit == Small::expert_unit;
        small.expected[owner] -= all[owner] / static_cast<float>(experts ? small.expert_ranks : 1);
    }
    return end;
}

void expect_good_error(const Error &error) {
    const std::string sentence = error.what();
    EXPECT_NE(error.status(), VESCOMM_ERROR_TIMEOUT) << sentence;
    EXPECT_NE(error.status(), VESCOMM_ERROR_INTERNAL) << sentence;
    EXPECT_TRUE(names_an_event(sentence)) << sentence;
}

// Random events and a step, which the engine refuses. They are the same on all ranks, or other
// ones on each rank.
void run_wrong_events(Communicator &comm, Engine &engine, const Small &small, std::mt19937 &random,
                      std::mt19937 &own) {
    const bool differ = random() % 2 == 0;
    std::mt19937 same(random());
    Events events(engine, small);
    comm.barrier();
    try {
        for (int event = 0; event < 200; ++event)
            Random(small, differ ? own : same).announce(events);
        engine.step();
        ADD_FAILURE() << "200 random events and a step were accepted";
    } catch (const Error &error) {
        expect_good_error(error);
    }
    EXPECT_THROW(engine.step(), Error);
    engine.reset();
}

// Permitted events, until slots run out, which is an error on all ranks. In half of the steps one
// to three random events lie between them: on all ranks, on one, or other ones on each.
void run_step(Communicator &comm, Engine &engine, Small &small, std::mt19937 &random,
              std::mt19937 &own, unsigned next_seed, Steps &steps) {
    std::mt19937 same(random());
    std::geometric_distribution<int> distance(0.06);  // in events
    int interferences = random() % 2 == 0 ? 0 : 1 + static_cast<int>(random() % 3);
    const int who = static_cast<int>(random() % static_cast<unsigned>(comm.ranks() + 2));
    const bool on_one = who < comm.ranks() && comm.ranks() > 1;
    const bool on_each = who == comm.ranks() && comm.ranks() > 1;
    int remaining = distance(same);
    bool interfered = false, alone = false;
    Events events(engine, small);
    events.set_interference([&] {
        if (interferences == 0 || remaining-- > 0) return;
        --interferences;
        remaining = distance(same);
        const Random event(small, on_each ? own : same);
        if (on_one && who != comm.rank()) return;
        // Elements of experts that one rank alone has added to would differ from the others.
        if ((on_one || on_each) && event.adds() && small.expert_ranks > 1 &&
            small.parameters[event.id].unit == Small::expert_unit)
            return;
        interfered = true;
        alone |= on_one && event.collective();
        event.announce(events);
    });
    comm.barrier();
    bool failed = false, out_of_slots = false;
    try {
        random_step(events, random);
    } catch (const Error &error) {
        failed = true;
        expect_good_error(error);
        out_of_slots = std::string(error.what()).find("slots") != std::string::npos;
    }
    const End end = settle(comm, events, failed, interfered, alone, small);
    EXPECT_TRUE(end.failures == 0 || end.failures == comm.ranks()) << end.failures << " failures";
    EXPECT_TRUE(!end.alone || failed) << "a rank announced an event that the others did not";
    EXPECT_TRUE(!failed || end.interfered || out_of_slots);
    if (failed) {
        EXPECT_THROW(engine.step(), Error);
        random.seed(next_seed);
        engine.reset();
    }
    if (comm.rank() != 0) return;
    if (end.interfered) ++(failed ? steps.interfered_refused : steps.interfered_done);
    else ++(failed ? steps.out_of_slots : steps.done);
}

void run_seed(unsigned seed, int ranks, Steps &steps) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(ranks) + " ranks");
    run_ranks(ranks, [&](Communicator &comm) {
        std::mt19937 random(seed);
        const std::vector<std::string> presets = {
            "zero3",
            "zero2",
            "zero1",
            "ddp",
            "hsdp:" + std::to_string(ranks > 3 ? ranks / 2 : 1),
            "hpz:" + std::to_string(ranks > 3 ? ranks / 2 : 1)};
        const std::size_t preset = random() % presets.size();
        // A divisor of the ranks that shard a unit; with the first presets these are all ranks.
        int expert_ranks = random() % 2 == 0 ? 1 : ranks;
        if (preset == 4 && ranks > 3) expert_ranks = std::min(expert_ranks, ranks / 2);
        else if (preset > 2) expert_ranks = 1;
        else if (ranks == 4 && random() % 2 == 0) expert_ranks = 2;
        Small small(presets[preset], expert_ranks, random);
        Engine engine(small.spec, comm);
        small.fill(engine);
        std::mt19937 own(seed * 31 + static_cast<unsigned>(comm.rank()));
        for (unsigned round = 0; round < rounds(); ++round) {
            SCOPED_TRACE("round " + std::to_string(round));
            run_wrong_events(comm, engine, small, random, own);
            run_step(comm, engine, small, random, own, seed + round * 1000, steps);
            engine.check_replicas();
            Events events(engine, small);
            evaluate(events);
        }
    });
}

// With few slots many of them run out, but not most. Most events in between are wrong.
void expect_steps(const Steps &steps) {
    const int all =
        steps.done + steps.out_of_slots + steps.interfered_done + steps.interfered_refused;
    if (all < 100) return;  // a seed that is repeated
    EXPECT_GT(steps.done, steps.out_of_slots);
    EXPECT_GT(steps.interfered_done, 0);
    EXPECT_GT(steps.interfered_refused, steps.interfered_done / 4);
}

TEST(RandomEvents, OnOneRank) {
    Steps steps;
    for (unsigned seed = 0; seed < 20 * repetitions(); ++seed) run_seed(seed, 1, steps);
    expect_steps(steps);
}

TEST(RandomEvents, OnSeveralRanks) {
    Steps steps;
    for (unsigned seed = 0; seed < repetitions(); ++seed)
        for (const int ranks : {2, 3, 4}) run_seed(1000 + seed, ranks, steps);
    expect_steps(steps);
}

}  // namespace
}  // namespace vescomm::fsdp::testing

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Random models with random options train on device memory as on host memory: parameters and norms
// have the same bits, and what one engine refuses, the other one does too.
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "fsdp/device/training.h"
#include "support/dice.h"
#include "support/number_in.h"

namespace vescomm::fsdp::testing {
namespace {

// A model with its options, which every rank makes from the same number.
class Trial {
public:
    explicit Trial(unsigned number) : dice_(number) {
        ranks = 1 + dice_.below(5);
        preset = dice_.pick<const char *>({"zero3", "zero3", "zero2", "zero1", "ddp"});
        if (ranks == 4) preset = dice_.pick<const char *>({"zero3", "hsdp:2", "hpz:2", "zero1"});
        options = make_options();
        const int count = 1 + dice_.below(4);
        for (int unit = 0; unit < count; ++unit) add_unit(unit);
        training = {.steps = 1 + dice_.below(3),
                    .micro_batches = 1 + dice_.below(3),
                    .max_norm = dice_.one_in(2) ? 0.5 : 0,
                    .push = dice_.one_in(2),
                    .recompute = dice_.one_in(3)};
        optimizer = dice_.below(4);
        reproducible = dice_.one_in(3);
    }

    Described describe_for(vescomm_fsdp_memory_t memory) const {
        vescomm_fsdp_spec_options_t with = options;
        with.memory = memory;
        if (memory == VESCOMM_FSDP_HOST) with.offload_to_host = 0;  // an error
        Described made = describe(units, preset, with);
        // Those in `ids` get gradients.
        for (std::size_t unit = 0; unit < units.size(); ++unit)
            std::erase_if(made.ids[unit], [&](std::uint64_t id) {
                const auto number = static_cast<std::size_t>(id - first_id(unit));
                return (units[unit].parameters[number].flags & VESCOMM_FSDP_FROZEN) != 0;
            });
        const std::vector<std::uint64_t> ids = all_ids(made);
        if (ids.empty()) return made;
        if (optimizer == 1) {
            vescomm_sgd_settings_t settings = vescomm_sgd_settings_init();
            settings.learning_rate = 0.125;
            settings.momentum = 0.5;
            made.spec.add_group(ids, vescomm_optimizer_get_sgd(), &settings);
        } else if (optimizer == 2) {
            const vescomm_adamw_settings_t settings = vescomm_adamw_settings_init();
            made.spec.add_group(ids, vescomm_optimizer_get_adam8bit(), &settings);
        }
        return made;
    }

    std::string text() const {
        std::ostringstream text;
        text << ranks << " ranks, " << preset << (reproducible ? ", reproducible" : "")
             << ", optimizer " << optimizer << ", compute_type " << options.compute_type
             << ", gradient_type " << options.gradient_type << ", gather_type "
             << options.gather_type << ", reduce_type " << options.reduce_type << ", master_type "
             << options.master_type << ", slots " << options.slots << " and "
             << options.gradient_slots << ", order " << options.order << ", keep_gathered "
             << options.keep_gathered << ", keep_gradients " << options.keep_gradients
             << ", average " << options.average << ", partner_copy " << options.partner_copy
             << ", large_unit_bytes " << options.large_unit_bytes << ", expert_ranks "
             << options.expert_ranks << ", offload_to_host " << options.offload_to_host << "; "
             << training.steps << " steps of " << training.micro_batches << ", max_norm "
             << training.max_norm << ", push " << training.push << ", recompute "
             << training.recompute << '\n';
        for (const UnitModel &unit : units) {
            text << unit.name << " flags " << unit.flags << ":";
            for (const ParameterSpec &one : unit.parameters) {
                text << ' ' << one.name << '(';
                for (const std::int64_t extent : one.shape) text << extent << ' ';
                text << ") flags " << one.flags << " rows " << one.block_rows << " tied to "
                     << one.tied_to << ';';
            }
            text << '\n';
        }
        return text.str();
    }

    int ranks;
    std::string preset;
    vescomm_fsdp_spec_options_t options;
    std::vector<UnitModel> units;
    Training training;
    bool reproducible;  // of the communicators

private:
    vescomm_fsdp_spec_options_t make_options() {
        using Types = std::initializer_list<vescomm_type_t>;
        vescomm_fsdp_spec_options_t made = vescomm_fsdp_spec_options_init();
        made.compute_type = dice_.pick(Types{0, 0, VESCOMM_BF16, VESCOMM_F16});
        if (dice_.one_in(4)) made.gradient_type = VESCOMM_F32;
        made.gather_type = dice_.pick(Types{0, 0, 0, VESCOMM_I8, VESCOMM_F8E4M3, VESCOMM_F8E5M2});
        made.reduce_type = dice_.pick(Types{0, 0, 0, VESCOMM_I8, VESCOMM_F8E4M3});
        if (preset == "ddp") made.reduce_type = 0;  // an error
        // Masters have the type of parameters, or these are f32.
        if (dice_.one_in(4)) made.master_type = dice_.pick(Types{VESCOMM_BF16, VESCOMM_F16});
        if (made.master_type != 0 && dice_.one_in(8) == 0) made.compute_type = made.master_type;
        made.slots = dice_.below(4);
        made.gradient_slots = dice_.below(4);
        made.order = dice_.below(3);
        made.keep_gathered = dice_.below(2);
        made.keep_gradients = dice_.below(2);
        made.average = dice_.below(2);
        made.partner_copy = dice_.one_in(4) ? 1 : 0;
        made.large_unit_bytes = dice_.one_in(4) ? 100 : 0;
        made.expert_ranks = dice_.one_in(4) ? ranks : 0;
        made.offload_to_host = dice_.one_in(3) ? 1 : 0;
        made.update_threads = dice_.below(3);
        return made;
    }

    void add_unit(int number) {
        UnitModel unit{"unit." + std::to_string(number), {}};
        const bool experts = options.expert_ranks > 1 && dice_.one_in(3);
        if (experts) unit.flags = VESCOMM_FSDP_EXPERTS;
        else if (dice_.one_in(6)) unit.flags = VESCOMM_FSDP_KEEP_GATHERED;
        const int count = 1 + dice_.below(4);
        for (int i = 0; i < count; ++i) {
            ParameterSpec one{.name = "p" + std::to_string(i), .shape = {}};
            for (int dimension = dice_.below(4); dimension > 0; --dimension)
                one.shape.push_back(dice_.one_in(20) ? 0
                                                     : 1 + dice_.below(dimension == 1 ? 40 : 9));
            if (!one.shape.empty() && dice_.one_in(4))
                one.block_rows = dice_.one_in(3) ? -1 : 1 + dice_.below(4);
            if (dice_.one_in(8)) one.flags = VESCOMM_FSDP_FROZEN;
            if (!experts && dice_.one_in(6)) one.flags |= VESCOMM_FSDP_REPLICATED;
            unit.parameters.push_back(one);
        }
        units.push_back(unit);
    }

    std::uint64_t first_id(std::size_t unit) const {
        std::uint64_t before = 0;
        for (std::size_t earlier = 0; earlier < unit; ++earlier)
            before += units[earlier].parameters.size();
        return before;
    }

    vescomm::testing_support::Dice dice_;
    int optimizer = 0;  // 0, 3: none, which is AdamW
};

// Trains on all ranks. Nothing if all of them refuse the trial.
template <typename Train>
std::optional<Outcome> outcome_of(const Trial &trial, const Train &train) {
    std::vector<std::optional<Outcome>> outcomes(static_cast<std::size_t>(trial.ranks));
    run_ranks(trial.ranks, [&](Communicator &comm) {
        try {
            outcomes[static_cast<std::size_t>(comm.rank())] = train(comm);
        } catch (const Error &error) {
            const bool refused = error.status() == VESCOMM_ERROR_INVALID_ARGUMENT ||
                                 error.status() == VESCOMM_ERROR_UNSUPPORTED;
            EXPECT_TRUE(refused) << error.what();
        }
    });
    for (const auto &outcome : outcomes) {
        EXPECT_EQ(outcome.has_value(), outcomes[0].has_value());
        if (!outcome || !outcomes[0]) continue;
        EXPECT_TRUE(outcome->norms == outcomes[0]->norms);
    }
    return outcomes[0];
}

int trials() {
    return vescomm::testing_support::number_in("VESCOMM_TEST_ROUNDS", 60);
}

TEST(DeviceRandom, TrainingHasTheBitsOfTheHost) {
    setenv("GPU_DOUBLE_NCCL", "23203", 1);  // has addresses of other ranks' memory
    int trained = 0;
    for (int number = 0; number < trials() && !HasFailure(); ++number) {
        const Trial trial(static_cast<unsigned>(number));
        setenv("VESCOMM_REPRODUCIBLE", trial.reproducible ? "yes" : "no", 1);
        SCOPED_TRACE("trial " + std::to_string(number) + ": " + trial.text());
        const auto host = outcome_of(trial, [&](Communicator &comm) {
            return train(comm, trial.describe_for(VESCOMM_FSDP_HOST), trial.training);
        });
        const auto device = outcome_of(trial, [&](Communicator &comm) {
            return train_on_device(comm, trial.describe_for(VESCOMM_FSDP_DEVICE), trial.training);
        });
        EXPECT_EQ(gpu_double::take_violations(), "");
        EXPECT_EQ(gpu_double::live_communicators(), 0);
        ASSERT_EQ(device.has_value(), host.has_value());
        if (!host) continue;
        ++trained;
        EXPECT_TRUE(device->norms == host->norms) << ::testing::PrintToString(device->norms) << " "
                                                  << ::testing::PrintToString(host->norms);
        EXPECT_TRUE(device->parameters == host->parameters);
    }
    unsetenv("VESCOMM_REPRODUCIBLE");
    RecordProperty("trained", trained);
    EXPECT_GT(trained, trials() / 2);
}

}  // namespace
}  // namespace vescomm::fsdp::testing

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// vescomm_fsdp_set_group() in which an allocation fails changes nothing, neither the settings of
// the shards nor those of the copy of another rank's shards.
#include "fsdp/training.h"
#include "support/failing_allocations.h"

namespace vescomm::fsdp::testing {
namespace {

using internal::testing_support::Failing;

TEST(GroupSettings, StayIfAnAllocationFails) {
    constexpr int ranks = 2;
    run_ranks(ranks, [&](Communicator &comm) {
        vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
        options.partner_copy = 1;
        Spec spec(options);
        const std::uint64_t id =
            spec.add_parameter(spec.add_unit("unit"), {.name = "w", .shape = {10, 3}});
        vescomm_sgd_settings_t settings = vescomm_sgd_settings_init();
        settings.learning_rate = 1;
        spec.add_group(std::span(&id, 1), vescomm_optimizer_get_sgd(), &settings);
        Engine engine(spec, comm);
        float expected = 0;
        // The sum of the gradients is 2.
        const auto train = [&](float learning_rate) {
            engine.begin(VESCOMM_FSDP_LAST);
            engine.pre_forward(0);
            engine.post_forward(0);
            engine.pre_backward(0);
            const auto view = engine.gradient(id).first;
            for (std::int64_t i = 0; i < view.elements; ++i) write(view, i, 1);
            engine.post_backward(0);
            engine.finish_backward();
            engine.step();
            expected -= learning_rate * ranks;
            const std::vector<float> values = read_all(engine, {{id}});
            EXPECT_EQ(values, std::vector<float>(values.size(), expected));
        };
        vescomm_sgd_settings_t other = settings;
        other.learning_rate = 8;
        std::uint64_t number = 1;
        for (;; ++number) {
            internal::testing_support::fail_allocation(number, Failing::one);
            const vescomm_status_t status = vescomm_fsdp_set_group(engine.get(), 0, &other);
            internal::testing_support::stop_failing();
            if (status == VESCOMM_OK) break;
            EXPECT_EQ(status, VESCOMM_ERROR_OUT_OF_MEMORY);
            train(1);
        }
        EXPECT_GT(number, 2) << "the copy has its own memory";
        train(8);
    });
}

}  // namespace
}  // namespace vescomm::fsdp::testing

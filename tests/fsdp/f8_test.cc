// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Gathered parameters in f8, without a scale.
#include <cmath>
#include <limits>

#include "fsdp/refused.h"

namespace vescomm::fsdp::testing {
namespace {

// The value of a code, as the OCP specification of 8-bit floats has it.
float value_of(std::uint8_t code, vescomm_type_t type) {
    const int bits = type == VESCOMM_F8E4M3 ? 3 : 2;  // of the fraction
    const int bias = type == VESCOMM_F8E4M3 ? 7 : 15;
    const int exponent = (code & 0x7f) >> bits;
    const int fraction = code & ((1 << bits) - 1);
    const float sign = (code & 0x80) != 0 ? -1.0f : 1.0f;
    if (type == VESCOMM_F8E4M3 && (code & 0x7f) == 0x7f) return std::nanf("");
    if (type == VESCOMM_F8E5M2 && exponent == 31)
        return fraction == 0 ? sign * std::numeric_limits<float>::infinity() : std::nanf("");
    const int whole = exponent == 0 ? fraction : fraction + (1 << bits);
    return sign * std::ldexp(static_cast<float>(whole), std::max(exponent, 1) - bias - bits);
}

// The nearest value of the type; of two, the one whose code is even.
float round_to(float x, vescomm_type_t type) {
    float best = 0;
    std::uint8_t best_code = 0;
    for (int code = 0; code < 256; ++code) {
        const float value = value_of(static_cast<std::uint8_t>(code), type);
        if (!std::isfinite(value)) continue;
        const float distance = std::fabs(value - x), least = std::fabs(best - x);
        if (distance > least || (distance == least && (code % 2 != 0 || best_code % 2 == 0)))
            continue;
        best = value;
        best_code = static_cast<std::uint8_t>(code);
    }
    return best;
}

std::vector<float> read_codes(Engine &engine, const std::vector<std::vector<std::uint64_t>> &ids,
                              vescomm_type_t type) {
    std::vector<float> seen;
    engine.begin(VESCOMM_FSDP_EVAL);
    for (std::size_t unit = 0; unit < ids.size(); ++unit) {
        engine.pre_forward(unit);
        for (const std::uint64_t id : ids[unit]) {
            const vescomm_fsdp_view_t view = engine.parameter(id);
            EXPECT_EQ(view.type, type);
            for (std::int64_t i = 0; i < view.elements; ++i)
                seen.push_back(value_of(static_cast<const std::uint8_t *>(view.data)[i], type));
        }
        engine.post_forward(unit);
    }
    return seen;
}

TEST(F8, ParametersAreTheNearestCodesOfTheMasters) {
    for (const vescomm_type_t type : {VESCOMM_F8E4M3, VESCOMM_F8E5M2})
        for (const char *preset : {"zero3", "zero1", "hsdp:2", "hpz:2"}) {
            vescomm_fsdp_spec_options_t chosen = vescomm_fsdp_spec_options_init();
            chosen.compute_type = type;
            const int ranks = preset[0] == 'h' ? 4 : 3;
            std::vector<std::vector<float>> seen(ranks);
            run_ranks(ranks, [&](Communicator &comm) {
                const Described described = describe(odd_model(), preset, chosen);
                Engine engine(described.spec, comm);
                fill(engine);
                seen[comm.rank()] = read_codes(engine, described.ids, type);
            });
            const Described described = describe(odd_model(), preset, chosen);
            std::vector<float> expected;
            for (std::size_t unit = 0; unit < described.ids.size(); ++unit)
                for (std::size_t i = 0; i < described.ids[unit].size(); ++i)
                    for (std::int64_t e = 0; e < elements(odd_model()[unit].parameters[i]); ++e)
                        expected.push_back(round_to(initial(described.ids[unit][i], e), type));
            for (const auto &one : seen) EXPECT_EQ(one, expected) << preset << ' ' << type;
        }
}

// Gradients are bf16 unless another type is chosen, and masters have the bits of one rank.
TEST(F8, TrainsWithTheSameBitsOnAnyNumberOfRanks) {
    for (const vescomm_type_t gradient : {0, VESCOMM_F32, VESCOMM_F16}) {
        vescomm_fsdp_spec_options_t chosen = vescomm_fsdp_spec_options_init();
        chosen.compute_type = VESCOMM_F8E4M3;
        chosen.gradient_type = gradient;
        std::vector<float> alone;
        for (const int ranks : {1, 2, 5})
            run_ranks(ranks, [&](Communicator &comm) {
                const Described described = describe(odd_model(), "zero3", chosen);
                Engine engine(described.spec, comm);
                fill(engine);
                for (int step = 0; step < 3; ++step) {
                    micro_batch(engine, described.ids, {}, step, comm.rank(), comm.ranks(), true);
                    engine.step();
                }
                const auto seen = read_codes(engine, described.ids, VESCOMM_F8E4M3);
                if (ranks == 1) alone = seen;
                EXPECT_EQ(seen, alone) << ranks << ' ' << gradient;
            });
        const Described described = describe(odd_model(), "zero3", chosen);
        EXPECT_EQ(described.spec.report(2).gradient_slot_bytes % 2, 0U);
    }
}

// Codes with scales take more bytes than f8, so such parameters travel as they are.
TEST(F8, ParametersTravelWithoutScales) {
    vescomm_fsdp_spec_options_t plain = vescomm_fsdp_spec_options_init();
    plain.compute_type = VESCOMM_F8E4M3;
    vescomm_fsdp_spec_options_t scaled = plain;
    for (const vescomm_type_t type : {VESCOMM_F8E4M3, VESCOMM_I8}) {
        scaled.gather_type = type;
        EXPECT_EQ(describe(odd_model(), "zero3", scaled).spec.report(4).gather_bytes_per_step,
                  describe(odd_model(), "zero3", plain).spec.report(4).gather_bytes_per_step);
    }
}

TEST(F8, IsNoTypeOfGradients) {
    vescomm_fsdp_spec_options_t chosen = vescomm_fsdp_spec_options_init();
    chosen.gradient_type = VESCOMM_F8E4M3;
    EXPECT_NE(sentence_of([&] { Spec spec(chosen); }).find("gradient_type is 5"),
              std::string::npos);
    chosen.gradient_type = 0;
    chosen.compute_type = VESCOMM_I8;
    EXPECT_NE(sentence_of([&] { Spec spec(chosen); }).find("compute_type is 7"), std::string::npos);
}

}  // namespace
}  // namespace vescomm::fsdp::testing

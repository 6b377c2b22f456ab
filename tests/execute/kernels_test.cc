// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "execute/kernels.h"

#include <gtest/gtest.h>

#include "execute/isa.h"
#include "tests/execute/kernels_reference.h"

namespace vescomm::internal {
namespace {

class SquaresOf : public KernelsOf {};

INSTANTIATE_TEST_SUITE_P(Each, SquaresOf, testing::ValuesIn(all_kernels()), test_name);

TEST_P(SquaresOf, SumSquaresInTheDocumentedOrder) {
    std::mt19937 random(8);
    std::vector<std::size_t> counts(301);
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = i;
    counts.push_back(100003);
    for (const vescomm_type_t type : {VESCOMM_F32, VESCOMM_BF16}) {
        for (const std::size_t count : counts) {
            Guarded from(count * size_of(type), count % max_shift * size_of(type));
            std::vector<double> lanes(64);
            long double exact = 0;
            for (std::size_t i = 0; i < count; ++i) {
                const float x = std::ldexp(static_cast<float>(random()) - 2e9f, -20 - i % 40);
                set_bits(from.data(), type, i, float_bits(type, x));
                const double stored = float_at(from.data(), type, i);
                lanes[i % 64] += stored * stored;
                exact += static_cast<long double>(stored) * stored;
            }
            for (int half = 32; half > 0; half /= 2) {
                for (int k = 0; k < half; ++k) lanes[k] += lanes[k + half];
            }
            const double result = kernel.sum_of_squares(from.data(), type, count);
            ASSERT_EQ(result, lanes[0]) << count;
            ASSERT_NEAR(result, static_cast<double>(exact), 1e-13 * static_cast<double>(exact));
        }
    }
}

TEST_P(SquaresOf, GiveInfinityOrNanIfAnElementIsInfiniteOrNan) {
    for (const std::size_t at : {0, 5, 63, 64, 200}) {
        std::vector<float> x(201, 1.0f);
        x[at] = -HUGE_VALF;
        EXPECT_EQ(kernel.sum_of_squares(x.data(), VESCOMM_F32, x.size()), HUGE_VAL);
        x[200 - at] = std::bit_cast<float>(0xffc12345);
        EXPECT_EQ(
            std::bit_cast<std::uint64_t>(kernel.sum_of_squares(x.data(), VESCOMM_F32, x.size())),
            0x7ff8000000000000u);
    }
}

TEST(Kernels, DefaultIsTheFastestSupported) {
    ASSERT_EQ(supported_kernels().size(), static_cast<std::size_t>(supported_isas()));
    EXPECT_EQ(&kernels(), &supported_kernels().back());
    for (std::size_t i = 0; i < supported_kernels().size(); ++i) {
        EXPECT_STREQ(supported_kernels()[i].isa, isa_names[i]);
    }
}

TEST(Kernels, ReduceToTheTypeItselfAndToItsAccumulator) {
    EXPECT_EQ(accumulator_of(VESCOMM_F8E4M3), VESCOMM_F32);
    EXPECT_EQ(accumulator_of(VESCOMM_F64), VESCOMM_F64);
    EXPECT_EQ(accumulator_of(VESCOMM_I8), VESCOMM_I8);
    EXPECT_TRUE(can_reduce(VESCOMM_F32, VESCOMM_BF16));
    EXPECT_TRUE(can_reduce(VESCOMM_F16, VESCOMM_F16));
    EXPECT_TRUE(can_reduce(VESCOMM_U64, VESCOMM_U64));
    EXPECT_FALSE(can_reduce(VESCOMM_BF16, VESCOMM_F32));
    EXPECT_FALSE(can_reduce(VESCOMM_F32, VESCOMM_F64));
    EXPECT_TRUE(can_reduce(VESCOMM_C64, VESCOMM_C64));
    EXPECT_FALSE(can_reduce(VESCOMM_F32, VESCOMM_C64));
    EXPECT_FALSE(can_reduce(last_type + 1, last_type + 1));
    EXPECT_FALSE(can_reduce(VESCOMM_TYPE_DEFAULT, VESCOMM_TYPE_DEFAULT));
}

TEST(Kernels, EveryTypeHasItsOperators) {
    const std::string all = "sum average prod min max premultiplied bitwise logical";
    const std::string floats = "sum average prod min max premultiplied";
    const auto operators_of = [&](vescomm_type_t type) -> std::string {
        if (type == VESCOMM_BOOL) return "sum prod min max bitwise logical";
        if (type == VESCOMM_C64 || type == VESCOMM_C128) return "sum average prod premultiplied";
        return type <= VESCOMM_F8E5M2 ? floats : all;
    };
    for (vescomm_type_t type = VESCOMM_F32; type <= last_type; ++type)
        for (vescomm_op_t op = VESCOMM_SUM; op <= last_op; ++op) {
            const std::string name = name_of_op(op);
            const bool has = operators_of(type).find(name.substr(0, name.find(' '))) < all.size();
            EXPECT_EQ(can_combine(op, type), has) << name << " of " << name_of_type(type);
        }
    EXPECT_FALSE(can_combine(VESCOMM_SUM, last_type + 1));
    EXPECT_FALSE(can_combine(last_op + 1, VESCOMM_I32));
    EXPECT_FALSE(can_combine(-1, VESCOMM_I32));
}

TEST(Kernels, TypesHaveNamesSizesAndAlignments) {
    EXPECT_EQ(name_of_type(VESCOMM_U64), "u64");
    EXPECT_EQ(name_of_type(VESCOMM_BOOL), "bool");
    EXPECT_EQ(name_of_type(VESCOMM_C64), "c64");
    EXPECT_EQ(name_of_type(VESCOMM_C128), "c128");
    EXPECT_EQ(name_of_type(last_type + 1), "type 18");
    EXPECT_EQ(size_of(VESCOMM_BOOL), 1u);
    EXPECT_EQ(size_of(VESCOMM_C64), 8u);
    EXPECT_EQ(size_of(VESCOMM_C128), 16u);
    EXPECT_EQ(alignment_of(VESCOMM_F64), 8u);
    EXPECT_EQ(alignment_of(VESCOMM_C64), 4u);
    EXPECT_EQ(alignment_of(VESCOMM_C128), 8u);
    EXPECT_EQ(name_of_op(VESCOMM_BITWISE_OR), "bitwise or");
    EXPECT_EQ(name_of_op(last_op), "logical xor");
    EXPECT_EQ(name_of_op(last_op + 1), "op 12");
}

}  // namespace
}  // namespace vescomm::internal

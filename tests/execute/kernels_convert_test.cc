// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "tests/execute/kernels_reference.h"

namespace vescomm {
namespace {

class ConversionsOf : public KernelsOf {
protected:
    void expect_narrowed(vescomm_type_t type, const std::vector<float> &inputs) {
        std::vector<std::uint16_t> codes(inputs.size());
        kernel.convert(codes.data(), type, inputs.data(), VESCOMM_F32, inputs.size());
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            ASSERT_EQ(codes[i], narrow(type, inputs[i]))
                << std::hexfloat << inputs[i] << " of bits " << std::bit_cast<int>(inputs[i]);
        }
    }
};

INSTANTIATE_TEST_SUITE_P(Each, ConversionsOf, testing::ValuesIn(all_kernels()), test_name);

TEST_P(ConversionsOf, NarrowEveryValueAndTieOfA16BitFormatToTheNearest) {
    for (const vescomm_type_t type : {VESCOMM_BF16, VESCOMM_F16}) {
        const std::vector<double> &values = magnitudes_of(type);
        std::vector<float> inputs;
        for (std::size_t code = 0; code + 1 < values.size(); ++code) {
            const auto tie = static_cast<float>(values[code] / 2 + values[code + 1] / 2);
            for (const float x : {static_cast<float>(values[code]), std::nextafter(tie, 0.0f), tie,
                                  std::nextafter(tie, std::numeric_limits<float>::infinity())}) {
                inputs.push_back(x);
                inputs.push_back(-x);
            }
        }
        for (const std::uint32_t bits : special_bits) inputs.push_back(as_float(bits));
        std::mt19937 random(1);
        for (int i = 0; i < 300000; ++i) inputs.push_back(as_float(random()));
        expect_narrowed(type, inputs);
    }
}

TEST_P(ConversionsOf, WidenEveryValueOfA16BitFormatExactly) {
    std::vector<std::uint16_t> codes(1 << 16);
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint16_t>(i);
    for (const vescomm_type_t type : {VESCOMM_BF16, VESCOMM_F16}) {
        std::vector<float> wide(codes.size());
        kernel.convert(wide.data(), VESCOMM_F32, codes.data(), type, codes.size());
        const std::vector<double> &values = magnitudes_of(type);
        for (const std::uint16_t code : codes) {
            const std::size_t magnitude = code & 0x7fff;
            ASSERT_EQ(std::signbit(wide[code]), code > 0x7fff);
            ASSERT_EQ(std::isnan(wide[code]), magnitude >= values.size()) << code;
            ASSERT_EQ(std::isinf(wide[code]), magnitude == values.size() - 1) << code;
            if (!std::isfinite(wide[code])) continue;
            ASSERT_EQ(std::fabs(wide[code]), values[magnitude]);
        }
    }
}

TEST_P(ConversionsOf, ConvertAnyCountAtAnyAlignment) {
    const vescomm_type_t types[] = {VESCOMM_F32, VESCOMM_BF16, VESCOMM_F16,
                                    VESCOMM_F64, VESCOMM_U8,   VESCOMM_I64};
    const std::size_t sizes[] = {4, 2, 2, 8, 1, 8};
    std::mt19937 random(2);
    std::vector<char> bytes(8 * 301);
    for (int from = 0; from < 6; ++from) {
        for (int to = 0; to < 6; ++to) {
            if (!can_convert(types[to], types[from])) continue;
            for (char &byte : bytes) byte = static_cast<char>(random());
            std::vector<char> want(8 * 301);
            for (std::size_t i = 0; i < 301; ++i) {  // each element in a call of its own
                kernel.convert(&want[i * sizes[to]], types[to], &bytes[i * sizes[from]],
                               types[from], 1);
            }
            for (std::size_t count = 0; count <= 300; ++count) {
                SCOPED_TRACE(testing::Message() << from << " to " << to << ", " << count);
                Guarded in(count * sizes[from], count % most_shift * sizes[from]);
                Guarded out(count * sizes[to], 7 * count % most_shift * sizes[to]);
                std::copy_n(bytes.data(), count * sizes[from], in.data());
                kernel.convert(out.data(), types[to], in.data(), types[from], count);
                ASSERT_EQ(std::memcmp(out.data(), want.data(), count * sizes[to]), 0);
                ASSERT_TRUE(out.dry());
            }
        }
    }
}

TEST_P(ConversionsOf, ConvertDoublesAsTheLanguageDoes) {
    std::mt19937_64 random(3);
    std::vector<double> wide;
    for (int i = 0; i < 10001; ++i) {
        const double x = std::ldexp(static_cast<double>(random()), -64 - i % 220);
        wide.push_back(i % 2 ? x : -x);
    }
    wide.insert(wide.end(), {HUGE_VAL, -HUGE_VAL, 0.0, -0.0, 1e300, 3.5e38, 1e-50});
    std::vector<float> narrowed(wide.size());
    kernel.convert(narrowed.data(), VESCOMM_F32, wide.data(), VESCOMM_F64, wide.size());
    std::vector<double> again(wide.size());
    kernel.convert(again.data(), VESCOMM_F64, narrowed.data(), VESCOMM_F32, wide.size());
    for (std::size_t i = 0; i < wide.size(); ++i) {
        const volatile auto want = static_cast<float>(wide[i]);
        ASSERT_EQ(std::bit_cast<int>(narrowed[i]), std::bit_cast<int>(float{want})) << wide[i];
        ASSERT_EQ(again[i], static_cast<double>(narrowed[i]));
    }
}

TEST(Conversions, AreBetweenF32AndTheOtherFloatsOnly) {
    EXPECT_TRUE(can_convert(VESCOMM_BF16, VESCOMM_F32));
    EXPECT_TRUE(can_convert(VESCOMM_F32, VESCOMM_F64));
    EXPECT_TRUE(can_convert(VESCOMM_I16, VESCOMM_I16));
    EXPECT_FALSE(can_convert(VESCOMM_BF16, VESCOMM_F16));
    EXPECT_FALSE(can_convert(VESCOMM_F32, VESCOMM_I32));
    EXPECT_FALSE(can_convert(VESCOMM_F8E4M3, VESCOMM_F32));
    EXPECT_FALSE(can_convert(-1, -1));
}

}  // namespace
}  // namespace vescomm

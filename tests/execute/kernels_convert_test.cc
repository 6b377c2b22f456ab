// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/execute/kernels_reference.h"

namespace vescomm::internal {
namespace {

class ConversionsOf : public KernelsOf {
protected:
    // Converts `inputs`, which are floats or doubles, and compares with the reference.
    template <typename Wide>
    void expect_narrowed(vescomm_type_t type, const std::vector<Wide> &inputs) {
        const vescomm_type_t from = sizeof(Wide) == 4 ? VESCOMM_F32 : VESCOMM_F64;
        std::vector<char> codes(inputs.size() * size_of(type));
        kernel.convert(codes.data(), type, inputs.data(), from, inputs.size());
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            ASSERT_EQ(bits_at(codes.data(), type, i), narrow(type, inputs[i]))
                << name_of_type(from) << " to " << name_of_type(type) << ": " << std::hexfloat
                << inputs[i];
        }
    }
};

INSTANTIATE_TEST_SUITE_P(Each, ConversionsOf, testing::ValuesIn(all_kernels()), test_name);

// Every number of the format, every tie, their neighbours, and random numbers.
template <typename Wide>
std::vector<Wide> hard_to_round(vescomm_type_t type) {
    const Wide infinity = std::numeric_limits<Wide>::infinity();
    const std::vector<double> &values = magnitudes_of(type);
    std::vector<Wide> inputs = {infinity, std::numeric_limits<Wide>::quiet_NaN(),
                                std::numeric_limits<Wide>::max(), std::numeric_limits<Wide>::min(),
                                std::numeric_limits<Wide>::denorm_min()};
    for (std::size_t code = 0; code + 1 < values.size(); ++code) {
        const auto value = static_cast<Wide>(values[code]);
        const auto tie = static_cast<Wide>(values[code] / 2 + values[code + 1] / 2);
        for (const Wide x : {value, std::nextafter(value, infinity), std::nextafter(tie, Wide{0}),
                             tie, std::nextafter(tie, infinity)})
            inputs.push_back(x);
    }
    for (std::size_t i = inputs.size(); i-- > 0;) inputs.push_back(-inputs[i]);
    std::mt19937_64 random(1);
    for (int i = 0; i < 300000; ++i) {
        const int exponent = static_cast<int>(random() % 300) - 170;
        inputs.push_back(static_cast<Wide>(
            std::ldexp(static_cast<double>(static_cast<std::int64_t>(random())), exponent - 63)));
    }
    for (int i = 0; i < 100000; ++i) {
        const std::uint64_t bits = random();
        if constexpr (sizeof(Wide) == 8) inputs.push_back(std::bit_cast<double>(bits));
        else inputs.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    }
    return inputs;
}

TEST_P(ConversionsOf, NarrowToTheNearestForEveryValueAndTie) {
    for (const vescomm_type_t type : narrow_types) {
        expect_narrowed(type, hard_to_round<float>(type));
        expect_narrowed(type, hard_to_round<double>(type));
    }
}

#if defined(__FLT16_MAX__)
TEST_P(ConversionsOf, NarrowToF16AsTheCompilerDoes) {
    const auto expect_same = [this](const auto &inputs, vescomm_type_t from) {
        std::vector<std::uint16_t> codes(inputs.size());
        kernel.convert(codes.data(), VESCOMM_F16, inputs.data(), from, inputs.size());
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            if (std::isnan(inputs[i])) continue;
            const auto want = static_cast<_Float16>(inputs[i]);
            ASSERT_EQ(codes[i], std::bit_cast<std::uint16_t>(want)) << std::hexfloat << inputs[i];
        }
    };
    expect_same(hard_to_round<float>(VESCOMM_F16), VESCOMM_F32);
    expect_same(hard_to_round<double>(VESCOMM_F16), VESCOMM_F64);
}
#endif

TEST_P(ConversionsOf, WidenEveryCodeExactly) {
    for (const vescomm_type_t type : narrow_types) {
        const std::size_t count = std::size_t{1} << format_of(type).bits;
        std::vector<char> codes(count * size_of(type));
        for (std::size_t i = 0; i < count; ++i) set_bits(codes.data(), type, i, i);
        for (const vescomm_type_t wide : {VESCOMM_F32, VESCOMM_F64}) {
            std::vector<char> widened(count * size_of(wide)), again(codes.size());
            kernel.convert(widened.data(), wide, codes.data(), type, count);
            kernel.convert(again.data(), type, widened.data(), wide, count);
            for (std::size_t i = 0; i < count; ++i) {
                const double value = widen(type, i);
                ASSERT_EQ(bits_at(widened.data(), wide, i), float_bits(wide, value))
                    << name_of_type(type) << " " << i;
                ASSERT_EQ(bits_at(again.data(), type, i),
                          std::isnan(value) ? format_of(type).nan : i);
            }
        }
    }
}

TEST_P(ConversionsOf, OverflowOf8BitFormats) {
    const float inputs[] = {448, 464, 465, 480, -1e9f, -HUGE_VALF, 57344, 61439, 61440, -1e9f};
    std::uint8_t codes[10];
    kernel.convert(codes, VESCOMM_F8E4M3, inputs, VESCOMM_F32, 6);
    kernel.convert(codes + 6, VESCOMM_F8E5M2, inputs + 6, VESCOMM_F32, 4);
    const std::uint8_t want[] = {0x7e, 0x7e, 0x7f, 0x7f, 0x7f, 0x7f, 0x7b, 0x7b, 0x7c, 0xfc};
    for (int i = 0; i < 10; ++i) EXPECT_EQ(codes[i], want[i]) << inputs[i];
}

TEST_P(ConversionsOf, ConvertAnyCountAtAnyAlignmentWithAndWithoutStreaming) {
    constexpr std::size_t max = 300;
    std::mt19937_64 random(2);
    for (const vescomm_type_t from : all_types) {
        for (const vescomm_type_t to : all_types) {
            if (!can_convert(to, from)) continue;
            std::vector<char> bytes(max * size_of(from)), want(max * size_of(to));
            for (char &byte : bytes) byte = static_cast<char>(random());
            for (std::size_t i = 0; i < max; ++i) {  // one call for each element
                kernel.convert(&want[i * size_of(to)], to, &bytes[i * size_of(from)], from, 1);
            }
            for (std::size_t count = 0; count <= max; ++count) {
                SCOPED_TRACE(testing::Message() << name_of_type(from) << " to " << name_of_type(to)
                                                << ", " << count << " elements");
                for (const bool streaming : {false, true}) {
                    Guarded in(count * size_of(from), count % max_shift * size_of(from));
                    Guarded out(count * size_of(to), 7 * count % max_shift * size_of(to));
                    std::copy_n(bytes.data(), count * size_of(from), in.data());
                    kernel.convert(out.data(), to, in.data(), from, count, streaming);
                    ASSERT_EQ(std::memcmp(out.data(), want.data(), count * size_of(to)), 0);
                    ASSERT_TRUE(out.guards_intact());
                }
            }
        }
    }
}

TEST_P(ConversionsOf, StreamMoreThanFitsATile) {
    constexpr std::size_t count = 60001;
    std::mt19937_64 random(3);
    for (const vescomm_type_t from : all_types) {
        for (const vescomm_type_t to : all_types) {
            if (!can_convert(to, from)) continue;
            const std::vector<char> in = random_elements(random, from, count);
            std::vector<char> want(count * size_of(to));
            Guarded out(want.size(), 3 * size_of(to));
            kernel.convert(want.data(), to, in.data(), from, count);
            kernel.convert(out.data(), to, in.data(), from, count, true);
            ASSERT_TRUE(std::equal(want.begin(), want.end(), out.data()));
            ASSERT_TRUE(out.guards_intact());
        }
    }
}

TEST_P(ConversionsOf, ConvertDoublesAsTheLanguageDoes) {
    std::vector<double> wide = hard_to_round<double>(VESCOMM_F16);
    wide.insert(wide.end(), {0.0, -0.0, 1e300, 3.5e38, 1e-50});
    std::vector<char> narrowed(4 * wide.size()), again(8 * wide.size());
    kernel.convert(narrowed.data(), VESCOMM_F32, wide.data(), VESCOMM_F64, wide.size());
    kernel.convert(again.data(), VESCOMM_F64, narrowed.data(), VESCOMM_F32, wide.size());
    for (std::size_t i = 0; i < wide.size(); ++i) {
        ASSERT_EQ(bits_at(narrowed.data(), VESCOMM_F32, i), float_bits(VESCOMM_F32, wide[i]));
        const double value = float_at(narrowed.data(), VESCOMM_F32, i);
        ASSERT_EQ(bits_at(again.data(), VESCOMM_F64, i), float_bits(VESCOMM_F64, value));
    }
}

TEST(Conversions, SupportFloatsIfOneIsWide) {
    EXPECT_TRUE(can_convert(VESCOMM_BF16, VESCOMM_F32));
    EXPECT_TRUE(can_convert(VESCOMM_F32, VESCOMM_F64));
    EXPECT_TRUE(can_convert(VESCOMM_F64, VESCOMM_F8E5M2));
    EXPECT_TRUE(can_convert(VESCOMM_F8E4M3, VESCOMM_F32));
    EXPECT_TRUE(can_convert(VESCOMM_I16, VESCOMM_I16));
    EXPECT_FALSE(can_convert(VESCOMM_BF16, VESCOMM_F16));
    EXPECT_FALSE(can_convert(VESCOMM_F32, VESCOMM_I32));
    EXPECT_FALSE(can_convert(-1, -1));
    EXPECT_TRUE(can_convert(VESCOMM_BOOL, VESCOMM_BOOL));
    EXPECT_TRUE(can_convert(VESCOMM_C128, VESCOMM_C128));
    EXPECT_FALSE(can_convert(VESCOMM_C128, VESCOMM_C64));
    EXPECT_FALSE(can_convert(VESCOMM_C64, VESCOMM_F32));
    EXPECT_FALSE(can_convert(VESCOMM_BOOL, VESCOMM_U8));
    EXPECT_FALSE(can_convert(last_type + 1, last_type + 1));
    EXPECT_FALSE(can_convert(VESCOMM_TYPE_DEFAULT, VESCOMM_TYPE_DEFAULT));
}

}  // namespace
}  // namespace vescomm::internal

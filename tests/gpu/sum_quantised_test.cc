// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernel that sums quantised contributions beside the function on host memory.
#include <gtest/gtest.h>

#include <cmath>

#include "fsdp/quantise/block_quantise.h"
#include "gpu/device_kernels.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;

// Codes and scales of several sources, one behind the other.
struct Sources {
    Sources(int count, std::size_t elements, std::size_t block, bool any, unsigned seed)
        : scales_at((elements + 3) / 4 * 4), count(count) {
        const std::size_t blocks = fsdp::blocks_of(elements, block);
        stride = scales_at + 4 * blocks + 8;
        bytes = any_bits(VESCOMM_U8, stride * static_cast<std::size_t>(count), seed);
        for (int source = 0; source < count && !any; ++source) {
            const Bytes scales =
                plain_floats(VESCOMM_F32, blocks, seed + static_cast<unsigned>(source));
            std::ranges::copy(
                scales, bytes.begin() + static_cast<std::ptrdiff_t>(
                                            stride * static_cast<std::size_t>(source) + scales_at));
        }
    }
    std::vector<fsdp::QuantisedSource> on_host() const {
        std::vector<fsdp::QuantisedSource> all;
        for (int source = 0; source < count; ++source) {
            const std::uint8_t *codes = bytes.data() + stride * static_cast<std::size_t>(source);
            all.push_back({codes, reinterpret_cast<const float *>(codes + scales_at)});
        }
        return all;
    }

    std::size_t scales_at, stride = 0;
    int count;
    Bytes bytes;
};

void expect_bits(const std::vector<float> &found, const std::vector<float> &expected) {
    ASSERT_EQ(found.size(), expected.size());
    EXPECT_EQ(std::memcmp(found.data(), expected.data(), 4 * found.size()), 0);
}

void check_sum(Device &device, fsdp::CodeType code, const Sources &sources, std::size_t n,
               std::size_t block, float factor) {
    const vescomm_type_t code_type = code == fsdp::CodeType::int8 ? VESCOMM_I8 : VESCOMM_F8E4M3;
    std::vector<float> sum(n + 1, 123.0f), total(n + 1, 0.5f);
    fsdp::sum_quantised(code, sources.on_host(), n, block, factor, sum.data());
    for (std::size_t i = 0; i < n; ++i) total[i] += sum[i];
    auto *from = device.upload(sources.bytes);
    auto *scales = reinterpret_cast<float *>(from + sources.scales_at);
    for (const bool add : {false, true}) {
        auto *to = device.upload(std::vector<float>(n + 1, add ? 0.5f : 123.0f));
        EXPECT_OK(vescomm_gpu_sum_quantised(
            to, add, from, static_cast<std::int64_t>(sources.stride), scales,
            static_cast<std::int64_t>(sources.stride / 4), sources.count, code_type,
            static_cast<std::int64_t>(n), static_cast<std::int64_t>(block), factor, device.stream));
        expect_bits(device.read(to, n + 1), add ? total : sum);
    }
}

TEST(SumQuantised, HasTheBitsOfTheHost) {
    in_both_orders([&] {
        Device device(0);
        for (const auto code : {fsdp::CodeType::int8, fsdp::CodeType::f8e4m3})
            for (const bool any : {false, true})  // any codes and scales
                for (const int count : {1, 3})
                    for (const std::size_t block : {1u, 3u, 5u, 32u, 8191u})
                        for (const std::size_t n : {1u, 33u, 8209u}) {
                            SCOPED_TRACE(testing::Message()
                                         << count << " sources, block " << block << ", count " << n
                                         << (any ? ", any bits" : ""));
                            const Sources sources(count, n, block, any, 7 * block + n);
                            check_sum(device, code, sources, n, block, any ? 1.0f : 0.2f);
                        }
    });
}

// Contributions in their order: in another one the sum rounds to another value.
TEST(SumQuantised, AddsInTheOrderOfTheSources) {
    Device device(0);
    auto *codes = device.upload(std::vector<std::int8_t>{1, 0, 0, 0, 1, 0, 0, 0, -1, 0, 0, 0});
    std::vector<float> scales{0x1p24f, 1, 0x1p24f};
    auto *factors = device.upload(scales);
    auto *to = device.array<float>(1);
    EXPECT_OK(vescomm_gpu_sum_quantised(to, 0, codes, 4, factors, 1, 3, VESCOMM_I8, 1, 1, 1.0f,
                                        device.stream));
    EXPECT_EQ(device.read(to, 1)[0], 0.0f);  // (2^24 + 1) - 2^24, and 2^24 + 1 rounds to even
    EXPECT_EQ(take_violations(), "");
}

TEST(SumQuantised, KeepsTheSignOfZero) {
    Device device(0);
    auto *codes = device.upload(std::vector<std::int8_t>{0, 0, 0, 0});
    auto *scales = device.upload(std::vector<float>{-1});
    auto *to = device.array<float>(1);
    EXPECT_OK(vescomm_gpu_sum_quantised(to, 0, codes, 0, scales, 0, 1, VESCOMM_I8, 1, 1, 1.0f,
                                        device.stream));
    EXPECT_TRUE(std::signbit(device.read(to, 1)[0]));
    EXPECT_EQ(take_violations(), "");
}

TEST(SumQuantised, RefusesWrongArguments) {
    Device device(0);
    auto *codes = device.array<std::uint8_t>(64);
    auto *floats = device.array<float>(16);
    const auto call = [&](float *to, std::int32_t add, const void *from, const float *scales,
                          std::int64_t stride, std::int64_t scale_stride, std::int32_t sources,
                          vescomm_type_t type, std::int64_t count, std::int64_t block,
                          float factor) {
        return vescomm_gpu_sum_quantised(to, add, from, stride, scales, scale_stride, sources, type,
                                         count, block, factor, device.stream);
    };
    const auto expect_invalid = [](vescomm_status_t status, const std::string &says) {
        EXPECT_EQ(status, VESCOMM_ERROR_INVALID_ARGUMENT);
        const std::string text = vescomm_get_last_error();
        EXPECT_NE(text.find("vescomm_gpu_sum_quantised: " + says), std::string::npos) << text;
    };
    const auto i8 = VESCOMM_I8;
    expect_invalid(call(floats, 2, codes, floats, 16, 4, 2, i8, 4, 4, 1), "add is 2; use 0 or 1");
    expect_invalid(call(nullptr, 0, codes, floats, 16, 4, 2, i8, 4, 4, 1), "target is NULL");
    expect_invalid(call(floats, 0, nullptr, floats, 16, 4, 2, i8, 4, 4, 1), "codes is NULL");
    expect_invalid(call(floats, 0, codes, nullptr, 16, 4, 2, i8, 4, 4, 1), "scales is NULL");
    expect_invalid(call(floats, 0, codes, floats, -4, 4, 2, i8, 4, 4, 1),
                   "code_stride is -4; it must be from 0 to 2^40");
    expect_invalid(call(floats, 0, codes, floats, 16, -1, 2, i8, 4, 4, 1), "scale_stride is -1");
    expect_invalid(call(floats, 0, codes, floats, 16, 4, 0, i8, 4, 4, 1), "sources is 0");
    expect_invalid(call(floats, 0, codes, floats, 16, 4, 2, VESCOMM_U8, 4, 4, 1),
                   "the type of codes is u8");
    expect_invalid(call(floats, 0, codes, floats, 16, 4, 2, i8, -1, 4, 1), "count is -1");
    expect_invalid(call(floats, 0, codes, floats, 16, 4, 2, i8, 4, 0, 1), "block is 0");
    expect_invalid(call(floats, 0, codes, floats, 16, 4, 2, i8, 4, 4, NAN), "factor is nan");
    EXPECT_OK(call(nullptr, 0, nullptr, nullptr, 0, 0, 1, i8, 0, 4, 1));
    EXPECT_EQ(take_violations(), "");
}

}  // namespace
}  // namespace vescomm::internal

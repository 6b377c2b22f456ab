// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// AdamW of gpu_kernels.h on parameters in bf16 and f16 has the bits of the FSDP engine on host
// memory: widened, updated in f32, and rounded to the nearest or stochastically.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fsdp/adamw.h"
#include "fsdp/optimizers/stochastic_rounding.h"
#include "gpu/device_kernels.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;
using Codes = std::vector<std::uint16_t>;
using Floats = std::vector<float>;

constexpr std::size_t elements = 20000;
constexpr std::uint64_t stream_of_test = 0x1234567890abcdef;

struct Case {
    vescomm_type_t type = VESCOMM_BF16;
    bool stochastic = false;
    std::uint64_t first = 0;  // number of element 0 in the stream
    bool odd = false;  // any bits
};

template <typename T>
std::vector<T> values_of(const Bytes &bytes) {
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
}

template <typename T>
std::vector<T> make(const Case &tested, vescomm_type_t type, std::size_t count, unsigned seed) {
    return values_of<T>(tested.odd ? any_bits(type, count, seed) : plain_floats(type, count, seed));
}

// The arrays of a step.
struct Arrays {
    Codes parameters;
    Floats gradients, m, v;

    Arrays(const Case &tested, const PieceList &pieces)
        : parameters(make<std::uint16_t>(tested, tested.type, elements, 1)),
          gradients(make<float>(tested, VESCOMM_F32, source_elements(pieces), 2)),
          m(make<float>(tested, VESCOMM_F32, elements, 3)),
          v(make<float>(tested, VESCOMM_F32, elements, 4)) {
        if (tested.odd) return;
        for (float &x : v) x = std::fabs(x);
    }
};

vescomm_gpu_adamw_options_t options_of(const Case &tested, std::int64_t step) {
    auto options = vescomm_gpu_adamw_options_init();
    options.gradient_scale = 1.25f;
    options.step = step;
    options.parameter_type = tested.type;
    options.stochastic = tested.stochastic ? 1 : 0;
    options.random_stream = stream_of_test + static_cast<std::uint64_t>(step);
    options.random_first = tested.first;
    return options;
}

void step_piece_on_host(Arrays &a, const Case &tested, const vescomm_gpu_adamw_options_t &options,
                        const vescomm_gpu_piece_t &piece) {
    const auto count = static_cast<std::size_t>(piece.count);
    std::uint16_t *const parameters = a.parameters.data() + piece.target;
    Floats wide(count);
    kernels().convert(wide.data(), VESCOMM_F32, parameters, tested.type, count);
    fsdp::adamw(wide.data(), a.gradients.data() + piece.source, a.m.data() + piece.target,
                a.v.data() + piece.target, count,
                {options.learning_rate, options.beta1, options.beta2, options.epsilon,
                 options.weight_decay, options.gradient_scale, options.step});
    if (tested.stochastic)
        fsdp::rounding_loop(tested.type)(parameters, wide.data(), count, options.random_stream,
                                         tested.first + static_cast<std::uint64_t>(piece.target));
    else kernels().convert(parameters, tested.type, wide.data(), VESCOMM_F32, count);
}

template <typename T>
void expect_same_bits(const std::vector<T> &found, const std::vector<T> &expected) {
    ASSERT_EQ(found.size(), expected.size());
    EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(T)), 0);
}

// `shift`: elements of the parameters before element 0, so that its address is not aligned to more.
void expect_bits_of_host(const Case &tested, std::size_t shift) {
    SCOPED_TRACE(::testing::Message()
                 << name_of_type(tested.type) << ", stochastic " << tested.stochastic << ", first "
                 << tested.first << ", odd " << tested.odd << ", shift " << shift);
    const PieceList pieces = ragged_pieces(elements);
    Device device(0);
    Arrays a(tested, pieces);
    Codes shifted(shift, 0);
    shifted.insert(shifted.end(), a.parameters.begin(), a.parameters.end());
    auto *parameters = device.upload(shifted) + shift;
    auto *gradients = device.upload(a.gradients);
    auto *m = device.upload(a.m), *v = device.upload(a.v);
    for (std::int64_t step = 1; step <= 3; ++step) {
        const auto options = options_of(tested, step);
        EXPECT_OK(vescomm_gpu_adamw(parameters, gradients, m, v, &options, nullptr, pieces.data(),
                                    count_of(pieces), device.stream));
        for (const auto &piece : pieces) step_piece_on_host(a, tested, options, piece);
    }
    expect_same_bits(device.read(parameters, elements), a.parameters);
    expect_same_bits(device.read(m, elements), a.m);
    expect_same_bits(device.read(v, elements), a.v);
}

TEST(NarrowAdamWKernel, HasTheBitsOfTheHost) {
    in_both_orders([] {
        for (const vescomm_type_t type : {VESCOMM_BF16, VESCOMM_F16})
            for (const bool odd : {false, true}) {
                expect_bits_of_host({.type = type, .odd = odd}, 0);
                // All places in a word of random bits, and a number below 0: the first piece begins
                // at element 3.
                for (const std::uint64_t first :
                     {0ULL, 1ULL, 2ULL, 3ULL, 1ULL << 61, ~0ULL - 1, ~0ULL - 4})
                    expect_bits_of_host(
                        {.type = type, .stochastic = true, .first = first, .odd = odd}, first % 3);
            }
    });
}

// A stochastic result is one of two neighbours, and depends on the stream.
TEST(NarrowAdamWKernel, RoundsDifferentlyInAnotherStream) {
    Device device(0);
    const vescomm_gpu_piece_t all = {0, 0, 1000};
    std::vector<Codes> results;
    for (const std::uint64_t stream : {7, 7, 8}) {
        auto *parameters = device.upload(Codes(1000, 0x3f80));  // 1
        auto *gradients = device.upload(Floats(1000, 1));
        auto *m = device.upload(Floats(1000)), *v = device.upload(Floats(1000));
        auto options = options_of({.stochastic = true}, 1);
        options.random_stream = stream;
        EXPECT_OK(vescomm_gpu_adamw(parameters, gradients, m, v, &options, nullptr, &all, 1,
                                    device.stream));
        results.push_back(device.read(parameters, 1000));
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_NE(results[0], results[2]);
    for (const std::uint16_t code : results[0]) EXPECT_TRUE(code == 0x3f80 || code == 0x3f7f);
}

TEST(NarrowAdamWKernel, ChangesNothingInASkippedStep) {
    Device device(0);
    const vescomm_gpu_piece_t all = {0, 0, 9};
    auto *parameters = device.upload(Codes(9, 0x4000));
    auto *ones = device.upload(Floats(9, 1));
    auto *m = device.upload(Floats(9, 1)), *v = device.upload(Floats(9, 1));
    auto *clip = device.upload(std::vector{vescomm_gpu_clip_t{1, 0.5f, 1}});
    const auto options = options_of({.stochastic = true}, 1);
    EXPECT_OK(vescomm_gpu_adamw(parameters, ones, m, v, &options, clip, &all, 1, device.stream));
    EXPECT_EQ(device.read(parameters, 9), Codes(9, 0x4000));
    EXPECT_EQ(device.read(m, 9), Floats(9, 1));
    EXPECT_EQ(take_violations(), "");
}

// A program that was built with the first version of the struct.
TEST(NarrowAdamWKernel, ReadsAShorterStructAsF32) {
    Device device(0);
    const vescomm_gpu_piece_t all = {0, 0, 5};
    auto *parameters = device.upload(Floats(5, 1)), *ones = device.upload(Floats(5, 1));
    auto *m = device.upload(Floats(5)), *v = device.upload(Floats(5));
    auto options = options_of({.type = 77, .stochastic = true}, 1);
    options.struct_size = offsetof(vescomm_gpu_adamw_options_t, parameter_type);
    EXPECT_OK(vescomm_gpu_adamw(parameters, ones, m, v, &options, nullptr, &all, 1, device.stream));
    for (const float x : device.read(parameters, 5)) EXPECT_NEAR(x, 0.999, 1e-4);
}

}  // namespace
}  // namespace vescomm::internal

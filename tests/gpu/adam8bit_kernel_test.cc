// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// AdamW with moments in 8 bits of gpu_kernels.h has the bits of the FSDP engine on host memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "fsdp/optimizers/adam8bit.h"
#include "gpu/optimizer_arrays.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;

constexpr auto block = static_cast<std::int64_t>(fsdp::adam8bit_block);
static_assert(block == VESCOMM_GPU_MOMENT_BLOCK);

std::size_t blocks_of(std::int64_t count) {
    return static_cast<std::size_t>((count + block - 1) / block);
}

std::size_t blocks_of(const PieceList &pieces) {
    std::size_t blocks = 0;
    for (const auto &piece : pieces) blocks += blocks_of(piece.count);
    return blocks;
}

// Elements of the target, with some behind the last piece.
std::size_t target_elements(const PieceList &pieces) {
    return static_cast<std::size_t>(pieces.back().target + pieces.back().count) + 5;
}

// More than two launches have, of up to two blocks and a part.
PieceList many_pieces() {
    std::mt19937 random(9);
    PieceList pieces;
    std::int64_t target = 1, source = 2;
    for (int k = 0; k < 300; ++k) {
        const auto count = static_cast<std::int64_t>(k % 4 == 0 ? random() % 600 : random() % 9);
        pieces.push_back({target, source, count});
        target += count + static_cast<std::int64_t>(random() % 3);
        source += count + 1;
    }
    return pieces;
}

// The arrays of a step.
struct Arrays {
    Bytes parameters, m, v;
    Floats gradients, m_scales, v_scales;

    Arrays(const Parameters &p, const PieceList &pieces)
        : parameters(make_parameters(p, target_elements(pieces), 1)),
          m(any_bits(VESCOMM_U8, target_elements(pieces), 2)),
          v(any_bits(VESCOMM_U8, target_elements(pieces), 3)),
          gradients(make_floats(p.odd, source_elements(pieces), 4)),
          m_scales(make_floats(p.odd, blocks_of(pieces) + 1, 5)),
          v_scales(make_floats(p.odd, blocks_of(pieces) + 1, 6)) {
        if (p.odd) return;
        for (float &x : m_scales) x = std::fabs(x);
        for (float &x : v_scales) x = std::fabs(x);
        for (std::size_t i = 0; i < gradients.size(); ++i) {
            // Runs of zeros, and few blocks that are not finite.
            if (i / 400 % 3 == 0) gradients[i] = 0;
            if (i % 7919 == 7000) gradients[i] = i % 2 == 0 ? NAN : -INFINITY;
        }
        for (std::size_t k = 0; k < m_scales.size(); ++k)
            if (k % 4 == 1) m_scales[k] = v_scales[k] = 0;
    }
};

void step_on_host(Arrays &a, const Parameters &p, const vescomm_gpu_adamw_options_t &options,
                  float gradient_scale, const PieceList &pieces) {
    std::size_t at = 0;
    for (const auto &piece : pieces) {
        const fsdp::Adam8bitState state = {a.m.data() + piece.target, a.v.data() + piece.target,
                                           a.m_scales.data() + at, a.v_scales.data() + at};
        testing_support::step_on_host(a.parameters, p, options, piece, [&](float *wide) {
            fsdp::adam8bit(wide, a.gradients.data() + piece.source, state,
                           static_cast<std::size_t>(piece.count),
                           {options.learning_rate, options.beta1, options.beta2, options.epsilon,
                            options.weight_decay, gradient_scale, options.step});
        });
        at += blocks_of(piece.count);
    }
}

// Makes three steps on the device and on the host. `clip`: none if its norm is 0.
void expect_bits_of_host(const Parameters &parameters, const PieceList &pieces,
                         vescomm_gpu_adamw_options_t options, const vescomm_gpu_clip_t &clip) {
    SCOPED_TRACE(::testing::Message()
                 << parameters << ", " << pieces.size() << " pieces, beta1 " << options.beta1
                 << ", clip " << clip.norm << ' ' << clip.skip);
    const bool clipped = clip.norm != 0;
    Device device(0);
    Arrays a(parameters, pieces);
    auto *p = upload_parameters(device, parameters, a.parameters);
    auto *m = device.upload(a.m), *v = device.upload(a.v);
    auto *g = device.upload(a.gradients);
    auto *m_scales = device.upload(a.m_scales), *v_scales = device.upload(a.v_scales);
    auto *dc = device.upload(std::vector{clip});
    for (options.step = 1; options.step <= 3; ++options.step) {
        set_parameters(options, parameters);
        EXPECT_OK(vescomm_gpu_adam8bit(p, g, m, v, m_scales, v_scales, &options,
                                       clipped ? dc : nullptr, pieces.data(), count_of(pieces),
                                       device.stream));
        if (!clipped || clip.skip == 0)
            step_on_host(a, parameters, options, clipped ? clip.factor : options.gradient_scale,
                         pieces);
    }
    expect_same_bits("parameters", device.read(p, a.parameters.size()), a.parameters);
    expect_same_bits("m", device.read(m, a.m.size()), a.m);
    expect_same_bits("v", device.read(v, a.v.size()), a.v);
    expect_same_bits("m_scales", device.read(m_scales, a.m_scales.size()), a.m_scales);
    expect_same_bits("v_scales", device.read(v_scales, a.v_scales.size()), a.v_scales);
    expect_same_bits("gradients", device.read(g, a.gradients.size()), a.gradients);
}

vescomm_gpu_adamw_options_t with_beta1(double beta1) {
    auto options = vescomm_gpu_adamw_options_init();
    options.gradient_scale = 1.25f;
    options.beta1 = beta1;
    return options;
}

TEST(Adam8bitKernel, HasTheBitsOfTheHost) {
    in_both_orders([] {
        for (const Parameters &parameters : all_parameters())
            for (const double beta1 : {0.0, 0.9})
                expect_bits_of_host(parameters, ragged_pieces(20000), with_beta1(beta1), {});
    });
}

// Each launch begins with the scales behind those of the launch before.
TEST(Adam8bitKernel, HasTheBitsOfTheHostInManyPieces) {
    in_both_orders([] {
        for (const Parameters &parameters : {Parameters{.shift = 3}, Parameters{.odd = true},
                                             Parameters{.type = VESCOMM_BF16, .stochastic = true}})
            expect_bits_of_host(parameters, many_pieces(), with_beta1(0.9), {});
    });
}

TEST(Adam8bitKernel, HasTheBitsOfTheHostForAnyLength) {
    std::vector<std::int64_t> lengths = {1,   2,   3,   4,    5,    127,  128,  129,
                                         255, 256, 257, 2047, 2048, 2049, 4096, 8191};
    in_both_orders([&] {
        for (const std::int64_t length : lengths)
            for (const std::int64_t first : {0, 1, 2, 3})
                expect_bits_of_host({.odd = length % 2 == 1}, {{first, 3 - first, length}},
                                    with_beta1(0.9), {});
    });
}

// Blocks of whole runs at aligned addresses, and a block that only its length makes another one.
TEST(Adam8bitKernel, HasTheBitsOfTheHostInAlignedPieces) {
    in_both_orders([&] {
        for (const Parameters &parameters : all_parameters())
            for (const double beta1 : {0.0, 0.9})
                expect_bits_of_host(parameters, {{0, 0, 5 * block + 252}, {7 * block, 1600, block}},
                                    with_beta1(beta1), {});
    });
}

TEST(Adam8bitKernel, IsClippedByAResultInDeviceMemory) {
    for (const vescomm_gpu_clip_t clip : {vescomm_gpu_clip_t{1, 0.37f, 0}, {1, 0.37f, 1}})
        for (const Parameters &parameters : all_parameters())
            expect_bits_of_host(parameters, ragged_pieces(5000), with_beta1(0.9), clip);
    EXPECT_EQ(take_violations(), "");
}

// From the largest gradients to the smallest ones, in one block: a second moment above 0 would be
// rounded to 0, and the next step be too long.
TEST(Adam8bitKernel, NeverRoundsASecondMomentToZero) {
    Device device(0);
    const vescomm_gpu_piece_t all = {0, 0, 200};
    Floats gradients;
    for (int i = 0; i < 200; ++i) gradients.push_back(i == 0 ? 0 : std::pow(0.8f, float(i)));
    auto *p = device.upload(Floats(200, 1)), *g = device.upload(gradients);
    auto *m = device.upload(Bytes(200)), *v = device.upload(Bytes(200));
    auto *m_scales = device.upload(Floats(1)), *v_scales = device.upload(Floats(1));
    const auto options = vescomm_gpu_adamw_options_init();
    EXPECT_OK(vescomm_gpu_adam8bit(p, g, m, v, m_scales, v_scales, &options, nullptr, &all, 1,
                                   device.stream));
    const Bytes codes = device.read(v, 200);
    EXPECT_EQ(codes[0], 0);
    EXPECT_EQ(std::ranges::count(codes, 0), 1);
    EXPECT_EQ(std::ranges::max(codes), codes[1]);
    EXPECT_GT(std::ranges::count(codes, 1), 10);
}

}  // namespace
}  // namespace vescomm::internal

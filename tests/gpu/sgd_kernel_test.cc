// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// SGD of gpu_kernels.h has the bits of the FSDP engine on host memory.
#include <gtest/gtest.h>

#include <cstddef>

#include "fsdp/optimizers/sgd.h"
#include "gpu/optimizer_arrays.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;

constexpr std::size_t elements = 20000;

vescomm_gpu_sgd_options_t settings(double momentum, double dampening, bool nesterov, double decay,
                                   bool decoupled) {
    auto options = vescomm_gpu_sgd_options_init();
    options.gradient_scale = 1.25f;
    options.learning_rate = 0.1;
    options.momentum = momentum;
    options.dampening = dampening;
    options.nesterov = nesterov ? 1 : 0;
    options.weight_decay = decay;
    options.decoupled = decoupled ? 1 : 0;
    return options;
}

// The constants of a step, by the formulas of torch.optim.SGD.
fsdp::SgdStep constants_of(const vescomm_gpu_sgd_options_t &options, float gradient_scale) {
    const bool decoupled = options.decoupled != 0;
    const double kept = 1 - options.learning_rate * options.weight_decay;
    return {
        .gradient_scale = gradient_scale,
        .coupled_decay = decoupled ? 0 : static_cast<float>(options.weight_decay),
        .decay = decoupled ? static_cast<float>(kept) : 1,
        .momentum = static_cast<float>(options.momentum),
        .fresh = options.step == 1 ? 1 : static_cast<float>(1 - options.dampening),
        .learning_rate = static_cast<float>(options.learning_rate),
        .nesterov = options.nesterov != 0,
    };
}

// Makes three steps on the device and on the host. `clip`: none if its norm is 0.
void expect_bits_of_host(const Parameters &parameters, vescomm_gpu_sgd_options_t options,
                         const vescomm_gpu_clip_t &clip) {
    SCOPED_TRACE(::testing::Message()
                 << parameters << ", momentum " << options.momentum << ", dampening "
                 << options.dampening << ", nesterov " << options.nesterov << ", decay "
                 << options.weight_decay << ", clip " << clip.norm << ' ' << clip.skip);
    const PieceList pieces = ragged_pieces(elements);
    const bool clipped = clip.norm != 0;
    Device device(0);
    Bytes p = make_parameters(parameters, elements, 1);
    Floats m = make_floats(parameters.odd, elements, 2);
    const Floats g = make_floats(parameters.odd, source_elements(pieces), 3);
    auto *dp = upload_parameters(device, parameters, p);
    auto *dg = device.upload(g), *dm = device.upload(m);
    auto *dc = device.upload(std::vector{clip});
    for (options.step = 1; options.step <= 3; ++options.step) {
        set_parameters(options, parameters);
        EXPECT_OK(vescomm_gpu_sgd(dp, dg, options.momentum != 0 ? dm : nullptr, &options,
                                  clipped ? dc : nullptr, pieces.data(), count_of(pieces),
                                  device.stream));
        if (clipped && clip.skip != 0) continue;
        const auto step = constants_of(options, clipped ? clip.factor : options.gradient_scale);
        for (const auto &piece : pieces)
            step_on_host(p, parameters, options, piece, [&](float *wide) {
                fsdp::sgd(wide, g.data() + piece.source,
                          options.momentum != 0 ? m.data() + piece.target : nullptr,
                          static_cast<std::size_t>(piece.count), step);
            });
    }
    expect_same_bits("parameters", device.read(dp, p.size()), p);
    expect_same_bits("momentum", device.read(dm, elements), m);
    expect_same_bits("gradients", device.read(dg, g.size()), g);
}

TEST(SgdKernel, HasTheBitsOfTheHost) {
    in_both_orders([] {
        for (const Parameters &parameters : all_parameters())
            for (const auto &options :
                 {settings(0, 0, false, 0, false), settings(0, 0, false, 0.1, false),
                  settings(0.9, 0, false, 0.1, true), settings(0.9, 0.2, false, 0.1, false),
                  settings(0.7, 0, true, 0, false)})
                expect_bits_of_host(parameters, options, {});
    });
}

TEST(SgdKernel, IsClippedByAResultInDeviceMemory) {
    for (const vescomm_gpu_clip_t clip : {vescomm_gpu_clip_t{1, 0.37f, 0}, {1, 0.37f, 1}})
        for (const Parameters &parameters : all_parameters())
            expect_bits_of_host(parameters, settings(0.9, 0, true, 0.1, true), clip);
    EXPECT_EQ(take_violations(), "");
}

// Without weight decay an infinite parameter does not make its momentum NaN.
TEST(SgdKernel, KeepsInfiniteParameters) {
    Device device(0);
    const vescomm_gpu_piece_t all = {0, 0, 5};
    auto *p = device.upload(Floats(5, INFINITY)), *g = device.upload(Floats(5, 1));
    auto *m = device.upload(Floats(5));
    const auto options = settings(0.9, 0, false, 0, false);
    EXPECT_OK(vescomm_gpu_sgd(p, g, m, &options, nullptr, &all, 1, device.stream));
    EXPECT_EQ(device.read(p, 5), Floats(5, INFINITY));
    EXPECT_EQ(device.read(m, 5), Floats(5, 1.25f));
}

}  // namespace
}  // namespace vescomm::internal

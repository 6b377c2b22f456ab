// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The operations of gpu_kernels.h on pieces of slabs have the bits of the loops on host memory, and
// change nothing else.
#include <gtest/gtest.h>

#include <cmath>

#include "gpu/device_kernels.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;

constexpr std::size_t elements = 30000;  // several tiles of several pieces

// Calls body(bytes of the target, bytes of the source, count) for each piece of host arrays.
template <typename Body>
void for_pieces(const PieceList &pieces, Bytes &target, vescomm_type_t target_type,
                const Bytes &source, vescomm_type_t source_type, const Body &body) {
    for (const auto &piece : pieces)
        body(target.data() + static_cast<std::size_t>(piece.target) * size_of(target_type),
             source.data() + static_cast<std::size_t>(piece.source) * size_of(source_type),
             static_cast<std::size_t>(piece.count));
}

// The sum on the host, in the type that gpu_kernels.h states.
void add_on_host(void *to, vescomm_type_t to_type, const void *from, vescomm_type_t from_type,
                 std::size_t count) {
    const bool wide = to_type == VESCOMM_F64 || from_type == VESCOMM_F64;
    const vescomm_type_t type = to_type == from_type ? to_type : wide ? VESCOMM_F64 : VESCOMM_F32;
    Bytes a(count * size_of(type)), b(a.size());
    kernels().convert(a.data(), type, to, to_type, count);
    kernels().convert(b.data(), type, from, from_type, count);
    const void *sources[] = {a.data(), b.data()};
    kernels().reduce({}, sources, type, {}, a.data(), type, count);
    kernels().convert(to, to_type, a.data(), type, count);
}

void scale_on_host(void *to, vescomm_type_t type, double factor, std::size_t count) {
    Reduction how;
    how.op = VESCOMM_PREMULTIPLIED_SUM;
    how.factors = &factor;
    const void *sources[] = {to};
    kernels().reduce(how, sources, type, {}, to, type, count);
}

TEST(ElementwiseKernels, ZeroAndCopyMoveTheBitsOfEveryType) {
    const PieceList pieces = ragged_pieces(elements);
    in_both_orders([&] {
        Device device(0);
        for (vescomm_type_t type = VESCOMM_F32; type <= last_type; ++type) {
            SCOPED_TRACE(name_of_type(type));
            Bytes target = any_bits(type, elements, 1);
            const Bytes source = any_bits(type, source_elements(pieces), 2);
            auto *to = device.upload(target), *from = device.upload(source);
            EXPECT_OK(vescomm_gpu_copy(to, type, from, type, pieces.data(), count_of(pieces),
                                       device.stream));
            for_pieces(pieces, target, type, source, type, [&](void *a, const void *b, auto n) {
                std::memcpy(a, b, n * size_of(type));
            });
            EXPECT_EQ(device.read(to, target.size()), target);
            EXPECT_OK(vescomm_gpu_zero(to, type, pieces.data(), count_of(pieces), device.stream));
            for_pieces(pieces, target, type, source, type, [&](void *a, const void *, auto n) {
                std::memset(a, 0, n * size_of(type));
            });
            EXPECT_EQ(device.read(to, target.size()), target);
        }
    });
}

TEST(ElementwiseKernels, CastsHaveTheBitsOfTheHost) {
    const PieceList pieces = ragged_pieces(elements);
    in_both_orders([&] {
        Device device(0);
        for (const vescomm_type_t to_type : float_types)
            for (const vescomm_type_t from_type : float_types) {
                if (to_type == from_type || !can_convert(to_type, from_type)) continue;
                SCOPED_TRACE(name_of_type(from_type) + " to " + name_of_type(to_type));
                Bytes target = any_bits(to_type, elements, 3);
                const std::size_t n = source_elements(pieces);
                Bytes source = any_bits(from_type, n, 4);
                const Bytes plain = plain_floats(from_type, n / 2, 5);
                std::memcpy(source.data(), plain.data(), plain.size());
                auto *to = device.upload(target), *from = device.upload(source);
                EXPECT_OK(vescomm_gpu_copy(to, to_type, from, from_type, pieces.data(),
                                           count_of(pieces), device.stream));
                for_pieces(pieces, target, to_type, source, from_type,
                           [&](void *a, const void *b, auto count) {
                               kernels().convert(a, to_type, b, from_type, count);
                           });
                EXPECT_EQ(device.read(to, target.size()), target);
            }
    });
}

TEST(ElementwiseKernels, SumsHaveTheBitsOfTheHost) {
    const PieceList pieces = ragged_pieces(elements);
    in_both_orders([&] {
        Device device(0);
        for (const vescomm_type_t to_type : float_types)
            for (const vescomm_type_t from_type : float_types) {
                if (to_type != from_type && to_type != VESCOMM_F32 && from_type != VESCOMM_F32)
                    continue;
                SCOPED_TRACE(name_of_type(from_type) + " to " + name_of_type(to_type));
                Bytes target = plain_floats(to_type, elements, 6);
                const Bytes odd = any_bits(to_type, elements / 2, 7);
                std::memcpy(target.data(), odd.data(), odd.size());
                const std::size_t n = source_elements(pieces);
                Bytes source = plain_floats(from_type, n, 8);
                const Bytes others = any_bits(from_type, n / 4, 9);
                std::memcpy(source.data(), others.data(), others.size());
                auto *to = device.upload(target), *from = device.upload(source);
                EXPECT_OK(vescomm_gpu_add(to, to_type, from, from_type, pieces.data(),
                                          count_of(pieces), device.stream));
                for_pieces(pieces, target, to_type, source, from_type,
                           [&](void *a, const void *b, auto count) {
                               add_on_host(a, to_type, b, from_type, count);
                           });
                EXPECT_EQ(device.read(to, target.size()), target);
            }
    });
}

TEST(ElementwiseKernels, ProductsHaveTheBitsOfTheHost) {
    const PieceList pieces = ragged_pieces(elements);
    in_both_orders([&] {
        Device device(0);
        for (const vescomm_type_t type : float_types)
            for (const double factor : {1.0 / 3, -0.0, 1.0 / 65536, 1e30}) {
                SCOPED_TRACE(name_of_type(type) + " times " + std::to_string(factor));
                Bytes target = any_bits(type, elements, 10);
                const Bytes plain = plain_floats(type, elements / 2, 11);
                std::memcpy(target.data(), plain.data(), plain.size());
                auto *to = device.upload(target);
                EXPECT_OK(vescomm_gpu_scale(to, type, factor, pieces.data(), count_of(pieces),
                                            device.stream));
                for_pieces(pieces, target, type, target, type, [&](void *a, const void *, auto n) {
                    scale_on_host(a, type, factor, n);
                });
                EXPECT_EQ(device.read(to, target.size()), target);
            }
    });
}

// One element after another is made infinite, NaN or too large; elements between pieces do not
// count.
TEST(ElementwiseKernels, UnscaleFindsEveryOverflow) {
    const PieceList pieces = {{1, 0, 9}, {12, 0, 4}};
    const std::size_t n = 17;
    in_both_orders([&] {
        Device device(0);
        for (const vescomm_type_t type : float_types)
            for (std::size_t bad = 0; bad <= n; ++bad)
                for (const float value : {INFINITY, -INFINITY, NAN, 4.0f}) {
                    const double factor = value == 4 ? 0x1p127 : 0.25;
                    std::vector<float> values(n, value == 4 ? 0.0f : 3.0f);
                    if (bad < n) values[bad] = value;
                    Bytes target(n * size_of(type));
                    kernels().convert(target.data(), type, values.data(), VESCOMM_F32, n);
                    auto *to = device.upload(target);
                    auto *flag = device.upload(std::vector<std::int32_t>{0});
                    EXPECT_OK(vescomm_gpu_unscale(to, type, factor, flag, pieces.data(),
                                                  count_of(pieces), device.stream));
                    const bool large = value == 4 && type == VESCOMM_F64;  // 2^129 is finite
                    const bool inside = (bad >= 1 && bad < 10) || (bad >= 12 && bad < 16);
                    EXPECT_EQ(device.read(flag, 1)[0], inside && !large ? 1 : 0)
                        << name_of_type(type) << ", element " << bad << " is " << value;
                    for_pieces(pieces, target, type, target, type,
                               [&](void *a, const void *, auto count) {
                                   scale_on_host(a, type, factor, count);
                               });
                    EXPECT_EQ(device.read(to, target.size()), target);
                }
        // A flag that is set stays set.
        auto *to = device.upload(std::vector<float>(n, 1.0f));
        auto *flag = device.upload(std::vector<std::int32_t>{1});
        EXPECT_OK(vescomm_gpu_unscale(to, VESCOMM_F32, 1, flag, pieces.data(), count_of(pieces),
                                      device.stream));
        EXPECT_EQ(device.read(flag, 1)[0], 1);
    });
}

}  // namespace
}  // namespace vescomm::internal

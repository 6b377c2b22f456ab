// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Rejected arguments of collectives on arrays, and the error messages.
#include <array>
#include <cmath>

#include "base/types.h"
#include "support/array_calls.h"

namespace vescomm::internal {
namespace {

using testing_support::check;
using testing_support::expect_in_step;
using testing_support::Floats;
using testing_support::run_array_ranks;
using testing_support::sum;
using testing_support::two;

TEST(ArrayArguments, OverlappingArraysAreRejected) {
    run_array_ranks(two, [](vescomm_comm_t *comm) {
        const auto rank = static_cast<std::size_t>(comm->value->rank());
        Floats data(40, 1);
        float *at = data.data();
        const std::int64_t counts[] = {10, 10};
        const char *overlap = "overlap";
        EXPECT_REFUSED(vescomm_all_reduce(comm, at, at + 1, 10, VESCOMM_F32, VESCOMM_SUM, nullptr,
                                          nullptr, nullptr),
                       overlap);
        // In place is valid only at the offset of the rank's own block.
        EXPECT_REFUSED(vescomm_all_gather_v(comm, at + 10 * (1 - rank), at, counts, nullptr,
                                            VESCOMM_F32, nullptr, nullptr, nullptr),
                       overlap);
        EXPECT_REFUSED(vescomm_reduce_scatter_v(comm, at, at + 10 * (1 - rank), counts, VESCOMM_F32,
                                                VESCOMM_SUM, nullptr, nullptr, nullptr),
                       overlap);
        EXPECT_REFUSED(vescomm_all_to_all_v(comm, at, counts, nullptr, at, counts, nullptr,
                                            VESCOMM_F32, nullptr, nullptr, nullptr),
                       overlap);
        EXPECT_REFUSED(vescomm_all_gather(comm, at + 10 * (1 - rank), at, 10, VESCOMM_F32, nullptr,
                                          nullptr, nullptr),
                       overlap);
        EXPECT_REFUSED(vescomm_reduce_scatter(comm, at, at + 10 * (1 - rank), 10, VESCOMM_F32,
                                              VESCOMM_SUM, nullptr, nullptr, nullptr),
                       overlap);
        EXPECT_REFUSED(vescomm_all_to_all(comm, at, at, 10, VESCOMM_F32, nullptr, nullptr, nullptr),
                       overlap);
        check(vescomm_all_gather(comm, at + 10 * rank, at, 10, VESCOMM_F32, nullptr, nullptr,
                                 nullptr));
        check(vescomm_reduce_scatter(comm, at, at + 10 * rank, 10, VESCOMM_F32, VESCOMM_SUM,
                                     nullptr, nullptr, nullptr));
        // Output blocks must not overlap. Source blocks may.
        const std::int64_t offsets[] = {0, 9};
        Floats other(40, 1);
        EXPECT_REFUSED(vescomm_all_gather_v(comm, other.data(), at, counts, offsets, VESCOMM_F32,
                                            nullptr, nullptr, nullptr),
                       overlap);
        EXPECT_REFUSED(vescomm_all_to_all_v(comm, other.data(), counts, nullptr, at, counts,
                                            offsets, VESCOMM_F32, nullptr, nullptr, nullptr),
                       overlap);
        const std::int64_t same[] = {0, 0};
        check(vescomm_all_to_all_v(comm, other.data(), counts, same, at, counts, nullptr,
                                   VESCOMM_F32, nullptr, nullptr, nullptr));
        // Adjacent blocks do not overlap, in any order.
        const std::int64_t turned[] = {10, 0};
        check(vescomm_all_gather_v(comm, at + 20, at, counts, turned, VESCOMM_F32, nullptr, nullptr,
                                   nullptr));
        check(vescomm_all_gather_v(comm, at + turned[rank], at, counts, turned, VESCOMM_F32,
                                   nullptr, nullptr, nullptr));
        expect_in_step(comm);
    });
}

TEST(ArrayArguments, UnalignedArraysAreRejected) {
    run_array_ranks(two, [](vescomm_comm_t *comm) {
        Floats data(4, 1);
        char *odd = reinterpret_cast<char *>(data.data()) + 2;
        EXPECT_REFUSED(vescomm_broadcast(comm, odd, 2, VESCOMM_F32, 0, nullptr, nullptr, nullptr),
                       "data is not aligned");
        check(vescomm_broadcast(comm, odd, 2, VESCOMM_BF16, 0, nullptr, nullptr, nullptr));
        // A complex number is aligned to one part.
        alignas(16) std::array<char, 48> wide{};
        check(vescomm_broadcast(comm, &wide[8], 2, VESCOMM_C128, 0, nullptr, nullptr, nullptr));
        check(vescomm_broadcast(comm, &wide[4], 2, VESCOMM_C64, 0, nullptr, nullptr, nullptr));
        EXPECT_REFUSED(
            vescomm_broadcast(comm, &wide[4], 2, VESCOMM_C128, 0, nullptr, nullptr, nullptr),
            "data is not aligned to 8 bytes, as arrays of c128 must be");
    });
}

TEST(ArrayArguments, OnlyPremultipliedSumsTakeAFactor) {
    run_array_ranks(two, [](vescomm_comm_t *comm) {
        Floats data(10, 1);
        auto options = vescomm_call_options_init();
        const auto call = [&](vescomm_op_t op) {
            return vescomm_all_reduce(comm, data.data(), data.data(), 10, VESCOMM_F32, op, &options,
                                      nullptr, nullptr);
        };
        EXPECT_REFUSED(sum(comm, data, nullptr, VESCOMM_PREMULTIPLIED_SUM), "factor");
        EXPECT_REFUSED(call(VESCOMM_PREMULTIPLIED_SUM), "factor");
        options.factor = 0.5;
        EXPECT_REFUSED(call(VESCOMM_MAX), "takes no factor");
        check(call(VESCOMM_PREMULTIPLIED_SUM));
        EXPECT_EQ(data, Floats(10, 1));
    });
}

// 0.5 would make every integer 0.
TEST(ArrayArguments, FactorsOfIntegersAreWholeNumbers) {
    run_array_ranks(two, [](vescomm_comm_t *comm) {
        std::vector<std::int32_t> data(10, 2);
        auto options = vescomm_call_options_init();
        const auto call = [&](double factor) {
            options.factor = factor;
            return vescomm_all_reduce(comm, data.data(), data.data(), 10, VESCOMM_I32,
                                      VESCOMM_PREMULTIPLIED_SUM, &options, nullptr, nullptr);
        };
        EXPECT_REFUSED(call(0.5), "factor is 0.5; for i32 it must be a whole number");
        EXPECT_REFUSED(call(std::nan("")), "factor is nan");
        EXPECT_REFUSED(call(1e30), "factor is 1e+30");
        check(call(-3));
        EXPECT_EQ(data, std::vector<std::int32_t>(10, -12));
    });
}

// Every rank refuses the call by itself: the others are not asked.
TEST(ArrayArguments, OperatorsThatTheTypeDoesNotHaveAreRejected) {
    run_array_ranks(two, [](vescomm_comm_t *comm) {
        alignas(8) std::array<char, 80> data{};
        const auto call = [&](vescomm_op_t op, vescomm_type_t type) {
            return vescomm_all_reduce(comm, data.data(), data.data(), 5, type, op, nullptr, nullptr,
                                      nullptr);
        };
        if (comm->value->rank() == 0) {
            EXPECT_REFUSED(call(VESCOMM_BITWISE_OR, VESCOMM_F32),
                           "all_reduce: there is no bitwise or of f32; bitwise and logical "
                           "operators combine integers and bool");
            EXPECT_REFUSED(call(VESCOMM_LOGICAL_XOR, VESCOMM_BF16), "no logical xor of bf16");
            EXPECT_REFUSED(call(VESCOMM_BITWISE_AND, VESCOMM_F8E4M3), "no bitwise and of f8e4m3");
            EXPECT_REFUSED(call(VESCOMM_AVERAGE, VESCOMM_BOOL),
                           "all_reduce: there is no average of bool; bool has sum, prod, min, max, "
                           "and the bitwise and logical operators");
            EXPECT_REFUSED(call(VESCOMM_PREMULTIPLIED_SUM, VESCOMM_BOOL), "no premultiplied sum");
            EXPECT_REFUSED(call(VESCOMM_MAX, VESCOMM_C64),
                           "all_reduce: there is no max of c64; complex numbers have sum, average, "
                           "prod and premultiplied sum");
            EXPECT_REFUSED(call(VESCOMM_BITWISE_OR, VESCOMM_C128), "no bitwise or of c128");
            EXPECT_REFUSED(call(VESCOMM_SUM, last_type + 1),
                           "there is no type 18; use one of VESCOMM_F32 (1) to VESCOMM_C128 (17)");
            EXPECT_REFUSED(call(last_op + 1, VESCOMM_I32),
                           "there is no op 12; use one of VESCOMM_SUM (0) to VESCOMM_LOGICAL_XOR");
        }
        check(call(VESCOMM_LOGICAL_AND, VESCOMM_I64));
        check(call(VESCOMM_BITWISE_XOR, VESCOMM_BOOL));
        check(call(VESCOMM_PROD, VESCOMM_C128));
        expect_in_step(comm);
    });
}

TEST(ArrayArguments, CountsAboveTheMaximumAreRejected) {
    run_array_ranks(two, [](vescomm_comm_t *comm) {
        float data[2] = {1, 1};
        constexpr std::int64_t max = std::int64_t{1} << 40;
        const auto call = [&](std::int64_t count) {
            return vescomm_all_reduce(comm, data, data, count, VESCOMM_F32, VESCOMM_SUM, nullptr,
                                      nullptr, nullptr);
        };
        EXPECT_REFUSED(call(max + 1), "count is 1099511627777");
        EXPECT_REFUSED(call(std::int64_t{1} << 56), "it must be from 0 to 1099511627776");
        const std::int64_t counts[] = {max, 1};
        EXPECT_REFUSED(vescomm_all_gather_v(comm, data, data, counts, nullptr, VESCOMM_F32, nullptr,
                                            nullptr, nullptr),
                       "the sum of counts");
        EXPECT_REFUSED(
            vescomm_all_gather(comm, data, data, max, VESCOMM_F32, nullptr, nullptr, nullptr),
            "vescomm_all_gather: count for 2 ranks together is 2199023255552; it must be from 0 to "
            "1099511627776");
        EXPECT_REFUSED(vescomm_reduce_scatter(comm, data, data, -1, VESCOMM_F32, VESCOMM_SUM,
                                              nullptr, nullptr, nullptr),
                       "vescomm_reduce_scatter: count is -1");
        EXPECT_REFUSED(vescomm_all_to_all(comm, data, data, std::int64_t{1} << 62, VESCOMM_F32,
                                          nullptr, nullptr, nullptr),
                       "vescomm_all_to_all: count is 4611686018427387904");
        // The limit also applies to the sum over a group.
        check(vescomm_group_begin(comm));
        check(call(max));
        check(call(1));
        EXPECT_REFUSED(vescomm_group_end(comm, nullptr), "1099511627777");
        expect_in_step(comm);
    });
}

}  // namespace
}  // namespace vescomm::internal

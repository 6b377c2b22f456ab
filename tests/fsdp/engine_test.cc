// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <thread>

#include "support/free_port.h"
#include "vescomm/fsdp.hpp"

namespace vescomm::fsdp {
namespace {

// Odd sizes, blocks of rows, a whole tensor, a scalar, an empty tensor.
std::vector<UnitSpec> model() {
    std::vector<UnitSpec> units;
    units.push_back({"embedding", {{"token", {37, 12}, 1}, {"position", {5, 12}, 1}}});
    for (int i = 0; i < 4; ++i)
        units.push_back({"block." + std::to_string(i),
                         {{"up", {64, 12}, 32},
                          {"bias", {64}, 1},
                          {"owned", {7, 9}, -1},
                          {"scale", {}, 1},
                          {"nothing", {0, 3}, 1}}});
    units.push_back({"head", {{"out", {19, 12}, 4}}});
    return units;
}

std::int64_t elements(const TensorSpec &tensor) {
    std::int64_t product = 1;
    for (const std::int64_t extent : tensor.shape) product *= extent;
    return product;
}

float initial(int unit, int tensor, std::int64_t element) {
    return static_cast<float>((element * 31 + unit * 7 + tensor) % 101 - 50) / 64.0f;
}

// The sum of the gradients of all ranks, and the term of one rank. All are whole numbers, so the
// sum is exact in any order.
int total_gradient(int unit, int tensor, std::int64_t element, int step) {
    return static_cast<int>((element * 13 + unit * 5 + tensor * 3 + step * 17) % 41) - 20;
}

int part_of(int total, int rank, int ranks) {
    const int shifted = total + 20 + rank;
    const int part = shifted / ranks - rank / ranks;
    return rank == ranks - 1 ? 0 : part;
}

int gradient(int unit, int tensor, std::int64_t element, int step, int rank, int ranks) {
    const int total = total_gradient(unit, tensor, element, step);
    if (rank < ranks - 1) return part_of(total, rank, ranks);
    int rest = total;
    for (int other = 0; other < ranks - 1; ++other) rest -= part_of(total, other, ranks);
    return rest;
}

std::uint16_t to_bf16(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float read(const void *tensor, std::int64_t element, Precision precision) {
    if (precision == Precision::f32) return static_cast<const float *>(tensor)[element];
    const std::uint32_t bits =
        static_cast<std::uint32_t>(static_cast<const std::uint16_t *>(tensor)[element]) << 16;
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

void write(void *tensor, std::int64_t element, float x, Precision precision) {
    if (precision == Precision::f32) static_cast<float *>(tensor)[element] = x;
    else static_cast<std::uint16_t *>(tensor)[element] = to_bf16(x);
}

void run_ranks(int ranks, const std::function<void(Communicator &)> &body) {
    const std::string address = internal::testing_support::free_address();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
            try {
                vescomm_comm_options_t options = vescomm_comm_options_init();
                options.timeout_seconds = 60;
                Communicator comm(rank, ranks, address, "a secret of this test", &options);
                body(comm);
            } catch (const std::exception &error) {
                ADD_FAILURE() << "rank " << rank << " of " << ranks << ": " << error.what();
            }
        });
    for (std::thread &thread : threads) thread.join();
}

struct Outcome {
    std::vector<float> parameters;  // all parameters, as seen by rank 0
    std::vector<double> norms;
};

// Trains for a few steps and checks in each that all ranks see the same parameters.
Outcome train(int ranks, const EngineOptions &options, int steps, double max_norm) {
    Outcome outcome;
    run_ranks(ranks, [&](Communicator &comm) {
        const std::vector<UnitSpec> units = model();
        Engine engine(comm, units, options);
        engine.initialise([&](int unit, int tensor, std::int64_t first, std::span<float> values) {
            for (std::size_t i = 0; i < values.size(); ++i)
                values[i] = initial(unit, tensor, first + static_cast<std::int64_t>(i));
        });
        std::vector<double> norms;
        std::vector<float> seen;
        for (int step = 0; step <= steps; ++step) {
            seen.clear();
            for (int unit = 0; unit < engine.units(); ++unit) {
                engine.before_forward(unit);
                for (std::size_t t = 0; t < units[unit].tensors.size(); ++t)
                    for (std::int64_t i = 0; i < elements(units[unit].tensors[t]); ++i) {
                        seen.push_back(read(engine.parameters(unit)[t], i, options.compute));
                        if (step > 0 || options.compute != Precision::f32) continue;
                        ASSERT_EQ(seen.back(), initial(unit, static_cast<int>(t), i));
                    }
                engine.after_forward(unit);
            }
            if (step == steps) break;
            for (int unit = engine.units(); unit-- > 0;) {
                engine.before_backward(unit);
                for (std::size_t t = 0; t < units[unit].tensors.size(); ++t)
                    for (std::int64_t i = 0; i < elements(units[unit].tensors[t]); ++i)
                        write(engine.gradients(unit)[t], i,
                              static_cast<float>(
                                  gradient(unit, static_cast<int>(t), i, step, comm.rank(), ranks)),
                              options.compute);
                engine.after_backward(unit);
            }
            norms.push_back(engine.step({.learning_rate = 0.01, .max_norm = max_norm}));
        }
        // All ranks saw the same parameters.
        double sum = 0;
        for (std::size_t i = 0; i < seen.size(); ++i)
            sum += static_cast<double>(seen[i]) * static_cast<double>(i + 1);
        ASSERT_DOUBLE_EQ(engine.sum(sum), sum * ranks);
        if (comm.rank() == 0) outcome = {seen, norms};
    });
    return outcome;
}

TEST(Engine, ResultIsBitIdenticalForAnyNumberOfRanks) {
    const Outcome one = train(1, {}, 5, 0);
    ASSERT_FALSE(one.parameters.empty());
    for (const int ranks : {2, 3, 4, 5, 8}) {
        const Outcome many = train(ranks, {}, 5, 0);
        EXPECT_EQ(many.parameters, one.parameters) << ranks << " ranks";
        for (std::size_t i = 0; i < one.norms.size(); ++i)
            EXPECT_NEAR(many.norms[i] / one.norms[i], 1.0, 1e-12) << ranks << " ranks";
    }
}

TEST(Engine, ClipsByTheNormOfAllRanks) {
    const Outcome one = train(1, {}, 3, 1.0);
    const Outcome three = train(3, {}, 3, 1.0);
    double squares = 0;
    const auto units = model();
    for (std::size_t unit = 0; unit < units.size(); ++unit)
        for (std::size_t t = 0; t < units[unit].tensors.size(); ++t)
            for (std::int64_t i = 0; i < elements(units[unit].tensors[t]); ++i) {
                const int g = total_gradient(static_cast<int>(unit), static_cast<int>(t), i, 0);
                squares += g * g;
            }
    EXPECT_NEAR(one.norms[0], std::sqrt(squares), 1e-9 * one.norms[0]);
    ASSERT_EQ(one.parameters.size(), three.parameters.size());
    for (std::size_t i = 0; i < one.parameters.size(); ++i)
        ASSERT_NEAR(one.parameters[i], three.parameters[i], 1e-6);
}

TEST(Engine, ComputesInBf16FromF32Masters) {
    const EngineOptions bf16{.compute = Precision::bf16};
    const Outcome one = train(1, bf16, 3, 0);
    EXPECT_EQ(train(4, bf16, 3, 0).parameters, one.parameters);
    // The masters are f32, so the rounded result equals the f32 run.
    const Outcome full = train(1, {}, 3, 0);
    for (std::size_t i = 0; i < one.parameters.size(); ++i) {
        const std::uint16_t rounded = to_bf16(full.parameters[i]);
        ASSERT_EQ(read(&rounded, 0, Precision::bf16), one.parameters[i]);
    }
}

TEST(Engine, WorksWithAnyNumberOfSlots) {
    const Outcome two = train(3, {}, 3, 0);
    for (const int slots : {1, 3, 100}) {
        const EngineOptions options{.slots = slots, .gradient_slots = slots, .uniform = slots == 3};
        EXPECT_EQ(train(3, options, 3, 0).parameters, two.parameters) << slots << " slots";
    }
}

TEST(Engine, NamesTheUnitWithoutBackward) {
    run_ranks(2, [](Communicator &comm) {
        Engine engine(comm, model());
        try {
            engine.step({});
            FAIL() << "step() accepted a step without gradients";
        } catch (const std::invalid_argument &error) {
            EXPECT_NE(std::string(error.what()).find("unit \"embedding\""), std::string::npos);
        }
        EXPECT_THROW(engine.before_forward(6), std::invalid_argument);
        EXPECT_THROW(engine.before_forward(-1), std::invalid_argument);
        EXPECT_THROW(Engine(comm, model(), {.slots = 0}), std::invalid_argument);
    });
}

TEST(Engine, ReportsMemoryOfEachRank) {
    run_ranks(4, [](Communicator &comm) {
        Engine engine(comm, model());
        const MemoryReport report = engine.memory();
        std::int64_t parameters = 0;
        for (const UnitSpec &unit : model())
            for (const TensorSpec &tensor : unit.tensors) parameters += elements(tensor);
        EXPECT_EQ(report.parameters, static_cast<std::uint64_t>(parameters));
        EXPECT_GE(engine.sum(static_cast<double>(report.shards)), 4.0 * parameters);
        EXPECT_EQ(report.optimizer, 2 * report.shards);
        EXPECT_EQ(report.replicated, 16u * static_cast<std::uint64_t>(parameters));
    });
}

}  // namespace
}  // namespace vescomm::fsdp

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Compares the hand-written forward and backward passes with a naive model in double precision.
#include "fsdp/examples/train_gpt/gpt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>

#include "fsdp/examples/train_gpt/kernels.h"
#include "tests/fsdp/examples/gpt_reference.h"

namespace train_gpt {

namespace {

using Values = std::vector<std::vector<std::vector<double>>>;  // [unit][tensor][element]

std::uint16_t to_bf16(double value) {
    const float narrow = static_cast<float>(value);
    std::uint32_t bits;
    std::memcpy(&bits, &narrow, sizeof bits);
    return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

double from_bf16(std::uint16_t half) {
    const std::uint32_t bits = std::uint32_t{half} << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

std::uint16_t to_f16(double value) {
    const float narrow = static_cast<float>(value);
    float16 half;
    kernels<float16>().write(1, &narrow, &half, false);
    return static_cast<std::uint16_t>(half);
}

double from_f16(std::uint16_t bits) {
    const auto half = static_cast<float16>(bits);
    float value;
    kernels<float16>().read(1, &half, &value);
    return value;
}

// The tensors of a unit in the precision of the model, as an engine holds them.
class Lent {
public:
    Lent(const UnitDescription &unit, Precision precision) : precision_(precision) {
        for (const TensorDescription &tensor : unit.tensors) {
            const std::size_t elements = tensor.elements();
            elements_.push_back(elements);
            // operator new aligns to 16 bytes.
            memory_.push_back(std::make_unique<std::byte[]>(elements * bytes_of_element()));
            pointers_.push_back(memory_.back().get());
        }
    }
    ~Lent() {
        for (std::size_t i = 0; i < memory_.size(); ++i) fill(i, 0xff);  // NaN
    }
    Lent(Lent &&) = default;

    void fill(std::size_t tensor, int byte) {
        if (memory_[tensor]) {
            std::memset(memory_[tensor].get(), byte, elements_[tensor] * bytes_of_element());
        }
    }
    void set(const std::vector<std::vector<double>> &values) {
        for (std::size_t i = 0; i < memory_.size(); ++i) {
            for (std::size_t j = 0; j < elements_[i]; ++j) {
                if (precision_ == Precision::f32) {
                    reinterpret_cast<float *>(memory_[i].get())[j] =
                        static_cast<float>(values[i][j]);
                } else {
                    reinterpret_cast<std::uint16_t *>(memory_[i].get())[j] =
                        precision_ == Precision::bf16 ? to_bf16(values[i][j])
                                                      : to_f16(values[i][j]);
                }
            }
        }
    }
    std::vector<std::vector<double>> values() const {
        std::vector<std::vector<double>> values;
        for (std::size_t i = 0; i < memory_.size(); ++i) {
            values.emplace_back();
            for (std::size_t j = 0; j < elements_[i]; ++j) {
                const std::byte *memory = memory_[i].get();
                if (precision_ == Precision::f32) {
                    values.back().push_back(reinterpret_cast<const float *>(memory)[j]);
                    continue;
                }
                const std::uint16_t bits = reinterpret_cast<const std::uint16_t *>(memory)[j];
                values.back().push_back(precision_ == Precision::bf16 ? from_bf16(bits)
                                                                      : from_f16(bits));
            }
        }
        return values;
    }

    std::vector<const void *> parameters() const { return {pointers_.begin(), pointers_.end()}; }
    std::span<void *const> gradients() const { return pointers_; }

private:
    std::size_t bytes_of_element() const { return precision_ == Precision::f32 ? 4 : 2; }

    Precision precision_;
    std::vector<std::size_t> elements_;
    std::vector<std::unique_ptr<std::byte[]>> memory_;
    std::vector<void *> pointers_;
};

// Values larger than GPT-2's initial values, and none 0 or 1, so that every term of a gradient has
// an effect.
Values random_parameters(const Shape &shape, std::mt19937 &random) {
    std::normal_distribution<double> normal;
    Values values;
    for (const UnitDescription &unit : describe(shape)) {
        values.emplace_back();
        for (const TensorDescription &tensor : unit.tensors) {
            const bool vector = tensor.shape.size() == 1;
            const double center = tensor.initial == TensorDescription::Initial::ones ? 1 : 0;
            const double deviation = vector ? 0.2 : 1.5 / std::sqrt(shape.dim);
            values.back().emplace_back();
            for (std::int64_t i = 0; i < tensor.elements(); ++i) {
                // Exact in bf16 and f16, so that all precisions compute with the same parameters.
                values.back().back().push_back(
                    from_f16(to_f16(from_bf16(to_bf16(center + deviation * normal(random))))));
            }
        }
    }
    return values;
}

struct Batch {
    Batch(const Shape &shape, int sequences, std::mt19937 &random) : sequences(sequences) {
        std::uniform_int_distribution<int> byte(0, 255);
        for (int i = 0; i < sequences * shape.context; ++i) {
            inputs.push_back(static_cast<std::uint8_t>(byte(random)));
            targets.push_back(static_cast<std::uint8_t>(byte(random)));
        }
    }

    int sequences;
    std::vector<std::uint8_t> inputs;
    std::vector<std::uint8_t> targets;
};

void set_batch(Gpt &gpt, const Batch &batch) {
    gpt.set_batch(batch.sequences, batch.inputs.data(), batch.targets.data());
}

// Passes the parameters of every call in new memory, which is overwritten with NaN afterwards.
void forward(Gpt &gpt, const Shape &shape, Precision precision, const Values &parameters) {
    const auto units = describe(shape);
    for (int unit = 0; unit < shape.units(); ++unit) {
        Lent lent(units[unit], precision);
        lent.set(parameters[unit]);
        gpt.forward(unit, lent.parameters());
    }
}

// before: initial value of the gradients; NaN if they are not accumulated.
Values backward(Gpt &gpt, const Shape &shape, Precision precision, const Values &parameters,
                float scale, const Values *before = nullptr) {
    const auto units = describe(shape);
    Values gradients(units.size());
    for (int unit = shape.units() - 1; unit >= 0; --unit) {
        Lent lent(units[unit], precision);
        lent.set(parameters[unit]);
        Lent out(units[unit], precision);
        for (std::size_t i = 0; i < units[unit].tensors.size(); ++i) out.fill(i, 0xff);
        if (before != nullptr) out.set((*before)[unit]);
        gpt.backward(unit, lent.parameters(), out.gradients(), before != nullptr, scale);
        gradients[unit] = out.values();
    }
    return gradients;
}

double norm(const std::vector<double> &values) {
    double sum = 0;
    for (const double value : values) sum += value * value;
    return std::sqrt(sum);
}

// Checks the norm of every tensor's error relative to the tensor's norm.
void expect_near(const Shape &shape, const Values &actual, const Values &expected,
                 double tolerance) {
    const auto units = describe(shape);
    for (std::size_t unit = 0; unit < units.size(); ++unit) {
        for (std::size_t tensor = 0; tensor < units[unit].tensors.size(); ++tensor) {
            std::vector<double> error = expected[unit][tensor];
            for (std::size_t i = 0; i < error.size(); ++i) error[i] -= actual[unit][tensor][i];
            EXPECT_LE(norm(error), tolerance * norm(expected[unit][tensor]))
                << units[unit].name << " " << units[unit].tensors[tensor].name;
        }
    }
}

Values scaled(Values values, double factor) {
    for (auto &unit : values) {
        for (auto &tensor : unit) {
            for (double &value : tensor) value *= factor;
        }
    }
    return values;
}

struct Case {
    Shape shape;
    int sequences;
};

// Odd sizes; one and several heads, layers and sequences; fewer and more queries than one block of
// attention; a model without a block.
const Case cases[] = {
    {{.layers = 1, .dim = 48, .heads = 3, .context = 17}, 3},
    {{.layers = 2, .dim = 16, .heads = 2, .context = 5}, 1},
    {{.layers = 3, .dim = 10, .heads = 5, .context = 7}, 3},
    {{.layers = 1, .dim = 13, .heads = 1, .context = 131}, 1},
    {{.layers = 1, .dim = 32, .heads = 4, .context = 64}, 2},
    {{.layers = 0, .dim = 7, .heads = 1, .context = 3}, 2},
};

class GptOfPrecision : public testing::TestWithParam<Precision> {};

INSTANTIATE_TEST_SUITE_P(All, GptOfPrecision,
                         testing::Values(Precision::f32, Precision::bf16, Precision::f16),
                         [](const auto &info) {
                             if (info.param == Precision::f16) return "f16";
                             return info.param == Precision::f32 ? "f32" : "bf16";
                         });

// f32: 2^-24 for each rounding; sums of a few hundred terms and the steps of a block leave at most
// 1e-5. bf16: 2^-9 for each random rounding, and a gradient passes about twenty (activations
// forward, products backward): √20 · 2^-9 / √3 is half a percent, and a few times more if terms
// cancel. f16: 2^-12 instead of 2^-9. A wrong or missing term is an error of tens of percent.
double tolerance(Precision precision) {
    if (precision == Precision::f16) return 0.004;
    return precision == Precision::f32 ? 2e-5 : 0.03;
}

TEST_P(GptOfPrecision, LossLogitsAndEveryGradientMatchTheReference) {
    std::mt19937 random(1);
    for (const auto &[shape, sequences] : cases) {
        SCOPED_TRACE(testing::Message() << "dim " << shape.dim << ", context " << shape.context);
        const Values parameters = random_parameters(shape, random);
        const Batch batch(shape, sequences, random);
        const auto expected = reference::run(shape, parameters, batch.inputs, batch.targets);

        Gpt gpt(shape, GetParam(), sequences);
        set_batch(gpt, batch);
        forward(gpt, shape, GetParam(), parameters);
        EXPECT_NEAR(gpt.loss_sum(), expected.loss_sum,
                    0.2 * tolerance(GetParam()) * expected.loss_sum);
        for (int token = 0; token < sequences * shape.context; ++token) {
            const auto logits = gpt.logits(token / shape.context, token % shape.context);
            std::vector<double> error = expected.logits[token];
            for (std::size_t i = 0; i < error.size(); ++i) error[i] -= logits[i];
            EXPECT_LE(norm(error), tolerance(GetParam()) * norm(expected.logits[token]));
        }
        // A power of two, which does not change roundings.
        const float scale = 0.25;
        expect_near(shape, backward(gpt, shape, GetParam(), parameters, scale),
                    scaled(expected.gradients, scale), tolerance(GetParam()));
    }
}

TEST_P(GptOfPrecision, AccumulateAddsToExistingGradients) {
    std::mt19937 random(2);
    for (const auto &[shape, sequences] : cases) {
        SCOPED_TRACE(testing::Message() << "dim " << shape.dim << ", context " << shape.context);
        const Values parameters = random_parameters(shape, random);
        Gpt gpt(shape, GetParam(), sequences);
        set_batch(gpt, Batch(shape, sequences, random));
        forward(gpt, shape, GetParam(), parameters);
        const Values once = backward(gpt, shape, GetParam(), parameters, 1);
        // Exact in f32 except for the order of a sum; one more rounding in bf16.
        expect_near(shape, backward(gpt, shape, GetParam(), parameters, 1, &once), scaled(once, 2),
                    GetParam() == Precision::f32 ? 1e-6 : 0.004);
    }
}

TEST_P(GptOfPrecision, EmptyBatchHasZeroLossAndGradients) {
    const Shape shape = cases[0].shape;
    std::mt19937 random(3);
    const Values parameters = random_parameters(shape, random);
    Gpt gpt(shape, GetParam(), 2);
    set_batch(gpt, Batch(shape, 2, random));  // must leave no traces
    forward(gpt, shape, GetParam(), parameters);
    EXPECT_GT(gpt.loss_sum(), 0);

    gpt.set_batch(0, nullptr, nullptr);
    forward(gpt, shape, GetParam(), parameters);
    EXPECT_EQ(gpt.loss_sum(), 0);
    EXPECT_EQ(backward(gpt, shape, GetParam(), parameters, 1), scaled(parameters, 0));
    EXPECT_EQ(backward(gpt, shape, GetParam(), parameters, 1, &parameters), parameters);

    Gpt empty(shape, GetParam(), 0);
    empty.set_batch(0, nullptr, nullptr);
    forward(empty, shape, GetParam(), parameters);
    EXPECT_EQ(backward(empty, shape, GetParam(), parameters, 1), scaled(parameters, 0));
}

TEST_P(GptOfPrecision, ResultsDoNotDependOnCapacityOrEarlierBatches) {
    const Shape shape = cases[0].shape;
    std::mt19937 random(4);
    const Values parameters = random_parameters(shape, random);
    const Batch batch(shape, 2, random);

    Gpt exact(shape, GetParam(), 2);
    set_batch(exact, batch);
    forward(exact, shape, GetParam(), parameters);
    const Values gradients = backward(exact, shape, GetParam(), parameters, 0.5);

    Gpt roomy(shape, GetParam(), 7);
    for (const int earlier : {7, 1, 0}) {
        set_batch(roomy, Batch(shape, earlier, random));
        forward(roomy, shape, GetParam(), parameters);
        backward(roomy, shape, GetParam(), parameters, 3);
    }
    set_batch(roomy, batch);
    forward(roomy, shape, GetParam(), parameters);
    EXPECT_EQ(roomy.loss_sum(), exact.loss_sum());
    EXPECT_EQ(backward(roomy, shape, GetParam(), parameters, 0.5), gradients);
    EXPECT_TRUE(std::ranges::equal(roomy.logits(1, 3), exact.logits(1, 3)));
    EXPECT_GT(roomy.activation_bytes(), exact.activation_bytes());
}

TEST_P(GptOfPrecision, FirstLogitsDependOnFirstByteOnly) {
    const Shape shape = {.layers = 2, .dim = 16, .heads = 2, .context = 70};
    std::mt19937 random(5);
    const Values parameters = random_parameters(shape, random);
    Gpt gpt(shape, GetParam(), 1);
    Batch batch(shape, 1, random);
    std::vector<std::vector<float>> first;
    for (int change = 0; change < 2; ++change) {
        set_batch(gpt, batch);
        forward(gpt, shape, GetParam(), parameters);
        const auto logits = gpt.logits(0, 65);
        first.emplace_back(logits.begin(), logits.end());
        for (int later = 66; later < shape.context; ++later) batch.inputs[later] ^= 0x55;
    }
    EXPECT_EQ(first[0], first[1]);
}

TEST(Gpt, DescribesGpt2) {
    const Shape shape = {.layers = 2, .dim = 48, .heads = 3, .context = 17};
    const auto units = describe(shape);
    ASSERT_EQ(units.size(), 4u);
    EXPECT_EQ(units[0].name, "embedding");
    EXPECT_EQ(units[2].name, "block.1");
    EXPECT_EQ(units[3].name, "head");
    std::int64_t elements = 0;
    for (const auto &tensor : units[1].tensors) elements += tensor.elements();
    EXPECT_EQ(elements, 12 * 48 * 48 + 13 * 48);
    EXPECT_EQ(units[1].tensors[2].shape, (std::vector<std::int64_t>{3 * 48, 48}));
    EXPECT_DOUBLE_EQ(units[1].tensors[2].standard_deviation, 0.02);
    EXPECT_DOUBLE_EQ(units[1].tensors[4].standard_deviation, 0.01);  // 0.02 / √4
}

TEST(Gpt, RefusesInvalidShapes) {
    EXPECT_THROW(Gpt({.layers = 1, .dim = 10, .heads = 3, .context = 4}, Precision::f32, 1),
                 std::invalid_argument);
    EXPECT_THROW(Gpt({.layers = 1, .dim = 10, .heads = 0, .context = 4}, Precision::f32, 1),
                 std::invalid_argument);
    Gpt gpt({.layers = 1, .dim = 4, .heads = 2, .context = 4}, Precision::f32, 1);
    const std::vector<std::uint8_t> bytes(8);
    EXPECT_THROW(gpt.set_batch(2, bytes.data(), bytes.data()), std::invalid_argument);
}

}  // namespace

}  // namespace train_gpt

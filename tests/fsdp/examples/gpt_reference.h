// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The reference model: scalars in double precision, plain loops, and no formulas of the backward
// pass. Gradients come from a tape that records every scalar operation.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fsdp/examples/train_gpt/gpt.h"

namespace train_gpt::reference {

// Reverse-mode differentiation: the tape stores the operands of every value and the derivative with
// respect to each.
class Tape {
public:
    using Value = std::size_t;  // the number of an operation

    struct Source {
        Value value;
        double derivative;
    };

    Value record(double result, std::span<const Source> sources) {
        results_.push_back(result);
        sources_.insert(sources_.end(), sources.begin(), sources.end());
        ends_.push_back(sources_.size());
        return results_.size() - 1;
    }
    Value constant(double value) { return record(value, {}); }

    double operator[](Value value) const { return results_[value]; }

    Value add(Value a, Value b) {
        return record(results_[a] + results_[b], std::vector<Source>{{a, 1}, {b, 1}});
    }
    Value multiply(Value a, Value b) {
        return record(results_[a] * results_[b],
                      std::vector<Source>{{a, results_[b]}, {b, results_[a]}});
    }
    Value scale(Value a, double factor) {
        return record(results_[a] * factor, std::vector<Source>{{a, factor}});
    }
    // Records a function with its value and its derivative at a.
    Value apply(Value a, double value, double derivative) {
        return record(value, std::vector<Source>{{a, derivative}});
    }
    Value sum(std::span<const Value> values) {
        double result = 0;
        std::vector<Source> sources;
        for (const Value value : values) {
            result += results_[value];
            sources.push_back({value, 1});
        }
        return record(result, sources);
    }
    Value dot(std::span<const Value> a, std::span<const Value> b) {
        double result = 0;
        std::vector<Source> sources;
        for (std::size_t i = 0; i < a.size(); ++i) {
            result += results_[a[i]] * results_[b[i]];
            sources.push_back({a[i], results_[b[i]]});
            sources.push_back({b[i], results_[a[i]]});
        }
        return record(result, sources);
    }

    // Returns d(value) / d(each earlier value).
    std::vector<double> gradients(Value value) const {
        std::vector<double> gradient(results_.size());
        gradient[value] = 1;
        for (Value i = value + 1; i-- > 0;) {
            for (std::size_t at = i == 0 ? 0 : ends_[i - 1]; at < ends_[i]; ++at) {
                gradient[sources_[at].value] += gradient[i] * sources_[at].derivative;
            }
        }
        return gradient;
    }

private:
    std::vector<double> results_;
    std::vector<Source> sources_;
    std::vector<std::size_t> ends_;  // end of each result's operands
};

using Value = Tape::Value;
using Vector = std::vector<Value>;
using Tensors = std::vector<std::vector<Vector>>;  // [unit][tensor][element]

inline Vector layer_norm(Tape &tape, const Vector &x, const Vector &weight, const Vector &bias) {
    const double count = static_cast<double>(x.size());
    const Value mean = tape.scale(tape.sum(x), 1 / count);
    Vector centered;
    for (const Value value : x) centered.push_back(tape.add(value, tape.scale(mean, -1)));
    const Value variance = tape.scale(tape.dot(centered, centered), 1 / count);
    const double power = std::pow(tape[variance] + 1e-5, -0.5);
    const Value reciprocal = tape.apply(variance, power, -0.5 * power * power * power);
    Vector y;
    for (std::size_t i = 0; i < x.size(); ++i) {
        y.push_back(
            tape.add(tape.multiply(tape.multiply(centered[i], reciprocal), weight[i]), bias[i]));
    }
    return y;
}

// weight is [outputs][inputs]; an empty bias means no bias.
inline Vector linear(Tape &tape, const Vector &x, const Vector &weight, const Vector &bias) {
    Vector y;
    for (std::size_t output = 0; output * x.size() < weight.size(); ++output) {
        const std::span row = std::span(weight).subspan(output * x.size(), x.size());
        const Value product = tape.dot(x, row);
        y.push_back(bias.empty() ? product : tape.add(product, bias[output]));
    }
    return y;
}

inline Value gelu(Tape &tape, Value x) {
    const double c = std::sqrt(2 / M_PI);
    const double v = tape[x];
    const double t = std::tanh(c * (v + 0.044715 * v * v * v));
    const double slope = (1 - t * t) * c * (1 + 3 * 0.044715 * v * v);
    return tape.apply(x, 0.5 * v * (1 + t), 0.5 * (1 + t) + 0.5 * v * slope);
}

// The scores must be small enough to need no shift.
inline Vector softmax(Tape &tape, const Vector &scores) {
    Vector powers;
    for (const Value score : scores) {
        const double power = std::exp(tape[score]);
        powers.push_back(tape.apply(score, power, power));
    }
    const Value sum = tape.sum(powers);
    const double inverse = 1 / tape[sum];
    const Value reciprocal = tape.apply(sum, inverse, -inverse * inverse);
    for (Value &power : powers) power = tape.multiply(power, reciprocal);
    return powers;
}

// qkv [tokens][3 dim] → [tokens][dim]
inline std::vector<Vector> attention(Tape &tape, const std::vector<Vector> &qkv, int dim,
                                     int heads) {
    const int head_dim = dim / heads;
    std::vector<Vector> out(qkv.size());
    for (std::size_t query = 0; query < qkv.size(); ++query) {
        for (int head = 0; head < heads; ++head) {
            const auto part = [&](std::size_t token, int which) {
                return std::span(qkv[token]).subspan(which * dim + head * head_dim, head_dim);
            };
            Vector scores;
            for (std::size_t key = 0; key <= query; ++key) {
                const Value product = tape.dot(part(query, 0), part(key, 1));
                scores.push_back(tape.scale(product, 1 / std::sqrt(head_dim)));
            }
            const Vector probabilities = softmax(tape, scores);
            for (int i = 0; i < head_dim; ++i) {
                Vector values;
                for (std::size_t key = 0; key <= query; ++key) {
                    values.push_back(part(key, 2)[i]);
                }
                out[query].push_back(tape.dot(probabilities, values));
            }
        }
    }
    return out;
}

inline std::vector<Vector> block(Tape &tape, std::vector<Vector> x, const std::vector<Vector> &p,
                                 int heads) {
    const int dim = static_cast<int>(x.front().size());
    const auto add_to = [&](Vector &to, const Vector &delta) {
        for (int i = 0; i < dim; ++i) to[i] = tape.add(to[i], delta[i]);
    };
    std::vector<Vector> qkv;
    for (const Vector &row : x) {
        qkv.push_back(linear(tape, layer_norm(tape, row, p[0], p[1]), p[2], p[3]));
    }
    const std::vector<Vector> attended = attention(tape, qkv, dim, heads);
    for (std::size_t token = 0; token < x.size(); ++token) {
        Vector &row = x[token];
        add_to(row, linear(tape, attended[token], p[4], p[5]));
        Vector up = linear(tape, layer_norm(tape, row, p[6], p[7]), p[8], p[9]);
        for (Value &value : up) value = gelu(tape, value);
        add_to(row, linear(tape, up, p[10], p[11]));
    }
    return x;
}

struct Result {
    double loss_sum = 0;
    std::vector<std::vector<double>> logits;  // [token][byte]
    std::vector<std::vector<std::vector<double>>> gradients;  // [unit][tensor][element]
};

inline Result run(const Shape &shape,
                  const std::vector<std::vector<std::vector<double>>> &parameters,
                  std::span<const std::uint8_t> inputs, std::span<const std::uint8_t> targets) {
    Tape tape;
    Tensors p;
    for (const auto &unit : parameters) {
        p.emplace_back();
        for (const auto &tensor : unit) {
            p.back().emplace_back();
            for (const double value : tensor) p.back().back().push_back(tape.constant(value));
        }
    }

    Result result;
    Vector losses;
    for (std::size_t first = 0; first < inputs.size(); first += shape.context) {
        std::vector<Vector> x(shape.context);
        for (int t = 0; t < shape.context; ++t) {
            for (int i = 0; i < shape.dim; ++i) {
                x[t].push_back(tape.add(p[0][0][inputs[first + t] * shape.dim + i],
                                        p[0][1][t * shape.dim + i]));
            }
        }
        for (int layer = 0; layer < shape.layers; ++layer) {
            x = block(tape, x, p[1 + layer], shape.heads);
        }
        for (int t = 0; t < shape.context; ++t) {
            const std::vector<Vector> &head = p.back();
            const Vector logits =
                linear(tape, layer_norm(tape, x[t], head[0], head[1]), head[2], {});
            result.logits.emplace_back();
            for (const Value logit : logits) result.logits.back().push_back(tape[logit]);
            const Value probability = softmax(tape, logits)[targets[first + t]];
            losses.push_back(
                tape.apply(probability, -std::log(tape[probability]), -1 / tape[probability]));
        }
    }
    const Value loss = tape.sum(losses);
    result.loss_sum = tape[loss];
    const std::vector<double> gradient = tape.gradients(loss);
    for (const auto &unit : p) {
        result.gradients.emplace_back();
        for (const Vector &tensor : unit) {
            result.gradients.back().emplace_back();
            for (const Value value : tensor)
                result.gradients.back().back().push_back(gradient[value]);
        }
    }
    return result;
}

}  // namespace train_gpt::reference

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "perf/case/ragged.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <numeric>
#include <random>
#include <stdexcept>

namespace vescomm::perf {
namespace {

double number_of(const std::string &text, const std::string &whole) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) ||
        value < 0)
        throw std::invalid_argument(
            fmt::format("--ragged {}: \"{}\" is no number of at least 0", whole, text));
    return value;
}

std::vector<double> read_weights(const std::string &path, int ranks) {
    std::ifstream file(path);
    if (!file)
        throw std::invalid_argument(fmt::format("--ragged file:{}: it cannot be read", path));
    std::vector<double> weights;
    for (std::string word; file >> word;) weights.push_back(number_of(word, "file:" + path));
    if (static_cast<int>(weights.size()) != ranks)
        throw std::invalid_argument(fmt::format("--ragged file:{}: it has {} numbers for {} ranks",
                                                path, weights.size(), ranks));
    return weights;
}

std::vector<double> make_weights(const std::string &text, int ranks) {
    const std::size_t colon = text.find(':');
    const std::string kind = text.substr(0, colon);
    const std::string detail = colon == std::string::npos ? "" : text.substr(colon + 1);
    std::vector<double> weights(static_cast<std::size_t>(ranks), 1.0);
    if (text == "equal") return weights;
    if (text == "linear") {
        std::iota(weights.begin(), weights.end(), 1.0);
        return weights;
    }
    if (kind == "zipf") {
        for (int rank = 0; rank < ranks; ++rank)
            weights[rank] = std::pow(rank + 1, -number_of(detail, text));
        return weights;
    }
    if (kind == "one-owner") {
        const double share = number_of(detail, text);
        if (share > 1)
            throw std::invalid_argument(fmt::format("--ragged {}: give a share from 0 to 1", text));
        if (ranks == 1) return weights;
        std::fill(weights.begin(), weights.end(), (1 - share) / (ranks - 1));
        weights[0] = share;
        return weights;
    }
    if (kind == "random") {
        // Not std::uniform_real_distribution, which differs between standard libraries.
        std::mt19937_64 random(static_cast<std::uint64_t>(number_of(detail, text)));
        for (double &weight : weights) weight = static_cast<double>(random() >> 11);
        return weights;
    }
    if (kind == "file") return read_weights(detail, ranks);
    throw std::invalid_argument(
        fmt::format("--ragged {}: there is equal, linear, zipf:EXPONENT, one-owner:SHARE, "
                    "random:SEED and file:PATH",
                    text));
}

}  // namespace

Ragged parse_ragged(const std::string &text, int ranks) {
    Ragged ragged{text, make_weights(text, ranks)};
    if (std::accumulate(ragged.weights.begin(), ragged.weights.end(), 0.0) <= 0)
        throw std::invalid_argument(fmt::format("--ragged {}: a rank must own something", text));
    return ragged;
}

std::vector<std::int64_t> cut(const Ragged &ragged, std::int64_t elements, std::int64_t block) {
    const auto ranks = static_cast<std::int64_t>(ragged.weights.size());
    std::int64_t blocks = elements / block;
    if (ragged.name == "equal") blocks = blocks / ranks * ranks;
    const double sum = std::accumulate(ragged.weights.begin(), ragged.weights.end(), 0.0);
    std::vector<std::int64_t> cuts = {0};
    double before = 0;
    for (const double weight : ragged.weights) {
        before += weight;
        const auto here =
            static_cast<std::int64_t>(std::llround(static_cast<double>(blocks) * before / sum));
        cuts.push_back(std::clamp(here * block, cuts.back(), blocks * block));
    }
    cuts.back() = blocks * block;
    return cuts;
}

std::vector<std::int64_t> split_evenly(std::int64_t elements, std::int64_t count,
                                       std::int64_t block) {
    const std::int64_t blocks = elements / block;
    std::vector<std::int64_t> offsets;
    for (std::int64_t i = 0; i <= count; ++i)
        offsets.push_back(i == count ? elements : blocks * i / count * block);
    return offsets;
}

}  // namespace vescomm::perf

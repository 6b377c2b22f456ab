// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "perf/run/samples.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "perf/case/collectives.h"

namespace vescomm::perf {

double combine(Average average, const std::vector<double> &ranks) {
    switch (average) {
        case Average::first_rank:
            return ranks.front();
        case Average::mean:
            return std::accumulate(ranks.begin(), ranks.end(), 0.0) /
                   static_cast<double>(ranks.size());
        case Average::fastest:
            return *std::min_element(ranks.begin(), ranks.end());
        case Average::slowest:
            break;
    }
    return *std::max_element(ranks.begin(), ranks.end());
}

double percentile(std::vector<double> values, double part) {
    std::sort(values.begin(), values.end());
    const double place = std::ceil(part * static_cast<double>(values.size())) - 1;
    return values[static_cast<std::size_t>(std::max(place, 0.0))];
}

double median(std::vector<double> values) {
    return percentile(std::move(values), 0.5);
}

Figures figures_of(const Samples &samples) {
    std::vector<double> all;
    for (const std::vector<double> &round : samples.rounds_us)
        all.insert(all.end(), round.begin(), round.end());
    if (all.empty()) return {};
    const auto count = static_cast<double>(all.size());
    const double mean = std::accumulate(all.begin(), all.end(), 0.0) / count;
    double squares = 0;
    for (const double time : all) squares += (time - mean) * (time - mean);
    return {.min = *std::min_element(all.begin(), all.end()),
            .p50 = percentile(all, 0.5),
            .p99 = percentile(all, 0.99),
            .max = *std::max_element(all.begin(), all.end()),
            .variation = mean > 0 ? std::sqrt(squares / count) / mean : 0};
}

double Overlap::hidden_percent() const {
    if (operation_us <= 0) return 0;
    return std::min(100.0, 100 * (1 - (total_us - compute_us) / operation_us));
}

OverlapFigures overlap_of(const Samples &samples) {
    if (samples.overlaps.empty()) return {};
    const auto middle = [&](auto &&figure) {
        std::vector<double> values;
        for (const Overlap &overlap : samples.overlaps) values.push_back(figure(overlap));
        return median(std::move(values));
    };
    return {.compute_us = middle([](const Overlap &one) { return one.compute_us; }),
            .total_us = middle([](const Overlap &one) { return one.total_us; }),
            .hidden_percent = middle([](const Overlap &one) { return one.hidden_percent(); })};
}

double algbw(const Case &what, double time_us) {
    return time_us > 0 ? static_cast<double>(what.bytes()) / time_us / 1e3 : 0;
}

double busbw(const Case &what, double time_us) {
    const double bytes = find_collective(what.collective).bus_bytes(what);
    return time_us > 0 ? bytes / time_us / 1e3 : 0;
}

double ratio_of(const Samples &peer, const Samples &ours) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < std::min(peer.rounds_us.size(), ours.rounds_us.size()); ++i) {
        const double base = median(ours.rounds_us[i]);
        if (base > 0) ratios.push_back(median(peer.rounds_us[i]) / base);
    }
    return ratios.empty() ? -1 : median(std::move(ratios));
}

}  // namespace vescomm::perf

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Times the kernels of the FSDP engine on one core, each against a simpler loop over the same
// bytes. The two alternate, and the medians are compared.
//
//     fsdp_kernels_perf --mib 256
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "execute/isa.h"
#include "execute/kernels.h"
#include "fsdp/adamw.h"
#include "fsdp/norm/exact_sum.h"
#include "fsdp/optimizers/adam8bit.h"
#include "fsdp/optimizers/sgd.h"
#include "fsdp/quantise/block_quantise.h"

namespace {

using vescomm::fsdp::ExactSum;
using Run = std::function<void()>;

double seconds_of(const Run &run) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
}

// Prints a row: the time of `run` for `bytes` read and written, and its ratio to `other`.
void compare(const char *name, double bytes, const Run &run, const char *other_name,
             const Run &other, int iterations) {
    std::vector<double> times, other_times;
    for (int i = 0; i < iterations + 1; ++i) {
        const double time = seconds_of(run), other_time = seconds_of(other);
        if (i == 0) continue;  // warm-up: touches pages
        times.push_back(time);
        other_times.push_back(other_time);
    }
    const double time = median(times), other_time = median(other_times);
    std::printf("%-34s %8.3f ms %6.1f GB/s   %5.2f times %s (%.3f ms)\n", name, time * 1e3,
                bytes / time * 1e-9, time / other_time, other_name, other_time * 1e3);
}

// Normally distributed numbers, as gradients are; `range`: of random binary orders of magnitude.
std::vector<float> random_values(std::size_t n, unsigned seed, int range) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> period(1 << 20);
    for (float &x : period)
        x = std::ldexp(normal(random), -static_cast<int>(random() % static_cast<unsigned>(range)));
    std::vector<float> values(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = period[i % period.size()];
    return values;
}

void measure_norms(std::size_t n, int iterations) {
    volatile double sink = 0;
    const auto exact = [&](const void *from, vescomm_type_t type) {
        return [&sink, from, type, n] {
            ExactSum sum;
            sum.add_squares(from, type, n);
            sink = sum.value();
        };
    };
    const auto plain = [&](const void *from, vescomm_type_t type) {
        return [&sink, from, type, n] {
            sink = vescomm::internal::kernels().sum_of_squares(from, type, n);
        };
    };
    const auto bytes = static_cast<double>(n);
    for (const int range : {1, 20, 100}) {
        const std::vector<float> values = random_values(n, 1, range);
        const std::string name = "exact norm, f32, range 2^" + std::to_string(range);
        compare(name.c_str(), 4 * bytes, exact(values.data(), VESCOMM_F32), "a sum in f64",
                plain(values.data(), VESCOMM_F32), iterations);
    }
    const std::vector<float> values = random_values(n, 1, 1);
    for (int isa = 0; isa + 1 < vescomm::internal::supported_isas(); ++isa) {
        const std::string name =
            std::string("exact norm, f32, ") + vescomm::internal::isa_names[isa];
        const Run exact_isa = [&, isa] {
            ExactSum sum;
            sum.add_squares(values.data(), VESCOMM_F32, n, isa);
            sink = sum.value();
        };
        const Run plain_isa = [&, isa] {
            const auto &kernels = vescomm::internal::supported_kernels()[isa];
            sink = kernels.sum_of_squares(values.data(), VESCOMM_F32, n);
        };
        compare(name.c_str(), 4 * bytes, exact_isa, "a sum in f64", plain_isa, iterations);
    }
    std::vector<std::uint16_t> narrow(n);
    vescomm::internal::kernels().convert(narrow.data(), VESCOMM_BF16, values.data(), VESCOMM_F32,
                                         n);
    compare("exact norm, bf16", 2 * bytes, exact(narrow.data(), VESCOMM_BF16), "a sum in f64",
            plain(narrow.data(), VESCOMM_BF16), iterations);
    vescomm::internal::kernels().convert(narrow.data(), VESCOMM_F16, values.data(), VESCOMM_F32, n);
    compare("exact norm, f16", 2 * bytes, exact(narrow.data(), VESCOMM_F16), "a sum of f32 in f64",
            plain(values.data(), VESCOMM_F32), iterations);
}

void measure_optimizers(std::size_t n, int iterations) {
    std::vector<float> p = random_values(n, 2, 1), g = random_values(n, 3, 1), m(n), v(n);
    const auto copy = [](std::vector<float> &to, const std::vector<float> &from) {
        std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
    };
    const auto bytes = static_cast<double>(n) * sizeof(float);
    const vescomm::fsdp::AdamWStep adamw{1e-3, 0.9, 0.999, 1e-8, 0.1, 1.0f, 1};
    compare(
        "adamw", 7 * bytes,
        [&] { vescomm::fsdp::adamw(p.data(), g.data(), m.data(), v.data(), n, adamw); },
        "a copy of g to p", [&] { copy(p, g); }, iterations);
    std::vector<std::uint8_t> first(n), second(n);
    const std::size_t blocks = vescomm::fsdp::blocks_of(n, vescomm::fsdp::adam8bit_block);
    std::vector<float> first_scale(blocks), second_scale(blocks);
    compare(
        "adam8bit", 16 * static_cast<double>(n),
        [&] {
            vescomm::fsdp::adam8bit(
                p.data(), g.data(),
                {first.data(), second.data(), first_scale.data(), second_scale.data()}, n, adamw);
        },
        "adamw", [&] { vescomm::fsdp::adamw(p.data(), g.data(), m.data(), v.data(), n, adamw); },
        iterations);
    const vescomm::fsdp::SgdStep sgd{1, 0, 1, 0.9f, 1, 1e-3f, true};
    compare(
        "sgd, nesterov", 5 * bytes,
        [&] { vescomm::fsdp::sgd(p.data(), g.data(), m.data(), n, sgd); }, "a copy of g to p",
        [&] { copy(p, g); }, iterations);
}

void measure_codes(const char *name, vescomm::fsdp::CodeType type, std::size_t n, std::size_t block,
                   int iterations) {
    const auto &kernels = vescomm::internal::kernels();
    constexpr std::size_t ranks = 4;
    const std::vector<float> values = random_values(n, 4, 1);
    std::vector<float> back(n);
    std::vector<std::uint16_t> bf16(n);
    std::vector<std::vector<std::uint8_t>> codes(ranks, std::vector<std::uint8_t>(n));
    std::vector<std::vector<float>> scales(ranks,
                                           std::vector<float>(vescomm::fsdp::blocks_of(n, block)));
    std::vector<vescomm::fsdp::QuantisedSource> sources;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        sources.push_back({codes[rank].data(), scales[rank].data()});
        vescomm::fsdp::quantise(type, values.data(), VESCOMM_F32, n, block, codes[rank].data(),
                                scales[rank].data());
    }
    const auto title = [&](const char *what) {
        return std::string(name) + ", block " + std::to_string(block) + ", " + what;
    };
    const double per_code = 1 + 4.0 / static_cast<double>(block);
    const auto elements = static_cast<double>(n);
    const Run to_bf16 = [&] {
        kernels.convert(bf16.data(), VESCOMM_BF16, values.data(), VESCOMM_F32, n);
    };
    const Run from_bf16 = [&] {
        kernels.convert(back.data(), VESCOMM_F32, bf16.data(), VESCOMM_BF16, n);
    };
    const std::vector<const void *> bf16_sources(ranks, bf16.data());
    const Run sum_bf16 = [&] {
        kernels.reduce({}, bf16_sources, VESCOMM_BF16, {}, back.data(), VESCOMM_F32, n);
    };
    compare(
        title("quantise").c_str(), elements * (4 + per_code),
        [&] {
            vescomm::fsdp::quantise(type, values.data(), VESCOMM_F32, n, block, codes[0].data(),
                                    scales[0].data());
        },
        "f32 to bf16", to_bf16, iterations);
    compare(
        title("dequantise").c_str(), elements * (4 + per_code),
        [&] {
            vescomm::fsdp::dequantise(type, codes[0].data(), scales[0].data(), n, block,
                                      back.data(), VESCOMM_F32);
        },
        "bf16 to f32", from_bf16, iterations);
    compare(
        title("sum of 4").c_str(), elements * (4 + 4 * per_code),
        [&] { vescomm::fsdp::sum_quantised(type, sources, n, block, 1.0f, back.data()); },
        "a sum of 4 times one bf16", sum_bf16, iterations);
}

}  // namespace

int main(int argc, char **argv) {
    CLI::App app("Times the kernels of the FSDP engine against simpler loops over the same bytes.");
    double mib = 256;
    int iterations = 11;
    app.add_option("--mib", mib, "size of an array of f32 in MiB (2^20 bytes)")
        ->check(CLI::Range(0.001, 65536.0));
    app.add_option("--iterations", iterations, "counted runs")->check(CLI::PositiveNumber);
    CLI11_PARSE(app, argc, argv);
    const auto n = static_cast<std::size_t>(mib * 1024 * 1024 / sizeof(float));
    std::printf("# %zu elements, kernels for %s, median of %d\n", n,
                vescomm::internal::kernels().isa, iterations);
    measure_norms(n, iterations);
    measure_optimizers(n, iterations);
    for (const std::size_t block : {32, 128, 250}) {
        measure_codes("int8", vescomm::fsdp::CodeType::int8, n, block, iterations);
        measure_codes("f8e4m3", vescomm::fsdp::CodeType::f8e4m3, n, block, iterations);
    }
    return 0;
}

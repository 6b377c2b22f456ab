// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Times the kernels of gpu_kernels.h on the current GPU, beside the copies of CUDA of the same
// array in the same run, by events. `of copy` is the share of the bandwidth of that copy; bytes are
// those that an operation must read and write.
//
//     gpu_kernels_perf --mib 1024 --pieces 100
#include <dlfcn.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gpu/cuda_functions.h"
#include "gpu/gpu_libraries.h"
#include "vescomm/gpu.h"
#include "vescomm/gpu_kernels.h"

namespace {

namespace cuda = vescomm::internal::cuda;
using Run = std::function<void()>;

void check(vescomm_status_t status) {
    if (status != VESCOMM_OK) throw std::runtime_error(vescomm_get_last_error());
}

// The functions of the CUDA runtime that this program calls itself.
struct Cuda {
    int (*malloc)(void **, std::size_t);
    int (*free)(void *);
    int (*memset_async)(void *, int, std::size_t, cuda::Stream);
    int (*memcpy_async)(void *, const void *, std::size_t, int, cuda::Stream);
    int (*stream_create)(cuda::Stream *);
    int (*stream_synchronize)(cuda::Stream);
    int (*event_create)(cuda::Event *);
    int (*event_record)(cuda::Event, cuda::Stream);
    int (*event_elapsed)(float *, cuda::Event, cuda::Event);
};

Cuda load() {
    check(vescomm_gpu_check_kernels());
    void *library = nullptr;
    for (const std::string &name : vescomm::internal::GpuLibraryNames().cuda)
        if (library == nullptr) library = dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD);
    const auto find = [&](auto &function, const char *symbol) {
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
            library == nullptr ? nullptr : dlsym(library, symbol));
        if (function == nullptr) throw std::runtime_error(std::string(symbol) + " is missing");
    };
    Cuda found{};
    find(found.malloc, "cudaMalloc");
    find(found.free, "cudaFree");
    find(found.memset_async, "cudaMemsetAsync");
    find(found.memcpy_async, "cudaMemcpyAsync");
    find(found.stream_create, "cudaStreamCreate");
    find(found.stream_synchronize, "cudaStreamSynchronize");
    find(found.event_create, "cudaEventCreate");
    find(found.event_record, "cudaEventRecord");
    find(found.event_elapsed, "cudaEventElapsedTime");
    return found;
}

class Bench {
public:
    Bench(const Cuda &cuda, int iterations) : cuda_(cuda), iterations_(iterations) {
        require(cuda_.stream_create(&stream_), "cudaStreamCreate()");
        require(cuda_.event_create(&begin_), "cudaEventCreate()");
        require(cuda_.event_create(&end_), "cudaEventCreate()");
    }

    static void require(int error, const char *call) {
        if (error != 0)
            throw std::runtime_error(std::string(call) + " failed: " + std::to_string(error));
    }
    cuda::Stream stream() const { return stream_; }

    template <typename T>
    T *array(std::size_t count, int byte) {
        void *memory = nullptr;
        require(cuda_.malloc(&memory, count * sizeof(T)), "cudaMalloc()");
        require(cuda_.memset_async(memory, byte, count * sizeof(T), stream_), "cudaMemsetAsync()");
        require(cuda_.stream_synchronize(stream_), "cudaStreamSynchronize()");
        return static_cast<T *>(memory);
    }

    // Fills an array with repetitions of values.
    void fill(float *to, std::size_t count, const std::vector<float> &values) {
        for (std::size_t i = 0; i < count; i += values.size())
            require(cuda_.memcpy_async(to + i, values.data(),
                                       std::min(values.size(), count - i) * sizeof(float),
                                       cuda::copy_host_to_device, stream_),
                    "cudaMemcpyAsync()");
        require(cuda_.stream_synchronize(stream_), "cudaStreamSynchronize()");
    }

    // The median time of a run in seconds.
    double seconds(const Run &run) {
        std::vector<float> times;
        for (int i = 0; i < iterations_ + 2; ++i) {
            require(cuda_.event_record(begin_, stream_), "cudaEventRecord()");
            run();
            require(cuda_.event_record(end_, stream_), "cudaEventRecord()");
            require(cuda_.stream_synchronize(stream_), "cudaStreamSynchronize()");
            float milliseconds = 0;
            require(cuda_.event_elapsed(&milliseconds, begin_, end_), "cudaEventElapsedTime()");
            if (i >= 2) times.push_back(milliseconds);  // the first ones load the kernel
        }
        std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
        return times[times.size() / 2] * 1e-3;
    }

    // Prints a row.
    void row(const std::string &name, double bytes, const Run &run) {
        const double time = seconds(run), copied = seconds(copy_);
        const double speed = bytes / time, limit = copy_bytes_ / copied;
        std::printf("%-34s %10.1f us %8.1f GB/s   %5.1f %% of copy\n", name.c_str(), time * 1e6,
                    speed * 1e-9, 100 * speed / limit);
    }
    // The copy that rows are compared with.
    void set_copy(double bytes, const Run &copy) {
        copy_bytes_ = bytes;
        copy_ = copy;
    }

private:
    const Cuda &cuda_;
    const int iterations_;
    cuda::Stream stream_ = nullptr;
    cuda::Event begin_ = nullptr, end_ = nullptr;
    double copy_bytes_ = 0;
    Run copy_;
};

// The time of an exact sum depends on the values: these are such as gradients have, and worse ones.

std::vector<float> random_values(const std::function<float(std::mt19937 &)> &next) {
    std::mt19937 random(1);
    std::vector<float> values(std::size_t{1} << 22);
    for (float &value : values) value = next(random);
    return values;
}
std::vector<float> normal_values() {
    return random_values([normal = std::normal_distribution<float>(0, 1e-3f)](
                             std::mt19937 &random) mutable { return normal(random); });
}
std::vector<float> half_zero_values() {
    std::vector<float> values = normal_values();
    for (std::size_t i = 0; i < values.size(); i += 2) values[i + i / 2 % 2] = 0;
    return values;
}
std::vector<float> values_of_any_exponent() {
    return random_values([](std::mt19937 &random) {
        return std::ldexp(1.0f, static_cast<int>(random() % 120) - 60);
    });
}

// Pieces of nearly equal size that fill `elements`, each but the first at an odd element.
std::vector<vescomm_gpu_piece_t> pieces_of(std::int64_t elements, std::int64_t count, bool odd) {
    std::vector<vescomm_gpu_piece_t> pieces;
    for (std::int64_t k = 0; k < count; ++k) {
        std::int64_t begin = elements * k / count, end = elements * (k + 1) / count;
        if (odd) begin |= 1;
        else begin &= ~std::int64_t{63}, end &= ~std::int64_t{63};
        pieces.push_back({begin, begin, std::max<std::int64_t>(end - begin, 0)});
    }
    return pieces;
}

// Rows of SGD and 8-bit AdamW. The codes of moments are in `m` and `v`.
void add_other_optimizers(Bench &bench, float *p, const float *g, float *m, float *v,
                          const std::vector<vescomm_gpu_piece_t> &list) {
    const auto count = static_cast<std::int64_t>(list.size());
    const auto *pieces = list.data();
    std::int64_t used = 0, blocks = 0;
    for (const auto &piece : list) {
        used += piece.count;
        blocks += (piece.count + VESCOMM_GPU_MOMENT_BLOCK - 1) / VESCOMM_GPU_MOMENT_BLOCK;
    }
    const auto elements = static_cast<double>(used);
    vescomm_gpu_sgd_options_t sgd = vescomm_gpu_sgd_options_init();
    bench.row("sgd", 12 * elements, [&] {
        check(vescomm_gpu_sgd(p, g, nullptr, &sgd, nullptr, pieces, count, bench.stream()));
    });
    sgd.momentum = 0.9;
    bench.row("sgd with momentum", 20 * elements, [&] {
        check(vescomm_gpu_sgd(p, g, m, &sgd, nullptr, pieces, count, bench.stream()));
    });
    auto *m_scales = bench.array<float>(static_cast<std::size_t>(blocks), 0);
    auto *v_scales = bench.array<float>(static_cast<std::size_t>(blocks), 0);
    vescomm_gpu_adamw_options_t options = vescomm_gpu_adamw_options_init();
    for (const vescomm_type_t type : {VESCOMM_F32, VESCOMM_BF16}) {
        options.parameter_type = type;
        const double bytes = type == VESCOMM_F32 ? 16 : 12;
        bench.row(
            type == VESCOMM_F32 ? "adam8bit" : "adam8bit bf16",
            bytes * elements + 16 * static_cast<double>(blocks), [&] {
                check(vescomm_gpu_adam8bit(p, g, reinterpret_cast<std::uint8_t *>(m),
                                           reinterpret_cast<std::uint8_t *>(v), m_scales, v_scales,
                                           &options, nullptr, pieces, count, bench.stream()));
            });
    }
}

int run(double mib, std::int64_t piece_count, bool odd, int iterations) {
    const Cuda cuda = load();
    Bench bench(cuda, iterations);
    const cuda::Stream stream = bench.stream();
    const auto n = static_cast<std::size_t>(mib * 1024 * 1024 / sizeof(float));
    const auto count = static_cast<std::int64_t>(n);
    const std::vector<vescomm_gpu_piece_t> list = pieces_of(count, piece_count, odd);
    const auto *pieces = list.data();
    std::int64_t used = 0;
    for (const auto &piece : list) used += piece.count;
    const auto elements = static_cast<double>(used);
    const std::vector<vescomm_gpu_piece_t> whole = {{0, 0, count}};
    auto *a = bench.array<float>(n, 0x3c), *b = bench.array<float>(n, 0x3d);
    auto *m = bench.array<float>(n, 0), *v = bench.array<float>(n, 0);
    auto *words = bench.array<std::int64_t>(VESCOMM_GPU_SUM_WORDS, 0);
    auto *flag = bench.array<std::int32_t>(1, 0);
    auto *clip = bench.array<vescomm_gpu_clip_t>(1, 0);
    auto *scales = bench.array<float>(n / 32 + 1, 0);
    bench.set_copy(8.0 * static_cast<double>(n), [&] {
        Bench::require(
            cuda.memcpy_async(b, a, n * sizeof(float), cuda::copy_device_to_device, stream),
            "cudaMemcpyAsync()");
    });
    std::printf("# %.0f MiB of f32, %lld pieces%s, medians of %d; bytes read and written\n", mib,
                static_cast<long long>(piece_count), odd ? " at odd elements" : "", iterations);
    bench.row("cudaMemcpyAsync", 8.0 * static_cast<double>(n), [&] {
        cuda.memcpy_async(b, a, n * sizeof(float), cuda::copy_device_to_device, stream);
    });
    const auto k = piece_count;
    bench.row("zero f32", 4 * elements,
              [&] { check(vescomm_gpu_zero(b, VESCOMM_F32, pieces, k, stream)); });
    bench.row("copy f32", 8 * elements,
              [&] { check(vescomm_gpu_copy(b, VESCOMM_F32, a, VESCOMM_F32, pieces, k, stream)); });
    bench.row("cast f32 to bf16", 6 * elements,
              [&] { check(vescomm_gpu_copy(b, VESCOMM_BF16, a, VESCOMM_F32, pieces, k, stream)); });
    bench.row("cast bf16 to f32", 6 * elements,
              [&] { check(vescomm_gpu_copy(b, VESCOMM_F32, a, VESCOMM_BF16, pieces, k, stream)); });
    bench.row("cast f32 to f8e4m3", 5 * elements, [&] {
        check(vescomm_gpu_copy(b, VESCOMM_F8E4M3, a, VESCOMM_F32, pieces, k, stream));
    });
    bench.row("add f32", 12 * elements,
              [&] { check(vescomm_gpu_add(b, VESCOMM_F32, a, VESCOMM_F32, pieces, k, stream)); });
    bench.row("add bf16 to f32", 10 * elements,
              [&] { check(vescomm_gpu_add(b, VESCOMM_F32, a, VESCOMM_BF16, pieces, k, stream)); });
    bench.row("scale f32", 8 * elements,
              [&] { check(vescomm_gpu_scale(b, VESCOMM_F32, 0.9999, pieces, k, stream)); });
    bench.row("unscale bf16", 4 * elements, [&] {
        check(vescomm_gpu_unscale(b, VESCOMM_BF16, 0.9999, flag, pieces, k, stream));
    });
    for (const auto &[name, values] : {std::pair{"normal", normal_values()},
                                       {"half of them zero", half_zero_values()},
                                       {"any exponents", values_of_any_exponent()}}) {
        bench.fill(m, n, values);
        check(vescomm_gpu_copy(v, VESCOMM_BF16, m, VESCOMM_F32, whole.data(), 1, stream));
        const std::string what = std::string(", ") + name;
        bench.row("add_squares f32" + what, 4 * elements, [&] {
            check(vescomm_gpu_add_squares(words, m, VESCOMM_F32, pieces, k, stream));
        });
        bench.row("add_squares bf16" + what, 2 * elements, [&] {
            check(vescomm_gpu_add_squares(words, v, VESCOMM_BF16, pieces, k, stream));
        });
    }
    bench.fill(m, n, std::vector<float>(std::size_t{1} << 20));
    bench.fill(v, n, std::vector<float>(std::size_t{1} << 20));
    for (const std::int64_t block : {32, 128, 4096}) {
        const auto scale_bytes = 4.0 / static_cast<double>(block);
        const std::string size = ", blocks of " + std::to_string(block);
        bench.row("quantise f32 to i8" + size, (5 + scale_bytes) * static_cast<double>(n), [&] {
            check(
                vescomm_gpu_quantise(b, scales, VESCOMM_I8, a, VESCOMM_F32, count, block, stream));
        });
        bench.row("quantise bf16 to f8e4m3" + size, (3 + scale_bytes) * static_cast<double>(n),
                  [&] {
                      check(vescomm_gpu_quantise(b, scales, VESCOMM_F8E4M3, a, VESCOMM_BF16, count,
                                                 block, stream));
                  });
        bench.row("dequantise i8 to bf16" + size, (3 + scale_bytes) * static_cast<double>(n), [&] {
            check(vescomm_gpu_dequantise(a, VESCOMM_BF16, b, scales, VESCOMM_I8, count, block,
                                         stream));
        });
        // As of 8 ranks. The scales are those of `quantise`, or of a larger block.
        constexpr int sources = 8;
        const std::int64_t part = count / sources / block * block;
        bench.row("sum_quantised i8 of 8" + size,
                  static_cast<double>(part) * (sources * (1 + scale_bytes) + 4), [&] {
                      check(vescomm_gpu_sum_quantised(m, 0, b, part, scales, part / block, sources,
                                                      VESCOMM_I8, part, block, 1, stream));
                  });
    }
    check(vescomm_gpu_zero(words, VESCOMM_I64, std::vector<vescomm_gpu_piece_t>{{0, 0, 22}}.data(),
                           1, stream));
    bench.row("clip_factor", 22 * 8,
              [&] { check(vescomm_gpu_clip_factor(words, 1, 1, clip, stream)); });
    vescomm_gpu_adamw_options_t options = vescomm_gpu_adamw_options_init();
    bench.row("adamw", 28 * elements,
              [&] { check(vescomm_gpu_adamw(a, b, m, v, &options, nullptr, pieces, k, stream)); });
    bench.row("adamw with a clip", 28 * elements,
              [&] { check(vescomm_gpu_adamw(a, b, m, v, &options, clip, pieces, k, stream)); });
    options.parameter_type = VESCOMM_BF16;
    for (const int stochastic : {0, 1}) {
        options.stochastic = stochastic;
        bench.row(stochastic ? "adamw bf16, stochastic" : "adamw bf16", 24 * elements, [&] {
            check(vescomm_gpu_adamw(a, b, m, v, &options, nullptr, pieces, k, stream));
        });
    }
    add_other_optimizers(bench, a, b, m, v, list);
    return 0;
}

}  // namespace

int main(int argc, char **argv) {
    double mib = 1024;
    std::int64_t pieces = 1;
    bool odd = false;
    int iterations = 20;
    CLI::App app("Times vescomm's kernels on the current GPU beside a copy of CUDA.");
    app.add_option("--mib", mib, "size of an array of f32, in MiB; four of them are allocated")
        ->check(CLI::Range(1.0, 8192.0))
        ->capture_default_str();
    app.add_option("--pieces", pieces, "pieces into which the arrays are divided")
        ->check(CLI::Range(1, 100000))
        ->capture_default_str();
    app.add_flag("--odd", odd, "pieces begin at odd elements");
    app.add_option("--iterations", iterations, "timed runs of each kernel")
        ->check(CLI::Range(1, 10000))
        ->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    try {
        return run(mib, pieces, odd, iterations);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "gpu_kernels_perf: %s\n", error.what());
        return 1;
    }
}

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Arrays of the steps of optimizers in f32, bf16 and f16, for tests of kernels beside the host.
#pragma once

#include <cstdint>
#include <cstring>
#include <ostream>
#include <vector>

#include "fsdp/optimizers/stochastic_rounding.h"
#include "gpu/device_kernels.h"

namespace vescomm::internal::testing_support {

using Floats = std::vector<float>;

// How the parameters of a step are stored and rounded.
struct Parameters {
    vescomm_type_t type = VESCOMM_F32;
    bool stochastic = false;
    bool odd = false;  // any bits
    std::size_t shift = 0;  // elements before element 0, so that its address is not aligned to more
    std::uint64_t random_stream = 0x1234567890abcdef, random_first = 5;
};

inline std::ostream &operator<<(std::ostream &to, const Parameters &p) {
    return to << name_of_type(p.type) << ", stochastic " << p.stochastic << ", odd " << p.odd
              << ", shift " << p.shift;
}

// All ways to store and to round parameters.
inline std::vector<Parameters> all_parameters() {
    std::vector<Parameters> all;
    for (const bool odd : {false, true})
        for (const std::size_t shift : {0u, 3u}) {
            all.push_back({.odd = odd, .shift = shift});
            for (const vescomm_type_t type : {VESCOMM_BF16, VESCOMM_F16})
                for (const bool stochastic : {false, true})
                    all.push_back(
                        {.type = type, .stochastic = stochastic, .odd = odd, .shift = shift});
        }
    return all;
}

inline Floats floats_of(const Bytes &bytes) {
    Floats values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
}

inline Floats make_floats(bool odd, std::size_t count, unsigned seed) {
    return floats_of(odd ? any_bits(VESCOMM_F32, count, seed)
                         : plain_floats(VESCOMM_F32, count, seed));
}

// Sets the members of the options of a kernel.
template <typename Options>
void set_parameters(Options &options, const Parameters &p) {
    options.parameter_type = p.type;
    options.stochastic = p.stochastic ? 1 : 0;
    options.random_stream = p.random_stream + static_cast<std::uint64_t>(options.step);
    options.random_first = p.random_first;
}

// Calls step(parameters of a piece in f32), and rounds them, as the engine on host memory does.
template <typename Options, typename Step>
void step_on_host(Bytes &parameters, const Parameters &p, const Options &options,
                  const vescomm_gpu_piece_t &piece, const Step &step) {
    const auto count = static_cast<std::size_t>(piece.count);
    if (count == 0) return;
    std::uint8_t *at = parameters.data() + static_cast<std::size_t>(piece.target) * size_of(p.type);
    Floats wide(count);
    kernels().convert(wide.data(), VESCOMM_F32, at, p.type, count);
    step(wide.data());
    if (p.type == VESCOMM_F32) std::memcpy(at, wide.data(), count * sizeof(float));
    else if (p.stochastic)
        fsdp::rounding_loop(p.type)(reinterpret_cast<std::uint16_t *>(at), wide.data(), count,
                                    options.random_stream,
                                    p.random_first + static_cast<std::uint64_t>(piece.target));
    else kernels().convert(at, p.type, wide.data(), VESCOMM_F32, count);
}

inline Bytes make_parameters(const Parameters &p, std::size_t count, unsigned seed) {
    return p.odd ? any_bits(p.type, count, seed) : plain_floats(p.type, count, seed);
}

// Uploads the parameters `shift` elements behind an aligned address.
inline std::uint8_t *upload_parameters(Device &device, const Parameters &p, const Bytes &values) {
    Bytes shifted(p.shift * size_of(p.type));
    const std::size_t before = shifted.size();
    shifted.insert(shifted.end(), values.begin(), values.end());
    return device.upload(shifted) + before;
}

template <typename T>
void expect_same_bits(const char *what, const std::vector<T> &found,
                      const std::vector<T> &expected) {
    ASSERT_EQ(found.size(), expected.size()) << what;
    for (std::size_t i = 0; i < found.size(); ++i)
        if (std::memcmp(&found[i], &expected[i], sizeof(T)) != 0) {
            ADD_FAILURE() << what << '[' << i << "] is " << +found[i] << ", and " << +expected[i]
                          << " on the host";
            return;
        }
}

}  // namespace vescomm::internal::testing_support

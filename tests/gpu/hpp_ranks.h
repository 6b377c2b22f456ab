// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks that use gpu.hpp on the test double, as threads.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gpu/double_ranks.h"
#include "support/free_port.h"
#include "vescomm/gpu.hpp"

namespace vescomm::testing_support {

using Floats = std::vector<float>;
using Counts = std::vector<std::int64_t>;

// A rank with a device and the host's communicator.
struct HppRank : gpu_double::Device {
    HppRank(int number, int ranks, const std::string &address,
            const vescomm_comm_options_t &options)
        : Device(number),
          rank(number),
          ranks(ranks),
          comm(number, ranks, address, "a secret", &options) {}

    template <typename T>
    void put(const gpu::Array &to, const std::vector<T> &values) {
        ASSERT_EQ(to.elements, static_cast<std::int64_t>(values.size()));
        if (!values.empty()) write(to.as<T>(), values);
    }
    template <typename T = float>
    std::vector<T> get(const gpu::Array &from) {
        if (from.elements == 0) return {};
        return read(from.as<T>(), static_cast<std::size_t>(from.elements));
    }

    const int rank, ranks;
    Communicator comm;
};

// Runs `body` on ranks. It may throw on a rank only what `expected` accepts.
inline void run_hpp_ranks(
    int ranks, const std::function<void(HppRank &)> &body, double timeout_seconds = 60,
    const std::function<bool(int rank, const std::exception &)> &expected = {}) {
    const std::string address = internal::testing_support::free_address();
    const auto run = [&](int number) {
        auto options = vescomm_comm_options_init();
        options.timeout_seconds = timeout_seconds;
        options.node = "one";
        try {
            HppRank rank(number, ranks, address, options);
            body(rank);
        } catch (const std::exception &error) {
            EXPECT_TRUE(expected && expected(number, error))
                << "rank " << number << ": " << error.what();
        }
    };
    std::vector<std::thread> threads;
    for (int number = 0; number < ranks; ++number) threads.emplace_back(run, number);
    for (std::thread &thread : threads) thread.join();
}

// Uneven shards that begin at multiples of 16 bytes of f32; one of three ranks has none.
inline Counts uneven(int ranks) {
    static const Counts all[] = {{12}, {8, 20}, {8, 0, 20}};
    return all[ranks - 1];
}

// The elements that a rank contributes to the shard of another one. Sums are exact.
inline Floats terms(int rank, int shard, std::int64_t count) {
    Floats values;
    for (std::int64_t i = 0; i < count; ++i)
        values.push_back(static_cast<float>(1000 * (rank + 1) + 100 * shard + i));
    return values;
}

inline Floats sums(int ranks, int shard, std::int64_t count) {
    Floats sum(static_cast<std::size_t>(count), 0);
    for (int rank = 0; rank < ranks; ++rank) {
        const Floats one = terms(rank, shard, count);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
    }
    return sum;
}

// Expects an Error with a status and a part of its text.
template <typename Call>
void expect_error(const Call &call, vescomm_status_t status, const std::string &says) {
    try {
        call();
        ADD_FAILURE() << "no error says \"" << says << "\"";
    } catch (const Error &error) {
        EXPECT_EQ(error.status(), status) << error.what();
        EXPECT_NE(std::string(error.what()).find(says), std::string::npos)
            << error.what() << "\ndoes not contain: " << says;
    }
}

// Expects std::invalid_argument, which is thrown before the call.
template <typename Call>
void expect_refused(const Call &call, const std::string &says) {
    try {
        call();
        ADD_FAILURE() << "nothing refuses: " << says;
    } catch (const std::invalid_argument &error) {
        EXPECT_NE(std::string(error.what()).find(says), std::string::npos)
            << error.what() << "\ndoes not contain: " << says;
    }
}

}  // namespace vescomm::testing_support

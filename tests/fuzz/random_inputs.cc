// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Stands in for libFuzzer where nobody has hours: the same inputs every time, from a fixed seed.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);

int main() {
    constexpr int inputs = 20'000;
    constexpr std::size_t most_bytes = 600;
    std::mt19937 random(1);
    for (int i = 0; i < inputs; ++i) {
        std::vector<std::uint8_t> input(random() % most_bytes);
        // Headers are mostly small numbers, and luck should find some that are right.
        const bool small = random() % 2 == 0;
        for (std::uint8_t &byte : input)
            byte = static_cast<std::uint8_t>(small && random() % 4 != 0 ? random() % 3 : random());
        LLVMFuzzerTestOneInput(input.data(), input.size());
    }
    std::printf("%d inputs survived\n", inputs);
    return 0;
}

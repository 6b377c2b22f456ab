// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace vescomm::fsdp {

// Adds its lifetime in seconds to a sum.
class Stopwatch {
public:
    explicit Stopwatch(double &sum) : sum_(sum), begin_(std::chrono::steady_clock::now()) {}
    ~Stopwatch() {
        sum_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    }
    Stopwatch(const Stopwatch &) = delete;
    Stopwatch &operator=(const Stopwatch &) = delete;

private:
    double &sum_;
    std::chrono::steady_clock::time_point begin_;
};

}  // namespace vescomm::fsdp

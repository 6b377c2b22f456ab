// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <random>

namespace vescomm::testing_support {

// Random choices that every rank repeats, from a number.
class Dice {
public:
    explicit Dice(unsigned seed) : random_(seed) {}
    int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }
    bool one_in(int count) { return below(count) == 0; }
    template <typename T>
    T pick(std::initializer_list<T> from) {
        return from.begin()[below(static_cast<int>(from.size()))];
    }

private:
    std::mt19937 random_;
};

}  // namespace vescomm::testing_support

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>

namespace vescomm::internal {

// Numbers in messages are little-endian on every machine.

template <std::unsigned_integral Number>
void put_number(std::string &to, Number number) {
    for (std::size_t i = 0; i < sizeof(Number); ++i)
        to.push_back(static_cast<char>(static_cast<unsigned char>(number >> (8 * i))));
}

// Reads sizeof(Number) bytes; the caller guarantees that they exist.
template <std::unsigned_integral Number>
Number get_number(const char *from) {
    Number number = 0;
    for (std::size_t i = 0; i < sizeof(Number); ++i)
        number |= static_cast<Number>(static_cast<Number>(static_cast<unsigned char>(from[i]))
                                      << (8 * i));
    return number;
}

// Reads a payload from front to back. Past the end every number is zero and good() is false, so one
// check after the last number suffices.
class WireReader {
public:
    explicit WireReader(std::string_view bytes) : rest_(bytes) {}

    template <std::unsigned_integral Number>
    Number number() {
        if (rest_.size() < sizeof(Number)) {
            good_ = false;
            rest_ = {};
            return 0;
        }
        const auto value = get_number<Number>(rest_.data());
        rest_.remove_prefix(sizeof(Number));
        return value;
    }

    // Removes and returns up to `bytes` bytes from the front.
    std::string_view take(std::size_t bytes) {
        const std::string_view taken = rest_.substr(0, bytes);
        rest_.remove_prefix(taken.size());
        return taken;
    }

    std::string_view rest() const { return rest_; }
    bool good() const { return good_; }
    // All bytes were read, and no read went past the end.
    bool finished() const { return good_ && rest_.empty(); }

private:
    std::string_view rest_;
    bool good_ = true;
};

}  // namespace vescomm::internal

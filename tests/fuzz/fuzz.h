// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The interface of a fuzz target. A target is one file that defines two functions:
//
//     LLVMFuzzerTestOneInput    runs the code under test on one input and checks its invariants
//     vescomm::internal::fuzz::seeds      the inputs from which mutations start
//
// and one row in meson.build. README.md in this folder describes how to add and run a target.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);

namespace vescomm::internal::fuzz {

// An input of the committed corpus: tests/fuzz/corpus/TARGET/NAME.
struct Seed {
    std::string name;
    std::string bytes;
};

std::vector<Seed> seeds();

inline std::string_view view(const std::uint8_t *data, std::size_t size) {
    return {reinterpret_cast<const char *>(data), size};
}

// Aborts the process when an invariant does not hold; the fuzzer then keeps the input.
inline void require(bool holds, const char *invariant) {
    if (holds) return;
    std::fprintf(stderr, "invariant broken: %s\n", invariant);
    std::abort();
}

// Decodes an input into the values from which a target builds its messages. Past the end of the
// input every number is 0 and every text is empty.
class Input {
public:
    explicit Input(std::string_view bytes) : rest_(bytes) {}

    bool empty() const { return rest_.empty(); }
    std::string_view rest() const { return rest_; }

    std::string_view take(std::size_t bytes) {
        const std::string_view taken = rest_.substr(0, std::min(bytes, rest_.size()));
        rest_.remove_prefix(taken.size());
        return taken;
    }

    // Little-endian.
    template <std::unsigned_integral Number>
    Number number() {
        Number value = 0;
        const std::string_view bytes = take(sizeof(Number));
        for (std::size_t i = 0; i < bytes.size(); ++i)
            value = static_cast<Number>(
                value | static_cast<Number>(
                            static_cast<Number>(static_cast<unsigned char>(bytes[i])) << (8 * i)));
        return value;
    }

    std::uint8_t byte() { return number<std::uint8_t>(); }

    // A number from 0 to limit - 1, from one byte; `limit` is from 1 to 256.
    std::size_t below(std::size_t limit) { return byte() % limit; }

    // A length of one byte, then the text.
    std::string_view text() { return take(byte()); }

    // Everything up to the next `end`, which is consumed.
    std::string_view until(char end) {
        const std::string_view taken = rest_.substr(0, rest_.find(end));
        rest_.remove_prefix(std::min(rest_.size(), taken.size() + 1));
        return taken;
    }

private:
    std::string_view rest_;
};

// Changes bytes in transit at offset `at`: `what` modulo 8 selects the change; most values select
// none.
inline void change(Input &input, std::uint8_t what, std::size_t at, std::string &bytes) {
    switch (what % 8) {
        case 1:
            if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ input.byte());
            break;
        case 2:
            bytes.resize(at);
            break;
        case 3:
            bytes.erase(at, input.byte());
            break;
        case 4:
            bytes.insert(at, input.text());
            break;
        case 5:
            bytes.insert(at, bytes.substr(at));
            break;
        default:
            break;
    }
}

// Calls `read` with consecutive pieces of `bytes`, as a byte stream delivers them, until it returns
// false. `read` takes std::string_view & and consumes a prefix; the rest of a piece is passed
// again.
template <typename Read>
void feed(std::string_view bytes, std::size_t step, Read read) {
    while (!bytes.empty()) {
        std::string_view piece = bytes.substr(0, std::max<std::size_t>(step, 1));
        bytes.remove_prefix(piece.size());
        do {
            if (!read(piece)) return;
        } while (!piece.empty());
    }
}

// Requires that an error sentence is not empty and has no control character.
inline void require_sentence(std::string_view text) {
    require(!text.empty(), "an error has a sentence");
    require(std::none_of(text.begin(), text.end(),
                         [](unsigned char byte) { return byte < ' ' || byte == 0x7f; }),
            "an error sentence has no control character");
}

}  // namespace vescomm::internal::fuzz

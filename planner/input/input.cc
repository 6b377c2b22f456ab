// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/input/input.h"

#include <fmt/format.h>

#include <array>
#include <fstream>

namespace vescomm::planner {
std::string read_text_file(const std::string &path, const std::string &where) {
    constexpr std::size_t max = std::size_t{256} << 20;
    std::ifstream file(path, std::ios::binary);
    std::string text;
    std::array<char, 1 << 16> piece;
    // Read in pieces, because a pipe has no size. A folder fails here.
    while (file.read(piece.data(), piece.size()) || file.gcount() > 0) {
        text.append(piece.data(), static_cast<std::size_t>(file.gcount()));
        if (text.size() > max)
            throw InputError(fmt::format(
                "{} has more than {} bytes, the most for a list of tensors", where, max));
    }
    if (!file.eof()) throw InputError(where + " cannot be read");
    return text;
}

}  // namespace vescomm::planner

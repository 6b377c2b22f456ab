// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Lines over a socket with a path, which processes in other network namespaces reach too.
#pragma once

#include <optional>
#include <string>

namespace vescomm::perf {

class LineSocket {
public:
    explicit LineSocket(int descriptor) : descriptor_(descriptor) {}
    LineSocket(LineSocket &&other) noexcept;
    LineSocket &operator=(LineSocket &&other) noexcept;
    ~LineSocket();

    int descriptor() const { return descriptor_; }

    // Waits for a line. Nothing: the other end has hung up.
    std::optional<std::string> read();
    // A line that has come already, after one blocking receive at most. Nothing: not all of it yet.
    // Throws std::runtime_error when the other end has hung up.
    std::optional<std::string> receive();
    // Throws std::system_error.
    void write(const std::string &line);

private:
    std::optional<std::string> take();
    bool fill();  // false: hung up

    int descriptor_;
    std::string buffer_;
    std::size_t searched_ = 0;
};

LineSocket connect_to(const std::string &path);

}  // namespace vescomm::perf

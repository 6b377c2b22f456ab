// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Lines of text over a Unix socket with a path, which is reachable from other network namespaces.
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

    // Waits for a line. Returns nothing when the other end has closed the connection.
    std::optional<std::string> read();
    // Returns a line after at most one blocking receive, or nothing while the line is incomplete.
    // Throws std::runtime_error when the other end has closed the connection.
    std::optional<std::string> receive();
    // Sends a line. Throws std::system_error.
    void write(const std::string &line);

private:
    std::optional<std::string> take();
    bool fill();  // false: the other end has closed the connection

    int descriptor_;
    std::string buffer_;
    std::size_t searched_ = 0;
};

LineSocket connect_to(const std::string &path);

}  // namespace vescomm::perf

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The barrier of ranks before each iteration. It is common to all implementations, so that all are
// timed with the same arrival order of ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

namespace vescomm::perf {

// Waiting policy of a rank for a local peer. It spins briefly and then yields its core. When ranks
// outnumber cores (`crowded`) it yields at once, because spinning would keep the core from the rank
// that it waits for.
class Backoff {
public:
    explicit Backoff(bool crowded) : spins_(crowded ? 0 : 200) {}
    void pause();

private:
    int spins_;
};

class Gate {
public:
    // `file` is shared by the ranks and initially zero, such as /proc/PID/fd/N of a memfd.
    Gate(const std::string &file, int ranks);
    ~Gate();
    Gate(const Gate &) = delete;
    Gate &operator=(const Gate &) = delete;

    // Waits until all ranks have called meet(). Calls `meanwhile` repeatedly while it waits.
    void meet(const std::function<void()> &meanwhile);

private:
    struct Shared {
        alignas(64) std::atomic<std::uint32_t> arrived;
        alignas(64) std::atomic<std::uint32_t> round;  // completed meetings
    };

    Shared *shared_;
    std::uint32_t ranks_;
    bool crowded_;
};

}  // namespace vescomm::perf

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Where ranks meet before each iteration: the same for every implementation, so that none is timed
// with the ranks in better order than another's.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

namespace vescomm::perf {

// How a rank waits for another of its machine: it spins a little where every rank has a core, and
// then offers its core again and again; at once where ranks outnumber cores, because spinning would
// keep the core from the rank that it waits for.
class Patience {
public:
    explicit Patience(bool crowded) : spins_(crowded ? 0 : 200) {}
    void pause();

private:
    int spins_;
};

class Gate {
public:
    // `file` is shared by the ranks and zero at first, such as /proc/PID/fd/N of a memfd.
    Gate(const std::string &file, int ranks);
    ~Gate();
    Gate(const Gate &) = delete;
    Gate &operator=(const Gate &) = delete;

    // Calls `meanwhile` now and then as long as others are missing.
    void meet(const std::function<void()> &meanwhile);

private:
    struct Shared {
        alignas(64) std::atomic<std::uint32_t> arrived;
        alignas(64) std::atomic<std::uint32_t> round;
    };

    Shared *shared_;
    std::uint32_t ranks_;
    bool crowded_;
};

}  // namespace vescomm::perf

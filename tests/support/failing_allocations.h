// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Makes chosen allocations of a thread fail. failing_allocations.cc, linked into the program,
// replaces malloc() and its relatives for all its libraries, including operator new, libcrypto and
// the C library. Not for builds with sanitizers, which replace the allocator too.
#pragma once

#include <cstdint>

namespace vescomm::internal::testing_support {

enum class Failing {
    one,  // only the chosen allocation
    and_later  // the chosen allocation and all later ones
};

enum class Allocator {
    all,  // malloc() and its relatives, including operator new
    cpp  // only operator new
};

// Starts to count the calling thread's allocations from 1. The one with `number` fails.
void fail_allocation(std::uint64_t number, Failing failing,
                     Allocator allocator = Allocator::all) noexcept;

struct Allocations {
    std::uint64_t made = 0;
    std::uint64_t failed = 0;
    std::uint64_t bytes = 0;  // of all that were made
};
// Allocations succeed again. Returns the counts since fail_allocation().
Allocations stop_failing() noexcept;

// While an object exists, allocations of its thread are not counted and succeed.
class WithoutFailing {
public:
    WithoutFailing() noexcept;
    ~WithoutFailing();
    WithoutFailing(const WithoutFailing &) = delete;
    WithoutFailing &operator=(const WithoutFailing &) = delete;
};

// Suspends WithoutFailing, for callbacks into the tested code.
class FailingAgain {
public:
    FailingAgain() noexcept;
    ~FailingAgain();
    FailingAgain(const FailingAgain &) = delete;
    FailingAgain &operator=(const FailingAgain &) = delete;

private:
    int depth_;
};

}  // namespace vescomm::internal::testing_support

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Lets chosen allocations of a thread fail: those with malloc() and its relatives in all libraries
// of the program, among them operator new, libcrypto and the C library. failing_allocations.cc,
// linked into the program, takes their place. Not for builds with sanitizers, which do the same.
#pragma once

#include <cstdint>

namespace vescomm::testing_support {

enum class Failing {
    one,  // that allocation alone
    and_later  // and all after it
};

enum class Allocator {
    all,  // malloc() and its relatives, and so operator new
    cpp  // operator new alone
};

// The calling thread's allocations are counted from now on; that number, from 1, fails.
void fail_allocation(std::uint64_t number, Failing failing,
                     Allocator allocator = Allocator::all) noexcept;

struct Allocations {
    std::uint64_t made = 0;
    std::uint64_t failed = 0;
};
// Allocations succeed again. What there was since fail_allocation().
Allocations stop_failing() noexcept;

// While one lives, allocations of its thread are neither counted nor do they fail.
class WithoutFailing {
public:
    WithoutFailing() noexcept;
    ~WithoutFailing();
    WithoutFailing(const WithoutFailing &) = delete;
    WithoutFailing &operator=(const WithoutFailing &) = delete;
};

// Within the former, for calls back into what is tested.
class FailingAgain {
public:
    FailingAgain() noexcept;
    ~FailingAgain();
    FailingAgain(const FailingAgain &) = delete;
    FailingAgain &operator=(const FailingAgain &) = delete;

private:
    int depth_;
};

}  // namespace vescomm::testing_support

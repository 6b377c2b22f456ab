// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "support/failing_allocations.h"

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

// glibc's own names of its allocator. Its free() accepts the memory that they return.
extern "C" {
void *__libc_malloc(std::size_t bytes);
void *__libc_calloc(std::size_t count, std::size_t bytes);
void *__libc_realloc(void *old, std::size_t bytes);
void *__libc_memalign(std::size_t alignment, std::size_t bytes);
}

namespace vescomm::internal::testing_support {

namespace {

// Trivial types: thread-local objects with constructors would allocate.
thread_local bool armed = false;
thread_local int sheltered = 0;
thread_local std::uint64_t fails_at = 0;
thread_local bool fails_later = false;
thread_local Allocator counts = Allocator::all;
thread_local Allocations counted;

bool next_fails(Allocator allocator, std::size_t bytes) noexcept {
    if (!armed || sheltered > 0 || allocator != counts) return false;
    counted.bytes += bytes;
    const std::uint64_t number = ++counted.made;
    const bool fails = number == fails_at || (fails_later && number > fails_at);
    if (!fails) return false;
    ++counted.failed;
    errno = ENOMEM;
    return true;
}

}  // namespace

void fail_allocation(std::uint64_t number, Failing failing, Allocator allocator) noexcept {
    counts = allocator;
    counted = {};
    fails_at = number;
    fails_later = failing == Failing::and_later;
    armed = true;
}

Allocations stop_failing() noexcept {
    armed = false;
    return counted;
}

WithoutFailing::WithoutFailing() noexcept {
    ++sheltered;
}

WithoutFailing::~WithoutFailing() {
    --sheltered;
}

FailingAgain::FailingAgain() noexcept : depth_(std::exchange(sheltered, 0)) {}

FailingAgain::~FailingAgain() {
    sheltered = depth_;
}

}  // namespace vescomm::internal::testing_support

using vescomm::internal::testing_support::Allocator;
using vescomm::internal::testing_support::next_fails;

namespace {

bool fails(std::size_t bytes) noexcept {
    return next_fails(Allocator::all, bytes);
}

}  // namespace

extern "C" {

void *malloc(std::size_t bytes) noexcept {
    return fails(bytes) ? nullptr : __libc_malloc(bytes);
}

void *calloc(std::size_t count, std::size_t bytes) noexcept {
    return fails(count * bytes) ? nullptr : __libc_calloc(count, bytes);
}

void *realloc(void *old, std::size_t bytes) noexcept {
    return fails(bytes) ? nullptr : __libc_realloc(old, bytes);
}

void *memalign(std::size_t alignment, std::size_t bytes) noexcept {
    return fails(bytes) ? nullptr : __libc_memalign(alignment, bytes);
}

void *aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
    return memalign(alignment, bytes);
}

int posix_memalign(void **made, std::size_t alignment, std::size_t bytes) noexcept {
    void *memory = memalign(alignment, bytes);
    if (memory == nullptr) return ENOMEM;
    *made = memory;
    return 0;
}

}  // extern "C"

// libstdc++ implements the array and nothrow forms by calls of these.
void *operator new(std::size_t bytes) {
    void *made = next_fails(Allocator::cpp, bytes) ? nullptr : std::malloc(bytes);
    if (made == nullptr) throw std::bad_alloc();
    return made;
}

void *operator new(std::size_t bytes, std::align_val_t alignment) {
    const auto align = static_cast<std::size_t>(alignment);
    void *made = next_fails(Allocator::cpp, bytes) ? nullptr : memalign(align, bytes);
    if (made == nullptr) throw std::bad_alloc();
    return made;
}

void operator delete(void *made) noexcept {
    std::free(made);
}

void operator delete(void *made, std::size_t) noexcept {
    std::free(made);
}

void operator delete(void *made, std::align_val_t) noexcept {
    std::free(made);
}

void operator delete(void *made, std::size_t, std::align_val_t) noexcept {
    std::free(made);
}

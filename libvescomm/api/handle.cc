// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "api/handle.h"

#include <pthread.h>

#include <new>

namespace vescomm::internal {

std::atomic<std::uint32_t> forks{0};

namespace {

void count_fork() {
    forks.fetch_add(1, std::memory_order_relaxed);
}

// Registers the handler once; children inherit it. Tries again at the next call after a failure.
void count_forks() {
    static const bool counted = [] {
        if (pthread_atfork(nullptr, nullptr, count_fork) != 0) throw std::bad_alloc();
        return true;
    }();
    (void)counted;
}

}  // namespace

Handle::Handle() : made_after_(0) {
    count_forks();
    made_after_ = forks.load(std::memory_order_relaxed);
}

}  // namespace vescomm::internal

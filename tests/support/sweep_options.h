// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// For programs that make each allocation fail in turn, in processes of their own.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

namespace vescomm::internal::testing_support {

template <typename T>
T *make_shared_between_processes() {
    void *memory =
        mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        std::perror("mmap");
        std::exit(2);
    }
    return new (memory) T{};
}

// [--all] [--only NAME] [--from N]. Another option ends the program with status 2.
struct SweepOptions {
    SweepOptions(int count, char **words) {
        for (int i = 1; i < count; ++i) {
            const std::string word = words[i];
            if (word == "--all") {
                all = true;
            } else if (word == "--only" && i + 1 < count) {
                only = words[++i];
            } else if (word == "--from" && i + 1 < count) {
                from = std::strtoull(words[++i], nullptr, 10);
            } else {
                std::fprintf(stderr, "there is no option %s\n", words[i]);
                std::exit(2);
            }
        }
    }

    bool all = false;  // every allocation, not a sample
    std::string only;  // start of the names of the sweeps to run
    std::uint64_t from = 1;  // number of the first allocation
};

}  // namespace vescomm::internal::testing_support

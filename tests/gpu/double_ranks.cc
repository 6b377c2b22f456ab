// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/double_ranks.h"

#include <regex>
#include <thread>

namespace gpu_double {

void expect_violation(const std::string &expression, const char *file, int line) {
    const std::string found = take_violations();
    if (!std::regex_search(found, std::regex(expression)))
        ADD_FAILURE_AT(file, line) << "no violation matches \"" << expression << "\"; there is:\n"
                                   << found;
}

void run_nccl_ranks(int ranks, const std::function<void(Rank &)> &body) {
    nccl::UniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), 0);
    std::vector<std::thread> threads;
    for (int number = 0; number < ranks; ++number)
        threads.emplace_back([&, number] {
            Rank rank(number, ranks, id);
            body(rank);
        });
    for (std::thread &thread : threads) thread.join();
}

}  // namespace gpu_double

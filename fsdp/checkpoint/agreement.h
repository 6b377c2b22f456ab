// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace vescomm::fsdp::checkpoint {

// Exchanges the progress and the errors of the ranks of a save. All members are used by one
// thread at a time.
class Agreement {
public:
    virtual ~Agreement() = default;

    virtual int rank() const = 0;
    virtual int ranks() const = 0;
    // Returns the texts of all ranks, by rank. Collective. Throws if a rank has ended, and when a
    // deadline of the implementation passes.
    virtual std::vector<std::string> all_gather(const std::string &mine) = 0;
};

// The agreement of a single rank.
class LoneAgreement final : public Agreement {
public:
    int rank() const override { return 0; }
    int ranks() const override { return 1; }
    std::vector<std::string> all_gather(const std::string &mine) override { return {mine}; }
};

}  // namespace vescomm::fsdp::checkpoint

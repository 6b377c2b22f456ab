// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fsdp/checkpoint/agreement.h"
#include "vescomm/vescomm.h"

namespace vescomm::fsdp::checkpoint {

// Agrees over a communicator. Its timeout is the longest time that ranks wait for the slowest one
// to write its file.
class CommAgreement final : public Agreement {
public:
    // While a save runs, no other thread uses the communicator.
    explicit CommAgreement(std::shared_ptr<vescomm_comm_t> comm);

    int rank() const override { return rank_; }
    int ranks() const override { return ranks_; }
    std::vector<std::string> all_gather(const std::string &mine) override;

private:
    std::shared_ptr<vescomm_comm_t> comm_;
    int rank_ = 0;
    int ranks_ = 1;
};

}  // namespace vescomm::fsdp::checkpoint

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "vescomm/vescomm.hpp"

namespace vescomm::fsdp {

// Sums one f64 over ranks. Every rank gathers all numbers and adds them in the order of ranks, so
// the result has the same bits on all ranks. Decisions such as clipping need this.
class RankSum {
public:
    // Collective.
    explicit RankSum(Communicator &comm) {
        const std::vector<std::int64_t> counts(static_cast<std::size_t>(comm.ranks()), 1);
        vescomm_buffer_options_t options = vescomm_buffer_options_init();
        options.type = VESCOMM_F64;
        options.sharing = VESCOMM_PER_NODE;
        options.name = "sum over ranks";
        buffer_ = Buffer(comm, Layout::from_counts(counts), options);
        request_ = Request::all_gather_v(comm, buffer_);
    }

    double operator()(double mine) {
        buffer_.acquire();
        buffer_.shard<double>()[0] = mine;
        request_.run();
        double sum = 0;
        for (const double value : buffer_.data<double>()) sum += value;
        return sum;
    }

private:
    Buffer buffer_;
    Request request_;
};

}  // namespace vescomm::fsdp

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/examples/train_gpt/gather.h"

#include <algorithm>
#include <cstdint>

namespace train_gpt {

std::vector<std::vector<double>> gather(const vescomm::Communicator &comm,
                                        std::span<const double> mine) {
    const std::vector<std::int64_t> counts(comm.ranks(), static_cast<std::int64_t>(mine.size()));
    vescomm_buffer_options_t options = vescomm_buffer_options_init();
    options.type = VESCOMM_F64;
    options.name = "numbers of all ranks";
    const vescomm::Buffer buffer(comm, vescomm::Layout::from_counts(counts), options);
    std::copy(mine.begin(), mine.end(), buffer.shard<double>().begin());
    vescomm::Request::all_gather_v(comm, buffer).run();

    std::vector<std::vector<double>> all;
    const std::span<const double> gathered = buffer.data<double>();
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
        const auto one = gathered.subspan(rank * mine.size(), mine.size());
        all.emplace_back(one.begin(), one.end());
    }
    return all;
}

std::vector<std::int32_t> nodes_of_ranks(const vescomm::Communicator &comm) {
    const double mine[] = {static_cast<double>(comm.info().node)};
    std::vector<std::int32_t> nodes;
    for (const std::vector<double> &one : gather(comm, mine))
        nodes.push_back(static_cast<std::int32_t>(one[0]));
    return nodes;
}

}  // namespace train_gpt

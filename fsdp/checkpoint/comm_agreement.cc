// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "fsdp/checkpoint/comm_agreement.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "fsdp/checkpoint/error.h"

namespace vescomm::fsdp::checkpoint {
namespace {

void check(vescomm_status_t status) {
    if (status < 0) throw Error(status, vescomm_get_last_error());
}

}  // namespace

CommAgreement::CommAgreement(std::shared_ptr<vescomm_comm_t> comm) : comm_(std::move(comm)) {
    vescomm_comm_info_t info = vescomm_comm_info_init();
    check(vescomm_comm_get_info(comm_.get(), &info));
    rank_ = info.rank;
    ranks_ = info.ranks;
}

std::vector<std::string> CommAgreement::all_gather(const std::string &mine) {
    const auto ranks = static_cast<std::size_t>(ranks_);
    const auto length = static_cast<std::int64_t>(mine.size());
    std::vector<std::int64_t> lengths(ranks);
    check(vescomm_all_gather(comm_.get(), &length, lengths.data(), 1, VESCOMM_I64, nullptr, nullptr,
                             nullptr));
    // Texts are sentences and numbers. The limit is for a rank with a damaged memory.
    constexpr std::int64_t max_bytes = 1 << 20;
    std::int64_t sum = 0;
    for (const std::int64_t bytes : lengths) {
        if (bytes < 0 || bytes > max_bytes)
            throw Error(VESCOMM_ERROR_INTERNAL,
                        fmt::format("a rank announces a text of {} bytes for the agreement of a "
                                    "save; the limit is {}",
                                    bytes, max_bytes));
        sum += bytes;
    }
    std::string all(static_cast<std::size_t>(sum), '\0');
    check(vescomm_all_gather_v(comm_.get(), mine.data(), all.data(), lengths.data(), nullptr,
                               VESCOMM_U8, nullptr, nullptr, nullptr));
    std::vector<std::string> texts;
    std::size_t at = 0;
    for (const std::int64_t bytes : lengths) {
        texts.push_back(all.substr(at, static_cast<std::size_t>(bytes)));
        at += static_cast<std::size_t>(bytes);
    }
    return texts;
}

}  // namespace vescomm::fsdp::checkpoint

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/wait_sentences.h"

#include <algorithm>
#include <cstdio>

#include "vescomm/vescomm.h"

namespace vescomm::internal {

namespace {

std::string seconds_text(double seconds) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", seconds);
    return text;
}

std::string list(const std::vector<int> &ranks) {
    if (ranks[0] == VESCOMM_ANY_SOURCE) return "any rank";
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    constexpr std::size_t max = 8;
    for (std::size_t i = 0; i < std::min(ranks.size(), max); ++i)
        text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    if (ranks.size() > max) text += " and " + std::to_string(ranks.size() - max) + " more";
    return text;
}

}  // namespace

std::string timeout_sentence(int rank, const std::string &what, double seconds,
                             const std::vector<int> &peers, const std::string &obstacle) {
    const std::string begin =
        "rank " + std::to_string(rank) + ": " + what + " waited " + seconds_text(seconds) + " s";
    if (!obstacle.empty()) return begin + ": " + obstacle;
    const std::string awaited = peers.empty() ? "its bytes to leave for other nodes" : list(peers);
    return begin + " for " + awaited +
           "; look there first, or raise VESCOMM_TIMEOUT_SECONDS when that is expected to take "
           "longer";
}

std::string finalized_sentence(int rank, const std::string &what, int peer) {
    return "rank " + std::to_string(rank) + ": " + what + " waits for rank " +
           std::to_string(peer) +
           ", which has finalized its communicator; every rank must make the same calls before it "
           "does";
}

}  // namespace vescomm::internal

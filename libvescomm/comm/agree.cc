// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/agree.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"

namespace vescomm::internal {

namespace {

// An answer: the status (0: no error), then the result or the sentence of the error.
std::string pack(vescomm_status_t status, std::string_view text) {
    std::string answer(sizeof status, '\0');
    std::memcpy(answer.data(), &status, sizeof status);
    answer += text;
    return answer;
}

std::pair<vescomm_status_t, std::string> unpack(const std::string &answer) {
    vescomm_status_t status = VESCOMM_ERROR_INTERNAL;
    if (answer.size() < sizeof status) return {status, "an answer of a peer is too short"};
    std::memcpy(&status, answer.data(), sizeof status);
    return {status, answer.substr(sizeof status)};
}

// True if the cause of such an error is the failure of another rank.
bool is_consequence(vescomm_status_t status) {
    return status == VESCOMM_ERROR_ABORTED || status == VESCOMM_ERROR_PEER_FAILED;
}

[[noreturn]] void throw_difference(std::string_view label, int rank, const std::string &key,
                                   const std::string &first, const std::string &other) {
    const std::string there = "rank " + std::to_string(rank);
    throw Error(VESCOMM_ERROR_MISMATCH, std::string(label) + ": rank 0 and " + there +
                                            " disagree: " + key + " is " + first +
                                            " on rank 0 and " + other + " on " + there +
                                            "; every rank must make the same call");
}

// Parts are separated by zero bytes, which no part contains.
std::string text_of(const Description &description) {
    std::string text;
    for (const auto &[key, value] : description) text += key + '\0' + value + '\0';
    return text;
}

// A frame: the size of a description's text, the text, and an offer of channels, which may be
// empty.
std::string frame_of(const std::string &text, const std::string &offer) {
    const std::uint64_t size = text.size();
    return std::string(reinterpret_cast<const char *>(&size), sizeof size) + text + offer;
}

// The text and the offer in a frame. Frames come from the network: a size may be wrong.
std::pair<std::string, std::string> text_and_offer(const std::string &frame) {
    std::uint64_t size = 0;
    const std::size_t head = std::min(sizeof size, frame.size());
    std::memcpy(&size, frame.data(), head);
    const std::string rest = frame.substr(head);
    return {rest.substr(0, size), rest.substr(std::min<std::size_t>(size, rest.size()))};
}

// Throws if the description of a rank differs from that of rank 0.
void compare(std::string_view label, const std::vector<std::string> &all) {
    for (int rank = 1; rank < static_cast<int>(all.size()); ++rank) {
        if (all[rank] == all[0]) continue;
        // Find the first part that differs. The texts come from the network: trust no count.
        std::size_t at = 0;
        std::string key = "arguments", here = "?", there = "?";
        while (at < all[0].size()) {
            const auto part = [&](const std::string &from) {
                return at < from.size() ? std::string(from.c_str() + at) : std::string();
            };
            const std::string name = part(all[0]);
            at += name.size() + 1;
            const std::string first = part(all[0]), second = part(all[rank]);
            if (first != second) {
                key = name, here = first, there = second;
                break;
            }
            at += first.size() + 1;
        }
        throw_difference(label, rank, key, here, there);
    }
}

// Collective: compares the descriptions of all ranks. Returns their offers of channels, by rank.
// Calls that take no channel offer nothing; they send the same frame, because another rank's call
// of the same label may take one.
std::vector<std::string> compare_frames(Communicator &comm, std::string_view label,
                                        Deadline deadline, const Description &mine,
                                        const std::string &offer) {
    std::vector<std::string> texts, offers;
    for (const std::string &frame : comm.gather(label, frame_of(text_of(mine), offer), deadline)) {
        auto [text, offered] = text_and_offer(frame);
        texts.push_back(std::move(text));
        offers.push_back(std::move(offered));
    }
    compare(label, texts);
    return offers;
}

}  // namespace

std::vector<std::string> agree(Communicator &comm, std::string_view label, Deadline deadline,
                               const std::function<std::string()> &work) {
    std::string answer;
    try {
        answer = pack(VESCOMM_OK, work());
    } catch (const Error &error) {
        answer = pack(error.status, error.what());
    } catch (const std::bad_alloc &) {
        // Short enough to need no memory of the heap.
        answer = pack(VESCOMM_ERROR_OUT_OF_MEMORY, "no memory");
    } catch (const std::exception &error) {
        answer = pack(VESCOMM_ERROR_INTERNAL, error.what());
    }
    std::vector<std::string> results = comm.gather(label, answer, deadline);
    std::optional<int> failed;
    for (int rank = 0; rank < comm.ranks(); ++rank) {
        const vescomm_status_t status = unpack(results[rank]).first;
        if (status == VESCOMM_OK) continue;
        // The errors of the others may be consequences of this one.
        if (!failed || (is_consequence(unpack(results[*failed]).first) && !is_consequence(status)))
            failed = rank;
    }
    if (failed) {
        const auto [status, text] = unpack(results[*failed]);
        throw Error(status, std::string(label) + " failed on rank " + std::to_string(*failed) +
                                ": " + text);
    }
    for (std::string &result : results) result = unpack(result).second;
    return results;
}

void require_same(std::string_view label, std::string_view key,
                  const std::vector<std::string> &values) {
    for (std::size_t rank = 1; rank < values.size(); ++rank)
        if (values[rank] != values[0])
            throw_difference(label, static_cast<int>(rank), std::string(key), values[0],
                             values[rank]);
}

void require_same(Communicator &comm, std::string_view label, Deadline deadline,
                  const Description &mine) {
    compare_frames(comm, label, deadline, mine, {});
}

Channel require_same_and_take_channel(Communicator &comm, std::string_view label, Deadline deadline,
                                      const Description &mine) {
    std::vector<std::string> offers =
        compare_frames(comm, label, deadline, mine, comm.numbers().channels().offer());
    for (;;) {
        if (const auto channel = comm.numbers().channels().take(offers)) return *channel;
        // Every channel has been used, and none of those offered so far is free on all ranks.
        offers = comm.gather(label, comm.numbers().channels().offer(), deadline);
    }
}

}  // namespace vescomm::internal

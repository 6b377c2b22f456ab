// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// All-gathers of the control plane (bootstrap/gathering.h): the state at rank 0, and the reader of
// the other ranks.
//
//     byte 0    0: heads from the network; 1: results from the network; otherwise: a script of
//               contributions, from which rank 0 makes a result that another rank reads
//
// Invariants: a decoded head encodes to the same bytes; an all-gather without a failure returns
// exactly the contributions; a result decodes to what was encoded, in pieces of any size.
#include "bootstrap/gathering.h"

#include "bootstrap/handshake.h"
#include "fuzz/fuzz.h"

namespace {

using namespace vescomm::internal;
using fuzz::require;

constexpr int ranks = 3;

void heads(std::string_view bytes) {
    WireReader reader(bytes), failure(bytes);
    if (const auto head = read_contribution_head(reader))
        require(encode(*head) == bytes || bytes.size() > 60000, "a head encodes to the same bytes");
    require(read_failure(failure).status < VESCOMM_OK, "a failure is an error");
    (void)quote(bytes);
}

void results(std::string_view bytes, std::size_t step) {
    GatherReader reader(ranks);
    std::size_t accepted = 0;
    bool good = true;
    fuzz::feed(bytes, step, [&](std::string_view &piece) {
        good = reader.add(piece);
        if (good) accepted += piece.size();
        piece = {};
        return good;
    });
    if (!good || !reader.complete()) return;
    const std::vector<std::string> parts = reader.take();
    require(parts.size() == ranks, "a result has a part for each rank");
    std::string again = encode_sizes(parts);
    for (const std::string &part : parts) again += part;
    require(again == bytes.substr(0, accepted), "a result encodes to the same bytes");
}

void script(fuzz::Input input, std::size_t step) {
    Gathering gathering(ranks);
    std::string parts[ranks];
    bool begun[ranks] = {};
    // Each contribution is begun once and added in pieces; a rank may break the protocol.
    while (!input.empty() && !gathering.complete()) {
        const int rank = static_cast<int>(input.below(ranks));
        if (!begun[rank]) {
            ContributionHead head;
            head.sequence = 1 + input.below(64) / 63;
            head.bytes = input.byte();
            if (head.bytes == 255) head.bytes = max_gather_bytes - input.byte();
            head.label = std::string(input.take(input.below(4)));
            if (gathering.begin(rank, head)) return;
            require(head.sequence == gathering.sequence(), "calls are gathered in order");
            begun[rank] = true;
        } else {
            const std::string_view bytes = input.text();
            if (gathering.add(rank, bytes)) return;
            parts[rank] += bytes;
        }
    }
    if (!gathering.complete()) {
        require(!gathering.missing().empty(), "an incomplete gathering has a missing rank");
        require(!list_ranks(gathering.missing()).empty(), "missing ranks can be named");
        return;
    }
    require(gathering.missing().empty() && gathering.begun(), "no rank is missing");
    const std::vector<std::string> taken = gathering.take();
    for (int rank = 0; rank < ranks; ++rank)
        require(taken[rank] == parts[rank], "a contribution is gathered as it was given");
    require(!gathering.complete() && !gathering.begun(), "the next gathering begins empty");

    std::string result = encode_sizes(taken);
    for (const std::string &part : taken) result += part;
    GatherReader reader(ranks);
    fuzz::feed(result, step, [&](std::string_view &piece) {
        require(reader.add(piece), "a valid result is accepted");
        piece = {};
        return true;
    });
    require(reader.complete() && reader.take() == taken, "a result decodes to what was encoded");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    fuzz::Input input(fuzz::view(data, size));
    const std::uint8_t what = input.byte();
    const std::size_t step = 1 + input.byte();
    if (what == 0) heads(input.rest());
    else if (what == 1) results(input.rest(), step);
    else script(input, step);
    return 0;
}

std::vector<fuzz::Seed> vescomm::internal::fuzz::seeds() {
    const std::vector<std::string> parts = {"abc", "", "rank 2"};
    std::string result = encode_sizes(parts);
    for (const std::string &part : parts) result += part;
    std::string too_large = result;
    too_large[4] = 1;
    const std::string head = encode(ContributionHead{7, 1000, "memory \"w\""});
    return {
        {"head", std::string(2, '\0') + head},
        {"failure",
         std::string(2, '\0') +
             failure_payload(whole_session, VESCOMM_ERROR_TIMEOUT, "rank 1 is gone").substr(16)},
        {"result", "\1\xff" + result},
        {"result-bytewise", std::string("\1\0", 2) + result},
        {"result-too-large", "\1\xff" + too_large},
        {"result-too-long", "\1\xff" + result + "more"},
        // Rank 0 contributes "abc", rank 1 nothing, rank 2 "x" in a second piece.
        {"script", std::string("\2\0\0\0\3\1l\0\3abc\1\0\0\1l\2\0\1\1l\2\1x", 25)},
        {"script-other-label", std::string("\2\0\0\0\3\1l\1\0\1\1m", 12)},
        {"script-too-much", std::string("\2\0\0\0\xff\0\0\1\0\xff\0\0", 12)},
    };
}

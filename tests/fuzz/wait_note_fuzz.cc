// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Notes about waits (comm/wait_note.h), and the search that reads them.
//
//     byte 0    ranks; byte 1: the rank that searches
//     the rest  notes: a byte for the sender, a byte for the size, the bytes
//
// Invariants: a decoded note encodes to the same bytes and names ranks that exist; a search asks
// every rank at most once, and neither asks nor names itself.
#include "comm/missing_ranks.h"
#include "comm/wait_note.h"

#include <set>

#include "fuzz/fuzz.h"

using namespace vescomm::internal;
using fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    fuzz::Input input(fuzz::view(data, size));
    const int ranks = 1 + input.byte();
    const int self = input.byte() % ranks;
    MissingRanks search(self, {(self + 1) % ranks});
    std::set<int> asked;
    const auto ask = [&] {
        for (const int rank : search.take_questions()) {
            require(rank != self && rank >= 0 && rank < ranks, "an asked rank exists");
            require(asked.insert(rank).second, "a rank is asked once");
        }
        require(asked.size() <= MissingRanks::max_questions, "a search has a limit");
    };
    ask();
    while (!input.empty()) {
        const int from = input.byte() % ranks;
        const std::string bytes(input.text());
        const auto note = decode_wait_note(bytes, ranks);
        if (!note) continue;
        require(encode(*note) == bytes, "a note encodes to the same bytes");
        for (const int rank : note->awaited)
            require(rank >= 0 && rank < ranks, "an awaited rank exists");
        if (note->kind == WaitNote::Kind::waits) search.add_waiting(from, note->awaited);
        else search.add_absent(from);
        ask();
    }
    for (const int rank : search.missing())
        require(rank != self && rank >= 0 && rank < ranks, "a missing rank exists");
    return 0;
}

std::vector<fuzz::Seed> vescomm::internal::fuzz::seeds() {
    const auto from = [](char rank, const WaitNote &note) {
        const std::string bytes = encode(note);
        return std::string{rank, static_cast<char>(bytes.size())} + bytes;
    };
    const RunId run{3, 7};
    const std::string five_ranks{4, 0};
    const std::string waits = from(1, {WaitNote::Kind::waits, run, {2, 3}});
    const std::string absent = from(2, {WaitNote::Kind::absent, run});
    return {
        {"chain", five_ranks + waits + absent + from(3, {WaitNote::Kind::waits, run, {2}})},
        {"cycle", five_ranks + from(1, {WaitNote::Kind::waits, run, {0}})},
        {"question", five_ranks + from(1, {WaitNote::Kind::question, run})},
        {"no-such-rank", five_ranks + from(1, {WaitNote::Kind::waits, run, {5}})},
        {"cut-short", five_ranks + waits.substr(0, waits.size() - 2)},
        {"nothing", ""},
    };
}

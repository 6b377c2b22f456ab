// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/wait_note.h"

#include <algorithm>
#include <functional>

#include "bootstrap/wire.h"

namespace vescomm::internal {

namespace {

void put_run(std::string &bytes, const RunId &run) {
    put_number(bytes, run.channel);
    put_number(bytes, run.number);
}

RunId take_run(WireReader &reader) {
    RunId run;
    run.channel = reader.number<std::uint32_t>();
    run.number = reader.number<std::uint32_t>();
    return run;
}

void put_awaited(std::string &bytes, const std::vector<int> &awaited) {
    const std::size_t count = std::min(awaited.size(), max_noted_ranks);
    put_number(bytes, static_cast<std::uint32_t>(count));
    for (std::size_t i = 0; i < count; ++i)
        put_number(bytes, static_cast<std::uint32_t>(awaited[i]));
}

bool take_awaited(WireReader &reader, int ranks, std::vector<int> &awaited) {
    const auto count = reader.number<std::uint32_t>();
    if (!reader.good() || count > max_noted_ranks) return false;
    for (std::uint32_t i = 0; i < count; ++i) {
        const auto rank = reader.number<std::uint32_t>();
        if (rank >= static_cast<std::uint32_t>(ranks)) return false;
        awaited.push_back(static_cast<int>(rank));
    }
    return reader.good();
}

bool printable(char each) {
    return each >= ' ' && each <= '~';
}

}  // namespace

std::string encode(const WaitNote &note) {
    std::string bytes;
    put_number(bytes, static_cast<std::uint8_t>(note.kind));
    put_run(bytes, note.run);
    if (note.kind == WaitNote::Kind::waits) put_awaited(bytes, note.awaited);
    if (note.kind == WaitNote::Kind::elsewhere) {
        put_run(bytes, note.other);
        put_awaited(bytes, note.awaited);
        std::string text = note.call.substr(0, max_noted_text);
        std::ranges::replace_if(text, std::not_fn(printable), '?');
        bytes += text;
    }
    return bytes;
}

std::optional<WaitNote> decode_wait_note(std::string_view bytes, int ranks) {
    WireReader reader(bytes);
    WaitNote note;
    note.kind = static_cast<WaitNote::Kind>(reader.number<std::uint8_t>());
    note.run = take_run(reader);
    bool good = false;
    switch (note.kind) {
        case WaitNote::Kind::question:
        case WaitNote::Kind::absent:
            good = reader.finished();
            break;
        case WaitNote::Kind::waits:
            good = take_awaited(reader, ranks, note.awaited) && reader.finished();
            break;
        case WaitNote::Kind::elsewhere:
            note.other = take_run(reader);
            if (!take_awaited(reader, ranks, note.awaited)) break;
            note.call = reader.rest();
            good = note.call.size() <= max_noted_text && std::ranges::all_of(note.call, printable);
            break;
    }
    if (!good) return std::nullopt;
    return note;
}

}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "execute/run_context.h"

namespace vescomm::internal {

// The all-gathers over the control plane count as the runs of a channel that no operation has.
constexpr std::uint32_t control_channel = 0xffffffff;
// The collective calls on device memory count as the runs of another one.
constexpr std::uint32_t device_channel = 0xfffffffe;

// A note between two ranks about a run: the question whether the receiver waits in it, and for
// which ranks, or the answer.
struct WaitNote {
    enum class Kind : std::uint8_t {
        question = 1,
        absent,  // the sender has not started the run, or has completed it
        waits,  // the sender waits for the `awaited` ranks
        elsewhere,  // the sender has not started the run, and waits in run `other` for `awaited`
    };

    Kind kind = Kind::question;
    RunId run;
    std::vector<int> awaited = {};
    RunId other = {};
    std::string call = {};  // of run `other`, for error texts; encoded as printable ASCII
    bool operator==(const WaitNote &) const = default;
};

// More awaited ranks, and more bytes of the text of a call, are left out of a note.
constexpr std::size_t max_noted_ranks = 256;
constexpr std::size_t max_noted_text = 200;

std::string encode(const WaitNote &note);
// Returns nothing unless the bytes are a note with ranks below `ranks` and printable text.
std::optional<WaitNote> decode_wait_note(std::string_view bytes, int ranks);

}  // namespace vescomm::internal

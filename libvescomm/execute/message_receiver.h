// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "execute/bindings.h"
#include "execute/match/message_match.h"
#include "execute/match/mismatch.h"
#include "execute/program.h"
#include "execute/run_context.h"

namespace vescomm::internal {

// The part of an operation that receives a point-to-point message: finds the message of a run, and
// binds the steps to its source and eager buffer.
//
// Threads: see Operation.
class MessageReceiver {
public:
    // `context`, `program`: of the operation.
    MessageReceiver(const Bindings &bindings, RunContext &context, Program &program);

    void set_tag(std::int32_t tag) noexcept { receive_.expected_tag = tag; }
    std::int32_t tag() const noexcept { return receive_.expected_tag; }

    // Begins a run: posts the receive.
    void start() noexcept { bindings_.message.arrivals->post(receive_); }
    // True if the message has been found. The context is then that of its run, and the steps take
    // it from its source.
    bool find() noexcept;
    // The chunks of the message that this rank has taken out of the eager buffer before the receive
    // found it: moves them to the output. The steps move the others.
    struct Moved {
        std::size_t chunks = 0;
        std::uint64_t bytes = 0;
    };
    Moved take_copy() noexcept;

    // The message of the last run, once it is found.
    const MessageHeader &message() const noexcept { return receive_.header; }
    // True: it has the signature of the receive, so its count and type.
    bool expected() const noexcept { return message().signature == bindings_.match.signature; }
    bool has_copy() const noexcept { return receive_.copy != nullptr; }
    std::optional<Mismatch> find_mismatch() const noexcept;
    // The rank that the run waits for before it has found its message, or VESCOMM_ANY_SOURCE.
    int awaited() const noexcept { return receive_.found ? message().source : receive_.source; }
    // See MessageMatch.
    std::string obstacle() const { return bindings_.message.arrivals->obstacle(receive_); }

private:
    void bind_to(int source) noexcept;

    const Bindings &bindings_;
    RunContext &context_;
    Program &program_;
    PostedReceive receive_;
    int bound_to_ = 0;  // the source from which the steps take the message
};

}  // namespace vescomm::internal

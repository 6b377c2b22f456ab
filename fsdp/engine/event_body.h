// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Engine::event(), for the files that define events.
#pragma once

#include <new>
#include <utility>

#include "fsdp/engine/engine.h"

namespace vescomm::fsdp {

template <typename Function>
struct AtExit {
    Function function;
    ~AtExit() { function(); }
};
template <typename Function>
AtExit(Function) -> AtExit<Function>;  // clang before 17 does not derive it for an aggregate

template <typename Body>
void Engine::event(Event event, std::uint64_t unit, bool noted, std::uint64_t detail, Body &&body) {
    const EventReading begin = read_for_event();
    const AtExit timed{[&] { add_time(event, unit, begin); }};
    const PhaseTimes::Scope phase(measures_.times.phases(), phase_of(event));
    require_wiring();
    if (streams_) streams_->check_device();
    guarded(event, unit, [&] {
        if (noted) log_.note(event, unit, detail);
        std::forward<Body>(body)();
    });
}

template <typename Body>
void Engine::guarded(Event event, std::uint64_t unit, Body &&body) {
    try {
        std::forward<Body>(body)();
    } catch (const Failure &error) {
        fail(event, unit, error.status, error.what());
    } catch (const Error &error) {
        fail(event, unit, error.status(), error.what());
    } catch (const std::bad_alloc &) {
        fail(event, unit, VESCOMM_ERROR_OUT_OF_MEMORY, "an allocation failed");
    } catch (const std::exception &error) {
        fail(event, unit, VESCOMM_ERROR_INTERNAL, error.what());
    }
}

}  // namespace vescomm::fsdp

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "vescomm/optimizer.h"

namespace vescomm::fsdp {

// Returns the caller's settings, which may come from an older header: members after its struct_size
// have the values of `defaults`.
template <typename Settings>
Settings read_settings(const void *settings, Settings defaults) noexcept {
    std::uint32_t size = 0;
    std::memcpy(&size, settings, sizeof size);
    std::memcpy(&defaults, settings, std::min<std::size_t>(size, sizeof defaults));
    return defaults;
}

// Returns a sentence about a member, which stays until the next one of this thread.
inline const char *wrong_member(const char *kind, const char *member, double value,
                                const char *rule) noexcept {
    static thread_local char sentence[160];
    std::snprintf(sentence, sizeof sentence, "%s: %s is %.9g; it must be %s", kind, member, value,
                  rule);
    return sentence;
}

// Members from 0 on, which NaN is not.
inline const char *wrong_if_negative(const char *kind, const char *member, double value) noexcept {
    if (value >= 0 && std::isfinite(value)) return nullptr;
    return wrong_member(kind, member, value, "a finite number of at least 0");
}

// A kind of this library, whose `step` may run in several threads. `defaults` outlive it.
template <typename Settings>
vescomm_optimizer_kind_t make_kind(const char *name, const Settings &defaults,
                                   decltype(vescomm_optimizer_kind_t::needs) needs,
                                   decltype(vescomm_optimizer_kind_t::step) step) noexcept {
    vescomm_optimizer_kind_t kind = vescomm_optimizer_kind_init();
    kind.settings_bytes = sizeof defaults;
    kind.name = name;
    kind.needs = needs;
    kind.step = step;
    kind.default_settings = &defaults;
    kind.concurrent = 1;
    return kind;
}

}  // namespace vescomm::fsdp

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vescomm::internal {

// Stores the sentence that vescomm_get_last_error() returns to the calling thread: `sentence`
// followed by `more`. Does not allocate. A sentence of more than max_error_bytes is cut and ends
// with "...".
void set_last_error(const char *sentence, const char *more = "") noexcept;

constexpr int max_error_bytes = 1023;

}  // namespace vescomm::internal

// set_last_error() for libraries that are built on this one, such as the FSDP engine. Exported, but
// not part of the public API.
extern "C" __attribute__((visibility("default"))) void vescomm_set_last_error(
    const char *sentence) noexcept;

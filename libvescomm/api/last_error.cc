// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "api/last_error.h"

#include <cstddef>
#include <cstdio>
#include <cstring>

#include "vescomm/vescomm.h"

#define VESCOMM_TEXT_OF(number) #number
#define VESCOMM_VERSION_TEXT(major, minor, patch) \
    VESCOMM_TEXT_OF(major) "." VESCOMM_TEXT_OF(minor) "." VESCOMM_TEXT_OF(patch)

namespace vescomm::internal {
namespace {

// A plain array instead of a std::string: registering a destructor for a thread allocates memory,
// and glibc ends the process if that fails.
thread_local char text[max_error_bytes + 1];

}  // namespace

void set_last_error(const char *sentence, const char *more) noexcept {
    if (std::snprintf(text, sizeof text, "%s%s", sentence, more) <= max_error_bytes) return;
    static constexpr char dots[] = "...";
    std::size_t end = sizeof text - sizeof dots;
    // Do not cut inside a UTF-8 character.
    while (end > 0 && (text[end] & 0xc0) == 0x80) --end;
    std::memcpy(text + end, dots, sizeof dots);
}

}  // namespace vescomm::internal

void vescomm_set_last_error(const char *sentence) noexcept {
    vescomm::internal::set_last_error(sentence);
}

const char *vescomm_get_last_error(void) {
    return vescomm::internal::text;
}

const char *vescomm_status_get_name(vescomm_status_t status) {
    switch (status) {
        case VESCOMM_OK:
            return "ok";
        case VESCOMM_IN_PROGRESS:
            return "in progress";
        case VESCOMM_ERROR_INVALID_ARGUMENT:
            return "invalid argument";
        case VESCOMM_ERROR_OUT_OF_MEMORY:
            return "out of memory";
        case VESCOMM_ERROR_TIMEOUT:
            return "timeout";
        case VESCOMM_ERROR_PEER_FAILED:
            return "peer failed";
        case VESCOMM_ERROR_MISMATCH:
            return "mismatch";
        case VESCOMM_ERROR_UNSUPPORTED:
            return "unsupported";
        case VESCOMM_ERROR_SYSTEM:
            return "system";
        case VESCOMM_ERROR_ABORTED:
            return "aborted";
        case VESCOMM_ERROR_INTERNAL:
            return "internal";
        default:
            return "unknown status";
    }
}

const char *vescomm_get_version(void) {
    return VESCOMM_VERSION_TEXT(VESCOMM_VERSION_MAJOR, VESCOMM_VERSION_MINOR,
                                VESCOMM_VERSION_PATCH);
}

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "api/last_error.h"

#include "vescomm/vescomm.h"

#define VESCOMM_TEXT_OF(number) #number
#define VESCOMM_VERSION_TEXT(major, minor, patch) \
    VESCOMM_TEXT_OF(major) "." VESCOMM_TEXT_OF(minor) "." VESCOMM_TEXT_OF(patch)

namespace vescomm {
namespace {

// `current` points to a constant or into `text`. A pointer beside the string lets an error be
// reported when the string cannot grow.
thread_local std::string text;
thread_local const char *current = "";

}  // namespace

void set_last_error(const std::string &sentence) noexcept {
    try {
        text = sentence;
        current = text.c_str();
    } catch (...) {
        set_last_error_constant("out of memory, even for the sentence that explains an error");
    }
}

void set_last_error_constant(const char *sentence) noexcept {
    current = sentence;
}

}  // namespace vescomm

const char *vescomm_last_error(void) {
    return vescomm::current;
}

const char *vescomm_status_name(vescomm_status_t status) {
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

const char *vescomm_version(void) {
    return VESCOMM_VERSION_TEXT(VESCOMM_VERSION_MAJOR, VESCOMM_VERSION_MINOR,
                                VESCOMM_VERSION_PATCH);
}

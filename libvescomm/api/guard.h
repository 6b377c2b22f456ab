// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The C boundary: functions that turn exceptions into a status, and that read and write the
// caller's structs. An exported function checks its arguments, calls the library, and translates
// errors:
//
//     vescomm_status_t vescomm_layout_find_tensor(const vescomm_layout_t *layout, const char *name,
//                                                 size_t *index) {
//         return guarded([&] {
//             require(layout, "vescomm_layout_find_tensor", "layout");
//             ...
//             *index = found;  // outputs last: they are set only on success
//         });
//     }
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "api/handle.h"
#include "api/last_error.h"
#include "base/error.h"
#include "vescomm/vescomm.h"

namespace vescomm::internal {

// The only place where an exception becomes a status. Nothing may throw past the C boundary, and
// nothing here allocates.
template <typename Body>
vescomm_status_t guarded(Body &&body) noexcept {
    try {
        std::forward<Body>(body)();
        return VESCOMM_OK;
    } catch (const Error &error) {
        set_last_error(error.what());
        return error.status;
    } catch (const std::bad_alloc &) {
        set_last_error("out of memory: an allocation failed; nothing happened");
        return VESCOMM_ERROR_OUT_OF_MEMORY;
    } catch (const std::exception &error) {
        set_last_error("internal error, please report: ", error.what());
        return VESCOMM_ERROR_INTERNAL;
    } catch (...) {
        set_last_error("internal error of unknown type; please report");
        return VESCOMM_ERROR_INTERNAL;
    }
}

// Not in line: calls of less than a microsecond check their arguments.
[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_argument(const char *function,
                                                                   const char *parameter,
                                                                   const char *why) {
    throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, std::string(function) + ": " + parameter + why);
}

// Throws if a pointer argument is null.
inline void require(const void *argument, const char *function, const char *parameter) {
    if (argument == nullptr) [[unlikely]]
        refuse_argument(function, parameter, " is NULL; it must be given");
}

// Throws if a handle is null, or was made before this process was forked.
inline void require(const Handle *argument, const char *function, const char *parameter) {
    require(static_cast<const void *>(argument), function, parameter);
    if (argument->inherited()) [[unlikely]]
        refuse_argument(function, parameter,
                        " was made before this process was forked, and belongs to its parent "
                        "alone; use it there, and make communicators here after exec()");
}

// Throws if a stream is given for host memory.
inline void require_no_stream(const void *stream, const char *function) {
    if (stream != nullptr) [[unlikely]]
        refuse_argument(function, "a stream",
                        " was given for host memory, which has none; pass NULL");
}

// Append-only structs. A caller built against an older header has a shorter struct than this
// library, and a caller built against a newer header a longer one. `struct_size` is the size of the
// caller's struct.

// Far above the size of any struct: a larger struct_size was not initialised.
constexpr std::size_t max_struct_bytes = 4096;

// The size of the caller's struct, checked.
template <typename Struct>
std::size_t checked_struct_size(const Struct *theirs, const char *function, const char *parameter) {
    static_assert(std::is_trivially_copyable_v<Struct> && std::is_standard_layout_v<Struct>);
    static_assert(offsetof(Struct, struct_size) == 0);
    require(theirs, function, parameter);
    std::uint32_t size = 0;
    // The caller's struct may be shorter than ours, so members are not read through its type.
    std::memcpy(&size, theirs, sizeof(size));
    if (size < sizeof(size) || size > max_struct_bytes) {
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    std::string(function) + ": struct_size of " + parameter + " is " +
                        std::to_string(size) +
                        "; initialise the struct with the function of its name and _init(), which "
                        "sets it");
    }
    return size;
}

// Reads a caller's struct. Members that the caller does not have are zero. Members that this
// library does not have must be zero, else it throws (the convention of Linux's openat2).
template <typename Struct>
Struct read_struct(const Struct *theirs, const char *function, const char *parameter) {
    const std::size_t size = checked_struct_size(theirs, function, parameter);
    const auto *bytes = reinterpret_cast<const unsigned char *>(theirs);
    for (std::size_t i = sizeof(Struct); i < size; ++i) {
        if (bytes[i] == 0) continue;
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    std::string(function) + ": " + parameter + " is a struct of " +
                        std::to_string(size) + " bytes that uses byte " + std::to_string(i) +
                        ", and this library, version " + vescomm_get_version() + ", knows " +
                        std::to_string(sizeof(Struct)) +
                        " bytes of it; leave newer members zero, or load a newer library");
    }
    Struct ours{};
    std::memcpy(&ours, theirs, std::min(size, sizeof(Struct)));
    return ours;
}

// Reads a caller's options. NULL means that every member has its default.
template <typename Struct>
Struct read_options(const Struct *theirs, const char *function, const char *parameter) {
    if (theirs == nullptr) return Struct{};
    return read_struct(theirs, function, parameter);
}

// Fills an [in,out] struct: writes the members that the caller has, and zero into those that this
// library does not have. The caller's struct_size stays. Throws before anything is written.
template <typename Struct>
void write_struct(Struct *theirs, const Struct &ours, const char *function, const char *parameter) {
    const std::size_t size = checked_struct_size(theirs, function, parameter);
    auto *bytes = reinterpret_cast<unsigned char *>(theirs);
    constexpr std::size_t header = sizeof(std::uint32_t);
    const std::size_t known = std::min(size, sizeof(Struct));
    std::memcpy(bytes + header, reinterpret_cast<const unsigned char *>(&ours) + header,
                known - header);
    std::memset(bytes + known, 0, size - known);
}

}  // namespace vescomm::internal

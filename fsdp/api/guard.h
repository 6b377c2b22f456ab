// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The C boundary of the engine: turns exceptions into a status, and reads and writes the caller's
// append-only structs, by the rules of libvescomm/api/guard.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "api/handle.h"
#include "api/last_error.h"
#include "fsdp/error.h"
#include "vescomm/vescomm.hpp"

namespace vescomm::fsdp {

// The only place where an exception becomes a status.
template <typename Body>
vescomm_status_t guarded(const char *function, Body &&body) noexcept {
    try {
        const auto say = [&](const char *what) {
            vescomm_set_last_error(fmt::format("{}: {}", function, what).c_str());
        };
        try {
            std::forward<Body>(body)();
            return VESCOMM_OK;
        } catch (const Failure &error) {
            say(error.what());
            return error.status;
        } catch (const Error &error) {
            say(error.what());
            return error.status();
        } catch (const std::bad_alloc &) {
            throw;
        } catch (const std::exception &error) {
            say(("internal error, please report: " + std::string(error.what())).c_str());
            return VESCOMM_ERROR_INTERNAL;
        }
    } catch (...) {
        vescomm_set_last_error("out of memory: an allocation failed");
        return VESCOMM_ERROR_OUT_OF_MEMORY;
    }
}

inline void require(const void *argument, const char *parameter) {
    if (argument == nullptr) refuse("{} is NULL; it must be given", parameter);
}

// Refuses an engine or a job in a child of fork(), which has neither its threads nor its
// communicators.
inline void require(const vescomm::internal::Handle *argument, const char *parameter) {
    require(static_cast<const void *>(argument), parameter);
    if (argument->inherited()) [[unlikely]]
        refuse(
            "{} was made before this process was forked, and belongs to its parent alone; use it "
            "there, and make engines here after exec()",
            parameter);
}

// NULL has no effect. `check`: throws Failure if the object may not be freed now.
template <typename Object>
vescomm_status_t free_handle(const char *function, const char *parameter, Object *object,
                             void (*check)(const Object &) = nullptr) {
    return guarded(function, [&] {
        if (object == nullptr) return;
        require(object, parameter);
        if (check != nullptr) check(*object);
        delete object;
    });
}

// Far above the size of any struct: a larger struct_size was not initialised.
constexpr std::size_t max_struct_bytes = 4096;

template <typename Struct>
std::size_t struct_size(const Struct *theirs, const char *parameter) {
    static_assert(std::is_trivially_copyable_v<Struct> && offsetof(Struct, struct_size) == 0);
    require(theirs, parameter);
    std::uint32_t size = 0;
    std::memcpy(&size, theirs, sizeof size);
    if (size < sizeof size || size > max_struct_bytes)
        refuse(
            "struct_size of {} is {}; initialise the struct with the function of its name and "
            "_init(), which sets it",
            parameter, size);
    return size;
}

// Members that the caller does not have are those of `defaults`; members that this library does not
// have must be zero.
template <typename Struct>
Struct read_struct(const Struct *theirs, const char *parameter, Struct defaults) {
    const std::size_t size = struct_size(theirs, parameter);
    const auto *bytes = reinterpret_cast<const unsigned char *>(theirs);
    for (std::size_t i = sizeof(Struct); i < size; ++i)
        if (bytes[i] != 0)
            refuse(
                "{} is a struct of {} bytes that uses byte {}, and this library knows {} bytes "
                "of it; leave newer members zero, or load a newer library",
                parameter, size, i, sizeof(Struct));
    std::memcpy(&defaults, theirs, std::min(size, sizeof(Struct)));
    return defaults;
}

// Fills an [in,out] struct. The caller's struct_size stays. Throws before anything is written.
template <typename Struct>
void write_struct(Struct *theirs, const Struct &ours, const char *parameter) {
    const std::size_t size = struct_size(theirs, parameter);
    constexpr std::size_t header = sizeof(std::uint32_t);
    const std::size_t known = std::min(size, sizeof(Struct));
    auto *bytes = reinterpret_cast<unsigned char *>(theirs);
    std::memcpy(bytes + header, reinterpret_cast<const unsigned char *>(&ours) + header,
                known - header);
    std::memset(bytes + known, 0, size - known);
}

}  // namespace vescomm::fsdp

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Helpers of the planner's exported C functions: check arguments, call, translate exceptions. The
// planner is a separate library that uses only the public API of libvescomm, so it stores its own
// explanation of the last call.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "vescomm/planner.h"
#include "vescomm/planner.hpp"

namespace vescomm::planner {

// Sets the sentence that vescomm_plan_explain() returns in this thread.
void explain(const char *sentence, const char *more = "") noexcept;

template <typename... Values>
[[noreturn]] void refuse_call(const char *function, fmt::format_string<Values...> format,
                              Values &&...values) {
    throw std::invalid_argument(
        fmt::format("{}: {}", function, fmt::format(format, std::forward<Values>(values)...)));
}

// Runs an exported function. The only place where exceptions become statuses and sentences.
template <typename Body>
vescomm_status_t guarded(Body &&body) noexcept {
    try {
        std::forward<Body>(body)();
        return VESCOMM_OK;
    } catch (const LayoutError &error) {
        explain(error.what());
        return error.status;
    } catch (const std::invalid_argument &error) {
        explain(error.what());
        return VESCOMM_ERROR_INVALID_ARGUMENT;
    } catch (const std::bad_alloc &) {
        explain("out of memory: an allocation failed; nothing happened");
        return VESCOMM_ERROR_OUT_OF_MEMORY;
    } catch (const std::exception &error) {
        explain("internal error, please report: ", error.what());
        return VESCOMM_ERROR_INTERNAL;
    } catch (...) {
        explain("internal error of unknown type; please report");
        return VESCOMM_ERROR_INTERNAL;
    }
}

// Upper limit of struct_size. A larger value means that the member was not initialised.
constexpr std::size_t largest_struct_bytes = 4096;

// Reads struct_size of an append-only struct. Throws when it is out of range.
template <typename Struct>
std::size_t struct_size(const char *function, const Struct *theirs, const std::string &what) {
    static_assert(std::is_trivially_copyable_v<Struct> && offsetof(Struct, struct_size) == 0);
    std::uint32_t size = 0;
    std::memcpy(&size, theirs, sizeof(size));
    if (size < sizeof(size) || size > largest_struct_bytes) {
        refuse_call(function,
                    "struct_size of {} is {}; initialise the struct with the function "
                    "of its name and _init(), which sets it",
                    what, size);
    }
    return size;
}

// Copies an append-only struct of the caller. Members that the caller's header lacks become zero;
// members that this library lacks must be zero.
template <typename Struct>
Struct read_struct(const char *function, const Struct *theirs, const std::string &what) {
    const std::size_t size = struct_size(function, theirs, what);
    const auto *bytes = reinterpret_cast<const unsigned char *>(theirs);
    for (std::size_t i = sizeof(Struct); i < size; ++i) {
        if (bytes[i] == 0) continue;
        refuse_call(function,
                    "{} is a struct of {} bytes that uses byte {}, and this library knows {} bytes "
                    "of it; leave newer members zero, or load a newer library",
                    what, size, i, sizeof(Struct));
    }
    Struct ours{};
    std::memcpy(&ours, theirs, std::min(size, sizeof(Struct)));
    return ours;
}

// Copies `ours` into the caller's struct of `size` bytes, except struct_size. Members that this
// library lacks become zero.
template <typename Struct>
void write_struct(Struct *theirs, const Struct &ours, std::size_t size) {
    constexpr std::size_t header = sizeof(std::uint32_t);
    const std::size_t known = std::min(size, sizeof(ours));
    auto *bytes = reinterpret_cast<unsigned char *>(theirs);
    std::memcpy(bytes + header, reinterpret_cast<const unsigned char *>(&ours) + header,
                known - header);
    std::memset(bytes + known, 0, size - known);
}

// Calls read(struct, its name for messages) for each element of an array of the caller's structs.
template <typename Struct, typename Read>
void read_structs(const char *function, const Struct *theirs, std::size_t count, const char *what,
                  Read &&read) {
    if (count == 0) return;
    if (theirs == nullptr) {
        refuse_call(function, "{}s is NULL, and count is {}", what, count);
    }
    // The stride of the array is the size of the caller's struct.
    const std::size_t stride = struct_size(function, theirs, fmt::format("{} 0", what));
    const auto *bytes = reinterpret_cast<const unsigned char *>(theirs);
    for (std::size_t i = 0; i < count; ++i) {
        const auto *element = reinterpret_cast<const Struct *>(bytes + i * stride);
        const std::string name = fmt::format("{} {}", what, i);
        if (struct_size(function, element, name) != stride) {
            refuse_call(function,
                        "struct_size of {} differs from that of {} 0, {}; make all with the inline "
                        "function of their name",
                        name, what, stride);
        }
        read(read_struct(function, element, name), name);
    }
}

std::vector<Tensor> to_tensors(const char *function, const vescomm_planner_tensor_t *tensors,
                               std::size_t count);
Options to_options(const char *function, const vescomm_planner_options_t *theirs);
std::vector<std::int64_t> to_weights(const char *function, const vescomm_planner_options_t *theirs,
                                     std::int32_t ranks);
vescomm_planner_figures_t to_figures(const Answer &answer);

}  // namespace vescomm::planner

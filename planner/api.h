// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// What the exported C functions of the planner share: check, call, translate. The planner is a
// library of its own, which sees no more of libvescomm than its users do, so it keeps its own last
// sentence.
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

// What vescomm_plan_explain() says from now on in this thread. The second takes a constant.
void explain(const char *sentence, const char *more = "") noexcept;
void explain_constant(const char *sentence) noexcept;

template <typename... Values>
[[noreturn]] void refuse_call(const char *function, fmt::format_string<Values...> format,
                              Values &&...values) {
    throw std::invalid_argument(
        fmt::format("{}: {}", function, fmt::format(format, std::forward<Values>(values)...)));
}

// Runs an exported function: exceptions become statuses and sentences, here only.
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
        explain_constant("out of memory: an allocation failed; nothing happened");
        return VESCOMM_ERROR_OUT_OF_MEMORY;
    } catch (const std::exception &error) {
        explain("internal error, please report: ", error.what());
        return VESCOMM_ERROR_INTERNAL;
    } catch (...) {
        explain_constant("internal error of unknown type; please report");
        return VESCOMM_ERROR_INTERNAL;
    }
}

// Far above any struct there will be: a larger size means that nobody set it.
constexpr std::size_t largest_struct_bytes = 4096;

// Append-only structs, as in vescomm.h: members that the caller's header does not have are zero,
// and members that this library does not have must be.
template <typename Struct>
std::size_t struct_size(const char *function, const Struct *theirs, const std::string &what) {
    static_assert(std::is_trivially_copyable_v<Struct> && offsetof(Struct, struct_size) == 0);
    std::uint32_t size = 0;
    std::memcpy(&size, theirs, sizeof(size));
    if (size < sizeof(size) || size > largest_struct_bytes) {
        refuse_call(function,
                    "struct_size of {} is {}; make the struct with the inline function of its "
                    "name, which sets it",
                    what, size);
    }
    return size;
}

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

// Fills what the caller's struct has room for, but for struct_size.
template <typename Struct>
void write_struct(Struct *theirs, const Struct &ours, std::size_t size) {
    constexpr std::size_t header = sizeof(std::uint32_t);
    const std::size_t known = std::min(size, sizeof(ours));
    auto *bytes = reinterpret_cast<unsigned char *>(theirs);
    std::memcpy(bytes + header, reinterpret_cast<const unsigned char *>(&ours) + header,
                known - header);
    std::memset(bytes + known, 0, size - known);
}

// An array of structs of the caller's size: read(i-th struct, its name in sentences) for each.
template <typename Struct, typename Read>
void read_structs(const char *function, const Struct *theirs, std::size_t count, const char *what,
                  Read &&read) {
    if (count == 0) return;
    if (theirs == nullptr) {
        refuse_call(function, "{}s is NULL, and count is {}", what, count);
    }
    // The elements of the array are as far apart as the caller's struct is long.
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

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The arguments of a call in messages. An argument is a value; a text; a configuration of NCCL; an
// opaque address; or the address of a value, which the answer brings back.
#pragma once

#include <algorithm>
#include <cstring>

#include "gpu/double/gpu_double.h"
#include "gpu/double/processes/wire.h"

namespace gpu_double::processes {

template <typename T>
inline constexpr bool is_text = std::is_same_v<T, const char *>;

template <typename T>
using Target = std::remove_pointer_t<T>;

// Structures of CUDA and NCCL are opaque, but for these.
template <typename T>
inline constexpr bool comes_back =
    std::is_pointer_v<T> && !std::is_const_v<Target<T>> &&
    (std::is_scalar_v<Target<T>> || std::is_same_v<Target<T>, nccl::UniqueId>);

// A program may have the shorter one of an older NCCL.
template <typename T>
inline constexpr bool is_config = std::is_same_v<T, nccl::Config *>;

// ---- in the program ----

template <typename T>
void put_argument(Writer &call, T value) {
    if constexpr (is_text<T>) {
        call.put_bytes(value, std::strlen(value) + 1);
    } else if constexpr (is_config<T>) {
        call.put_bytes(value, value != nullptr ? std::min(value->size, sizeof *value) : 0);
    } else if constexpr (comes_back<T>) {
        call.put(value != nullptr);
        if (value != nullptr) call.put(*value);
    } else {
        call.put(value);
    }
}

template <typename T>
void take_result(Reader &answer, T value) {
    if constexpr (comes_back<T>)
        if (value != nullptr) *value = answer.get<Target<T>>();
}

// ---- in gpu_double_run ----

template <typename T>
class Argument {
public:
    explicit Argument(Reader &call) : value_(call.get<T>()) {}
    T value() { return value_; }
    void put_result(Writer &) const {}

private:
    T value_;
};

template <typename T>
requires is_text<T>
class Argument<T> {
public:
    explicit Argument(Reader &call) : text_(call.get_bytes().data()) {}
    T value() { return text_; }
    void put_result(Writer &) const {}

private:
    const char *text_;
};

template <typename T>
requires is_config<T>
class Argument<T> {
public:
    explicit Argument(Reader &call) {
        const std::span<const char> bytes = call.get_bytes();
        there_ = !bytes.empty();
        std::memcpy(static_cast<void *>(&config_), bytes.data(),
                    std::min(bytes.size(), sizeof config_));
    }
    T value() { return there_ ? &config_ : nullptr; }
    void put_result(Writer &) const {}

private:
    bool there_ = false;
    nccl::Config config_;
};

template <typename T>
requires comes_back<T>
class Argument<T> {
public:
    explicit Argument(Reader &call) : there_(call.get<bool>()) {
        if (there_) target_ = call.get<Target<T>>();
    }
    T value() { return there_ ? &target_ : nullptr; }
    void put_result(Writer &answer) const {
        if (there_) answer.put(target_);
    }

private:
    bool there_;
    Target<T> target_{};
};

}  // namespace gpu_double::processes

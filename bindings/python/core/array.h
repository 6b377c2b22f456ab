// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Arrays in memory of the library, for other packages: views of buffers, registered memory.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm.h"
#include "vescomm/vescomm.h"

namespace vescomm::python {

// A dense row-major array. Its owner, and so its memory, lives as long as the array and all arrays
// of other packages that share its memory.
class Array {
public:
    Array(void *data, std::vector<std::int64_t> shape, vescomm_type_t type,
          std::shared_ptr<void> owner);

    void *data() const noexcept { return data_; }
    const std::vector<std::int64_t> &shape() const noexcept { return shape_; }
    vescomm_type_t type() const noexcept { return type_; }
    std::int64_t elements() const noexcept { return elements_; }
    std::size_t bytes() const noexcept {
        return static_cast<std::size_t>(elements_) * vescomm_type_get_bytes(type_);
    }
    // The same memory as bytes.
    Array raw() const;
    // In bytes, for the buffer protocol.
    const std::vector<std::int64_t> &strides() const noexcept { return strides_; }

private:
    void *data_;
    std::vector<std::int64_t> shape_, strides_;
    vescomm_type_t type_;
    std::int64_t elements_ = 1;
    std::shared_ptr<void> owner_;
};

// An array in new registered memory.
Array registered_array(Comm &comm, std::vector<std::int64_t> shape, vescomm_type_t type);

// The limit of the buffer protocol and of NumPy. nanobind ends the process beyond 128.
constexpr std::size_t max_exported_dimensions = 64;
// The sentence about an array that has more.
std::string too_many_dimensions(std::size_t dimensions);
// Raises BufferError for it.
void require_exportable(std::size_t dimensions);

// True for arrays of the class Array.
bool is_own_array(nanobind::handle object) noexcept;

void define_array(nanobind::module_ &module, nanobind::class_<Comm> &comm);

}  // namespace vescomm::python

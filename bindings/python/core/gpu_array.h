// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Arrays in device memory: views of device buffers, and those of other packages.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "vescomm/vescomm.h"

namespace vescomm::python {

// The memory of an array. It lives as long as the array and all arrays of other packages that share
// the memory.
class ArrayOwner {
public:
    ArrayOwner() = default;
    ArrayOwner(const ArrayOwner &) = delete;
    ArrayOwner &operator=(const ArrayOwner &) = delete;
    virtual ~ArrayOwner() = default;

    // Later work of a stream waits for the collectives so far; see vescomm_gpu_order_stream().
    virtual vescomm_status_t order_stream(void *stream) = 0;
};

// A dense row-major array of a device buffer.
class DeviceArray {
public:
    DeviceArray(void *data, std::vector<std::int64_t> shape, vescomm_type_t type, int device,
                std::shared_ptr<ArrayOwner> owner)
        : data_(data),
          shape_(std::move(shape)),
          type_(type),
          device_(device),
          owner_(std::move(owner)) {
        for (const std::int64_t extent : shape_) elements_ *= extent;
    }

    void *data() const noexcept { return data_; }
    const std::vector<std::int64_t> &shape() const noexcept { return shape_; }
    std::int64_t elements() const noexcept { return elements_; }
    vescomm_type_t type() const noexcept { return type_; }
    int device() const noexcept { return device_; }
    ArrayOwner &owner() const noexcept { return *owner_; }

private:
    void *data_;
    std::vector<std::int64_t> shape_;
    std::int64_t elements_ = 1;
    vescomm_type_t type_;
    int device_;
    std::shared_ptr<ArrayOwner> owner_;
};

// An array of a caller, which keeps it alive until the work of the stream is complete.
struct DeviceArgument {
    void *data = nullptr;
    std::int64_t elements = 0;
    vescomm_type_t type = VESCOMM_TYPE_DEFAULT;
    int device = 0;
};

constexpr int any_device = -1;

// Reads an array that exports DLPack. Raises an exception if it is not contiguous, not in the
// memory of this device, or has a type that vescomm has not; it never copies, and never waits for a
// stream. `name`: of the parameter, for the sentence. `owner`: what is on the device.
DeviceArgument read_device_array(nanobind::handle array, const char *name, int device,
                                 const char *owner = "the communicator");

void define_gpu_array(nanobind::module_ &module);

}  // namespace vescomm::python

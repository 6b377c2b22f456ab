// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Device buffers on the test double.
#pragma once

#include <span>

#include "gpu/device_ranks.h"

namespace vescomm::internal::testing_support {

inline vescomm_gpu_buffer_options_t buffer_options(vescomm_type_t type,
                                                   vescomm_gpu_placement_t placement) {
    vescomm_gpu_buffer_options_t options = vescomm_gpu_buffer_options_init();
    options.type = type;
    options.placement = placement;
    options.any_cuts = 1;
    return options;
}

// A buffer of a rank. Frees it.
struct TestBuffer {
    TestBuffer(DeviceRank &r, const vescomm_layout_t *layout,
               const vescomm_gpu_buffer_options_t &options)
        : rank(r), status(vescomm_gpu_buffer_create(r.gpu, layout, &options, &handle)) {}
    ~TestBuffer() { EXPECT_EQ(free(), VESCOMM_OK) << vescomm_get_last_error(); }
    TestBuffer(const TestBuffer &) = delete;
    TestBuffer &operator=(const TestBuffer &) = delete;

    vescomm_status_t free() {
        const vescomm_status_t freed = vescomm_gpu_buffer_free(handle);
        if (freed == VESCOMM_OK) handle = nullptr;
        return freed;
    }
    template <typename T>
    std::span<T> shard(int of) const {
        vescomm_view_t view = {};
        EXPECT_EQ(vescomm_gpu_buffer_get_shard(handle, of, &view), VESCOMM_OK)
            << vescomm_get_last_error();
        return {static_cast<T *>(view.data), static_cast<std::size_t>(view.elements)};
    }
    template <typename T>
    std::span<T> whole() const {
        vescomm_view_t view = {};
        EXPECT_EQ(vescomm_gpu_buffer_get_data(handle, &view), VESCOMM_OK);
        return {static_cast<T *>(view.data), static_cast<std::size_t>(view.elements)};
    }
    // Bytes that no collective writes by mistake, also in gaps.
    template <typename T>
    void fill(T value) {
        const std::span<T> all = whole<T>();
        if (!all.empty()) rank.write(all.data(), std::vector<T>(all.size(), value));
    }
    template <typename T>
    void write(int of, const std::vector<T> &values) {
        if (!values.empty()) rank.write(shard<T>(of).data(), values);
    }
    template <typename T>
    std::vector<T> read(int of) {
        const std::span<T> from = shard<T>(of);
        return from.empty() ? std::vector<T>{} : rank.read(from.data(), from.size());
    }

    DeviceRank &rank;
    vescomm_gpu_buffer_t *handle = nullptr;
    vescomm_status_t status;
};

}  // namespace vescomm::internal::testing_support

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string>

#include "vescomm/vescomm.h"

namespace vescomm::python {

// Owner of a layout of the library.
class Layout {
public:
    explicit Layout(vescomm_layout_t *layout) : layout_(layout, vescomm_layout_free) {}

    vescomm_layout_t *get() const noexcept { return layout_.get(); }
    vescomm_layout_info_t info() const;
    // The index of a tensor by its name, or by an integer, which may be negative.
    std::size_t index(nanobind::handle which) const;
    vescomm_tensor_t tensor(std::size_t index) const;
    std::string bytes() const;

private:
    std::shared_ptr<vescomm_layout_t> layout_;
};

void define_layout(nanobind::module_ &module);
// The planner of vescomm/planner.h.
void define_plan(nanobind::module_ &module);

}  // namespace vescomm::python

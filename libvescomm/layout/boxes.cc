// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "layout/boxes.h"

#include <algorithm>

namespace vescomm::internal {
namespace {

// Makes slabs of a tensor: boxes that have one index in each dimension before dimension d, and all
// indices in each dimension after it.
class Boxes {
public:
    explicit Boxes(std::span<const std::int64_t> shape) : shape_(shape), stride_(shape.size(), 1) {
        for (std::size_t d = shape.size(); d-- > 1;) stride_[d - 1] = stride_[d] * shape[d];
    }

    std::int64_t index(std::int64_t element, std::size_t d) const {
        return element / stride_[d] % shape_[d];
    }
    std::int64_t stride(std::size_t d) const { return stride_[d]; }

    // The slab that begins at `element` and has `count` indices in dimension d.
    Box slab(std::int64_t element, std::size_t d, std::int64_t count) const {
        Box box;
        for (std::size_t i = 0; i < shape_.size(); ++i) {
            box.start.push_back(i <= d ? index(element, i) : 0);
            box.extent.push_back(i < d ? 1 : i == d ? count : shape_[i]);
        }
        return box;
    }

private:
    std::span<const std::int64_t> shape_;
    std::vector<std::int64_t> stride_;
};

}  // namespace

std::vector<Box> boxes(std::span<const std::int64_t> shape, std::int64_t first,
                       std::int64_t elements) {
    if (elements == 0) return {};
    if (shape.empty()) return {Box{}};
    const Boxes all(shape);
    std::int64_t begin = first;
    std::int64_t end = first + elements;
    const std::size_t last = shape.size() - 1;
    // The first dimension in which the interval has more than one index.
    std::size_t thick = 0;
    while (thick < last && all.index(begin, thick) == all.index(end - 1, thick)) ++thick;

    std::vector<Box> heads;
    std::vector<Box> tails;
    for (std::size_t d = last; d > thick; --d) {
        if (const std::int64_t from = all.index(begin, d); from != 0) {
            heads.push_back(all.slab(begin, d, shape[d] - from));
            begin += (shape[d] - from) * all.stride(d);
        }
        if (const std::int64_t to = all.index(end, d); to != 0) {
            end -= to * all.stride(d);
            tails.push_back(all.slab(end, d, to));
        }
    }
    if (begin < end) {
        heads.push_back(all.slab(begin, thick, (end - begin) / all.stride(thick)));
    }
    heads.insert(heads.end(), tails.rbegin(), tails.rend());
    return heads;
}

}  // namespace vescomm::internal

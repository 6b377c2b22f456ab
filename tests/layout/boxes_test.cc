// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "layout/boxes.h"

#include <gtest/gtest.h>

#include <vector>

using vescomm::internal::Box;
using vescomm::internal::boxes;

namespace {

using Numbers = std::vector<std::int64_t>;

// Row-major numbers of the elements of a box, in order.
Numbers elements_of(const Box &box, const Numbers &shape) {
    Numbers found;
    Numbers index(shape.size(), 0);
    for (;;) {
        std::int64_t element = 0;
        for (std::size_t d = 0; d < shape.size(); ++d)
            element = element * shape[d] + box.start[d] + index[d];
        found.push_back(element);
        std::size_t d = shape.size();
        while (d > 0 && ++index[d - 1] == box.extent[d - 1]) index[--d] = 0;
        if (d == 0) return found;
    }
}

TEST(Boxes, SplitAtPartialRows) {
    const Numbers shape = {4, 6};
    EXPECT_EQ(boxes(shape, 3, 17),
              (std::vector<Box>{{{0, 3}, {1, 3}}, {{1, 0}, {2, 6}}, {{3, 0}, {1, 2}}}));
    EXPECT_EQ(boxes(shape, 6, 12), (std::vector<Box>{{{1, 0}, {2, 6}}}));
    EXPECT_EQ(boxes(shape, 7, 3), (std::vector<Box>{{{1, 1}, {1, 3}}}));
    EXPECT_EQ(boxes(shape, 0, 24), (std::vector<Box>{{{0, 0}, {4, 6}}}));
    EXPECT_EQ(boxes(shape, 24, 0), std::vector<Box>{});
}

TEST(Boxes, ScalarIsOneBoxWithoutDimensions) {
    EXPECT_EQ(boxes({}, 0, 1), std::vector<Box>{Box{}});
    EXPECT_EQ(boxes({}, 0, 0), std::vector<Box>{});
}

TEST(Boxes, CoverEveryIntervalOfEverySmallTensorInOrder) {
    std::int64_t intervals = 0;
    for (const Numbers &shape : std::vector<Numbers>{{1},
                                                     {7},
                                                     {1, 1},
                                                     {3, 4},
                                                     {4, 1},
                                                     {1, 5},
                                                     {2, 3, 4},
                                                     {4, 3, 3},
                                                     {3, 1, 2},
                                                     {2, 2, 2, 3},
                                                     {1, 2, 1, 3, 2}}) {
        std::int64_t all = 1;
        for (const std::int64_t extent : shape) all *= extent;
        for (std::int64_t first = 0; first <= all; ++first) {
            for (std::int64_t count = 0; first + count <= all; ++count, ++intervals) {
                const std::vector<Box> found = boxes(shape, first, count);
                EXPECT_LE(found.size(), 2 * shape.size() - 1);
                std::int64_t next = first;
                for (const Box &box : found)
                    for (const std::int64_t element : elements_of(box, shape))
                        ASSERT_EQ(element, next++);
                ASSERT_EQ(next, first + count);
            }
        }
    }
    EXPECT_GT(intervals, 1000);
}

TEST(Boxes, SupportMoreThanTwoToTheFortyElements) {
    const Numbers shape = {std::int64_t{1} << 30, std::int64_t{1} << 20};
    const std::int64_t row = std::int64_t{1} << 20;
    EXPECT_EQ(boxes(shape, row * 1'000'000'000 - 1, row + 2),
              (std::vector<Box>{{{999'999'999, row - 1}, {1, 1}},
                                {{1'000'000'000, 0}, {1, row}},
                                {{1'000'000'001, 0}, {1, 1}}}));
}

}  // namespace

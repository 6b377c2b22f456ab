// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The layout functions of the C API, and the rules of the C boundary that apply to all functions.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/guard.h"
#include "vescomm/vescomm.h"
#include "vescomm/vescomm.hpp"

namespace {

std::string last_error() {
    return vescomm_get_last_error();
}

void expect_refused(vescomm_status_t status, const std::string &part) {
    EXPECT_EQ(status, VESCOMM_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(last_error().find(part), std::string::npos) << last_error();
}

// A matrix of 4 rows of 8 elements in blocks of 2 rows, and a vector of 5 elements, on 3 ranks.
class LayoutApi : public testing::Test {
protected:
    void SetUp() override {
        tensors[0].name = "w";
        tensors[0].dimensions = 2;
        tensors[0].shape = matrix;
        tensors[0].block = 16;
        tensors[1].name = "b";
        tensors[1].dimensions = 1;
        tensors[1].shape = vector;
        tensors[1].offset = 32;
        ASSERT_EQ(create(&layout), VESCOMM_OK) << last_error();
    }
    void TearDown() override { EXPECT_EQ(vescomm_layout_free(layout), VESCOMM_OK); }

    vescomm_status_t create(vescomm_layout_t **made) {
        return vescomm_layout_create(tensors, 2, 40, cuts, 3, made);
    }

    const int64_t matrix[2] = {4, 8};
    const int64_t vector[1] = {5};
    vescomm_tensor_t tensors[2] = {vescomm_tensor_init(), vescomm_tensor_init()};
    int64_t cuts[4] = {0, 16, 34, 40};
    vescomm_layout_t *layout = nullptr;
};

TEST_F(LayoutApi, ReturnsThePieceOfATensorThatARankOwns) {
    vescomm_piece_t piece;
    ASSERT_EQ(vescomm_layout_get_piece(layout, 0, 1, &piece), VESCOMM_OK);
    EXPECT_EQ(piece.first, 16);
    EXPECT_EQ(piece.elements, 16);
    EXPECT_EQ(piece.offset, 0);
    ASSERT_EQ(vescomm_layout_get_piece(layout, 1, 1, &piece), VESCOMM_OK);
    EXPECT_EQ(piece.elements, 2);
    EXPECT_EQ(piece.offset, 16);
    ASSERT_EQ(vescomm_layout_get_piece(layout, 1, 0, &piece), VESCOMM_OK);
    EXPECT_EQ(piece.elements, 0);
    expect_refused(vescomm_layout_get_piece(layout, 2, 0, &piece), "index 2 is not in [0, 2)");
    expect_refused(vescomm_layout_get_piece(layout, 0, 3, &piece), "rank 3");
    expect_refused(vescomm_layout_get_piece(layout, 0, 0, nullptr), "piece is NULL");
}

TEST_F(LayoutApi, DescribesElementsAsBoxes) {
    size_t count = 0;
    ASSERT_EQ(vescomm_layout_get_boxes(layout, 0, 3, 20, nullptr, 0, &count), VESCOMM_OK);
    ASSERT_EQ(count, 3u);
    int64_t boxes[12];
    ASSERT_EQ(vescomm_layout_get_boxes(layout, 0, 3, 20, boxes, 3, &count), VESCOMM_OK);
    const int64_t expected[] = {0, 3, 1, 5, 1, 0, 1, 8, 2, 0, 1, 7};
    EXPECT_TRUE(std::equal(std::begin(boxes), std::end(boxes), expected));
    expect_refused(vescomm_layout_get_boxes(layout, 0, 30, 3, boxes, 3, &count), "which has 32");
    expect_refused(vescomm_layout_get_boxes(layout, 0, -1, 3, boxes, 3, &count), "from -1 on");
    expect_refused(vescomm_layout_get_boxes(layout, 7, 0, 3, boxes, 3, &count), "index 7");
    expect_refused(vescomm_layout_get_boxes(layout, 0, 0, 3, nullptr, 3, &count), "boxes is NULL");
}

TEST_F(LayoutApi, ParseRestoresSerialisedLayouts) {
    size_t size = 0;
    ASSERT_EQ(vescomm_layout_serialise(layout, nullptr, 0, &size), VESCOMM_OK);
    std::vector<char> bytes(size);
    ASSERT_EQ(vescomm_layout_serialise(layout, bytes.data(), size, &size), VESCOMM_OK);
    vescomm_layout_t *back = nullptr;
    ASSERT_EQ(vescomm_layout_parse(bytes.data(), size, &back), VESCOMM_OK) << last_error();
    vescomm_layout_info_t here = vescomm_layout_info_init(), there = vescomm_layout_info_init();
    ASSERT_EQ(vescomm_layout_get_info(layout, &here), VESCOMM_OK);
    ASSERT_EQ(vescomm_layout_get_info(back, &there), VESCOMM_OK);
    EXPECT_EQ(here.hash, there.hash);
    EXPECT_EQ(vescomm_layout_free(back), VESCOMM_OK);
    EXPECT_EQ(vescomm_layout_parse(bytes.data(), size - 1, &back), VESCOMM_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(vescomm_layout_parse(nullptr, 0, &back), VESCOMM_ERROR_INVALID_ARGUMENT);
}

TEST_F(LayoutApi, QueriesReturnTheValuesOfTheLayout) {
    vescomm_layout_info_t info = vescomm_layout_info_init();
    ASSERT_EQ(vescomm_layout_get_info(layout, &info), VESCOMM_OK);
    EXPECT_EQ(info.struct_size, sizeof(info));
    EXPECT_EQ(info.ranks, 3);
    EXPECT_EQ(info.elements, 40);
    EXPECT_EQ(info.padding, 3);
    EXPECT_EQ(info.largest, 18);
    EXPECT_EQ(info.tensors, 2u);
    EXPECT_NE(info.hash, 0u);

    vescomm_tensor_t tensor = vescomm_tensor_init();
    ASSERT_EQ(vescomm_layout_get_tensor(layout, 0, &tensor), VESCOMM_OK);
    EXPECT_STREQ(tensor.name, "w");
    EXPECT_NE(tensor.name, tensors[0].name);  // owned by the layout
    EXPECT_EQ(tensor.dimensions, 2);
    EXPECT_EQ(tensor.shape[1], 8);
    EXPECT_EQ(tensor.block, 16);
    ASSERT_EQ(vescomm_layout_get_tensor(layout, 1, &tensor), VESCOMM_OK);
    EXPECT_EQ(tensor.offset, 32);
    EXPECT_EQ(tensor.block, 1);  // 0 was given

    size_t index = 99;
    EXPECT_EQ(vescomm_layout_find_tensor(layout, "b", &index), VESCOMM_OK);
    EXPECT_EQ(index, 1u);
    int64_t begin = 0;
    int64_t end = 0;
    EXPECT_EQ(vescomm_layout_get_shard(layout, 1, &begin, &end), VESCOMM_OK);
    EXPECT_EQ(begin, 16);
    EXPECT_EQ(end, 34);
}

TEST_F(LayoutApi, CountsPiecesBeyondTheCapacity) {
    size_t count = 0;
    ASSERT_EQ(vescomm_layout_get_pieces(layout, 1, nullptr, 0, &count), VESCOMM_OK);
    EXPECT_EQ(count, 2u);
    vescomm_piece_t pieces[2] = {{9, 9, 9, 9}, {9, 9, 9, 9}};
    ASSERT_EQ(vescomm_layout_get_pieces(layout, 1, pieces, 1, &count), VESCOMM_OK);
    EXPECT_EQ(count, 2u);
    EXPECT_EQ(pieces[0].first, 16);
    EXPECT_EQ(pieces[1].tensor, 9u);  // beyond the capacity: untouched
    ASSERT_EQ(vescomm_layout_get_pieces(layout, 1, pieces, 2, &count), VESCOMM_OK);
    EXPECT_EQ(pieces[1].tensor, 1u);
    EXPECT_EQ(pieces[1].elements, 2);
    EXPECT_EQ(pieces[1].offset, 16);
}

TEST_F(LayoutApi, ErrorsNameTheFunctionAndTheNullArgument) {
    vescomm_layout_t *made = nullptr;
    size_t index = 0;
    int64_t number = 0;
    vescomm_layout_info_t info = vescomm_layout_info_init();
    vescomm_tensor_t tensor = vescomm_tensor_init();
    expect_refused(vescomm_layout_create(nullptr, 2, 40, cuts, 3, &made),
                   "vescomm_layout_create: tensors is NULL");
    expect_refused(vescomm_layout_create(tensors, 2, 40, nullptr, 3, &made), "cuts is NULL");
    expect_refused(vescomm_layout_create(tensors, 2, 40, cuts, 3, nullptr), "layout is NULL");
    expect_refused(vescomm_layout_create_from_counts(nullptr, 1, &made),
                   "vescomm_layout_create_from_counts: counts is NULL");
    expect_refused(vescomm_layout_create_from_counts(&number, 1, nullptr), "layout is NULL");
    expect_refused(vescomm_layout_get_info(nullptr, &info),
                   "vescomm_layout_get_info: layout is NULL");
    expect_refused(vescomm_layout_get_info(layout, nullptr),
                   "vescomm_layout_get_info: info is NULL");
    expect_refused(vescomm_layout_get_tensor(nullptr, 0, &tensor), "layout is NULL");
    expect_refused(vescomm_layout_get_tensor(layout, 0, nullptr), "tensor is NULL");
    expect_refused(vescomm_layout_find_tensor(nullptr, "w", &index), "layout is NULL");
    expect_refused(vescomm_layout_find_tensor(layout, nullptr, &index), "name is NULL");
    expect_refused(vescomm_layout_find_tensor(layout, "w", nullptr), "index is NULL");
    expect_refused(vescomm_layout_get_shard(nullptr, 0, &number, &number), "layout is NULL");
    expect_refused(vescomm_layout_get_shard(layout, 0, nullptr, &number), "begin is NULL");
    expect_refused(vescomm_layout_get_shard(layout, 0, &number, nullptr), "end is NULL");
    expect_refused(vescomm_layout_get_pieces(nullptr, 0, nullptr, 0, &index), "layout is NULL");
    expect_refused(vescomm_layout_get_pieces(layout, 0, nullptr, 1, &index), "pieces is NULL");
    expect_refused(vescomm_layout_get_pieces(layout, 0, nullptr, 0, nullptr), "count is NULL");
    EXPECT_EQ(made, nullptr);
    EXPECT_EQ(vescomm_layout_free(nullptr), VESCOMM_OK);
}

TEST_F(LayoutApi, RefusesWrongValuesAndSetsNoOutput) {
    auto *const untouched = reinterpret_cast<vescomm_layout_t *>(this);
    vescomm_layout_t *made = untouched;
    cuts[1] = 17;
    expect_refused(create(&made), "cut 1 at 17 splits a block of tensor \"w\"");
    cuts[1] = 16;
    expect_refused(vescomm_layout_create(tensors, 2, 40, cuts, 0, &made), "ranks is 0");
    expect_refused(vescomm_layout_create(tensors, 2, 40, cuts, -5, &made), "ranks is -5");
    tensors[1].name = nullptr;
    expect_refused(create(&made), "the name of tensor 1 is NULL");
    tensors[1].name = "b";
    tensors[1].shape = nullptr;
    expect_refused(create(&made), "the shape of tensor 1 is NULL");
    tensors[1].shape = vector;
    tensors[1].dimensions = -1;
    expect_refused(create(&made), "tensor 1 has -1 dimensions");
    tensors[1].dimensions = 1;
    tensors[1].reserved = 3;
    expect_refused(create(&made), "reserved of tensor 1 is 3");
    tensors[1].reserved = 0;
    tensors[1].block = -1;
    expect_refused(create(&made), "block of tensor \"b\" is -1");
    const int64_t counts[2] = {std::numeric_limits<int64_t>::max(), 1};
    expect_refused(vescomm_layout_create_from_counts(counts, 2, &made), "counts of ranks 0 to 1");
    expect_refused(vescomm_layout_create_from_counts(counts, 0, &made), "ranks is 0");
    EXPECT_EQ(made, untouched);

    int64_t begin = -7;
    int64_t end = -7;
    expect_refused(vescomm_layout_get_shard(layout, 3, &begin, &end), "rank 3 is not one of");
    expect_refused(vescomm_layout_get_shard(layout, -1, &begin, &end), "in [0, 3)");
    EXPECT_EQ(begin, -7);
    EXPECT_EQ(end, -7);
    size_t index = 77;
    expect_refused(vescomm_layout_find_tensor(layout, "x", &index),
                   "none of the layout's 2 tensors is named \"x\"; its names are \"w\", \"b\"");
    expect_refused(vescomm_layout_find_tensor(layout, "two\nlines", &index), "two\\x0alines");
    expect_refused(vescomm_layout_get_pieces(layout, 3, nullptr, 0, &index), "rank 3");
    EXPECT_EQ(index, 77u);
    vescomm_tensor_t tensor = vescomm_tensor_init();
    expect_refused(vescomm_layout_get_tensor(layout, 2, &tensor), "index 2 is not in [0, 2)");
    EXPECT_EQ(tensor.name, nullptr);
}

TEST(LayoutHpp, CountsTheElementsOfTensorsWithHugeExtents) {
    constexpr std::int64_t max = std::numeric_limits<std::int64_t>::max();
    const auto elements = [](std::vector<std::int64_t> shape) {
        return vescomm::Tensor{.name = "x", .shape = std::move(shape)}.elements();
    };
    EXPECT_EQ(elements({max, max, 0}), 0);
    EXPECT_EQ(elements({max, 2}), max);
    EXPECT_EQ(elements({3, 1, 5}), 15);
    EXPECT_EQ(elements({}), 1);
}

TEST_F(LayoutApi, MakesLayoutsWithoutTensorsAndFromCounts) {
    const int64_t empty_cuts[2] = {0, 6};
    vescomm_layout_t *made = nullptr;
    ASSERT_EQ(vescomm_layout_create(nullptr, 0, 6, empty_cuts, 1, &made), VESCOMM_OK);
    EXPECT_EQ(vescomm_layout_free(made), VESCOMM_OK);
    const int64_t counts[3] = {4, 0, 2};
    ASSERT_EQ(vescomm_layout_create_from_counts(counts, 3, &made), VESCOMM_OK);
    size_t index = 1;
    EXPECT_EQ(vescomm_layout_find_tensor(made, "data", &index), VESCOMM_OK);
    EXPECT_EQ(index, 0u);
    EXPECT_EQ(vescomm_layout_free(made), VESCOMM_OK);
}

// A struct of a program built against a later header: it has more members than this library knows.
struct LaterTensor {
    vescomm_tensor_t known = vescomm_tensor_init();
    int64_t later = 0;
};

TEST_F(LayoutApi, ReadsArraysOfLaterStructsByTheirOwnStride) {
    LaterTensor later[2];
    for (int i = 0; i < 2; ++i) {
        later[i].known = tensors[i];
        later[i].known.struct_size = sizeof(LaterTensor);
    }
    vescomm_layout_t *made = nullptr;
    ASSERT_EQ(vescomm_layout_create(&later[0].known, 2, 40, cuts, 3, &made), VESCOMM_OK)
        << last_error();
    vescomm_layout_info_t mine = vescomm_layout_info_init();
    vescomm_layout_info_t same = vescomm_layout_info_init();
    ASSERT_EQ(vescomm_layout_get_info(layout, &mine), VESCOMM_OK);
    ASSERT_EQ(vescomm_layout_get_info(made, &same), VESCOMM_OK);
    EXPECT_EQ(mine.hash, same.hash);
    EXPECT_EQ(vescomm_layout_free(made), VESCOMM_OK);

    made = nullptr;
    later[1].later = 1;
    expect_refused(vescomm_layout_create(&later[0].known, 2, 40, cuts, 3, &made),
                   "tensor 1 is a struct of 56 bytes that uses byte 48");
    later[1].known.struct_size = sizeof(vescomm_tensor_t);
    expect_refused(vescomm_layout_create(&later[0].known, 2, 40, cuts, 3, &made),
                   "struct_size of tensor 1 is 48 and that of tensor 0 is 56");
    later[0].known.struct_size = 0;
    expect_refused(vescomm_layout_create(&later[0].known, 2, 40, cuts, 3, &made),
                   "struct_size of tensor 0 is 0");
    later[0].known.struct_size = 1 << 20;
    expect_refused(vescomm_layout_create(&later[0].known, 2, 40, cuts, 3, &made),
                   "struct_size of tensor 0 is 1048576");
    EXPECT_EQ(made, nullptr);
}

TEST_F(LayoutApi, WritesOnlyTheMembersThatTheCallerHas) {
    // A caller built against a header without `largest`, `tensors` and `hash`.
    const uint32_t size = offsetof(vescomm_layout_info_t, largest);
    vescomm_layout_info_t info;
    std::memset(&info, 0xee, sizeof(info));
    info.struct_size = size;
    ASSERT_EQ(vescomm_layout_get_info(layout, &info), VESCOMM_OK);
    EXPECT_EQ(info.struct_size, size);
    EXPECT_EQ(info.padding, 3);
    EXPECT_EQ(static_cast<uint64_t>(info.largest), 0xeeeeeeeeeeeeeeeeu);
    EXPECT_EQ(info.hash, 0xeeeeeeeeeeeeeeeeu);

    // A caller built against a later header reads zero from members that this library does not
    // have.
    struct {
        vescomm_layout_info_t known;
        uint64_t later;
        uint64_t beyond;
    } later;
    std::memset(&later, 0xee, sizeof(later));
    later.known.struct_size = sizeof(later.known) + sizeof(later.later);
    ASSERT_EQ(vescomm_layout_get_info(layout, &later.known), VESCOMM_OK);
    EXPECT_EQ(later.known.ranks, 3);
    EXPECT_EQ(later.later, 0u);
    EXPECT_EQ(later.beyond, 0xeeeeeeeeeeeeeeeeu);

    info.struct_size = 0;
    expect_refused(vescomm_layout_get_info(layout, &info), "struct_size of info is 0");
}

TEST(Guard, TranslatesEveryException) {
    using vescomm::internal::guarded;
    EXPECT_EQ(guarded([] {}), VESCOMM_OK);
    EXPECT_EQ(
        guarded([] { throw vescomm::internal::Error(VESCOMM_ERROR_TIMEOUT, "rank 3 is silent"); }),
        VESCOMM_ERROR_TIMEOUT);
    EXPECT_EQ(last_error(), "rank 3 is silent");
    EXPECT_EQ(guarded([] { throw std::bad_alloc(); }), VESCOMM_ERROR_OUT_OF_MEMORY);
    EXPECT_NE(last_error().find("out of memory"), std::string::npos);
    EXPECT_EQ(guarded([] { throw std::logic_error("index"); }), VESCOMM_ERROR_INTERNAL);
    EXPECT_EQ(last_error(), "internal error, please report: index");
    EXPECT_EQ(guarded([] { throw 3; }), VESCOMM_ERROR_INTERNAL);
    EXPECT_EQ(guarded([] {}), VESCOMM_OK);
    EXPECT_NE(last_error(), "");  // success does not clear it
}

TEST(Guard, ReadsOptions) {
    EXPECT_EQ(vescomm::internal::read_options<vescomm_layout_info_t>(nullptr, "f", "options").ranks,
              0);
    vescomm_layout_info_t given = vescomm_layout_info_init();
    given.ranks = 7;
    given.elements = 9;
    EXPECT_EQ(vescomm::internal::read_options(&given, "f", "options").elements, 9);
    given.struct_size = 8;  // a caller that only knows struct_size and ranks
    EXPECT_EQ(vescomm::internal::read_options(&given, "f", "options").ranks, 7);
    EXPECT_EQ(vescomm::internal::read_options(&given, "f", "options").elements, 0);
}

TEST(LastError, IsThreadLocal) {
    vescomm_layout_get_info(nullptr, nullptr);
    const std::string mine = last_error();
    std::thread([] {
        EXPECT_STREQ(vescomm_get_last_error(), "");
        vescomm_layout_find_tensor(nullptr, nullptr, nullptr);
        EXPECT_NE(last_error().find("vescomm_layout_find_tensor"), std::string::npos);
    }).join();
    EXPECT_EQ(last_error(), mine);
}

TEST(Status, HasANameForEveryValue) {
    const std::vector<std::string> names = {
        "ok",       "invalid argument", "out of memory", "timeout", "peer failed",
        "mismatch", "unsupported",      "system",        "aborted", "internal"};
    for (int i = 0; i < static_cast<int>(names.size()); ++i) {
        EXPECT_EQ(vescomm_status_get_name(-i), names[i]);
    }
    EXPECT_STREQ(vescomm_status_get_name(VESCOMM_IN_PROGRESS), "in progress");
    EXPECT_STREQ(vescomm_status_get_name(2), "unknown status");
    EXPECT_STREQ(vescomm_status_get_name(-10), "unknown status");
}

TEST(Version, EqualsTheVersionOfTheHeader) {
    EXPECT_STREQ(vescomm_get_version(), "0.1.0");
}

// The ABI: programs built against 0.1 read these offsets.
static_assert(sizeof(vescomm_tensor_t) == 48 && offsetof(vescomm_tensor_t, name) == 8 &&
              offsetof(vescomm_tensor_t, shape) == 16 && offsetof(vescomm_tensor_t, offset) == 24 &&
              offsetof(vescomm_tensor_t, block) == 32 &&
              offsetof(vescomm_tensor_t, batch_dimensions) == 40);
static_assert(sizeof(vescomm_layout_info_t) == 48 && offsetof(vescomm_layout_info_t, ranks) == 4 &&
              offsetof(vescomm_layout_info_t, elements) == 8 &&
              offsetof(vescomm_layout_info_t, padding) == 16 &&
              offsetof(vescomm_layout_info_t, largest) == 24 &&
              offsetof(vescomm_layout_info_t, tensors) == 32 &&
              offsetof(vescomm_layout_info_t, hash) == 40);
static_assert(sizeof(vescomm_piece_t) == 32 && offsetof(vescomm_piece_t, offset) == 24);

}  // namespace

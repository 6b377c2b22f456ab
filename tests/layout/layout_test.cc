// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "layout/layout.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <limits>
#include <random>

#include "base/error.h"

namespace vescomm::internal {
namespace {

using Tensor = Layout::Tensor;
using Cuts = std::vector<std::int64_t>;

// RapidCheck takes its seed from the environment, once, before the first property.
const int seeded = setenv("RC_PARAMS", "seed=20260101", 0);

constexpr std::int64_t max = std::numeric_limits<std::int64_t>::max();

// Two experts of 5 rows of 4 elements, in blocks of 2 rows, so the third block of each is short.
// Then a gap, then a vector.
//
//     0    8    16  20   28   36  40    48         58  64
//     |  . |  . | . |  . |  . | . |     |  vector  |   |
Layout sample() {
    return Layout(
        {{.name = "experts", .shape = {2, 5, 4}, .offset = 0, .block = 8, .batch_dimensions = 1},
         {.name = "vector", .shape = {10}, .offset = 48}},
        64, {0, 16, 16, 44, 51, 64});
}

// The error sentence of the constructor; empty if it succeeds.
std::string refusal(std::vector<Tensor> tensors, std::int64_t elements, Cuts cuts) {
    try {
        const Layout layout(std::move(tensors), elements, std::move(cuts));
    } catch (const Error &error) {
        EXPECT_EQ(error.status, VESCOMM_ERROR_INVALID_ARGUMENT);
        return error.what();
    }
    return "";
}

TEST(Layout, AnswersQueries) {
    const Layout layout = sample();
    EXPECT_EQ(layout.ranks(), 5);
    EXPECT_EQ(layout.elements(), 64);
    EXPECT_EQ(layout.padding(), 14);
    EXPECT_EQ(layout.largest_shard(), 28);
    EXPECT_EQ(layout.tensors()[0].elements, 40);
    EXPECT_EQ(layout.shard(3), (Layout::Shard{44, 51}));
    EXPECT_EQ(layout.find("experts"), 0u);
    EXPECT_EQ(layout.find("vector"), 1u);
    EXPECT_EQ(layout.find("vect"), std::nullopt);
    EXPECT_EQ(layout.find(""), std::nullopt);
}

TEST(Layout, ListsThePiecesOfARank) {
    const Layout layout = sample();
    using Pieces = std::vector<Layout::Piece>;
    EXPECT_EQ(layout.pieces(0), (Pieces{{0, 0, 16, 0}}));
    EXPECT_EQ(layout.pieces(1), Pieces{});
    EXPECT_EQ(layout.pieces(2), (Pieces{{0, 16, 24, 0}}));
    EXPECT_EQ(layout.pieces(3), (Pieces{{1, 0, 3, 4}}));
    EXPECT_EQ(layout.pieces(4), (Pieces{{1, 3, 7, 0}}));
}

TEST(Layout, AcceptsCutsOnBlockBoundariesOnly) {
    // Legal cuts inside "experts" are 0, 8 and 16 of each expert's 20 elements.
    for (std::int64_t cut = 0; cut <= 64; ++cut) {
        const bool legal = cut >= 40 || (cut % 20) % 8 == 0;
        const Layout whole = sample();
        const auto tensors = std::vector<Tensor>(whole.tensors().begin(), whole.tensors().end());
        const std::string sentence = refusal(tensors, 64, {0, cut, 64});
        EXPECT_EQ(sentence.empty(), legal) << cut << ": " << sentence;
    }
}

TEST(Layout, NamesTheBoundariesNextToAWrongCut) {
    const auto sentence = [](std::int64_t cut) {
        return refusal(
            {{.name = "w", .shape = {2, 5, 4}, .offset = 100, .block = 8, .batch_dimensions = 1}},
            200, {0, cut, 200});
    };
    EXPECT_EQ(
        sentence(103),
        "cut 1 at 103 splits a block of tensor \"w\", which starts at 100 and has blocks of 8 "
        "elements; move the cut to 100 or 108");
    EXPECT_NE(sentence(117).find("move the cut to 116 or 120"), std::string::npos);
    EXPECT_NE(sentence(121).find("move the cut to 120 or 128"), std::string::npos);
    EXPECT_NE(sentence(139).find("move the cut to 136 or 140"), std::string::npos);
}

TEST(Layout, CutsLongNamesBetweenCharacters) {
    std::string shown = "x", name;
    for (int i = 0; i < 59; ++i) shown += "é";
    name = shown + "éé";  // the 120th byte is the second one of an é
    EXPECT_EQ(refusal({{.name = name, .shape = {5}}}, 1, {0, 1}).substr(0, shown.size() + 13),
              "tensor \"" + shown + "...\" ");
    // Names need not be UTF-8.
    EXPECT_EQ(refusal({{.name = std::string(130, '\x80'), .shape = {5}}}, 1, {0, 1}).substr(0, 13),
              "tensor \"...\" ");
}

TEST(Layout, AcceptsEmptyLayoutsAndTensors) {
    const Layout nothing({}, 0, {0, 0});
    EXPECT_EQ(nothing.ranks(), 1);
    EXPECT_EQ(nothing.largest_shard(), 0);
    EXPECT_TRUE(nothing.pieces(0).empty());
    EXPECT_EQ(nothing.find("x"), std::nullopt);

    const Layout padding_only({}, 7, {0, 3, 7});
    EXPECT_EQ(padding_only.padding(), 7);
    EXPECT_TRUE(padding_only.pieces(1).empty());

    const Layout degenerate({{.name = "empty first", .shape = {0, 5}},
                             {.name = "scalar", .shape = {}},
                             {.name = "empty inside", .shape = {max, max, 0}, .offset = 1},
                             {.name = "one", .shape = {1, 1}, .offset = 1, .block = 9},
                             {.name = "empty last", .shape = {3, 0}, .offset = 2}},
                            2, {0, 0, 0, 1, 1, 2, 2, 2});
    EXPECT_EQ(degenerate.tensors()[2].elements, 0);
    EXPECT_EQ(degenerate.pieces(2), (std::vector<Layout::Piece>{{1, 0, 1, 0}}));
    EXPECT_EQ(degenerate.pieces(4), (std::vector<Layout::Piece>{{3, 0, 1, 0}}));
    EXPECT_TRUE(degenerate.pieces(6).empty());
}

TEST(Layout, ErrorsNameTheCause) {
    const Cuts cuts = {0, 10};
    const auto expect = [](const std::string &sentence, const char *part) {
        EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
    };
    expect(refusal({{.name = "", .shape = {1}}}, 10, cuts), "tensor 0 has no name");
    expect(refusal({{.name = std::string("a\0b", 3), .shape = {1}}}, 10, cuts),
           "\"a\\x00b\", contains a zero byte");
    expect(refusal({{.name = "a", .shape = {1}},
                    {.name = "b", .shape = {1}, .offset = 1},
                    {.name = "a", .shape = {1}, .offset = 2}},
                   10, cuts),
           "tensors 0 and 2 are both named \"a\"");
    expect(refusal({{.name = "a", .shape = {2, -3}}}, 10, cuts), "extent 1 of tensor \"a\" is -3");
    expect(refusal({{.name = "a", .shape = {1ll << 32, 1ll << 31}}}, 10, cuts),
           "shape [4294967296, 2147483648] has more elements");
    expect(refusal({{.name = "a", .shape = {1}, .block = 0}}, 10, cuts),
           "block of tensor \"a\" is 0");
    expect(refusal({{.name = "a", .shape = {1}, .batch_dimensions = 2}}, 10, cuts),
           "tensor \"a\" has 2 batch dimensions");
    expect(refusal({{.name = "a", .shape = {1}, .batch_dimensions = -1}}, 10, cuts),
           "tensor \"a\" has -1 batch dimensions");
    expect(refusal({{.name = "a", .shape = {1}, .offset = -1}}, 10, cuts), "from offset -1");
    expect(refusal({{.name = "a", .shape = {8}, .offset = 3}}, 10, cuts),
           "tensor \"a\" has 8 elements from offset 3, outside the buffer's [0, 10]");
    expect(refusal({{.name = "a", .shape = {max}, .offset = max}}, 10, cuts), "outside");
    expect(
        refusal({{.name = "a", .shape = {4}}, {.name = "b", .shape = {4}, .offset = 3}}, 10, cuts),
        "tensor \"b\" at offset 3 overlaps tensor \"a\", which ends at 4");
    expect(
        refusal({{.name = "a", .shape = {1}, .offset = 5}, {.name = "b", .shape = {1}}}, 10, cuts),
        "tensor \"b\" at offset 0 comes after tensor \"a\" at offset 5");
    expect(refusal({}, -1, {0, -1}), "buffer of -1 elements");
    expect(refusal({}, 0, {}), "there are 0 cuts");
    expect(refusal({}, 0, {0}), "there are 1 cuts");
    expect(refusal({}, 10, {1, 10}), "cut 0 is at 1");
    expect(refusal({}, 10, {0, 7, 6, 10}), "cut 2 at 6 lies before cut 1 at 7");
    expect(refusal({}, 10, {0, 9}), "the last cut, 1, is at 9");
    expect(refusal({}, 10, {0, 11}), "the last cut, 1, is at 11");
}

TEST(Layout, SupportsMoreThanTwoToTheFortyElements) {
    const std::int64_t huge = std::int64_t{1} << 61;
    const Layout layout({{.name = "a", .shape = {1 << 20, 1 << 20, 1 << 21}, .block = 1ll << 40},
                         {.name = "b", .shape = {huge}, .offset = huge + 5}},
                        2 * huge + 5, {0, 1ll << 41, huge + 3, 2 * huge + 5});
    EXPECT_EQ(layout.padding(), 5);
    EXPECT_EQ(layout.largest_shard(), huge + 2);
    EXPECT_EQ(layout.pieces(2), (std::vector<Layout::Piece>{{1, 0, huge, 2}}));
    EXPECT_EQ(Layout::parse(layout.serialise()), layout);
}

TEST(Layout, IsMadeFromCounts) {
    const std::int64_t counts[] = {3, 0, 4};
    const Layout layout = Layout::from_counts(counts);
    EXPECT_EQ(layout, Layout({{.name = "data", .shape = {7}}}, 7, {0, 3, 3, 7}));
    const std::int64_t negative[] = {3, -1};
    EXPECT_THROW(Layout::from_counts(negative), Error);
    const std::int64_t overflow[] = {max, 1};
    EXPECT_THROW(Layout::from_counts(overflow), Error);
    EXPECT_THROW(Layout::from_counts({}), Error);
}

// A change of these values breaks every file and every job with mixed versions. If the bytes must
// change, raise the version of the format in layout_bytes.cc.
TEST(Layout, HashesAreStable) {
    EXPECT_EQ(Layout({}, 0, {0, 0}).hash(), 0x77a067b69020017bu);
    EXPECT_EQ(sample().hash(), 0x6791c781fec1849bu);
    const std::int64_t counts[] = {3, 0, 4};
    EXPECT_EQ(Layout::from_counts(counts).hash(), 0xdb854df098088039u);
}

TEST(Layout, SerialisesToTheDocumentedBytes) {
    const std::vector<std::byte> bytes =
        Layout({{.name = "ab", .shape = {258}, .block = 3}}, 258, {0, 258}).serialise();
    std::vector<unsigned char> expected;
    for (const char character : std::string_view("vescomm layout 1")) expected.push_back(character);
    const auto integer = [&expected](int value) {
        expected.insert(expected.end(),
                        {static_cast<unsigned char>(value % 256),
                         static_cast<unsigned char>(value / 256), 0, 0, 0, 0, 0, 0});
    };
    for (const int value : {1, 1, 0, 258, 2}) integer(value);
    expected.insert(expected.end(), {'a', 'b'});
    for (const int value : {1, 258, 0, 3, 0}) integer(value);
    ASSERT_EQ(bytes.size(), expected.size());
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        EXPECT_EQ(std::to_integer<unsigned>(bytes[i]), expected[i]) << "byte " << i;
    }
}

TEST(Layout, EveryDifferenceIsExplainedAndChangesTheHash) {
    const Layout here = sample();
    const auto original = std::vector<Tensor>(here.tensors().begin(), here.tensors().end());
    const Cuts cuts(here.cuts().begin(), here.cuts().end());
    EXPECT_EQ(here.first_difference(sample()), "");
    const auto expect = [&](std::vector<Tensor> tensors, std::int64_t elements, Cuts there_cuts,
                            const char *sentence) {
        const Layout there(std::move(tensors), elements, std::move(there_cuts));
        EXPECT_EQ(here.first_difference(there), sentence);
        EXPECT_NE(here.hash(), there.hash()) << sentence;
        EXPECT_NE(here, there);
    };
    auto tensors = original;
    tensors[1].name = "bias";
    expect(tensors, 64, cuts, "tensor 1 is \"vector\" here and \"bias\" there");
    tensors = original;
    tensors[1].shape = {5, 2};
    expect(tensors, 64, cuts, "tensor \"vector\" has shape [10] here and [5, 2] there");
    tensors = original;
    tensors[1].offset = 50;
    expect(tensors, 64, cuts, "tensor \"vector\" starts at 48 here and at 50 there");
    tensors = original;
    tensors[0].block = 4;
    expect(tensors, 64, cuts, "tensor \"experts\" has blocks of 8 elements here and of 4 there");
    tensors = original;
    tensors[0].batch_dimensions = 0;
    expect(tensors, 64, cuts, "tensor \"experts\" has 1 batch dimensions here and 0 there");
    tensors = original;
    tensors.pop_back();
    expect(tensors, 64, cuts,
           "there are 2 tensors here and 1 there; the first that only one side has is \"vector\"");
    expect(original, 65, {0, 16, 16, 44, 51, 65}, "the buffer has 64 elements here and 65 there");
    expect(original, 64, {0, 16, 16, 44, 52, 64}, "cut 4 is at 51 here and at 52 there");
    expect(original, 64, {0, 64}, "there are 5 ranks here and 1 there");
}

TEST(Layout, PrintsOnABoundedNumberOfLines) {
    EXPECT_NE(to_string(sample()).find("[0, 40) \"experts\" [2, 5, 4] block 8 batch 1"),
              std::string::npos);
    std::vector<Tensor> tensors;
    for (int i = 0; i < 1000; ++i) {
        tensors.push_back(
            {.name = std::string("t").append(std::to_string(i)), .shape = {1}, .offset = i});
    }
    const std::string text = to_string(Layout(std::move(tensors), 1000, Cuts{0, 1000}));
    EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 70);
    EXPECT_NE(text.find("936 more tensors"), std::string::npos);
}

// Generates a legal layout: tensors of any shape with gaps, and random cuts that are moved down to
// a block boundary.
Layout any_layout() {
    const auto number = [](std::int64_t low, std::int64_t high) {
        return *rc::gen::inRange<std::int64_t>(low, high + 1);
    };
    std::vector<Tensor> tensors;
    std::int64_t end = 0;
    const std::int64_t count = number(0, 6);
    for (std::int64_t i = 0; i < count; ++i) {
        Tensor tensor;
        tensor.name = std::string(1, static_cast<char>('f' - i)) + std::to_string(i);
        const std::int64_t dimensions = number(0, 3);
        std::int64_t elements = 1;
        for (std::int64_t d = 0; d < dimensions; ++d) {
            tensor.shape.push_back(number(0, 5));
            elements *= tensor.shape.back();
        }
        tensor.offset = end + number(0, 3);
        tensor.block = number(1, 12);
        tensor.batch_dimensions = static_cast<std::int32_t>(number(0, dimensions));
        end = tensor.offset + elements;
        tensors.push_back(tensor);
    }
    const std::int64_t elements = end + number(0, 3);
    // An element may start a shard unless it is inside a block of a tensor.
    std::vector<bool> legal(static_cast<std::size_t>(elements) + 1, true);
    for (const Tensor &tensor : tensors) {
        std::int64_t matrix = 1;
        for (std::size_t d = tensor.batch_dimensions; d < tensor.shape.size(); ++d) {
            matrix *= tensor.shape[d];
        }
        std::int64_t matrices = 1;
        for (std::int32_t d = 0; d < tensor.batch_dimensions; ++d) matrices *= tensor.shape[d];
        for (std::int64_t m = 0; m < matrices; ++m) {
            for (std::int64_t i = 0; i < matrix; ++i) {
                legal[tensor.offset + m * matrix + i] = i % tensor.block == 0;
            }
        }
    }
    Cuts cuts = {0, elements};
    for (std::int64_t k = number(0, 5); k > 0; --k) {
        std::int64_t cut = number(0, elements);
        while (!legal[cut]) --cut;
        cuts.push_back(cut);
    }
    std::sort(cuts.begin(), cuts.end());
    return Layout(tensors, elements, cuts);
}

RC_GTEST_PROP(LayoutProperty, PiecesCoverEveryElementOfEveryTensorOnce, ()) {
    const Layout layout = any_layout();
    std::vector<std::vector<int>> seen;
    for (const Tensor &tensor : layout.tensors()) seen.emplace_back(tensor.elements, 0);
    for (int rank = 0; rank < layout.ranks(); ++rank) {
        for (const Layout::Piece &piece : layout.pieces(rank)) {
            RC_ASSERT(piece.elements >= 1);
            const Layout::Shard shard = layout.shard(rank);
            RC_ASSERT(shard.begin + piece.offset ==
                      layout.tensors()[piece.tensor].offset + piece.first);
            RC_ASSERT(piece.offset + piece.elements <= shard.elements());
            for (std::int64_t i = 0; i < piece.elements; ++i) ++seen[piece.tensor][piece.first + i];
        }
    }
    for (const auto &tensor : seen) {
        for (const int times : tensor) RC_ASSERT(times == 1);
    }
}

RC_GTEST_PROP(LayoutProperty, ParseRestoresSerialisedLayouts, ()) {
    const Layout layout = any_layout();
    const Layout back = Layout::parse(layout.serialise());
    RC_ASSERT(back == layout);
    RC_ASSERT(back.hash() == layout.hash());
    RC_ASSERT(layout.first_difference(back).empty());
    for (std::size_t i = 0; i < layout.tensors().size(); ++i) {
        RC_ASSERT(back.find(layout.tensors()[i].name) == i);
    }
}

RC_GTEST_PROP(LayoutProperty, EqualityAgreesWithBytesHashesAndDifferences, ()) {
    const Layout a = any_layout();
    const Layout b = any_layout();
    RC_ASSERT((a == b) == (a.serialise() == b.serialise()));
    RC_ASSERT((a == b) == (a.hash() == b.hash()));
    RC_ASSERT((a == b) == a.first_difference(b).empty());
    RC_ASSERT((a == b) == b.first_difference(a).empty());
}

// Parses untrusted bytes. Returns true for a layout with exactly these bytes, false for an Error.
bool parses(const std::vector<std::byte> &bytes) {
    try {
        EXPECT_EQ(Layout::parse(bytes).serialise(), bytes);
        return true;
    } catch (const Error &error) {
        EXPECT_EQ(error.status, VESCOMM_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(std::string(error.what()).rfind("these bytes are no layout: ", 0), 0u);
        return false;
    }
}

TEST(LayoutParse, RefusesEveryTruncation) {
    const std::vector<std::byte> bytes = sample().serialise();
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        EXPECT_FALSE(parses({bytes.begin(), bytes.begin() + size})) << size;
    }
    std::vector<std::byte> longer = bytes;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(parses(longer));
}

TEST(LayoutParse, HandlesEveryChangedByte) {
    const std::vector<std::byte> bytes = sample().serialise();
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        for (int value = 0; value < 256; ++value) {
            std::vector<std::byte> changed = bytes;
            changed[i] = static_cast<std::byte>(value);
            if (parses(changed)) {
                EXPECT_EQ(Layout::parse(changed) == sample(), changed == bytes);
            }
        }
    }
}

TEST(LayoutParse, HandlesRandomBytes) {
    std::mt19937 random(1);
    const std::vector<std::byte> bytes = sample().serialise();
    for (int i = 0; i < 20000; ++i) {
        std::vector<std::byte> noise = bytes;
        const std::size_t begin = random() % noise.size();
        const std::size_t end = begin + random() % (noise.size() - begin);
        for (std::size_t k = begin; k < end; ++k) noise[k] = static_cast<std::byte>(random());
        noise.resize(random() % 2 == 0 ? noise.size() : random() % (noise.size() + 40));
        parses(noise);
    }
}

TEST(LayoutParse, DoesNotAllocateForCountsThatTheBytesCannotHold) {
    const std::vector<std::byte> bytes = sample().serialise();
    // Positions of the numbers of ranks and tensors, the length of the first name and its number of
    // dimensions. Each is set to 2^62, then to a negative number.
    for (const std::size_t position : {16, 24, 80, 95}) {
        std::vector<std::byte> changed = bytes;
        changed[position + 7] = std::byte{0x40};
        EXPECT_FALSE(parses(changed)) << position;
        changed[position + 7] = std::byte{0xff};
        EXPECT_FALSE(parses(changed)) << position;
    }
}

}  // namespace
}  // namespace vescomm::internal

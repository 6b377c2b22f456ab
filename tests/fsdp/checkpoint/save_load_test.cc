// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Saves and loads without failures: any numbers of ranks, any pieces.
#include <gtest/gtest.h>

#include <set>

#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/checkpoint/manifest.h"
#include "planner/formats/safetensors_header.h"

namespace vescomm::fsdp::checkpoint {
namespace {

using namespace testing_support;

std::set<std::string> names(const std::string &folder) {
    std::set<std::string> names;
    for (const auto &entry : fs::directory_iterator(folder))
        names.insert(entry.path().filename().string());
    return names;
}

std::vector<std::string> no_errors_of(int ranks) {
    return std::vector<std::string>(static_cast<std::size_t>(ranks));
}

TEST(SavePath, NamesASaveOrTheLatestOne) {
    const auto split = [](const std::string &path) {
        const SavePath parts = split_path(path);
        return parts.folder + "|" + parts.save;
    };
    EXPECT_EQ(split("a/b"), "a/b|");
    EXPECT_EQ(split("a/b/"), "a/b/|");
    EXPECT_EQ(split("a/" + save_name(7)), "a|" + save_name(7));
    EXPECT_EQ(split("/a/" + save_name(7) + "//"), "/a|" + save_name(7));
    EXPECT_EQ(split(save_name(7)), ".|" + save_name(7));
    EXPECT_EQ(split("/" + save_name(7)), "/|" + save_name(7));
    EXPECT_EQ(split(save_name(7) + "/a"), save_name(7) + "/a|");
    for (const char *path : {"", "/", "//", "save-", "a/save-x"})
        EXPECT_EQ(split(path), std::string(path) + "|");
}

TEST(Checkpoint, LoadsAtAnyNumberOfRanksWhatAnyNumberHasSaved) {
    const std::vector<Tensor> model = model_of_all_types();
    for (int savers = 1; savers <= 8; ++savers) {
        TemporaryFolder folder;
        const auto seed = static_cast<unsigned>(savers);
        ASSERT_EQ(save_at(folder.path("c"), savers, model, seed), no_errors_of(savers));
        for (int loaders = 1; loaders <= 8; ++loaders) {
            SCOPED_TRACE(testing::Message() << savers << " to " << loaders << " ranks");
            expect_loads_at(folder.path("c"), loaders, model, 100 + static_cast<unsigned>(loaders));
        }
    }
}

TEST(Checkpoint, LoadsRandomPiecesOfRandomModels) {
    constexpr vescomm_type_t types[] = {VESCOMM_F32, VESCOMM_BF16, VESCOMM_F16,
                                        VESCOMM_I64, VESCOMM_U8,   VESCOMM_BOOL};
    for (unsigned seed = 0; seed < 60; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        std::mt19937 random(seed);
        std::vector<Tensor> model;
        for (unsigned i = 0, count = random() % 6; i < count; ++i) {
            std::vector<std::int64_t> shape;
            for (unsigned d = 0, dimensions = random() % 4; d < dimensions; ++d)
                shape.push_back(random() % 9);
            model.push_back({"t" + std::to_string(i), "master", shape, types[random() % 6]});
        }
        TemporaryFolder folder;
        SaveOptions options;
        options.checksum_bytes = 1 + random() % 70;
        const int savers = 1 + static_cast<int>(random() % 8);
        ASSERT_EQ(save_at(folder.path("c"), savers, model, seed, seed, options),
                  no_errors_of(savers));
        expect_loads_at(folder.path("c"), 1 + static_cast<int>(random() % 8), model, ~seed, seed);
    }
}

TEST(Checkpoint, ReadsEverySingleInterval) {
    TemporaryFolder folder;
    const Tensor tensor = {"t", "master", {17}, VESCOMM_F16};
    SaveOptions options;
    options.checksum_bytes = 6;
    ASSERT_EQ(save_at(folder.path("c"), 3, {tensor}, 5, 0, options), no_errors_of(3));
    Checkpoint checkpoint(folder.path("c"));
    for (std::int64_t first = 0; first <= 17; ++first)
        for (std::int64_t count = 0; count <= 17 - first; ++count) {
            std::string bytes(static_cast<std::size_t>(2 * count), '\0');
            const WantedPiece wanted[] = {{tensor, first, count, bytes.data()}};
            checkpoint.read(wanted);
            EXPECT_EQ(bytes, values_of(tensor, first, count)) << first << " " << count;
        }
}

TEST(Checkpoint, KeepsTheExtrasOfAllRanks) {
    TemporaryFolder folder;
    ASSERT_EQ(save_at(folder.path("c"), 3, {}, 1, 42), no_errors_of(3));
    Checkpoint checkpoint(folder.path("c"));
    EXPECT_EQ(checkpoint.extras(),
              (std::vector<std::string>{"random.0", "random.1", "random.2", "version"}));
    EXPECT_EQ(checkpoint.extra("random.0"), "");
    EXPECT_EQ(checkpoint.extra("random.2"), "\7\7");
    EXPECT_EQ(checkpoint.extra("version"), "42");
    EXPECT_EQ(checkpoint.extra("other"), std::nullopt);
}

TEST(Checkpoint, ListsTensorsWithoutElementsToo) {
    TemporaryFolder folder;
    const std::vector<Tensor> model = model_of_all_types();
    ASSERT_EQ(save_at(folder.path("c"), 2, model, 1), no_errors_of(2));
    const std::vector<Tensor> tensors = Checkpoint(folder.path("c")).tensors();
    EXPECT_EQ(tensors.size(), model.size());
    for (const Tensor &tensor : model)
        EXPECT_NE(std::find(tensors.begin(), tensors.end(), tensor), tensors.end())
            << describe(tensor);
}

TEST(Checkpoint, RemovesSavesBeyondThoseToKeep) {
    TemporaryFolder folder;
    const std::vector<Tensor> model = {{"t", "master", {9}, VESCOMM_F32}};
    SaveOptions options;
    options.keep = 3;
    for (unsigned version = 1; version <= 5; ++version)
        ASSERT_EQ(save_at(folder.path("c"), 2, model, 1, version, options), no_errors_of(2));
    EXPECT_EQ(names(folder.path("c")),
              (std::set<std::string>{"latest", save_name(3), save_name(4), save_name(5)}));
    expect_loads_at(folder.path("c"), 1, model, 2, 5);
    EXPECT_EQ(Checkpoint(folder.path("c") + "/" + save_name(3)).extra("version"), "3");
    EXPECT_EQ(list_saves(folder.path("c")),
              (std::vector<std::string>{save_name(3), save_name(4), save_name(5)}));
}

TEST(Checkpoint, WritesAFileOfStandardSafetensorsForEachRank) {
    TemporaryFolder folder;
    const std::vector<Tensor> model = model_of_all_types();
    ASSERT_EQ(save_at(folder.path("c"), 3, model, 9), no_errors_of(3));
    const std::string save = folder.path("c") + "/" + save_name(1);
    EXPECT_EQ(names(save),
              (std::set<std::string>{"manifest.json", "rank-00000.json", "rank-00000.safetensors",
                                     "rank-00001.json", "rank-00001.safetensors", "rank-00002.json",
                                     "rank-00002.safetensors"}));
    for (int rank = 0; rank < 3; ++rank) {
        const std::string file = read_text(save + "/" + data_file_of(rank));
        const auto bytes = static_cast<std::int64_t>(file.size());
        const std::int64_t header = formats::safetensors_header_bytes(file, bytes, "file");
        EXPECT_EQ(header % 8, 0);
        const auto entries = formats::parse_safetensors_header(
            file.substr(8, static_cast<std::size_t>(header)), bytes - 8 - header, "file");
        for (const auto &entry : entries) {
            EXPECT_EQ(entry.shape.size(), 1u);
            EXPECT_EQ(entry.begin % formats::bytes_of(entry.type), 0) << entry.name;
        }
        std::size_t pieces = 1 + (rank == 0 ? 1 : 0);  // the extras
        for (const Piece &piece : pieces_of_rank(model, rank, 3, 9).pieces)
            if (piece.count > 0) ++pieces;
        EXPECT_EQ(entries.size(), pieces);
    }
}

TEST(Checkpoint, CreatesTheParentsOfItsFolder) {
    TemporaryFolder folder;
    ASSERT_EQ(save_at(folder.path("a/b/c/"), 1, {}, 1, 3), no_errors_of(1));
    EXPECT_EQ(Checkpoint(folder.path("a/b/c")).extra("version"), "3");
}

}  // namespace
}  // namespace vescomm::fsdp::checkpoint

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Files that are damaged, missing, mixed up or hostile, and saves and loads with wrong arguments.
// The fuzz target checkpoint tries random ones.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/checkpoint/manifest.h"

namespace vescomm::fsdp::checkpoint {
namespace {

using namespace testing_support;

const std::vector<Tensor> model = {{"w", "master", {5, 7}, VESCOMM_F32},
                                   {"v", "master", {6}, VESCOMM_BF16}};

// Loads every element and every extra. Returns the error sentence, or "".
std::string load_all(const std::string &folder) {
    try {
        Checkpoint checkpoint(folder);
        for (const Tensor &tensor : checkpoint.tensors()) {
            std::string bytes(
                static_cast<std::size_t>(elements_of(tensor)) * vescomm_type_get_bytes(tensor.type),
                '\0');
            const WantedPiece wanted[] = {{tensor, 0, elements_of(tensor), bytes.data()}};
            checkpoint.read(wanted);
        }
        for (const std::string &name : checkpoint.extras()) checkpoint.extra(name);
        return "";
    } catch (const Error &error) {
        return error.what();
    }
}

std::string replaced(std::string text, const std::string &from, const std::string &to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

#define EXPECT_SAYS(error, text) EXPECT_NE((error).find(text), std::string::npos) << (error)

class CheckpointDamage : public testing::Test {
protected:
    void SetUp() override {
        ASSERT_EQ(save_at(path(), 2, model, 3), std::vector<std::string>(2));
        ASSERT_EQ(load_all(path()), "");
    }

    std::string path() const { return folder_.path("c"); }
    std::string file(const std::string &name) const {
        return path() + "/" + save_name(1) + "/" + name;
    }
    // Writes another index of a rank, with a manifest that lists it.
    void forge_index(int rank, const std::string &text) const {
        write_text(file(index_file_of(rank)), text);
        Manifest manifest = parse_manifest(read_text(file(manifest_file)), "manifest");
        RankFiles &files = manifest[static_cast<std::size_t>(rank)];
        files.index_bytes = static_cast<std::int64_t>(text.size());
        files.index_checksum = checksum_of(text);
        write_text(file(manifest_file), to_json(manifest));
    }

    TemporaryFolder folder_;
};

TEST_F(CheckpointDamage, AnyChangedByteOfAnyFileIsFoundOrHarmless) {
    std::vector<std::string> files = {path() + "/latest"};
    for (const auto &entry : fs::directory_iterator(path() + "/" + save_name(1)))
        files.push_back(entry.path().string());
    ASSERT_EQ(files.size(), 6u);
    for (const std::string &name : files) {
        const std::string text = read_text(name);
        int found = 0;
        for (std::size_t at = 0; at < text.size(); ++at) {
            std::string damaged = text;
            damaged[at] = static_cast<char>(damaged[at] ^ 0x11);
            write_text(name, damaged);
            const std::string error = load_all(path());
            // Metadata and padding of a safetensors header, and white space, hold no values.
            if (!error.empty()) ++found;
        }
        EXPECT_GE(found, static_cast<int>(text.size()) - 40) << name;
        write_text(name, text);
    }
    EXPECT_EQ(load_all(path()), "");
}

TEST_F(CheckpointDamage, AnyFileThatIsCutShortOrMissingIsAnErrorThatNamesIt) {
    for (const std::string name :
         {"manifest.json", "rank-00000.json", "rank-00001.json", "rank-00001.safetensors"}) {
        const std::string text = read_text(file(name));
        for (const std::size_t bytes : {text.size() - 2, text.size() / 2, std::size_t{0}}) {
            write_text(file(name), text.substr(0, bytes));
            EXPECT_SAYS(load_all(path()), name) << bytes;
        }
        fs::remove(file(name));
        EXPECT_SAYS(load_all(path()), name);
        fs::create_directory(file(name));
        EXPECT_SAYS(load_all(path()), name);
        fs::remove(file(name));
        write_text(file(name), text);
    }
    EXPECT_EQ(load_all(path()), "");
}

TEST_F(CheckpointDamage, AFolderWithoutALatestSaveNamesTheNewestOne) {
    fs::remove(path() + "/latest");
    EXPECT_SAYS(load_all(path()), "its newest complete save is \"save-0000000001\"");
    EXPECT_EQ(Checkpoint(SavePath{path(), save_name(1)}).extra("version"), "0");
    write_text(path() + "/latest", "{\"format\": \"other\"}");
    EXPECT_SAYS(load_all(path()), "format is \"other\", not \"vescomm-checkpoint\"");
    EXPECT_SAYS(load_all(path()), "its newest complete save is \"save-0000000001\"");
    EXPECT_SAYS(load_all(folder_.path("nothing")), "it has no complete save");
}

TEST_F(CheckpointDamage, NamesOfSavesDoNotLeaveTheFolder) {
    for (const char *name : {"../c/save-0000000001", "..", "/etc", "save-1", "save-0000000000",
                             "save-00000000001", "save-0000000001/"}) {
        write_text(path() + "/latest", latest_to_json(name));
        EXPECT_SAYS(load_all(path()), "must be such as \"save-0000000001\"") << name;
        EXPECT_THROW(Checkpoint(SavePath{path(), name}), Error) << name;
    }
}

TEST_F(CheckpointDamage, AnIndexWithGapsOverlapsOrContradictionsIsAnError) {
    const std::string text = read_text(file(index_file_of(1)));
    const Index index = parse_index(text, "index");
    ASSERT_GE(index.tensors.size(), 1u);
    const auto try_index = [&](auto change) {
        Index changed = index;
        change(changed);
        forge_index(1, to_json(changed, "index"));
        return load_all(path());
    };
    const auto large_piece = [](Index &changed) -> IndexedPiece & {
        for (IndexedTensor &tensor : changed.tensors)
            for (IndexedPiece &piece : tensor.pieces)
                if (piece.count > 1) return piece;
        throw std::runtime_error("the seed gives rank 1 no piece");
    };
    EXPECT_EQ(try_index([](Index &) {}), "");
    EXPECT_SAYS(try_index([](Index &changed) { changed.tensors.clear(); }),
                "were saved by no rank");
    EXPECT_SAYS(try_index([](Index &changed) { changed.tensors.push_back(changed.tensors[0]); }),
                "was saved by rank 1 and by rank 1; an element must be saved once");
    EXPECT_SAYS(try_index([](Index &changed) { changed.tensors[0].tensor.shape.push_back(1); }),
                " on rank 1, and ");
    EXPECT_SAYS(try_index([](Index &changed) { changed.rank = 0; }), "rank 0 of 2");
    EXPECT_SAYS(try_index([](Index &changed) { changed.ranks = 3; }),
                "files of two saves are mixed up");
    EXPECT_SAYS(try_index([](Index &changed) { changed.checksum_bytes = 1; }), " checksums; its ");
    EXPECT_SAYS(try_index([&](Index &changed) { large_piece(changed).checksums[0] ^= 1; }),
                "the checksum of bytes 0 to ");
    EXPECT_SAYS(try_index([&](Index &changed) { large_piece(changed).first += 1000; }),
                "are not within its");
    EXPECT_SAYS(try_index([](Index &changed) { changed.extras[0].name = "random.0"; }),
                "the extra \"random.0\" was saved by rank 0 and by rank 1");
    EXPECT_SAYS(try_index([](Index &changed) { changed.extras[0].name = "other"; }),
                "has no entry \"extra:other\"");
    EXPECT_SAYS(try_index([](Index &changed) {
                    changed.extras[0].bytes = std::int64_t{1} << 60;
                    changed.checksum_bytes = 1;
                }),
                " checksums; its ");
}

// A small checkpoint must not take memory that its files do not have. The index claims half a GiB,
// and so does the manifest.
TEST_F(CheckpointDamage, TheSizeOfAnExtraIsComparedWithItsFileBeforeMemoryIsAllocated) {
    const std::string forged = folder_.path("forged");
    const std::string in_save = forged + "/" + save_name(1) + "/";
    LoneAgreement alone;
    const std::vector<Extra> extras = {{"large", "x"}};
    save(forged, {}, extras, alone);
    constexpr std::int64_t claimed = std::int64_t{1} << 29;
    Index index = parse_index(read_text(in_save + index_file_of(0)), "index");
    index.extras[0].bytes = claimed;
    index.extras[0].checksums.resize(
        static_cast<std::size_t>(chunks_of(claimed, index.checksum_bytes)));
    const std::string text = to_json(index, "index");
    write_text(in_save + index_file_of(0), text);
    const auto max_resident_kib = [] {
        rusage usage{};
        getrusage(RUSAGE_SELF, &usage);
        return usage.ru_maxrss;
    };
    const auto before = max_resident_kib();
    for (const std::int64_t data_bytes : {claimed, std::int64_t{1}}) {
        const Manifest manifest = {
            {data_bytes, static_cast<std::int64_t>(text.size()), checksum_of(text)}};
        write_text(in_save + manifest_file, to_json(manifest));
        EXPECT_SAYS(load_all(forged), "is damaged");
    }
    EXPECT_LT(max_resident_kib() - before, (claimed >> 10) / 2);
}

TEST_F(CheckpointDamage, ExtrasAreNotReadBeyondALimit) {
    EXPECT_EQ(Checkpoint(path()).extra("version", 1), "0");
    EXPECT_THROW(Checkpoint(path()).extra("version", 0), Error);
}

TEST_F(CheckpointDamage, JsonOfAnotherFormIsAnError) {
    const std::string text = read_text(file(index_file_of(1)));
    const auto try_text = [&](const std::string &from, const std::string &to) {
        forge_index(1, replaced(text, from, to));
        return load_all(path());
    };
    EXPECT_SAYS(try_text("\"version\":1", "\"version\":2"),
                "version 2 of the format is newer than 1");
    EXPECT_SAYS(try_text("\"rank\":1", "\"rank\":-1"), "rank is -1; it must be a whole number");
    EXPECT_SAYS(try_text("\"rank\":1", "\"rank\":1.5"), "rank is 1.5");
    EXPECT_SAYS(try_text("\"rank\":1", "\"rank\":1,\"rank\":1"), "the key \"rank\" is there twice");
    EXPECT_SAYS(try_text("\"rank\":1", "\"rang\":1"), "the key \"rang\" is unknown");
    EXPECT_SAYS(try_text("\"tensors\":[", "\"tensors\":[3,"), "there is 3 instead of an object");
    EXPECT_SAYS(try_text("\"dtype\":\"BF16\"", "\"dtype\":\"bf16\""), "dtype \"bf16\"");
    EXPECT_SAYS(try_text("\"role\":\"master\"", "\"role\":\"ma/ter\""), "the role must be");
    EXPECT_SAYS(try_text("\"checksum_bytes\":24", "\"checksum_bytes\":0"), "checksum_bytes is 0");
    EXPECT_SAYS(try_text("\"checksum_bytes\":24", "\"checksum_bytes\":99999999999"),
                "from 1 to 67108864");
    EXPECT_SAYS(try_text("\"shape\":[", "\"shape\":[4611686018427387904,4,"), "2^62");
    EXPECT_SAYS(try_text("{", "["), "this is not JSON");
}

TEST_F(CheckpointDamage, ALoadOfAnotherModelNamesTheDifference) {
    Checkpoint checkpoint(path());
    const auto error_of = [&](const Tensor &tensor, std::int64_t first, std::int64_t count) {
        std::string bytes(1000, '\0');
        const WantedPiece wanted[] = {{tensor, first, count, bytes.data()}};
        try {
            checkpoint.read(wanted);
            return std::string();
        } catch (const Error &error) {
            return std::string(error.what());
        }
    };
    EXPECT_EQ(error_of(model[0], 3, 32), "");
    EXPECT_SAYS(error_of({"x", "master", {5, 7}, VESCOMM_F32}, 0, 1),
                "there is no tensor \"x\", role \"master\" among its 2 tensors");
    EXPECT_SAYS(error_of({"w", "moment", {5, 7}, VESCOMM_F32}, 0, 1), "role \"moment\"");
    EXPECT_SAYS(error_of({"w", "master", {7, 5}, VESCOMM_F32}, 0, 1),
                "was saved as f32 [5, 7], and is wanted as f32 [7, 5]");
    EXPECT_SAYS(error_of({"w", "master", {5, 7}, VESCOMM_F16}, 0, 1), "is wanted as f16 [5, 7]");
    EXPECT_SAYS(error_of(model[0], 3, 33),
                "33 elements from element 3 on are not within its 35 elements");
    EXPECT_SAYS(error_of(model[0], -1, 2), "-1");
    EXPECT_SAYS(error_of(model[0], INT64_MAX, INT64_MAX), "not within");
    const WantedPiece null[] = {{model[0], 0, 1, nullptr}};
    EXPECT_THROW(checkpoint.read(null), Error);
}

TEST(CheckpointArguments, AWrongSaveFailsOnAllRanksAndNamesTheTensor) {
    TemporaryFolder folder;
    const std::string bytes(1000, '\1');
    const auto errors_of = [&](const Piece &piece, const SaveOptions &options = {},
                               const std::string &extra = "e") {
        const auto errors = run_ranks(2, [&](ThreadAgreement &agreement) {
            std::vector<Piece> pieces;
            if (agreement.rank() == 1) pieces.push_back(piece);
            const std::vector<Extra> extras = {{extra + std::to_string(agreement.rank()), "x"}};
            save(folder.path("c"), pieces, extras, agreement, options);
        });
        EXPECT_EQ(errors[0], errors[1]);
        return errors[0];
    };
    const auto whole = [&](std::string name, std::string role, std::vector<std::int64_t> shape,
                           vescomm_type_t type, std::int64_t count) {
        return Piece{
            {std::move(name), std::move(role), std::move(shape), type}, 0, count, bytes.data()};
    };
    EXPECT_EQ(errors_of(whole("t", "r", {3}, VESCOMM_F32, 3)), "");
    EXPECT_SAYS(errors_of(whole("t", "r", {3}, VESCOMM_F32, 2)),
                "elements 2 to 2 were saved by no");
    EXPECT_SAYS(errors_of(whole("t", "r", {3}, VESCOMM_F32, 4)), "rank 1: saving on rank 1");
    EXPECT_SAYS(errors_of(whole("", "r", {3}, VESCOMM_F32, 3)), "its name has 0 bytes");
    EXPECT_SAYS(errors_of(whole(std::string(897, 'n'), "r", {3}, VESCOMM_F32, 3)), "897 bytes");
    EXPECT_SAYS(errors_of(whole("t", "", {3}, VESCOMM_F32, 3)), "the role must be");
    EXPECT_SAYS(errors_of(whole("t", "a:b", {3}, VESCOMM_F32, 3)), "the role must be");
    EXPECT_SAYS(errors_of(whole("t", "r", {-3}, VESCOMM_F32, 0)), "a dimension is -3");
    EXPECT_SAYS(errors_of(whole("t", "r", {3}, VESCOMM_C128, 3)), "safetensors has no type c128");
    EXPECT_SAYS(errors_of(whole("t", "r", {3}, 99, 3)), "there is no type 99");
    EXPECT_SAYS(errors_of(whole("t", "r", {INT64_MAX, 3}, VESCOMM_F32, 0)), "2^62");
    EXPECT_SAYS(errors_of(whole("\xff", "r", {3}, VESCOMM_F32, 3)), "no UTF-8");
    SaveOptions options;
    options.keep = 0;
    EXPECT_SAYS(errors_of(whole("t", "r", {3}, VESCOMM_F32, 3), options), "keep 0");
    options = {};
    options.checksum_bytes = 0;
    EXPECT_SAYS(errors_of(whole("t", "r", {3}, VESCOMM_F32, 3), options), "choose 1 to");
    EXPECT_SAYS(errors_of(whole("t", "r", {3}, VESCOMM_F32, 3), {}, std::string(900, 'e')),
                "the name of an extra has 901 bytes");
    // Only the first one was saved, and nothing of the others remains.
    EXPECT_EQ(list_saves(folder.path("c")), std::vector<std::string>{save_name(1)});
    EXPECT_FALSE(fs::exists(folder.path("c") + "/" + save_name(2)));
}

TEST(CheckpointArguments, OptionsThatDifferBetweenRanksAreAnError) {
    TemporaryFolder folder;
    const auto errors = run_ranks(3, [&](ThreadAgreement &agreement) {
        SaveOptions options;
        options.checksum_bytes = 8 << agreement.rank();
        save(folder.path("c"), {}, {}, agreement, options);
    });
    for (const std::string &error : errors)
        EXPECT_SAYS(error, "save with the same options on all ranks");
}

TEST(CheckpointArguments, ARankThatEndsIsAnErrorOfTheOthersAndTheNextSaveCleansUp) {
    TemporaryFolder folder;
    const auto meeting = std::make_shared<Meeting>(2);
    std::string error;
    std::thread survivor([&] {
        ThreadAgreement agreement(meeting, 0);
        try {
            save(folder.path("c"), {}, {}, agreement);
        } catch (const Error &failure) {
            error = failure.what();
        }
    });
    // Rank 1 takes part in the first exchange, and ends.
    meeting->all_gather(1, "[0,\"\",\"\"]");
    meeting->end();
    survivor.join();
    EXPECT_EQ(error, "another rank has ended");
    EXPECT_TRUE(fs::exists(folder.path("c") + "/" + save_name(1)));
    ASSERT_EQ(save_at(folder.path("c"), 1, {}, 1, 5), std::vector<std::string>(1));
    EXPECT_FALSE(fs::exists(folder.path("c") + "/" + save_name(1)));
    EXPECT_EQ(Checkpoint(folder.path("c")).extra("version"), "5");
}

}  // namespace
}  // namespace vescomm::fsdp::checkpoint

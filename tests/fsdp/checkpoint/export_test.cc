// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Exports in the sharded format of Hugging Face. export_test.py opens one with other libraries.
#include "fsdp/checkpoint/export.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/checkpoint/faulty_calls.h"
#include "planner/formats/safetensors_header.h"

namespace vescomm::fsdp::checkpoint {
namespace {

using namespace testing_support;

struct Exported {
    formats::StoredTensor header;
    std::string file;
    std::string bytes;
};

// Reads all files that the index names.
std::map<std::string, Exported> read_export(const std::string &folder) {
    const auto index = nlohmann::json::parse(read_text(folder + "/model.safetensors.index.json"));
    std::map<std::string, Exported> tensors;
    std::set<std::string> files;
    for (const auto &[name, file] : index["weight_map"].items()) files.insert(file);
    std::int64_t total = 0;
    for (const std::string &file : files) {
        const std::string text = read_text(folder + "/" + file);
        const auto size = static_cast<std::int64_t>(text.size());
        const auto header = formats::safetensors_header_bytes(text, size, file);
        for (const auto &entry : formats::parse_safetensors_header(
                 text.substr(8, static_cast<std::size_t>(header)), size - 8 - header, file)) {
            EXPECT_EQ(index["weight_map"][entry.name], file);
            EXPECT_EQ(entry.begin % formats::bytes_of(entry.type), 0);
            total += entry.end - entry.begin;
            tensors[entry.name] = {entry, file,
                                   text.substr(static_cast<std::size_t>(8 + header + entry.begin),
                                               static_cast<std::size_t>(entry.end - entry.begin))};
        }
    }
    EXPECT_EQ(index["metadata"]["total_size"], total);
    EXPECT_EQ(index["weight_map"].size(), tensors.size());
    return tensors;
}

void expect_exports(const std::string &folder, const std::vector<Tensor> &model,
                    const std::string &role) {
    const auto exported = read_export(folder);
    std::size_t count = 0;
    for (const Tensor &tensor : model) {
        if (tensor.role != role) continue;
        ++count;
        const auto found = exported.find(tensor.name);
        ASSERT_NE(found, exported.end()) << tensor.name;
        EXPECT_EQ(found->second.header.shape, tensor.shape);
        EXPECT_EQ(found->second.header.type, tensor.type);
        EXPECT_TRUE(found->second.bytes == values_of(tensor, 0, elements_of(tensor)));
    }
    EXPECT_EQ(exported.size(), count);
}

TEST(CheckpointExport, OfAModelWithoutTensorsHasAFileWithoutTensors) {
    TemporaryFolder folder;
    ASSERT_EQ(save_at(folder.path("c"), 2, {}, 7), (std::vector<std::string>{"", ""}));
    Checkpoint checkpoint(folder.path("c"));
    export_safetensors(checkpoint, folder.path("e"), {"master", 1000});
    EXPECT_TRUE(read_export(folder.path("e")).empty());
    int files = 0;
    for (const auto &entry : fs::directory_iterator(folder.path("e")))
        if (entry.path().extension() == ".safetensors") ++files;
    EXPECT_EQ(files, 1);
}

TEST(CheckpointExport, HasWholeTensorsInFilesOfAnySize) {
    TemporaryFolder folder;
    const std::vector<Tensor> model = model_of_all_types();
    for (const int ranks : {1, 3, 5})
        ASSERT_EQ(save_at(folder.path("c"), ranks, model, 7),
                  std::vector<std::string>(static_cast<std::size_t>(ranks)));
    Checkpoint checkpoint(folder.path("c"));
    int number = 0;
    for (const std::int64_t bytes : {1, 100, 1000, 5000, 1 << 30}) {
        for (const char *role : {"master", "state", "moment2"}) {
            SCOPED_TRACE(testing::Message() << role << " in files of " << bytes << " bytes");
            const std::string output = folder.path("out/" + std::to_string(number++));
            export_safetensors(checkpoint, output, {role, bytes});
            expect_exports(output, model, role);
        }
    }
}

TEST(CheckpointExport, NamesFilesAsTransformersDoes) {
    TemporaryFolder folder;
    const std::vector<Tensor> model = {{"a", "master", {10}, VESCOMM_F32},
                                       {"b", "master", {30}, VESCOMM_F32},
                                       {"c", "master", {5}, VESCOMM_F32},
                                       {"d", "master", {5}, VESCOMM_BF16}};
    ASSERT_EQ(save_at(folder.path("c"), 2, model, 7), std::vector<std::string>(2));
    Checkpoint checkpoint(folder.path("c"));
    export_safetensors(checkpoint, folder.path("out/"), {"master", 60});
    const auto exported = read_export(folder.path("out"));
    EXPECT_EQ(exported.at("a").file, "model-00001-of-00003.safetensors");
    EXPECT_EQ(exported.at("b").file, "model-00002-of-00003.safetensors");
    EXPECT_EQ(exported.at("c").file, "model-00003-of-00003.safetensors");
    EXPECT_EQ(exported.at("d").file, "model-00003-of-00003.safetensors");
}

TEST(CheckpointExport, CopiesTensorsThatAreLargerThanItsMemory) {
    TemporaryFolder folder;
    // Chunks whose size divides neither the type nor the memory of the export.
    const std::vector<Tensor> model = {{"w", "master", {1031, 2063}, VESCOMM_F64}};
    SaveOptions options;
    options.checksum_bytes = 65537;
    ASSERT_EQ(save_at(folder.path("c"), 3, model, 7, 0, options), std::vector<std::string>(3));
    Checkpoint checkpoint(folder.path("c"));
    export_safetensors(checkpoint, folder.path("out"));
    expect_exports(folder.path("out"), model, "master");
}

TEST(CheckpointExport, LeavesNothingAfterAnError) {
    TemporaryFolder folder;
    const std::vector<Tensor> model = {{"w", "master", {9}, VESCOMM_F32},
                                       {"v", "master", {9}, VESCOMM_F32}};
    ASSERT_EQ(save_at(folder.path("c"), 2, model, 7), std::vector<std::string>(2));
    const std::string output = folder.path("out");
    for (int at = 1;; ++at) {
        std::atomic<bool> failed = false;
        WatchedCalls calls([&](int number, std::string_view) {
            if (number == at) failed = true;
            return number == at ? ENOSPC : 0;
        });
        Checkpoint checkpoint(folder.path("c"));
        try {
            export_safetensors(checkpoint, output, {"master", 30}, calls);
        } catch (const Error &error) {
            EXPECT_NE(std::string(error.what()).find("errno 28"), std::string::npos)
                << error.what();
        }
        for (const std::string &name : names_in(folder.path("")))
            EXPECT_EQ(name.find("incomplete"), std::string::npos) << name;
        // The last call is an fsync() of the parent, after the rename.
        if (fs::exists(output)) {
            expect_exports(output, model, "master");
            fs::remove_all(output);
        }
        if (!failed) break;
        ASSERT_LT(at, 1000);
    }
    // Exports that were killed, and folders of others, do not hinder the next one and remain.
    for (const char *suffix : {".incomplete", ".incomplete-01234567"}) {
        fs::create_directory(output + suffix);
        write_text(output + suffix + "/notes", "of somebody else");
    }
    Checkpoint checkpoint(folder.path("c"));
    export_safetensors(checkpoint, output);
    expect_exports(output, model, "master");
    for (const char *suffix : {".incomplete", ".incomplete-01234567"})
        EXPECT_TRUE(fs::exists(output + suffix + "/notes"));
}

TEST(CheckpointExport, RefusesFullFoldersAndUnknownRoles) {
    TemporaryFolder folder;
    ASSERT_EQ(save_at(folder.path("c"), 1, {{"w", "master", {9}, VESCOMM_F32}}, 7),
              std::vector<std::string>(1));
    Checkpoint checkpoint(folder.path("c"));
    const auto error_of = [&](const std::string &output, const ExportOptions &options) {
        try {
            export_safetensors(checkpoint, output, options);
            return std::string();
        } catch (const Error &error) {
            return std::string(error.what());
        }
    };
    EXPECT_NE(error_of(folder.path("c"), {}).find("the folder is not empty"), std::string::npos);
    EXPECT_NE(error_of(folder.path("o"), {"weights"}).find("has the role \"weights\""),
              std::string::npos);
    EXPECT_EQ(error_of("", {}), "exporting: the name of the output folder is empty; give one");
    EXPECT_NE(error_of(folder.path("o"), {"master", 0}).find("at least 1 byte, not 0"),
              std::string::npos);
    EXPECT_FALSE(fs::exists(folder.path("o")));
}

}  // namespace
}  // namespace vescomm::fsdp::checkpoint

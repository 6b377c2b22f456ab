// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Symbolic links in the folder of a checkpoint: nothing outside the folder is read or removed.
#include <gtest/gtest.h>

#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/checkpoint/manifest.h"

namespace vescomm::fsdp::checkpoint {
namespace {

using namespace testing_support;

const std::vector<Tensor> model = {{"w", "master", {5, 7}, VESCOMM_F32}};

std::string load_all(const std::string &folder) {
    try {
        Checkpoint checkpoint(folder);
        std::string bytes(35 * sizeof(float), '\0');
        const WantedPiece wanted[] = {{model[0], 0, 35, bytes.data()}};
        checkpoint.read(wanted);
        return "";
    } catch (const Error &error) {
        return error.what();
    }
}

class CheckpointLinks : public testing::Test {
protected:
    std::string path(const std::string &name = "c") const { return folder_.path(name); }
    // Keeps one save.
    void save() const {
        SaveOptions options;
        options.keep = 1;
        ASSERT_EQ(save_at(path(), 2, model, 3, 0, options), std::vector<std::string>(2));
    }
    // Moves a file or folder of the checkpoint out of it, and puts a link in its place.
    void replace_by_link(const std::string &name) const {
        fs::rename(path() + "/" + name, path("outside"));
        fs::create_symlink(path("outside"), path() + "/" + name);
    }

    TemporaryFolder folder_;
};

TEST_F(CheckpointLinks, AnOldSaveThatIsALinkIsNotFollowedWhenItIsDue) {
    save();
    replace_by_link(save_name(1));
    const std::vector<std::string> before = names_in(path("outside"));
    ASSERT_FALSE(before.empty());
    for (int i = 0; i < 3; ++i) save();
    EXPECT_EQ(names_in(path("outside")), before);
    EXPECT_TRUE(fs::is_symlink(path() + "/" + save_name(1)));
    EXPECT_FALSE(fs::exists(path() + "/" + save_name(2)));
    EXPECT_EQ(load_all(path()), "");
}

TEST_F(CheckpointLinks, AFileOfAnOldSaveThatIsALinkIsRemovedAndItsTargetRemains) {
    save();
    replace_by_link(save_name(1) + "/" + data_file_of(1));
    save();
    EXPECT_FALSE(fs::exists(path() + "/" + save_name(1)));
    EXPECT_TRUE(fs::is_regular_file(path("outside")));
}

// The folder above exists and takes no entries: its disk is not mounted.
TEST_F(CheckpointLinks, ASaveBelowALinkToNothingIsAnErrorThatNamesIt) {
    fs::create_symlink(path("not mounted"), path("link"));
    const std::string below = path("link") + "/checkpoints/run";
    for (const std::string &why : save_at(below, 2, model, 3))
        EXPECT_NE(why.find(path("link") + "/checkpoints\""), std::string::npos) << why;
    for (const std::string &why : save_at("/proc/checkpoint", 1, model, 3))
        EXPECT_NE(why.find("/proc/checkpoint\""), std::string::npos) << why;
}

TEST_F(CheckpointLinks, AFileThatIsALinkIsNotRead) {
    for (const std::string &name :
         {std::string(latest_file), save_name(1) + "/" + manifest_file,
          save_name(1) + "/" + index_file_of(0), save_name(1) + "/" + data_file_of(1)}) {
        fs::remove_all(path());
        fs::remove_all(path("outside"));
        save();
        ASSERT_EQ(load_all(path()), "");
        replace_by_link(name);
        const std::string why = load_all(path());
        EXPECT_NE(why.find("symbolic link"), std::string::npos) << name << ": " << why;
    }
}

TEST_F(CheckpointLinks, ASaveThatIsALinkIsNotLoaded) {
    save();
    replace_by_link(save_name(1));
    const std::string why = load_all(path());
    EXPECT_NE(why.find("no complete save"), std::string::npos) << why;
}

// The program chose it.
TEST_F(CheckpointLinks, TheFolderItselfMayBeALink) {
    fs::create_directory(path("disk"));
    fs::create_directory_symlink(path("disk"), path());
    for (int i = 0; i < 3; ++i) save();
    EXPECT_EQ(load_all(path()), "");
    EXPECT_EQ(names_in(path("disk")), (std::vector<std::string>{latest_file, save_name(3)}));
}

}  // namespace
}  // namespace vescomm::fsdp::checkpoint

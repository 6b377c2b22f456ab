// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The key of a user: created once, and used only if no other user can know it.
#include "bootstrap/user_key.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace vescomm::internal {
namespace {

class UserKey : public testing::Test {
protected:
    void SetUp() override {
        folder_ = (std::filesystem::temp_directory_path() / "user_key_test.XXXXXX").string();
        ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    std::string file() const { return folder_ + "/vescomm/key"; }

    std::string folder_;
};

TEST_F(UserKey, IsCreatedOnceAndPrivate) {
    const auto key = user_key(folder_);
    ASSERT_TRUE(key);
    EXPECT_EQ(key->size(), 32u);
    EXPECT_EQ(user_key(folder_), key);
    struct stat status {};
    ASSERT_EQ(stat(file().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    // The file under a temporary name is gone.
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ + "/vescomm"), {}), 1);
}

TEST_F(UserKey, DiffersBetweenFolders) {
    EXPECT_NE(user_key(folder_), user_key(folder_ + "/other"));
}

TEST_F(UserKey, IsOneForProcessesThatCreateItAtTheSameTime) {
    std::vector<std::optional<std::string>> keys(8);
    std::vector<std::thread> threads;
    for (auto &key : keys) threads.emplace_back([&] { key = user_key(folder_); });
    for (std::thread &thread : threads) thread.join();
    ASSERT_TRUE(keys[0]);
    EXPECT_EQ(std::ranges::count(keys, keys[0]), 8);
}

TEST_F(UserKey, IsRefusedIfOthersCanReadOrWriteIt) {
    ASSERT_TRUE(user_key(folder_));
    for (const mode_t mode : {0640, 0604, 0620}) {
        ASSERT_EQ(chmod(file().c_str(), mode), 0);
        EXPECT_FALSE(user_key(folder_)) << mode;
    }
    ASSERT_EQ(chmod(file().c_str(), 0600), 0);
    EXPECT_TRUE(user_key(folder_));
}

TEST_F(UserKey, IsRefusedBehindALinkAndIfItIsNoFile) {
    ASSERT_TRUE(user_key(folder_));
    std::filesystem::rename(file(), folder_ + "/elsewhere");
    std::filesystem::create_symlink(folder_ + "/elsewhere", file());
    EXPECT_FALSE(user_key(folder_));
    std::filesystem::remove(file());
    std::filesystem::create_directory(file());
    EXPECT_FALSE(user_key(folder_));
}

TEST_F(UserKey, IsRefusedIfItIsTooShort) {
    ASSERT_TRUE(user_key(folder_));
    std::filesystem::resize_file(file(), 31);
    EXPECT_FALSE(user_key(folder_));
}

TEST_F(UserKey, NeedsAFolder) {
    EXPECT_FALSE(user_key(""));
    const std::string text = folder_ + "/text";
    std::ofstream(text) << "no folder";
    EXPECT_FALSE(user_key(text));
}

TEST(UserCacheFolder, IsAnAbsolutePath) {
    const auto with = [](const char *cache, const char *home) {
        if (cache != nullptr) setenv("XDG_CACHE_HOME", cache, 1);
        else unsetenv("XDG_CACHE_HOME");
        if (home != nullptr) setenv("HOME", home, 1);
        else unsetenv("HOME");
        return user_cache_folder();
    };
    EXPECT_EQ(with("/cache", "/home/me"), "/cache");
    EXPECT_EQ(with("cache", "/home/me"), "/home/me/.cache");
    EXPECT_EQ(with("", "/home/me"), "/home/me/.cache");
    EXPECT_EQ(with(nullptr, "/home/me"), "/home/me/.cache");
    EXPECT_EQ(with(nullptr, "me"), "");
    EXPECT_EQ(with(nullptr, nullptr), "");
}

}  // namespace
}  // namespace vescomm::internal

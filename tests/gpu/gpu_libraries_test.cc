// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Libraries that are there, missing, too old or without a driver. This program is not linked with
// the test double; GPU_DOUBLE_FOLDER is where its libraries are.
#include "gpu/gpu_libraries.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace vescomm::internal {
namespace {

std::string folder() {
    return std::getenv("GPU_DOUBLE_FOLDER");
}

GpuLibraryNames double_names() {
    return {{folder() + "/libcudart.so.13"}, {folder() + "/libnccl.so.2"}};
}

// Sets a variable until the end of the scope.
struct Setting {
    Setting(const char *name, const char *value) : name(name) { setenv(name, value, 1); }
    ~Setting() { unsetenv(name); }
    const char *name;
};

TEST(GpuLibraries, AreUsableTogether) {
    const GpuSupport support = examine_gpu_support(double_names());
    ASSERT_TRUE(support.libraries) << support.obstacle();
    EXPECT_EQ(support.obstacle(), "");
    EXPECT_EQ(support.libraries->nccl_version, 22809);
    EXPECT_EQ(support.cuda.text, "13.0, " + folder() + "/libcudart.so.13");
    EXPECT_EQ(support.devices.text, "16, driver for CUDA 13.0");
    EXPECT_EQ(support.nccl.text, "2.28.9, " + folder() + "/libnccl.so.2");
    int count = 0;
    EXPECT_EQ(support.libraries->cuda.get_device_count(&count), cuda::success);
    EXPECT_EQ(count, 16);
    EXPECT_STREQ(support.libraries->nccl.get_error_string(nccl::invalid_usage), "invalid usage");
}

TEST(GpuLibraries, OfTheProcessComeFirst) {
    void *loaded = dlopen((folder() + "/libnccl.so.2").c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(loaded, nullptr) << dlerror();
    // The first name does not exist, and would be found in no folder; the second is loaded.
    GpuLibraryNames names = double_names();
    names.nccl = {"libno_nccl.so.1", "libnccl.so.2"};
    const GpuSupport support = examine_gpu_support(names);
    EXPECT_EQ(support.nccl.text, "2.28.9, " + folder() + "/libnccl.so.2");
}

TEST(GpuLibraries, MissingOnesGiveASentence) {
    GpuLibraryNames names = double_names();
    names.nccl = {"libno_nccl.so.1"};
    GpuSupport support = examine_gpu_support(names);
    EXPECT_FALSE(support.libraries);
    EXPECT_TRUE(support.cuda.usable);
    EXPECT_NE(support.obstacle().find("NCCL cannot be loaded: libno_nccl.so.1: "),
              std::string::npos)
        << support.obstacle();
    EXPECT_NE(support.obstacle().find("install NCCL 2.28 or later"), std::string::npos);

    names = double_names();
    names.cuda = {"libno_cuda.so.1", "libno_cuda.so.2"};
    support = examine_gpu_support(names);
    EXPECT_FALSE(support.libraries);
    EXPECT_TRUE(support.nccl.usable);
    EXPECT_NE(support.obstacle().find("libno_cuda.so.2"), std::string::npos);
    EXPECT_EQ(support.devices.text, "unknown without the CUDA runtime");
}

TEST(GpuLibraries, OldVersionsGiveASentence) {
    const Setting old("GPU_DOUBLE_NCCL", "22703");
    const GpuSupport support = examine_gpu_support(double_names());
    EXPECT_FALSE(support.libraries);
    EXPECT_EQ(support.obstacle(),
              "NCCL 2.27.3 (" + folder() +
                  "/libnccl.so.2) is too old: vescomm needs 2.28 or later; install NCCL 2.28 or "
                  "later, or set LD_LIBRARY_PATH to it");
}

TEST(GpuLibraries, LibrariesThatLackFunctionsGiveASentence) {
    GpuLibraryNames names = double_names();
    names.nccl = {folder() + "/libcudart.so.13"};  // has no function of NCCL
    EXPECT_NE(examine_gpu_support(names).obstacle().find("does not state its version"),
              std::string::npos);
    names = double_names();
    names.cuda = {"libc.so.6"};
    EXPECT_NE(examine_gpu_support(names).obstacle().find(
                  "the CUDA runtime lacks cudaGetDeviceCount(): it is too old"),
              std::string::npos);
}

TEST(GpuLibraries, DriversThatAreMissingOrOldGiveASentence) {
    for (const auto &[driver, devices, sentence] :
         {std::tuple{"0", "1", "there is no NVIDIA driver"},
          std::tuple{"11080", "1", "supports CUDA 11.8, which is older than the CUDA runtime"},
          std::tuple{"13000", "0", "shows no GPU to this process"}}) {
        const Setting first("GPU_DOUBLE_DRIVER", driver), second("GPU_DOUBLE_DEVICES", devices);
        const GpuSupport support = examine_gpu_support(double_names());
        EXPECT_FALSE(support.libraries);
        EXPECT_TRUE(support.cuda.usable);
        EXPECT_TRUE(support.nccl.usable);
        EXPECT_NE(support.obstacle().find(sentence), std::string::npos) << support.obstacle();
    }
}

TEST(GpuLibraries, LeaveNoErrorOfCuda) {
    const GpuSupport usable = examine_gpu_support(double_names());
    ASSERT_TRUE(usable.libraries);
    for (const auto &[variable, value] :
         {std::pair{"GPU_DOUBLE_DEVICES", "0"}, std::pair{"GPU_DOUBLE_DRIVER", "0"}}) {
        const Setting setting(variable, value);
        EXPECT_FALSE(examine_gpu_support(double_names()).libraries);
        EXPECT_EQ(usable.libraries->cuda.get_last_error(), cuda::success);
    }
}

// A program that has another NCCL, as one that PyTorch brings, passes communicators of that.
TEST(GpuLibraries, AnotherNcclOfTheProgramIsFound) {
    const GpuSupport support = examine_gpu_support(double_names());
    ASSERT_TRUE(support.libraries);
    EXPECT_EQ(other_nccl(support.libraries->nccl), "");
    const std::filesystem::path copy =
        std::filesystem::temp_directory_path() / ("libnccl_copy_" + std::to_string(getpid()));
    std::filesystem::copy_file(folder() + "/libnccl.so.2", copy);
    void *other = dlopen(copy.c_str(), RTLD_NOW | RTLD_GLOBAL);
    std::filesystem::remove(copy);
    ASSERT_NE(other, nullptr) << dlerror();
    EXPECT_EQ(other_nccl(support.libraries->nccl), copy.string());
    dlclose(other);
}

TEST(GpuLibraries, VersionsHaveText) {
    EXPECT_EQ(nccl_version_text(22809), "2.28.9");
    EXPECT_EQ(nccl_version_text(23203), "2.32.3");
    EXPECT_EQ(nccl_version_text(2708), "2.7.8");
}

}  // namespace
}  // namespace vescomm::internal

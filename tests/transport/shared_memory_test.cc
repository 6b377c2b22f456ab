// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Memory that ranks share: its size cannot change, and its pages are allocated although signals
// interrupt the calls. The test replaces fallocate() to simulate interruptions.
#include "transport/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>

#include "base/error.h"

namespace {

// Calls for more bytes than this are interrupted; 0: no call is.
std::size_t uninterrupted_bytes = 0;
bool always_interrupted = false;
int calls = 0;

int take(int file, int mode, off_t offset, off_t bytes) {
    ++calls;
    if (always_interrupted ||
        (uninterrupted_bytes > 0 && bytes > static_cast<off_t>(uninterrupted_bytes))) {
        errno = EINTR;
        return -1;
    }
    return static_cast<int>(syscall(SYS_fallocate, file, mode, offset, bytes));
}

}  // namespace

// Both names are replaced: the build of the library determines which one it calls.
#undef fallocate
extern "C" int fallocate64(int file, int mode, off_t offset, off_t bytes) {
    return take(file, mode, offset, bytes);
}

namespace vescomm::internal {
namespace {

class SharedMemory : public testing::Test {
protected:
    SharedMemory() {
        uninterrupted_bytes = 0;
        always_interrupted = false;
        calls = 0;
    }
};

std::uint64_t bytes_allocated(const Descriptor &file) {
    struct stat status {};
    fstat(file.get(), &status);
    return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

vescomm_status_t status_of(const std::function<void()> &body) {
    try {
        body();
    } catch (const Error &error) {
        EXPECT_NE(std::string(error.what()), "");
        return error.status;
    }
    return VESCOMM_OK;
}

// A peer that truncates the file would kill every rank that touches the mapping.
TEST_F(SharedMemory, CannotBeTruncatedThroughItsDescriptor) {
    const std::size_t bytes = 16 * page_bytes();
    const Descriptor file = make_anonymous_file("test", bytes);
    const Descriptor copy(dup(file.get()));
    EXPECT_NE(ftruncate(copy.get(), 0), 0);
    EXPECT_EQ(errno, EPERM);
    EXPECT_NE(ftruncate(copy.get(), static_cast<off_t>(2 * bytes)), 0);
    EXPECT_NE(fcntl(copy.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
    const MappedMemory memory(file, bytes);
    std::memset(memory.data(), 1, bytes);
}

// The kernel ends a process that exceeds the limit. A child process sets it, for itself only.
TEST_F(SharedMemory, IsRefusedBeyondTheLimitOfFileSizes) {
    const std::size_t bytes = 16 * page_bytes();
    const pid_t child = fork();
    if (child == 0) {
        const rlimit limit{bytes - 1, bytes - 1};
        setrlimit(RLIMIT_FSIZE, &limit);
        const vescomm_status_t status = status_of([&] { make_anonymous_file("test", bytes); });
        make_anonymous_file("test", bytes / 2);
        _exit(status == VESCOMM_ERROR_OUT_OF_MEMORY ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

TEST_F(SharedMemory, IsRejectedUnlessSealedAndOfTheExpectedSize) {
    const std::size_t bytes = 4 * page_bytes();
    require_sealed(make_anonymous_file("test", bytes), bytes);
    require_sealed(make_anonymous_file("test", 0), 0);
    const auto refused = [&](const Descriptor &file) {
        return status_of([&] { require_sealed(file, bytes); });
    };
    EXPECT_EQ(refused(make_anonymous_file("test", bytes / 2)), VESCOMM_ERROR_MISMATCH);
    const Descriptor open(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(open.get(), static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(refused(open), VESCOMM_ERROR_MISMATCH);
    const Descriptor device(::open("/dev/null", O_RDWR | O_CLOEXEC));
    EXPECT_EQ(refused(device), VESCOMM_ERROR_MISMATCH);
}

TEST_F(SharedMemory, ReservesPagesWithinItsSealedSize) {
    const std::size_t bytes = 64 * page_bytes();
    const Descriptor file = make_anonymous_file("test", bytes);
    EXPECT_EQ(bytes_allocated(file), 0u);
    reserve_memory(file, page_bytes(), 32 * page_bytes(), Deadline::after(60));
    EXPECT_EQ(bytes_allocated(file), 32 * page_bytes());
    reserve_memory(file, 0, bytes, Deadline::after(60));
    EXPECT_EQ(bytes_allocated(file), bytes);
    EXPECT_GT(calls, 0) << "the library calls another fallocate";
    EXPECT_NE(status_of([&] { reserve_memory(file, bytes, bytes, Deadline::after(60)); }),
              VESCOMM_OK);
}

// Without smaller calls, a fast timer of the program would interrupt the kernel for ever.
TEST_F(SharedMemory, ReservesPagesAlthoughSignalsInterruptLargeCalls) {
    for (const std::size_t pages : {1, 2, 7, 64}) {
        const std::size_t bytes = 257 * page_bytes();
        const Descriptor file = make_anonymous_file("test", bytes);
        uninterrupted_bytes = pages * page_bytes();
        reserve_memory(file, 0, bytes, Deadline::after(60));
        uninterrupted_bytes = 0;
        EXPECT_EQ(bytes_allocated(file), bytes) << pages;
    }
}

TEST_F(SharedMemory, TimesOutWhenSignalsInterruptAllCalls) {
    const std::size_t bytes = 64 * page_bytes();
    const Descriptor file = make_anonymous_file("test", bytes);
    always_interrupted = true;
    EXPECT_EQ(status_of([&] { reserve_memory(file, 0, bytes, Deadline::after(0.01)); }),
              VESCOMM_ERROR_TIMEOUT);
    EXPECT_GT(calls, 0);
}

}  // namespace
}  // namespace vescomm::internal

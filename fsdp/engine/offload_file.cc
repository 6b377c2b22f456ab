// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/offload_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "fsdp/error.h"

namespace vescomm::fsdp {

namespace {

[[noreturn]] void fail(const std::string &folder, const char *call, int error, std::size_t bytes) {
    const bool full = error == ENOSPC || error == EFBIG || error == EDQUOT;
    const char *advice = "give a folder of a local disk in which files can be created";
    if (full) advice = "free some space, or use another folder";
    if (error == EINTR) advice = "see which timer of the program sends signals so often";
    throw Failure(VESCOMM_ERROR_SYSTEM,
                  fmt::format("offload_folder \"{}\": {} of a file of {} bytes: {}; {}", folder,
                              call, bytes, std::generic_category().message(error), advice));
}

// Creates a file without a name, or removes its name where the file system needs one.
int create(const std::string &folder, std::size_t bytes) {
    int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600);
    if (file >= 0) return file;
    if (errno != EOPNOTSUPP && errno != EISDIR) fail(folder, "open()", errno, bytes);
    std::string path = folder + "/vescomm-offload.XXXXXX";
    file = mkostemp(path.data(), O_CLOEXEC);
    if (file < 0) fail(folder, "mkostemp()", errno, bytes);
    unlink(path.c_str());
    return file;
}

// Takes the space of a file: a write to a page without space would end the process. Returns the
// error, 0 if there is none. Signals may interrupt the calls: some file systems then give back all
// that a call has taken, so the calls become smaller until one succeeds.
int take_space(int file, std::size_t bytes) {
    constexpr int max_interruptions = 1000;  // in a row
    int interruptions = 0;
    std::size_t at_once = bytes;
    for (std::size_t done = 0; done < bytes;) {
        const std::size_t count = std::min(at_once, bytes - done);
        const int error =
            posix_fallocate(file, static_cast<off_t>(done), static_cast<off_t>(count));
        if (error == 0) {
            done += count;
            interruptions = 0;
            continue;
        }
        if (error != EINTR || ++interruptions > max_interruptions) return error;
        at_once = std::max(offload_alignment(), count / 2);
    }
    return 0;
}

}  // namespace

std::size_t offload_alignment() noexcept {
    static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return page;
}

OffloadFile::OffloadFile(const std::string &folder, std::size_t bytes) : size_(bytes) {
    if (bytes == 0) return;
    file_ = create(folder, bytes);
    int error = take_space(file_, bytes);
    const char *call = "posix_fallocate()";
    if (error == 0) {
        void *data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
        if (data != MAP_FAILED) {
            data_ = static_cast<std::byte *>(data);
            return;
        }
        error = errno;
        call = "mmap()";
    }
    close(std::exchange(file_, -1));
    fail(folder, call, error, bytes);
}

OffloadFile::~OffloadFile() {
    if (data_ != nullptr) munmap(data_, size_);
    if (file_ >= 0) close(file_);
}

OffloadFile::OffloadFile(OffloadFile &&other) noexcept {
    *this = std::move(other);
}

OffloadFile &OffloadFile::operator=(OffloadFile &&other) noexcept {
    std::swap(file_, other.file_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

// The advice of these functions may fail without consequence.
void OffloadFile::will_need(const std::byte *data, std::size_t bytes) const noexcept {
    if (bytes > 0) madvise(const_cast<std::byte *>(data), bytes, MADV_WILLNEED);
}

void OffloadFile::rest(const std::byte *data, std::size_t bytes) const noexcept {
    if (bytes == 0) return;
    // Pages of a shared mapping that leave the process keep their contents in the file.
    madvise(const_cast<std::byte *>(data), bytes, MADV_DONTNEED);
    sync_file_range(file_, data - data_, static_cast<off_t>(bytes), SYNC_FILE_RANGE_WRITE);
}

}  // namespace vescomm::fsdp

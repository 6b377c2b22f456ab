// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up, and a system call for each 8 MiB.
#include "fsdp/checkpoint/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <random>
#include <system_error>
#include <utility>

#include "fsdp/checkpoint/error.h"
#include "planner/formats/quoted.h"

namespace vescomm::fsdp::checkpoint {
namespace {

namespace fs = std::filesystem;

// Linux moves at most 2 GiB in one call; smaller calls let a save end early.
constexpr std::size_t bytes_of_a_call = std::size_t{8} << 20;

const char *advice(int error) {
    switch (error) {
        case ENOSPC:
        case EDQUOT:
            return "; free space there, keep fewer checkpoints, or choose another folder";
        case EFBIG:
            return "; raise the limit of file sizes (ulimit -f), or save with more ranks";
        case EACCES:
        case EPERM:
        case EROFS:
            return "; choose a folder that this user may write";
        case EMFILE:
        case ENFILE:
            return "; raise the limit of open files (ulimit -n)";
        default:
            return "";
    }
}

[[noreturn]] void fail(const std::string &path, const std::string &what, int error) {
    throw Error(VESCOMM_ERROR_SYSTEM,
                fmt::format("{}: {} failed: {} (errno {}){}", in_quotes(path), what,
                            std::generic_category().message(error), error, advice(error)));
}

// Repeats a system call that a signal has interrupted.
template <typename Call>
auto repeat(Call call) {
    for (;;) {
        const auto result = call();
        if (result >= 0 || errno != EINTR) return result;
    }
}

int open_folder(SystemCalls &calls, const std::string &folder) {
    const int file =
        repeat([&] { return calls.open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0); });
    if (file < 0) fail(folder, "opening the folder", errno);
    return file;
}

constexpr int open_save = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;

struct CloseFile {
    void operator()(const int *file) const { ::close(*file); }
};

struct CloseFolder {
    void operator()(DIR *folder) const { ::closedir(folder); }
};

// Returns the names in an open folder, sorted. The descriptor stays open.
std::vector<std::string> names_in_open(int file, const std::string &folder) {
    const int copy = ::openat(file, ".", open_save);
    if (copy < 0) fail(folder, "listing the folder", errno);
    const std::unique_ptr<DIR, CloseFolder> entries(::fdopendir(copy));
    if (entries == nullptr) {
        const int error = errno;
        ::close(copy);
        fail(folder, "listing the folder", error);
    }
    std::vector<std::string> names;
    for (;;) {
        errno = 0;
        const dirent *entry = ::readdir(entries.get());
        if (entry == nullptr) break;
        const std::string name = entry->d_name;
        if (name != "." && name != "..") names.push_back(name);
    }
    if (errno != 0) fail(folder, "listing the folder", errno);
    std::ranges::sort(names);
    return names;
}

}  // namespace

std::string in_quotes(std::string_view text) {
    return formats::quoted_text(text);
}

OutputFile::OutputFile(SystemCalls &calls, const std::string &path) : calls_(calls), path_(path) {
    constexpr int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    file_ = repeat([&] { return calls_.open(path_.c_str(), flags, 0666); });
    if (file_ < 0) fail(path_, "creating the file", errno);
}

OutputFile::~OutputFile() {
    if (file_ >= 0) calls_.close(file_);
}

void OutputFile::write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const std::size_t count = std::min(bytes.size(), bytes_of_a_call);
        const ssize_t done = repeat([&] { return calls_.write(file_, bytes.data(), count); });
        if (done <= 0)
            fail(path_, fmt::format("writing {} bytes at byte {}", count, written_),
                 done < 0 ? errno : EIO);
        bytes = bytes.subspan(static_cast<std::size_t>(done));
        written_ += done;
    }
}

void OutputFile::finish() {
    if (repeat([&] { return calls_.fsync(file_); }) < 0)
        fail(path_, fmt::format("writing {} bytes to the disk (fsync)", written_), errno);
    // A close that was interrupted has closed the file.
    if (calls_.close(std::exchange(file_, -1)) < 0 && errno != EINTR)
        fail(path_, "closing the file", errno);
}

InputFile::InputFile(SystemCalls &calls, const std::string &path) : calls_(calls), path_(path) {
    // A pipe of that name must not block.
    constexpr int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW;
    file_ = repeat([&] { return calls_.open(path_.c_str(), flags, 0); });
    if (file_ < 0 && errno == ELOOP)
        fail(path_, "opening the file, which is a symbolic link,", ELOOP);
    if (file_ < 0) fail(path_, "opening the file", errno);
    size_ = calls_.size(file_);
    if (size_ >= 0) return;
    const int error = errno;
    calls_.close(std::exchange(file_, -1));
    fail(path_, "reading its size", error);
}

InputFile::InputFile(InputFile &&other) noexcept
    : calls_(other.calls_),
      path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      size_(other.size_) {}

InputFile::~InputFile() {
    if (file_ >= 0) calls_.close(file_);
}

void InputFile::read(std::int64_t offset, std::span<std::byte> bytes) const {
    while (!bytes.empty()) {
        const std::size_t count = std::min(bytes.size(), bytes_of_a_call);
        const ssize_t done =
            repeat([&] { return calls_.pread(file_, bytes.data(), count, offset); });
        if (done < 0) fail(path_, fmt::format("reading {} bytes at byte {}", count, offset), errno);
        if (done == 0)
            throw Error(VESCOMM_ERROR_SYSTEM,
                        fmt::format("{} ends at byte {} while it is read; {} bytes are missing",
                                    in_quotes(path_), offset, bytes.size()));
        bytes = bytes.subspan(static_cast<std::size_t>(done));
        offset += done;
    }
}

FolderLock::FolderLock(SystemCalls &calls, const std::string &folder)
    : calls_(calls), file_(open_folder(calls, folder)) {
    if (repeat([&] { return calls_.lock(file_); }) == 0) return;
    const int error = errno;
    if (error == EOPNOTSUPP || error == ENOLCK || error == ENOSYS || error == EINVAL) return;
    calls_.close(std::exchange(file_, -1));
    if (error == EWOULDBLOCK)
        throw Error(VESCOMM_ERROR_SYSTEM,
                    fmt::format("another save writes to the folder {}; wait for its end, or choose "
                                "another folder",
                                in_quotes(folder)));
    fail(folder, "locking the folder", error);
}

FolderLock::~FolderLock() {
    if (file_ >= 0) calls_.close(file_);
}

void write_new_file(SystemCalls &calls, const std::string &path, std::string_view text) {
    OutputFile file(calls, path);
    file.write(std::as_bytes(std::span(text)));
    file.finish();
}

std::string read_file(SystemCalls &calls, const std::string &path, std::int64_t max_bytes) {
    const InputFile file(calls, path);
    if (file.size() > max_bytes)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    fmt::format("{} has {} bytes; the largest allowed is {}", in_quotes(path),
                                file.size(), max_bytes));
    std::string text(static_cast<std::size_t>(file.size()), '\0');
    file.read(0, std::as_writable_bytes(std::span(text)));
    return text;
}

void sync_folder(SystemCalls &calls, const std::string &folder) {
    const int file = open_folder(calls, folder);
    const int result = repeat([&] { return calls.fsync(file); });
    const int error = errno;
    calls.close(file);
    // Some file systems cannot sync folders, and need not.
    if (result < 0 && error != EINVAL)
        fail(folder, "writing the folder to the disk (fsync)", error);
}

void make_folder(SystemCalls &calls, const std::string &folder) {
    if (calls.mkdir(folder.c_str(), 0777) < 0) fail(folder, "creating the folder", errno);
}

std::string make_unique_folder(SystemCalls &calls, const std::string &prefix) {
    std::random_device random;
    // Two of these names are the same by chance only.
    constexpr int attempts = 10;
    for (int attempt = 1;; ++attempt) {
        const std::string folder = fmt::format("{}{:08x}", prefix, random());
        if (calls.mkdir(folder.c_str(), 0777) == 0) return folder;
        if (errno != EEXIST || attempt == attempts) fail(folder, "creating the folder", errno);
    }
}

namespace {

// Returns the error number. 0: the folder is there. If it is no folder, the next call says so.
int try_folder(SystemCalls &calls, const std::string &folder) {
    if (calls.mkdir(folder.c_str(), 0777) < 0) return errno == EEXIST ? 0 : errno;
    const fs::path parent = fs::path(folder).parent_path();
    sync_folder(calls, parent.empty() ? "." : parent.string());
    return 0;
}

}  // namespace

void make_folders(SystemCalls &calls, const std::string &folder) {
    int error = try_folder(calls, folder);
    const fs::path parent = fs::path(folder).parent_path();
    if (error == ENOENT && !parent.empty() && parent != folder) {
        make_folders(calls, parent.string());
        // The parent may exist and take no entries: a link to nothing, or a folder of /proc.
        error = try_folder(calls, folder);
    }
    if (error != 0) fail(folder, "creating the folder", error);
}

void rename_file(SystemCalls &calls, const std::string &from, const std::string &to) {
    if (calls.rename(from.c_str(), to.c_str()) < 0)
        fail(from, "renaming it to " + in_quotes(to), errno);
}

void remove_file(SystemCalls &calls, const std::string &path) {
    if (calls.unlink(path.c_str()) < 0 && errno != ENOENT) fail(path, "removing the file", errno);
}

void remove_folder(SystemCalls &calls, const std::string &folder, const std::string &first) {
    const int file = repeat([&] { return calls.open(folder.c_str(), open_save, 0); });
    if (file < 0 && errno == ENOENT) return;
    if (file < 0) fail(folder, "opening the folder, to remove it,", errno);
    try {
        const auto remove = [&](const std::string &name) {
            if (calls.unlink_in(file, name.c_str()) < 0 && errno != ENOENT)
                fail(folder + "/" + name, "removing the file", errno);
        };
        remove(first);
        for (const std::string &name : names_in_open(file, folder)) remove(name);
    } catch (...) {
        calls.close(file);
        throw;
    }
    calls.close(file);
    if (calls.rmdir(folder.c_str()) < 0 && errno != ENOENT)
        fail(folder, "removing the folder", errno);
}

std::vector<std::string> names_in(const std::string &folder) {
    const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0 && errno == ENOENT) return {};
    if (file < 0) fail(folder, "listing the folder", errno);
    const std::unique_ptr<const int, CloseFile> owner(&file);
    return names_in_open(file, folder);
}

bool is_folder(const std::string &path) {
    std::error_code ignored;
    return fs::symlink_status(path, ignored).type() == fs::file_type::directory;
}

std::vector<std::string> names_in_save(const std::string &save) {
    const int file = ::open(save.c_str(), open_save);
    if (file < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)) return {};
    if (file < 0) fail(save, "listing the folder", errno);
    const std::unique_ptr<const int, CloseFile> owner(&file);
    return names_in_open(file, save);
}

}  // namespace vescomm::fsdp::checkpoint

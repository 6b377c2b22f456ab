// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Files and folders of a checkpoint. Every function throws Error(SYSTEM), which names the file, the
// system call and its error.
//
// The folder that a program gives may be a symbolic link, and have links in its path. The members
// of a checkpoint, saves and files, are not: a link in a folder that others can write, or in an
// archive from somebody else, must not let this process read or remove anything outside the folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fsdp/checkpoint/system_calls.h"

namespace vescomm::fsdp::checkpoint {

// A new file that is written from its beginning to its end.
class OutputFile {
public:
    // Creates the file; a file of that name must not exist. `calls` must outlive this object.
    OutputFile(SystemCalls &calls, const std::string &path);
    ~OutputFile();
    OutputFile(const OutputFile &) = delete;
    OutputFile &operator=(const OutputFile &) = delete;

    void write(std::span<const std::byte> bytes);
    // Waits until the bytes are on the disk, and closes the file.
    void finish();
    std::int64_t written() const { return written_; }

private:
    SystemCalls &calls_;
    std::string path_;
    int file_ = -1;
    std::int64_t written_ = 0;  // bytes
};

// A file that is read at any offset. A symbolic link is an error.
class InputFile {
public:
    InputFile(SystemCalls &calls, const std::string &path);
    InputFile(InputFile &&other) noexcept;
    InputFile &operator=(InputFile &&) = delete;
    ~InputFile();

    std::int64_t size() const { return size_; }  // bytes, when the file was opened
    // Fills `bytes` from `offset` on. A file that has become shorter is an error.
    void read(std::int64_t offset, std::span<std::byte> bytes) const;

private:
    SystemCalls &calls_;
    std::string path_;
    int file_ = -1;
    std::int64_t size_ = 0;
};

// Holds the lock of a folder as long as it exists. File systems without locks are accepted.
class FolderLock {
public:
    FolderLock(SystemCalls &calls, const std::string &folder);
    ~FolderLock();
    FolderLock(const FolderLock &) = delete;
    FolderLock &operator=(const FolderLock &) = delete;

private:
    SystemCalls &calls_;
    int file_ = -1;
};

// Writes a new file and waits until it is on the disk.
void write_new_file(SystemCalls &calls, const std::string &path, std::string_view text);

// Returns the contents of a file of at most max_bytes.
std::string read_file(SystemCalls &calls, const std::string &path, std::int64_t max_bytes);

// Waits until the names in a folder are on the disk.
void sync_folder(SystemCalls &calls, const std::string &folder);

// Creates a folder; an existing one is an error.
void make_folder(SystemCalls &calls, const std::string &folder);
// Creates a folder whose name is `prefix` and random digits. Returns its name.
std::string make_unique_folder(SystemCalls &calls, const std::string &prefix);
// Creates a folder and its parents if they do not exist.
void make_folders(SystemCalls &calls, const std::string &folder);

void rename_file(SystemCalls &calls, const std::string &from, const std::string &to);

// Removes a file, or nothing if it does not exist.
void remove_file(SystemCalls &calls, const std::string &path);

// Removes a folder and the files in it; `first` is removed before the others. A folder that does
// not exist is no error; a symbolic link is.
void remove_folder(SystemCalls &calls, const std::string &folder, const std::string &first);

// Returns the names in a folder that a program gave, sorted. A folder that does not exist has none.
std::vector<std::string> names_in(const std::string &folder);
// Returns the names in a save, sorted. Anything but a folder, such as a symbolic link to one, has
// none.
std::vector<std::string> names_in_save(const std::string &save);

// True for a folder, false for anything else, such as a symbolic link to one.
bool is_folder(const std::string &path);

// A text in quotes, on one line, for messages.
std::string in_quotes(std::string_view text);

}  // namespace vescomm::fsdp::checkpoint

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Memory in a file without a name, for masters and states that shall not take the memory of the
// process. The file ends with the process.
//
//     will_need    starts to read pages from the disk
//     rest         starts to write pages to the disk, and removes them from the process
#pragma once

#include <cstddef>
#include <string>

namespace vescomm::fsdp {

class OffloadFile {
public:
    OffloadFile() = default;
    // Creates a file of zeros in a folder, with all its space. Throws Failure that names the
    // folder, the system call and the cause.
    OffloadFile(const std::string &folder, std::size_t bytes);
    ~OffloadFile();
    OffloadFile(const OffloadFile &) = delete;
    OffloadFile &operator=(const OffloadFile &) = delete;
    OffloadFile(OffloadFile &&other) noexcept;
    OffloadFile &operator=(OffloadFile &&other) noexcept;

    std::byte *data() const { return data_; }
    std::size_t size() const { return size_; }
    // `data`: of this file, at the begin of a page.
    void will_need(const std::byte *data, std::size_t bytes) const noexcept;
    void rest(const std::byte *data, std::size_t bytes) const noexcept;

private:
    int file_ = -1;
    std::byte *data_ = nullptr;
    std::size_t size_ = 0;
};

// Arrays in the file begin at multiples of this, so that no page has parts of two arrays.
std::size_t offload_alignment() noexcept;

}  // namespace vescomm::fsdp

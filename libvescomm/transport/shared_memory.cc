// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include "base/system.h"

namespace vescomm {

namespace {

// Bytes that /proc/meminfo says can be had, without and with moving others out to swap.
std::uint64_t free_on_machine() {
    std::ifstream file("/proc/meminfo");
    std::string key, unit;
    std::uint64_t kilobytes = 0, free = 0;
    bool known = false;
    while (file >> key >> kilobytes) {
        std::getline(file, unit);
        if (key == "MemAvailable:") known = true;
        if (key == "MemAvailable:" || key == "SwapFree:") free += kilobytes * 1024;
    }
    return known ? free : std::numeric_limits<std::uint64_t>::max();
}

// What a control group may still take, page cache that can be dropped counted as free.
std::uint64_t free_in_group(const std::string &folder) {
    std::uint64_t limit = 0, used = 0;
    if (!(std::ifstream(folder + "/memory.max") >> limit) ||
        !(std::ifstream(folder + "/memory.current") >> used))
        return std::numeric_limits<std::uint64_t>::max();
    std::ifstream statistics(folder + "/memory.stat");
    std::string key;
    std::uint64_t value = 0;
    while (statistics >> key >> value)
        if (key == "inactive_file" || key == "active_file") used -= std::min(used, value);
    return limit > used ? limit - used : 0;
}

// The least of the control groups that this process is in: containers, jobs, and what they are in.
std::uint64_t free_in_groups() {
    std::ifstream groups("/proc/self/cgroup");
    std::string line, group;
    while (std::getline(groups, line))
        if (line.starts_with("0::/")) group = line.substr(3);
    std::uint64_t free = free_in_group("/sys/fs/cgroup");
    for (; group.size() > 1; group.erase(group.rfind('/')))
        free = std::min(free, free_in_group("/sys/fs/cgroup" + group));
    return free;
}

}  // namespace

void require_room(std::size_t bytes) {
    const std::uint64_t free = std::min(free_on_machine(), free_in_groups());
    if (bytes > free)
        throw Error(VESCOMM_ERROR_OUT_OF_MEMORY,
                    "the ranks of this node need " + std::to_string(bytes) +
                        " bytes of shared memory, and " + std::to_string(free) +
                        " are free; use smaller buffers, or fewer ranks on a node");
}

MappedMemory::MappedMemory(const Descriptor &file, std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    void *data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (data == MAP_FAILED)
        throw system_error("cannot map " + std::to_string(bytes) + " bytes of shared memory");
    data_ = static_cast<std::byte *>(data);
}

MappedMemory::MappedMemory(MappedMemory &&other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

MappedMemory &MappedMemory::operator=(MappedMemory &&other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

MappedMemory::~MappedMemory() {
    if (data_ != nullptr) munmap(data_, bytes_);
}

std::size_t page_bytes() {
    static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

std::size_t round_up_to_page(std::size_t bytes) {
    return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

Descriptor make_anonymous_file(const char *purpose, std::size_t bytes) {
    Descriptor file(memfd_create(purpose, MFD_CLOEXEC));
    if (!file.open()) throw system_error("cannot create shared memory");
    if (ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
        throw system_error("cannot make shared memory of " + std::to_string(bytes) + " bytes");
    return file;
}

void take_room(const Descriptor &file, std::size_t offset, std::size_t bytes) {
    if (bytes == 0) return;
    int result = 0;
    do {
        result = fallocate(file.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
    } while (result != 0 && errno == EINTR);
    if (result != 0)
        throw system_error("there is not enough memory for " + std::to_string(bytes) +
                           " bytes of shared memory");
}

}  // namespace vescomm

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/double/device_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace gpu_double {
namespace {

// Address space of all allocations; only touched pages take memory.
constexpr std::size_t capacity = std::size_t{1} << 35;
constexpr std::size_t page = 4096;
// The first address, if the system permits: free in every process, so that ranks which are
// processes can reserve the same ones.
constexpr std::uintptr_t wanted = 0x3000'0000'0000;

}  // namespace

DeviceMemory::DeviceMemory() {
    file_ = memfd_create("gpu_double", MFD_CLOEXEC);
    if (file_ < 0 || ftruncate(file_, capacity) != 0) {
        std::perror("gpu double: memfd_create");
        std::abort();
    }
    void *base = mmap(reinterpret_cast<void *>(wanted), capacity, PROT_NONE,
                      MAP_SHARED | MAP_NORESERVE, file_, 0);
    void *view =
        mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
    if (base == MAP_FAILED || view == MAP_FAILED) {
        std::perror("gpu double: mmap");
        std::abort();
    }
    base_ = static_cast<char *>(base);
    view_ = static_cast<char *>(view);
}

void *DeviceMemory::allocate(std::size_t bytes, bool of_nccl, int device) {
    // An unused page follows each allocation, so that overruns do not reach the next one.
    const std::size_t taken = ((bytes + page - 1) / page + 1) * page;
    if (bytes > capacity || taken > capacity - used_) return nullptr;
    char *begin = base_ + used_;
    used_ += taken;
    Allocation &made = allocations_[begin];
    made.number = allocations_.size();
    made.begin = begin;
    made.bytes = bytes;
    made.of_nccl = of_nccl;
    made.device = device;
    return begin;
}

void DeviceMemory::free(Allocation &allocation) {
    allocation.freed = true;
    const std::size_t size = (allocation.bytes + page - 1) / page * page;
    if (size != 0)
        fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, allocation.begin - base_,
                  static_cast<off_t>(size));
}

Allocation *DeviceMemory::find(const void *address) {
    auto next = allocations_.upper_bound(static_cast<const char *>(address));
    if (next == allocations_.begin()) return nullptr;
    Allocation &found = std::prev(next)->second;
    return static_cast<const char *>(address) < found.begin + found.bytes || address == found.begin
               ? &found
               : nullptr;
}

void DeviceMemory::forget_accesses() {
    for (auto &[begin, allocation] : allocations_) {
        allocation.order.forget();
        allocation.across.forget();
    }
}

bool DeviceMemory::contains(const void *address) const {
    return address >= base_ && address < base_ + capacity;
}

std::pair<std::uint64_t, std::uint64_t> DeviceMemory::addresses() const {
    return {reinterpret_cast<std::uint64_t>(base_), capacity};
}

char *DeviceMemory::view(const void *address) const {
    return view_ + (static_cast<const char *>(address) - base_);
}

}  // namespace gpu_double

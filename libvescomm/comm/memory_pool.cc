// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/memory_pool.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/system.h"
#include "transport/shared_memory.h"

namespace vescomm::internal {

namespace {

// Address space of all pools of a node. Processes have 128 TiB, and more than one communicator.
constexpr std::uint64_t max_node_bytes = std::uint64_t{16} << 40;

// Allocates the pages now, so that running out of memory is an error here. Before Linux 5.14, or
// where that is not supported, each page is written once.
void populate(std::byte *data, std::uint64_t bytes) {
#ifdef MADV_POPULATE_WRITE
    if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return;
    // EFAULT: the kernel refuses the pages, for example under vm.overcommit_memory=2.
    if (errno == EFAULT) errno = ENOMEM;
    if (errno != EINVAL)
        throw system_error("cannot allocate " + std::to_string(bytes) + " bytes of shared memory");
#endif
    for (std::uint64_t at = 0; at < bytes; at += page_bytes())
        *reinterpret_cast<volatile char *>(data + at) = 0;
}

// The pages read as zeros afterwards, and are returned to the system. It refuses to take pages that
// the program has locked.
void release_pages(std::byte *data, std::uint64_t bytes) {
    if (madvise(data, bytes, MADV_REMOVE) == 0) return;
    munlock(data, bytes);
    if (madvise(data, bytes, MADV_REMOVE) != 0) std::memset(data, 0, bytes);
}

// True if the system allocates pages when they are mapped, as after mlockall(MCL_FUTURE).
bool populates_mappings() {
    void *page =
        mmap(nullptr, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return true;
    unsigned char resident = 0;
    const bool populated = mincore(page, page_bytes(), &resident) == 0 && (resident & 1) != 0;
    munmap(page, page_bytes());
    return populated;
}

std::uint64_t number_of(const std::string &text) {
    std::uint64_t number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
}

[[noreturn]] void refuse(std::uint64_t bytes, std::uint64_t size) {
    throw Error(VESCOMM_ERROR_OUT_OF_MEMORY,
                "the pool of this rank has " + std::to_string(size) + " bytes, and no " +
                    std::to_string(bytes) +
                    " free ones in a row; free memory with vescomm_mfree(), or set "
                    "VESCOMM_MALLOC_BYTES to a larger size on all ranks");
}

}  // namespace

MemoryPool::MemoryPool(std::shared_ptr<Mapping> mapping, int rank, std::span<const int> locals,
                       std::uint64_t offset, std::uint64_t bytes)
    : mapping_(std::move(mapping)),
      offset_(offset),
      bytes_(bytes),
      own_(mapping_->base(rank) + offset),
      process_(getpid()),
      ranges_(bytes) {
    // A core dump would allocate every page that it reads, also in the pools of the other ranks.
    for (const int local : locals)
        if (std::byte *slab = mapping_->base(local); bytes_ > 0 && slab != nullptr)
            madvise(slab + offset_, mapped_bytes(bytes_), MADV_DONTDUMP);
    if (bytes_ > 0)
        aliases_ =
            std::make_shared<MemoryAliases>(mapping_, rank, locals, offset_ + bytes_, bytes_);
}

std::uint64_t MemoryPool::mapped_bytes(std::uint64_t bytes) {
    return bytes == 0 ? 0 : 2 * bytes + MemoryAliases::counter_bytes();
}

MemoryPool::~MemoryPool() {
    // Other ranks may map the pool for longer.
    if (bytes_ > 0 && getpid() == process_) madvise(own_, bytes_, MADV_REMOVE);
    for (const auto &[data, bytes] : private_) munmap(data, bytes);
}

std::byte *MemoryPool::allocate(std::uint64_t bytes) {
    if (bytes > std::numeric_limits<std::uint64_t>::max() / 2) refuse(bytes, bytes_);
    const std::uint64_t size = round_up_to_page(std::max<std::uint64_t>(1, bytes));
    if (bytes_ == 0) return allocate_private(size);
    const std::lock_guard lock(mutex_);
    require_free_memory(size);
    const auto offset = ranges_.take(size);
    if (!offset) refuse(size, bytes_);
    try {
        populate(own_ + *offset, size);
    } catch (...) {
        madvise(own_ + *offset, size, MADV_REMOVE);
        ranges_.give_back(*offset);
        throw;
    }
    return own_ + *offset;
}

std::byte *MemoryPool::allocate_private(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    void *data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
        throw system_error("cannot allocate " + std::to_string(bytes) + " bytes");
    try {
        private_.emplace(data, bytes);
    } catch (...) {
        munmap(data, bytes);
        throw;
    }
    return static_cast<std::byte *>(data);
}

void MemoryPool::free(void *data) {
    const std::lock_guard lock(mutex_);
    if (const auto found = private_.find(data); found != private_.end()) {
        munmap(data, found->second);
        private_.erase(found);
        return;
    }
    const auto begin = reinterpret_cast<std::uintptr_t>(own_);
    const auto at = reinterpret_cast<std::uintptr_t>(data);
    const std::uint64_t size = at >= begin && at - begin < bytes_ ? ranges_.size_at(at - begin) : 0;
    if (size == 0)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    "no memory of vescomm_malloc() on this communicator, or on one that it was "
                    "created from, begins at the given address; each is freed once");
    release_pages(static_cast<std::byte *>(data), size);
    ranges_.give_back(at - begin);
}

void CommPool::set(std::shared_ptr<MemoryPool> pool, std::vector<int> numbers_by_rank,
                   std::span<const int> locals) {
    memory = std::move(pool);
    numbers = std::move(numbers_by_rank);
    if (memory->bytes() == 0) return;
    auto pools = std::make_shared<RegisteredPools>();
    pools->bytes = memory->bytes();
    for (const int rank : locals) {
        pools->base.push_back(memory->base(numbers[static_cast<std::size_t>(rank)]));
        if (pools->base.back() == nullptr) return;
    }
    registered = std::move(pools);
}

std::uint64_t offered_pool_bytes(const std::string &setting, int ranks) {
    const auto machine = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * page_bytes();
    const std::uint64_t wanted =
        setting == "auto" ? machine
                          : round_up_to_page(std::min(number_of(setting), max_node_bytes));
    const std::uint64_t node =
        std::min(2 * wanted * static_cast<std::uint64_t>(ranks), max_node_bytes);
    // The pools lie in one file, and a process that exceeds the limit of file sizes gets a signal.
    rlimit files{};
    if (getrlimit(RLIMIT_FSIZE, &files) != 0 || files.rlim_cur != RLIM_INFINITY) return 0;
    if (node == 0 || populates_mappings()) return 0;
    // The pools of the node are mapped in one piece.
    void *probe =
        mmap(nullptr, node, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (probe == MAP_FAILED) return 0;
    munmap(probe, node);
    return wanted;
}

std::uint64_t pool_bytes(const std::vector<std::string> &offers, int locals) {
    std::uint64_t bytes = max_node_bytes / 2 / static_cast<std::uint64_t>(locals);
    for (const std::string &offer : offers) bytes = std::min(bytes, number_of(offer));
    return bytes / page_bytes() * page_bytes();
}

}  // namespace vescomm::internal

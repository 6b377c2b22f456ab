// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "base/system.h"
#include "transport/free_memory.h"

namespace vescomm::internal {

namespace {

// The size cannot be changed any more, nor can these seals.
constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

void require_free_memory(std::size_t bytes) {
    // The files that show free memory take longer to read than a small memory to create.
    static std::atomic<std::size_t> unchecked{0};
    constexpr std::size_t most = std::size_t{4} << 20;
    if (bytes < most && unchecked.fetch_add(bytes, std::memory_order_relaxed) + bytes < most)
        return;
    const std::uint64_t free = free_memory();
    if (bytes > free)
        throw Error(VESCOMM_ERROR_OUT_OF_MEMORY,
                    "the ranks of this node need " + std::to_string(bytes) +
                        " bytes of shared memory, and " + std::to_string(free) +
                        " are free; use smaller buffers, or fewer ranks on a node");
    unchecked.store(0, std::memory_order_relaxed);  // after a refusal the next one is compared too
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
    // The limit of file sizes holds for anonymous files too, and a process that exceeds it gets a
    // signal.
    rlimit files{};
    if (getrlimit(RLIMIT_FSIZE, &files) == 0 && bytes > files.rlim_cur)
        throw Error(VESCOMM_ERROR_OUT_OF_MEMORY,
                    "cannot make shared memory of " + std::to_string(bytes) +
                        " bytes: this process may make no file larger than " +
                        std::to_string(files.rlim_cur) + " bytes; raise that limit (ulimit -f)");
    Descriptor file(memfd_create(purpose, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file.open()) throw system_error("cannot create shared memory");
    if (ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
        throw system_error("cannot make shared memory of " + std::to_string(bytes) + " bytes");
    if (fcntl(file.get(), F_ADD_SEALS, size_seals) != 0)
        throw system_error("cannot seal the size of shared memory");
    return file;
}

void require_sealed(const Descriptor &file, std::size_t bytes) {
    struct stat status {};
    if (fstat(file.get(), &status) != 0) throw system_error("cannot look at shared memory");
    const int seals = fcntl(file.get(), F_GET_SEALS);
    if (seals < 0 || (seals & size_seals) != size_seals ||
        static_cast<std::uint64_t>(status.st_size) != bytes)
        throw Error(VESCOMM_ERROR_MISMATCH,
                    "the first rank of this node shares a file of " +
                        std::to_string(status.st_size) + " bytes" +
                        (seals < 0 ? ", which is no sealed memory" : "") + " where " +
                        std::to_string(bytes) +
                        " bytes of sealed memory belong; run the same vescomm on all ranks");
}

void reserve_memory(const Descriptor &file, std::size_t offset, std::size_t bytes,
                    Deadline deadline) {
    std::size_t at_once = bytes;
    for (std::size_t done = 0; done < bytes;) {
        const std::size_t count = std::min(at_once, bytes - done);
        if (fallocate(file.get(), 0, static_cast<off_t>(offset + done),
                      static_cast<off_t>(count)) == 0) {
            done += count;
            continue;
        }
        if (errno != EINTR)
            throw system_error("there is not enough memory for " + std::to_string(bytes) +
                               " bytes of shared memory");
        if (deadline.expired())
            throw Error(VESCOMM_ERROR_TIMEOUT,
                        "taking " + std::to_string(bytes) +
                            " bytes of shared memory was interrupted by signals until the timeout "
                            "passed; see which timer of the program sends them");
        // An interrupted call gives back everything it allocated, so a whole slab might never
        // succeed.
        at_once = std::max(page_bytes(), round_up_to_page(count / 2));
    }
}

}  // namespace vescomm::internal

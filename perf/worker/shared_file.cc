// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "perf/worker/shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace vescomm::perf {

void *map_shared(const std::string &file, std::size_t bytes) {
    const int descriptor = open(file.c_str(), O_RDWR | O_CLOEXEC);
    if (descriptor < 0) throw std::system_error(errno, std::generic_category(), "opening " + file);
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    const int error = errno;
    close(descriptor);
    if (memory == MAP_FAILED)
        throw std::system_error(error, std::generic_category(),
                                "mapping " + std::to_string(bytes) + " bytes of " + file);
    return memory;
}

void unmap_shared(void *memory, std::size_t bytes) {
    munmap(memory, bytes);
}

SharedFile::SharedFile(std::size_t bytes) : descriptor_(memfd_create("vescomm-perf", MFD_CLOEXEC)) {
    if (descriptor_ < 0 || ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0)
        throw std::system_error(errno, std::generic_category(), "making shared memory");
}

SharedFile::~SharedFile() {
    close(descriptor_);
}

std::string SharedFile::path() const {
    return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(descriptor_);
}

}  // namespace vescomm::perf

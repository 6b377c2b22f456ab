// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/spec/allocator.h"

#include <cstdint>
#include <cstring>
#include <new>

#include "fsdp/error.h"

namespace vescomm::fsdp {

namespace {

constexpr std::size_t alignment = 64;

}  // namespace

Allocator::Allocator(const vescomm_fsdp_allocator_t &program)
    : context_(program.context), allocate_(program.allocate), deallocate_(program.deallocate) {
    if (allocate_ == nullptr || deallocate_ == nullptr)
        refuse("{} of the allocator is NULL; set both functions, or pass no allocator",
               allocate_ == nullptr ? "allocate" : "deallocate");
}

std::byte *Allocator::allocate(std::size_t bytes) const {
    if (allocate_ == nullptr)
        return static_cast<std::byte *>(::operator new (bytes, std::align_val_t{alignment}));
    auto *memory = static_cast<std::byte *>(allocate_(context_, bytes, alignment));
    if (memory == nullptr) throw std::bad_alloc();
    if (reinterpret_cast<std::uintptr_t>(memory) % alignment != 0) {
        deallocate_(context_, memory, bytes);
        refuse("the allocator returned {}, which is not a multiple of {}",
               static_cast<const void *>(memory), alignment);
    }
    return memory;
}

void Allocator::free(std::byte *memory, std::size_t bytes) const noexcept {
    if (allocate_ == nullptr) ::operator delete (memory, std::align_val_t{alignment});
    else deallocate_(context_, memory, bytes);
}

// No bytes have an address too: NULL is an error elsewhere. The allocator of a program is asked for
// at least one.
AlignedBytes::AlignedBytes(std::size_t bytes, const Allocator &allocator) {
    const Allocator from = bytes == 0 ? Allocator() : allocator;
    data_ = {from.allocate(bytes), Free{from, bytes}};
    std::memset(data_.get(), 0, bytes);
}

}  // namespace vescomm::fsdp

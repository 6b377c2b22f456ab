// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/memory_aliases.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "transport/shared_memory.h"

namespace vescomm::internal {

namespace {

// The system limits the mappings of a process (vm.max_map_count, 65,530). An alias takes one, and
// may split the pages of zeros around it.
constexpr int max_aliases = 8192;
std::atomic<int> aliases_of_process{0};

constexpr std::uint64_t max_counters = 8192;

std::uint64_t value_of(std::uint64_t &counter) {
    return std::atomic_ref(counter).load(std::memory_order_seq_cst);
}

// Replaces what is mapped there. Returns false if the system refuses.
bool map_zeros(std::byte *data, std::uint64_t bytes, int how) noexcept {
    return mmap(data, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | how, -1, 0) !=
           MAP_FAILED;
}

bool allocate_page_of(std::uint64_t *counter) noexcept {
#ifdef MADV_POPULATE_WRITE
    const std::uintptr_t page = reinterpret_cast<std::uintptr_t>(counter) / page_bytes();
    // EINVAL: before Linux 5.14, or not supported.
    if (madvise(reinterpret_cast<void *>(page * page_bytes()), page_bytes(), MADV_POPULATE_WRITE) !=
            0 &&
        errno != EINVAL)
        return false;
#endif
    std::atomic_ref(*counter).store(value_of(*counter));
    return true;
}

}  // namespace

std::string AliasRange::text() const {
    return {reinterpret_cast<const char *>(this), sizeof *this};
}

AliasRange AliasRange::take_from(std::string_view &text) {
    AliasRange range;
    if (text.size() < sizeof range)
        throw Error(VESCOMM_ERROR_INTERNAL, "a rank sent too little about its memory");
    std::memcpy(&range, text.data(), sizeof range);
    text.remove_prefix(sizeof range);
    return range;
}

MemoryAliases::MemoryAliases(std::shared_ptr<Mapping> mapping, int rank,
                             std::span<const int> locals, std::uint64_t offset, std::uint64_t bytes)
    : mapping_(std::move(mapping)),
      rank_(rank),
      locals_(locals.begin(), locals.end()),
      offset_(offset),
      bytes_(bytes),
      process_(getpid()),
      closed_(!mapping_->duplicable()),
      ranges_(bytes),
      counters_(max_counters) {}

MemoryAliases::~MemoryAliases() {
    // Their addresses are unmapped with the pool.
    for (const Entry &entry : freed_)
        for (const Alias &alias : entry.aliases) aliases_of_process -= alias.mapped ? 1 : 0;
}

std::uint64_t MemoryAliases::counter_bytes() {
    return round_up_to_page(max_counters * sizeof(std::uint64_t));
}

void MemoryAliases::mark_gone(std::span<const int> ranks) {
    const std::lock_guard lock(mutex_);
    gone_.insert(ranks.begin(), ranks.end());
    sweep();
}

void MemoryAliases::sweep_now() noexcept {
    const std::lock_guard lock(mutex_);
    sweep();
}

bool MemoryAliases::take(Entry &entry, std::span<const int> ranks) {
    const std::lock_guard lock(mutex_);
    sweep();
    if (closed_ || ranks.size() < 2) return false;
    // A rank that does not map the memory would read zeros in a call on another communicator.
    for (const int local : locals_)
        if (!gone_.contains(local) && std::ranges::find(ranks, local) == ranks.end()) return false;
    if (aliases_of_process + static_cast<int>(ranks.size()) > max_aliases) return false;
    const auto counter = counters_.take(1);
    if (!counter) return false;
    try {
        const Alias alias = alias_of(rank_, {.counter = *counter}, 0);
        // Raising the counter later must not run out of memory.
        if (allocate_page_of(alias.counter))
            if (const auto offset = ranges_.take(entry.bytes)) {
                entry.own = {
                    .offset = *offset, .counter = *counter, .use = value_of(*alias.counter) + 1};
                return true;
            }
    } catch (...) {
        counters_.give_back(*counter);
        throw;
    }
    counters_.give_back(*counter);
    return false;
}

MemoryAliases::Alias MemoryAliases::alias_of(int rank, const AliasRange &range,
                                             std::uint64_t bytes) const {
    std::byte *slab = mapping_->base(rank);
    if (slab == nullptr || range.offset % page_bytes() != 0 || range.offset > bytes_ ||
        bytes > bytes_ - range.offset || range.counter >= max_counters)
        throw Error(VESCOMM_ERROR_INTERNAL, "a rank of this node sent a wrong range");
    std::byte *counters = slab + offset_ + bytes_;
    return {.rank = rank,
            .data = slab + offset_ + range.offset,
            .counter = reinterpret_cast<std::uint64_t *>(counters) + range.counter,
            .use = range.use};
}

bool MemoryAliases::map(Alias &alias, std::byte *slab, std::uint64_t bytes) noexcept {
    if (closed_) return false;
    // An old size of 0 duplicates a shared mapping.
    if (mremap(slab, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, alias.data) != alias.data) {
        closed_ = true;
        // The system may have unmapped the addresses, which the pool unmaps at its end.
        map_zeros(alias.data, bytes, MAP_FIXED_NOREPLACE);
        return false;
    }
    ++aliases_of_process;
    return alias.mapped = true;
}

void MemoryAliases::unmap(Alias &alias, std::uint64_t bytes) noexcept {
    if (!alias.mapped) return;
    // The next sweep() tries it again. It must not find another memory there.
    if (!map_zeros(alias.data, bytes, MAP_FIXED)) {
        closed_ = true;
        return;
    }
    alias.mapped = false;
    --aliases_of_process;
}

void MemoryAliases::free(std::list<Entry> &entry) noexcept {
    if (getpid() != process_) return;
    const std::lock_guard lock(mutex_);
    const Alias own = alias_of(rank_, entry.front().own, 0);
    std::atomic_ref(*own.counter).store(own.use, std::memory_order_seq_cst);
    freed_.splice(freed_.end(), entry);
    sweep();
}

bool MemoryAliases::freed_by_all(const Entry &entry) const noexcept {
    return std::ranges::all_of(entry.aliases, [&](const Alias &alias) {
        return value_of(*alias.counter) >= alias.use || gone_.contains(alias.rank);
    });
}

void MemoryAliases::sweep() noexcept {
    for (auto entry = freed_.begin(); entry != freed_.end();) {
        const bool all = freed_by_all(*entry);
        bool mapped = false;
        for (Alias &alias : entry->aliases) {
            const bool gone = gone_.contains(alias.rank);
            // Other ranks map the pages until they sweep, which may be much later. The process of a
            // rank that has left may still use its own slab.
            if (all && alias.mapped && !gone) madvise(alias.data, entry->bytes, MADV_REMOVE);
            if (all || gone || entry->withdrawn) unmap(alias, entry->bytes);
            mapped |= alias.mapped;
        }
        if (!all || mapped) {
            ++entry;
            continue;
        }
        ranges_.give_back(entry->own.offset);
        counters_.give_back(entry->own.counter);
        entry = freed_.erase(entry);
    }
}

AliasedMapping::AliasedMapping(std::shared_ptr<MemoryAliases> aliases, std::span<const int> locals,
                               const std::vector<int> &numbers, int rank)
    : aliases_(std::move(aliases)),
      locals_(locals.begin(), locals.end()),
      rank_(rank),
      bases_(numbers.size(), nullptr) {
    for (const int local : locals) numbers_.push_back(numbers[static_cast<std::size_t>(local)]);
}

std::shared_ptr<AliasedMapping> AliasedMapping::take(std::shared_ptr<MemoryAliases> aliases,
                                                     std::span<const int> locals,
                                                     const std::vector<int> &numbers, int rank,
                                                     std::uint64_t bytes) {
    std::shared_ptr<AliasedMapping> mapping(
        new AliasedMapping(std::move(aliases), locals, numbers, rank));
    std::list<MemoryAliases::Entry> entry(1);
    entry.front().bytes = round_up_to_page(bytes);
    if (!mapping->aliases_->take(entry.front(), mapping->numbers_)) return nullptr;
    mapping->entry_.swap(entry);
    return mapping;
}

AliasedMapping::~AliasedMapping() {
    if (!entry_.empty()) aliases_->free(entry_);
}

bool AliasedMapping::accept(const std::vector<AliasRange> &ranges, std::shared_ptr<Mapping> plain) {
    MemoryAliases::Entry &entry = entry_.front();
    std::vector<MemoryAliases::Alias> aliases;
    for (std::size_t i = 0; i < locals_.size(); ++i) {
        const AliasRange &range = ranges[static_cast<std::size_t>(locals_[i])];
        if (range.use == 0) return false;
        aliases.push_back(aliases_->alias_of(numbers_[i], range, entry.bytes));
    }
    entry.aliases = std::move(aliases);
    plain_ = std::move(plain);
    for (std::size_t i = 0; i < locals_.size(); ++i) {
        bases_[locals_[i]] = plain_->base(locals_[i]);
        MemoryAliases::Alias &alias = entry.aliases[i];
        if (locals_[i] == rank_ && aliases_->map(alias, bases_[rank_], entry.bytes))
            bases_[rank_] = alias.data;
    }
    return true;
}

bool AliasedMapping::map_peers() noexcept {
    MemoryAliases::Entry &entry = entry_.front();
    // Ranges may have been used by memories that all ranks have freed.
    aliases_->sweep_now();
    for (std::size_t i = 0; i < locals_.size(); ++i) {
        MemoryAliases::Alias &alias = entry.aliases[i];
        if (!alias.mapped &&
            (locals_[i] == rank_ || !aliases_->map(alias, plain_->base(locals_[i]), entry.bytes)))
            return false;
    }
    return true;
}

void AliasedMapping::settle(bool all) noexcept {
    MemoryAliases::Entry &entry = entry_.front();
    entry.withdrawn = !all;
    for (std::size_t i = 0; i < locals_.size(); ++i) {
        MemoryAliases::Alias &alias = entry.aliases[i];
        bases_[locals_[i]] = all ? alias.data : plain_->base(locals_[i]);
        // The transports have registered the alias of this rank.
        if (!all && locals_[i] != rank_) aliases_->unmap(alias, entry.bytes);
    }
    if (all) plain_.reset();
}

}  // namespace vescomm::internal

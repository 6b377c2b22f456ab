// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/staging_buffer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/cache.h"
#include "base/types.h"
#include "comm/memory_pool.h"
#include "execute/kernels.h"
#include "execute/registered_arrays.h"
#include "schedule/rails.h"
#include "transport/shared_memory.h"

namespace vescomm::internal {

namespace {

constexpr std::uint64_t line = cache_line;
static_assert(sizeof(InlineFlag) < line);
constexpr std::uint64_t beside_flag = line - sizeof(InlineFlag);
constexpr std::uint64_t inline_slot_bytes = line + max_inline_bytes;

// The memory of the slots. The pool of the communicator follows them in the same mapping, unless it
// has one from the communicator from which it was created.
std::shared_ptr<Memory> make_memory(const std::shared_ptr<Communicator> &comm,
                                    std::uint64_t slots) {
    const std::uint64_t offset = round_up_to_page(slots);
    const std::uint64_t pool = comm->pool().memory ? 0 : comm->pool().bytes;
    auto memory =
        Memory::create(comm, offset, VESCOMM_HOST, VESCOMM_PER_RANK,
                       {.reserve = !comm->derived(), .spare = MemoryPool::mapped_bytes(pool)});
    if (comm->pool().memory) return memory;
    std::vector<int> ranks(static_cast<std::size_t>(comm->ranks()));
    std::iota(ranks.begin(), ranks.end(), 0);
    const Nodes &nodes = comm->nodes();
    comm->set_pool(
        std::make_shared<MemoryPool>(memory->mapping(), comm->rank(),
                                     nodes.members(nodes.node_of(comm->rank())), offset, pool),
        std::move(ranks));
    return memory;
}

// The words of ReadDistance, by local rank.
std::vector<std::atomic<std::uint32_t> *> distance_words(const Communicator &comm,
                                                         const Memory &memory,
                                                         std::uint64_t offset) {
    std::vector<std::atomic<std::uint32_t> *> words;
    for (const int peer : comm.nodes().members(comm.nodes().node_of(comm.rank())))
        words.push_back(
            reinterpret_cast<std::atomic<std::uint32_t> *>(memory.mapping()->base(peer) + offset));
    return words;
}

}  // namespace

StagingBuffer::Slots::Slots(const Nodes &nodes) {
    const auto each = static_cast<std::uint64_t>(nodes.ranks());
    const auto locals = static_cast<std::uint64_t>(nodes.largest());
    std::uint64_t taken = inline_slots * inline_slot_bytes;
    const auto take = [&taken](std::uint64_t size) {
        const std::uint64_t begin = taken;
        taken += (size + line - 1) / line * line;
        return begin;
    };
    const SlotBytes sizes = slot_bytes(nodes);
    staging = take(static_cast<std::uint64_t>(sizes.staging));
    partial = take(static_cast<std::uint64_t>(sizes.partial));
    const std::uint64_t pair_bytes =
        std::clamp<std::uint64_t>(pair_areas_bytes / locals / line * line, line, max_pair_bytes);
    pairs.stride = line + pair_bytes;
    pairs.begin = take(locals * pairs.stride);
    tables.pair_digests = take(each * sizeof(std::uint32_t));
    tables.receive_masks = take(each * sizeof(std::uint32_t));
    tables.forwarded = take(each * forwarded_blocks_per_rank * sizeof(std::uint64_t));
    registered_words = take((first_block_word + locals) * sizeof(std::uint64_t));
    bytes = taken - staging;
    end = staging + staging_slots * bytes;
}

StagingBuffer::StagingBuffer(const std::shared_ptr<Communicator> &comm)
    : comm_(comm),
      slots_(comm->nodes()),
      memory_(make_memory(comm, slots_.end + line)),
      channel_(comm->numbers().next_channel()),
      sequences_(comm->nodes().members(comm->nodes().node_of(comm->rank())).size()),
      distance_(distance_words(*comm, *memory_, slots_.end),
                static_cast<std::size_t>(comm->nodes().local_rank(comm->rank()))),
      recent_calls_(std::make_shared<RecentCalls>()) {
    for (std::uint32_t slot = 0; slot < inline_slots; ++slot) comm->numbers().next_channel();
    comm->watch_calls(recent_calls_, channel_);
}

std::shared_ptr<StagingBuffer> StagingBuffer::create(const std::shared_ptr<Communicator> &comm) {
    return std::shared_ptr<StagingBuffer>(new StagingBuffer(comm));
}

void StagingBuffer::give_space(ArrayProblem &problem, vescomm_type_t type) {
    const Slots slots(problem.nodes);
    const auto in = [](std::int64_t bytes, std::size_t each) {
        return bytes / static_cast<std::int64_t>(each);
    };
    const SlotBytes sizes = slot_bytes(problem.nodes);
    problem.staging = {0, in(sizes.staging, size_of(type))};
    problem.partial = {0, in(sizes.partial, size_of(accumulator_of(type)))};
    problem.inlined = {in(beside_flag, size_of(type)), in(max_inline_bytes, size_of(type))};
    const auto pairs = static_cast<std::int64_t>(slots.pairs.begin - slots.staging);
    const auto pair_stride = static_cast<std::int64_t>(slots.pairs.stride);
    constexpr auto flag = static_cast<std::int64_t>(sizeof(InlineFlag));
    problem.pairs = {.begin = in(pairs + flag, size_of(type)),
                     .stride = in(pair_stride, size_of(type)),
                     .beside = in(beside_flag, size_of(type)),
                     .count = in(pair_stride - static_cast<std::int64_t>(line), size_of(type))};
}

void StagingBuffer::bind(Bindings &bindings, const AlgorithmEntry &algorithm, vescomm_type_t type) {
    bindings.staging = {.type = type,
                        .memory = memory_->id(),
                        .mapping = memory_->mapping(),
                        .offset_bytes = slots_.staging,
                        .slot_bytes = slots_.bytes};
    bindings.partial = bindings.staging;
    bindings.partial.type = accumulator_of(type);
    bindings.partial.offset_bytes = slots_.partial;
    bindings.inlined = bindings.staging;
    bindings.inlined.offset_bytes = sizeof(InlineFlag);
    bindings.inlined.slot_bytes = inline_slot_bytes;
    bindings.match.tables = slots_.tables;
    bindings.pairs = slots_.pairs;
    bindings.registration.pools = comm_->pool().registered;
    bindings.registration.words = slots_.registered_words;
    bindings.registration.not_in_place =
        algorithm.name == "flat" || algorithm.collective == Collective::all_to_all_v;
    bindings.match.root_compares = algorithm.collective == Collective::broadcast ||
                                   algorithm.collective == Collective::scatter_v;
    bindings.channel = channel_;
    bindings.release = {channel_ + inline_slots, release_flag};
    bindings.sequences = &sequences_;
    if (comm_->nodes().count() > 1 && has_root(algorithm.collective)) bindings.pace = &pace_;
    // Between nodes a transport reads the staging buffer too.
    if (comm_->nodes().count() == 1) bindings.distance = &distance_;
    // They are compared with the calls of ranks on other nodes only.
    if (comm_->nodes().count() > 1) bindings.match.recent_calls = recent_calls_.get();
}

}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/staging_buffer.h"

#include "base/types.h"
#include "comm/signature.h"
#include "execute/kernels.h"

namespace vescomm {

namespace {

// Bytes come beside their flag, or in lines of their own.
constexpr std::uint64_t line = 64;
static_assert(sizeof(InlineFlag) < line);

constexpr std::uint64_t partial_begin = line + staging_bytes;
constexpr std::uint64_t digests_begin = partial_begin + partial_bytes;

// Digests of every rank, then what this one wants, by rank, and then what is said of bytes that
// it relays; each on whole cache lines.
constexpr std::uint64_t after(std::uint64_t begin, std::uint64_t bytes) {
    return begin + (bytes + line - 1) / line * line;
}

std::uint64_t masks_begin(int ranks) {
    return after(digests_begin, static_cast<std::uint64_t>(ranks) * sizeof(std::uint32_t));
}

std::uint64_t forwarded_begin(int ranks) {
    return after(masks_begin(ranks), static_cast<std::uint64_t>(ranks) * sizeof(std::uint32_t));
}

std::uint64_t slot_bytes_for(int ranks) {
    return after(forwarded_begin(ranks),
                 static_cast<std::uint64_t>(ranks) * places_for_each * sizeof(std::uint64_t));
}

}  // namespace

StagingBuffer::StagingBuffer(const std::shared_ptr<Communicator> &comm)
    : comm_(comm),
      slot_bytes_(slot_bytes_for(comm->ranks())),
      memory_(Memory::create(comm, staging_slots * slot_bytes_, VESCOMM_HOST, VESCOMM_PER_RANK,
                             !comm->derived())),
      channel_(comm->next_channel()),
      turns_(std::make_shared<Turns>(
          comm->nodes().members(comm->nodes().node_of(comm->rank())).size())) {
    for (std::uint32_t slot = 1; slot < staging_slots; ++slot) comm->next_channel();
    comm->compare_turns(turns_, channel_);
}

std::shared_ptr<StagingBuffer> StagingBuffer::create(const std::shared_ptr<Communicator> &comm) {
    return std::shared_ptr<StagingBuffer>(new StagingBuffer(comm));
}

void StagingBuffer::give_room(Problem &problem, vescomm_type_t type) const {
    const auto in = [](std::int64_t bytes, std::size_t each) {
        return bytes / static_cast<std::int64_t>(each);
    };
    problem.staging = {in(line - sizeof(InlineFlag), size_of(type)),
                       in(staging_bytes, size_of(type))};
    problem.partial = {0, in(partial_bytes, size_of(accumulator_of(type)))};
    problem.inlined = in(max_inline_bytes, size_of(type));
}

void StagingBuffer::bind(Bindings &bindings, vescomm_type_t type) {
    bindings.staging = {.type = type,
                        .memory = memory_->id(),
                        .mapping = memory_->mapping(),
                        .offset_bytes = sizeof(InlineFlag),
                        .slot_bytes = slot_bytes_};
    bindings.partial = bindings.staging;
    bindings.partial.type = accumulator_of(type);
    bindings.partial.offset_bytes = partial_begin;
    bindings.pairs_offset = digests_begin;
    bindings.masks_offset = masks_begin(comm_->ranks());
    bindings.forwarded_offset = forwarded_begin(comm_->ranks());
    bindings.channel = channel_;
    bindings.release = {channel_, release_flag};
    bindings.releases = true;
    bindings.turns = turns_.get();
}

Run StagingBuffer::next(std::uint32_t signature) {
    const std::uint32_t before = history_;
    if (signature != 0) history_ = Signature::history(history_, signature);
    const std::uint64_t turn = operations_ / staging_slots;
    const auto slot = static_cast<std::uint32_t>(operations_ % staging_slots);
    ++operations_;
    return {
        .number = turn + 1, .releases = turn, .slot = slot, .history = before, .turn = operations_};
}

}  // namespace vescomm

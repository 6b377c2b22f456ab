// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_exchange.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/types.h"
#include "gpu/device_arguments.h"
#include "gpu/nccl_group.h"

namespace vescomm::internal::device {
namespace {

constexpr const char *function = "vescomm_gpu_all_to_all_v";

struct Block {
    char *data;
    std::uint64_t bytes;
    int rank;

    char *end() const { return data + bytes; }
};

std::string text_of(const char *name, const Block &block) {
    return std::string(name) + " for rank " + std::to_string(block.rank);
}

// By rank. `name`: "source" or "output".
std::vector<Block> checked_blocks(const DeviceCommunicator &comm, const ExchangeBlocks &given,
                                  const char *name, vescomm_type_t type) {
    const auto at = [&](const char *list, int rank) {
        return std::string(name) + "_" + list + "[" + std::to_string(rank) + "]";
    };
    if (given.counts == nullptr)
        refuse(function, std::string(name) + "_counts is NULL; it must have a count for each rank");
    std::vector<Block> blocks;
    std::int64_t next = 0;
    for (int rank = 0; rank < comm.ranks(); ++rank) {
        const std::int64_t count = given.counts[rank];
        if (count < 0 || count > max_elements)
            refuse(function,
                   at("counts", rank) + " is " + std::to_string(count) + "; it must be 0 to 2^40");
        const std::int64_t offset = given.offsets == nullptr ? next : given.offsets[rank];
        if (count > 0 && given.offsets == nullptr && offset > max_elements)
            refuse(function, "the blocks of " + std::string(name) + " before that of rank " +
                                 std::to_string(rank) + " have more than 2^40 elements");
        if (count > 0 && (offset < 0 || offset > max_elements))
            refuse(function, at("offsets", rank) + " is " + std::to_string(offset) +
                                 "; it must be 0 to 2^40");
        blocks.push_back({nullptr, static_cast<std::uint64_t>(count) * size_of(type), rank});
        if (count > 0) {
            check_pointer(function, name, given.data, type);
            blocks.back().data = static_cast<char *>(given.data) +
                                 static_cast<std::uint64_t>(offset) * size_of(type);
        }
        next = std::min(offset + count, max_elements + 1);
    }
    return blocks;
}

// Refuses a block of the output that overlaps another block, with one exception: the block of this
// rank may be at the same place in both arrays. Blocks of the source may overlap one another: they
// are only read.
void check_apart(const std::vector<Block> &sources, std::vector<Block> outputs, int own) {
    std::erase_if(outputs, [](const Block &block) { return block.bytes == 0; });
    std::ranges::sort(outputs, {}, &Block::data);
    for (std::size_t k = 1; k < outputs.size(); ++k)
        if (outputs[k].data < outputs[k - 1].end())
            refuse(function, text_of("the blocks of output", outputs[k - 1]) + " and rank " +
                                 std::to_string(outputs[k].rank) + " overlap");
    for (const Block &source : sources) {
        if (source.bytes == 0) continue;
        // The first one that ends behind the beginning of the source.
        const auto after = std::ranges::upper_bound(outputs, source.data, {}, &Block::end);
        if (after == outputs.end() || after->data >= source.end()) continue;
        if (source.rank != own || after->rank != own || source.data != after->data)
            refuse(function, text_of("the block of source", source) + " and " +
                                 text_of("the block of output", *after) + " overlap");
    }
}

}  // namespace

void all_to_all_v(DeviceCommunicator &comm, const ExchangeBlocks &source,
                  const ExchangeBlocks &output, vescomm_type_t type, cuda::Stream stream) {
    comm.check_call(function, stream);
    check_type(function, type);
    const std::vector<Block> sources = checked_blocks(comm, source, "source", type);
    const std::vector<Block> outputs = checked_blocks(comm, output, "output", type);
    const auto rank_index = static_cast<std::size_t>(comm.rank());
    const Block &own = sources[rank_index], &own_output = outputs[rank_index];
    if (own.bytes != own_output.bytes)
        refuse(function, "this rank sends itself " + std::to_string(source.counts[rank_index]) +
                             " elements and expects " + std::to_string(output.counts[rank_index]));
    check_apart(sources, outputs, comm.rank());
    comm.begin_call({.kind = DeviceCall::Kind::all_to_all_v, .type = type},
                    {{source.counts, sources.size()}, {output.counts, outputs.size()}});
    const auto has_elements = [](const Block &block) { return block.bytes > 0; };
    if (std::ranges::none_of(sources, has_elements) && std::ranges::none_of(outputs, has_elements))
        return;
    const nccl::Library &nccl = comm.libraries().nccl;
    if (own.data != own_output.data) comm.copy(own_output.data, own.data, own.bytes, stream);
    NcclGroup group(comm);
    for (int rank = 0; rank < comm.ranks(); ++rank) {
        if (rank == comm.rank()) continue;
        const Block &sent = sources[static_cast<std::size_t>(rank)];
        const Block &received = outputs[static_cast<std::size_t>(rank)];
        if (sent.bytes > 0)
            group.add("ncclSend()", [&] {
                return nccl.send(sent.data, sent.bytes, nccl::u8, rank, comm.nccl(), stream);
            });
        if (received.bytes > 0)
            group.add("ncclRecv()", [&] {
                return nccl.recv(received.data, received.bytes, nccl::u8, rank, comm.nccl(),
                                 stream);
            });
    }
    group.end();
    comm.end_call(stream);
}

}  // namespace vescomm::internal::device

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_ragged.h"

#include <algorithm>

#include "gpu/device_copies.h"
#include "gpu/device_peers.h"
#include "gpu/nccl_group.h"

namespace vescomm::internal::device {
namespace {

// One call on this rank. all_gather_v moves bytes.
class Ragged {
public:
    Ragged(DeviceCommunicator &comm, const RaggedCall &call, cuda::Stream stream)
        : comm_(comm), call_(call), shards_(*call.placement), stream_(stream), own_(comm.rank()) {}

    // Copies that come before the calls of NCCL.
    void before() const {
        if (call_.method == DeviceMethod::messages || is_copied_into_place())
            copy(at(own_), call_.shard, own_);
        if (call_.method != DeviceMethod::padded) return;
        if (call_.reduction == nullptr) return copy(slot(own_), call_.shard, own_);
        // The gaps hold bytes of earlier calls. Their sums stay in the gaps.
        for (int rank = 0; rank < shards_.ranks(); ++rank) copy(slot(rank), at(rank), rank);
    }

    void add_to(NcclGroup &group) const {
        switch (call_.method) {
            case DeviceMethod::equal:
                return add_uniform(group, call_.whole, call_.shard, shards_.stride());
            case DeviceMethod::padded_in_place:
                return add_uniform(group, call_.whole, strided_shard(), shards_.stride());
            case DeviceMethod::padded:
                return add_uniform(group, call_.workspace, slot(own_), slot_bytes());
            case DeviceMethod::rooted:
                return call_.reduction != nullptr ? add_reductions(group) : add_broadcasts(group);
            case DeviceMethod::messages:
                return add_messages(group);
            case DeviceMethod::peer:
            case DeviceMethod::copy_engine:
                return;
        }
    }

    // Copies that follow the calls of NCCL.
    void after() const {
        if (call_.method != DeviceMethod::padded) return;
        if (call_.reduction != nullptr) return copy(call_.shard, slot(own_), own_);
        for (int rank = 0; rank < shards_.ranks(); ++rank)
            copy(at(rank), rank == own_ ? call_.shard : slot(rank), rank);
    }

private:
    const nccl::Library &nccl() const { return comm_.libraries().nccl; }
    char *at(int rank) const { return call_.whole + shards_.begin(rank); }
    std::uint64_t slot_bytes() const { return device_aligned(shards_.largest()); }
    char *slot(int rank) const {
        return call_.workspace + static_cast<std::uint64_t>(rank) * slot_bytes();
    }
    // NCCL permits no broadcast between registered memory and other memory: if only one of the
    // shard and the whole buffer is registered, the shard is broadcast from its place in the
    // buffer.
    bool is_copied_into_place() const {
        return call_.method == DeviceMethod::rooted && call_.reduction == nullptr &&
               call_.shard != at(own_) && comm_.place_of(call_.shard).in != call_.place.in;
    }
    // An empty shard at the end of packed ones does not begin at its multiple of the stride, where
    // NCCL expects it.
    char *strided_shard() const {
        if (call_.shard != at(own_)) return call_.shard;
        return call_.whole + static_cast<std::uint64_t>(own_) * shards_.stride();
    }

    void copy(void *target, const void *source, int rank) const {
        const std::uint64_t bytes = shards_.bytes(rank);
        if (bytes == 0 || target == source) return;
        comm_.copy(target, source, bytes, stream_);
    }

    // `bytes` of each rank.
    void add_uniform(NcclGroup &group, char *whole, char *shard, std::uint64_t bytes) const {
        if (bytes == 0) return;
        if (call_.reduction == nullptr)
            return group.add("ncclAllGather()", [&] {
                return nccl().all_gather(shard, whole, bytes, nccl::u8, comm_.nccl(), stream_);
            });
        group.add("ncclReduceScatter()", [&] {
            return nccl().reduce_scatter(whole, shard, bytes / shards_.element(),
                                         call_.reduction->type, call_.reduction->op, comm_.nccl(),
                                         stream_);
        });
    }

    void add_broadcasts(NcclGroup &group) const {
        const char *shard = is_copied_into_place() ? at(own_) : call_.shard;
        for (int rank = 0; rank < shards_.ranks(); ++rank) {
            if (shards_.bytes(rank) == 0) continue;
            group.add("ncclBroadcast()", [&] {
                return nccl().broadcast(rank == own_ ? shard : at(rank), at(rank),
                                        shards_.bytes(rank), nccl::u8, rank, comm_.nccl(), stream_);
            });
        }
    }

    void add_reductions(NcclGroup &group) const {
        for (int rank = 0; rank < shards_.ranks(); ++rank) {
            if (shards_.bytes(rank) == 0) continue;
            group.add("ncclReduce()", [&] {
                return nccl().reduce(at(rank), call_.shard, shards_.bytes(rank) / shards_.element(),
                                     call_.reduction->type, call_.reduction->op, rank, comm_.nccl(),
                                     stream_);
            });
        }
    }

    void add_messages(NcclGroup &group) const {
        for (int rank = 0; rank < shards_.ranks(); ++rank) {
            if (rank == own_) continue;
            if (shards_.bytes(own_) != 0)
                group.add("ncclSend()", [&] {
                    return nccl().send(at(own_), shards_.bytes(own_), nccl::u8, rank, comm_.nccl(),
                                       stream_);
                });
            if (shards_.bytes(rank) != 0)
                group.add("ncclRecv()", [&] {
                    return nccl().recv(at(rank), shards_.bytes(rank), nccl::u8, rank, comm_.nccl(),
                                       stream_);
                });
        }
    }

    DeviceCommunicator &comm_;
    const RaggedCall &call_;
    const DevicePlacement &shards_;
    const cuda::Stream stream_;
    const int own_;
};

}  // namespace

DeviceCall device_call(const RaggedCall &call, vescomm_type_t type) {
    const bool reduces = call.reduction != nullptr;
    DeviceCall made{
        .kind = reduces ? DeviceCall::Kind::reduce_scatter_v : DeviceCall::Kind::all_gather_v,
        .type = type,
        .op = reduces ? call.reduction->own_op : VESCOMM_SUM,
        .method = call.method,
        .data = call.place,
        .source = call.shard_place};
    made.set_shards(*call.placement);
    return made;
}

void run(DeviceCommunicator &comm, std::span<const RaggedCall> calls, cuda::Stream stream) {
    if (std::ranges::any_of(calls, uses_nccl, &RaggedCall::method)) {
        for (const RaggedCall &call : calls) Ragged(comm, call, stream).before();
        NcclGroup group(comm);
        for (const RaggedCall &call : calls) Ragged(comm, call, stream).add_to(group);
        group.end();
        for (const RaggedCall &call : calls) Ragged(comm, call, stream).after();
    }
    for (const RaggedCall &call : calls)
        if (call.method == DeviceMethod::peer) run_peers(comm, call, stream);
    run_copies(comm, calls, stream);
}

}  // namespace vescomm::internal::device

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation, except the constructor.
#include "perf/implementations/array_calls.h"

#include "perf/case/ops.h"

namespace vescomm::perf {

namespace {

PrivateBuffers buffers_for(Communicator &comm, const Case &what, bool registered) {
    if (!registered) return {what, comm.rank()};
    return {what, comm.rank(), [&comm](std::size_t bytes) {
                return PrivateBuffers::Bytes(static_cast<std::byte *>(comm.malloc(bytes)),
                                             [&comm](std::byte *data) { comm.mfree(data); });
            }};
}

}  // namespace

ArrayCalls::ArrayCalls(Communicator &comm, const Case &what, bool registered)
    : comm_(&comm),
      rank_(comm.rank()),
      what_(what),
      type_(find_type(what.type).number),
      op_(what.op == "none" ? VESCOMM_SUM : find_op(what.op).number),
      bytes_(find_type(what.type).bytes()),
      parts_(parts_of(what)),
      counts_(static_cast<std::size_t>(what.ranks())),
      offsets_(static_cast<std::size_t>(what.ranks())),
      buffers_(buffers_for(comm, what, registered)) {
    if (what.shared) throw Unsupported("an array belongs to one rank");
    if (what.output_type != what.type) throw Unsupported("both arrays have one type");
}

void ArrayCalls::run() {
    if (what_.collective == "barrier") return comm_->barrier();
    // Messages of a ring must be in a group, because each waits for the next rank's receive.
    if (parts_.size() == 1 && what_.collective != "send_receive") return call(parts_[0]);
    group(*comm_, [this] {
        for (const Part &part : parts_) call(part);
    });
}

void ArrayCalls::start(Request &request) {
    group(
        *comm_,
        [this] {
            for (const Part &part : parts_) call(part);
        },
        &request);
}

// In the whole buffer tensors lie one after another; in a shard its parts of the tensors do.
void ArrayCalls::call(const Part &part) {
    vescomm_comm_t *comm = comm_->get();
    const std::string &name = what_.collective;
    const std::int64_t *counts = part.counts.data();
    std::byte *whole = buffers_.whole() + part.first * bytes_;
    std::byte *output = buffers_.output();
    std::byte *output_whole = output + part.first * bytes_;
    std::byte *output_shard = output + part.in_shard[rank_] * bytes_;
    std::byte *input_shard = buffers_.input() + part.in_shard[rank_] * bytes_;
    if (name == "all_gather_v")
        check(vescomm_all_gather_v(comm, input_shard, whole, counts, nullptr, type_, nullptr,
                                   nullptr, nullptr));
    else if (name == "reduce_scatter_v")
        check(vescomm_reduce_scatter_v(comm, whole, output_shard, counts, type_, op_, nullptr,
                                       nullptr, nullptr));
    else if (name == "all_reduce")
        check(vescomm_all_reduce(comm, whole, whole, part.elements, type_, op_, nullptr, nullptr,
                                 nullptr));
    else if (name == "broadcast")
        check(vescomm_broadcast(comm, whole, part.elements, type_, what_.root, nullptr, nullptr,
                                nullptr));
    else if (name == "reduce")
        check(vescomm_reduce(comm, whole, output_whole, part.elements, type_, op_, what_.root,
                             nullptr, nullptr, nullptr));
    else if (name == "gather_v")
        check(vescomm_gather_v(comm, input_shard, output_whole, counts, nullptr, type_, what_.root,
                               nullptr, nullptr, nullptr));
    else if (name == "scatter_v")
        check(vescomm_scatter_v(comm, whole, output_shard, counts, nullptr, type_, what_.root,
                                nullptr, nullptr, nullptr));
    else if (name == "all_to_all_v") {
        for (int rank = 0; rank < what_.ranks(); ++rank) {
            counts_[rank] = part.counts[rank_];
            offsets_[rank] = rank * what_.shard(rank_) + part.in_shard[rank_];
        }
        check(vescomm_all_to_all_v(comm, buffers_.whole(), counts, part.begins.data(), output,
                                   counts_.data(), offsets_.data(), type_, nullptr, nullptr,
                                   nullptr));
    } else if (name == "send_receive") {
        const int ranks = what_.ranks();
        const int previous = what_.previous(rank_);
        check(vescomm_send(comm, buffers_.input() + ranks * part.in_shard[rank_] * bytes_,
                           ranks * part.counts[rank_], type_, what_.next(rank_), nullptr, nullptr,
                           nullptr));
        check(vescomm_receive(comm, output + ranks * part.in_shard[previous] * bytes_,
                              ranks * part.counts[previous], type_, previous, nullptr, nullptr,
                              nullptr));
    } else throw Unsupported("this worker has no " + name);
}

}  // namespace vescomm::perf

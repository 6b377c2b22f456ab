// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/norm.h"

#include <algorithm>

#include "fsdp/norm/exact_sum.h"
#include "vescomm/gpu_kernels.h"

namespace vescomm::fsdp::device {

static_assert(ExactSum::word_count == VESCOMM_GPU_SUM_WORDS);

Norm::Norm(const ModelPlan &plan, const Shards &shards, Links &links, Streams &streams)
    : plan_(plan),
      gradients_(plan.mesh.position(links.comms().world().rank()) == 0
                     ? shards.gradients()
                     : shards.sharded_gradients()),
      links_(links),
      streams_(streams),
      words_(VESCOMM_GPU_SUM_WORDS * sizeof(std::int64_t)) {}

void Norm::finish() {
    auto *words = reinterpret_cast<std::int64_t *>(words_.data());
    const cuda::Stream stream = streams_.reduce();
    const vescomm_gpu_piece_t all_words = {0, 0, VESCOMM_GPU_SUM_WORDS};
    check(vescomm_gpu_zero(words, VESCOMM_I64, &all_words, 1, stream));
    const vescomm_gpu_piece_t all = {0, 0, static_cast<std::int64_t>(gradients_.size())};
    if (!gradients_.empty())
        check(vescomm_gpu_add_squares(words, gradients_.data(), VESCOMM_F32, &all, 1, stream));
    if (plan_.mesh.shard_ranks == 1) return;
    links_.shard().call(stream, [&](vescomm_gpu_comm_t *comm) {
        return vescomm_gpu_all_reduce(comm, words, words, VESCOMM_GPU_SUM_WORDS, VESCOMM_I64,
                                      VESCOMM_SUM, stream);
    });
}

double Norm::squares() {
    ExactSum sum;
    complete_.record(streams_.reduce());
    links_.wait(complete_);
    streams_.to_host(sum.words().data(), words_.data(), words_.size());
    sum.normalise();
    return sum.value();
}

}  // namespace vescomm::fsdp::device

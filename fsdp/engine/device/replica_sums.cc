// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/replica_sums.h"

#include <algorithm>
#include <vector>

#include "fsdp/engine/device/gradient_factors.h"
#include "fsdp/engine/or_abort.h"
#include "fsdp/error.h"
#include "vescomm/gpu_kernels.h"

namespace vescomm::fsdp::device {

namespace {

constexpr std::size_t max_elements = summed_part_bytes / sizeof(float);

// NCCL is several times slower on shards that begin elsewhere.
constexpr std::size_t aligned_elements = 16 / sizeof(float);

}  // namespace

void OrderedSums::create(const Link &link, int ranks, std::size_t most) {
    const auto parts = static_cast<std::size_t>(ranks);
    const std::size_t part =
        (most + parts * aligned_elements - 1) / (parts * aligned_elements) * aligned_elements;
    const std::vector<std::int64_t> counts(parts, static_cast<std::int64_t>(part));
    const Layout layout = Layout::from_counts(counts);
    vescomm_gpu_buffer_options_t options = vescomm_gpu_buffer_options_init();
    options.name = "sums over replicas";
    options.type = VESCOMM_F32;
    vescomm_gpu_buffer_t *made = nullptr;
    link.require(vescomm_gpu_buffer_create(link.get(), layout.get(), &options, &made));
    buffer.reset(made);
    // The error of a sum that no method can make in the order of the ranks.
    const char *text = nullptr;
    link.require(vescomm_gpu_buffer_explain(made, 1, &text));
    vescomm_view_t view = {};
    check(vescomm_gpu_buffer_get_data(made, &view));
    data = static_cast<float *>(view.data);
    elements = static_cast<std::size_t>(view.elements);
}

ReplicaSums::ReplicaSums(const Spec &spec, const ModelPlan &plan, const Shards &shards,
                         const Bytes &scratch, Links &links, Streams &streams)
    : spec_(spec),
      plan_(plan),
      shards_(shards),
      scratch_(scratch),
      links_(links),
      streams_(streams) {
    // As in SlotBuffers: other ranks get the reason before the buffers of this one end.
    or_abort(links.comms(), [&] {
        if (plan.mesh.replicas() > 1)
            order(replicas_, links.replica(), plan.mesh.replicas(),
                  shards.sharded_gradients().size());
        if (plan.sums_replicated())
            order(world_, links.world(), plan.mesh.ranks, shards.replicated_gradients().size());
    });
}

void ReplicaSums::order(std::optional<OrderedSums> &ordered, const Link &link, int ranks,
                        std::size_t elements) {
    if (!link.needs_order() || elements == 0) return;
    // The buffer outlives a failure of its creation, of which other ranks learn first.
    ordered.emplace();
    ordered->create(link, ranks, std::min(elements, max_elements));
}

void ReplicaSums::over_replicas() {
    all_reduce(links_.replica(), replicas_, plan_.mesh.replicas(), shards_.sharded_gradients());
}

void ReplicaSums::of_replicated() {
    all_reduce(links_.world(), world_, plan_.mesh.ranks, shards_.replicated_gradients());
}

std::uint64_t ReplicaSums::bytes() const {
    std::uint64_t bytes = 0;
    for (const auto *ordered : {&replicas_, &world_})
        if (*ordered) bytes += (*ordered)->elements * sizeof(float);
    return bytes;
}

void ReplicaSums::all_reduce(Link &link, const std::optional<OrderedSums> &ordered, int ranks,
                             std::span<float> gradients) {
    if (!ordered && shards_.on_device())
        return sum_part(link, ordered, ranks, gradients, gradients.data());
    // NCCL sums memory of the device only.
    float *sum = ordered ? ordered->data : reinterpret_cast<float *>(scratch_.data());
    const std::size_t most =
        ordered ? ordered->elements
                : static_cast<std::size_t>(
                      std::min<std::uint64_t>(scratch_.size(), summed_part_bytes) / sizeof(float));
    for (std::size_t begin = 0; begin < gradients.size(); begin += most)
        sum_part(link, ordered, ranks,
                 gradients.subspan(begin, std::min(most, gradients.size() - begin)), sum);
}

void ReplicaSums::sum_part(Link &link, const std::optional<OrderedSums> &ordered, int ranks,
                           std::span<float> part, float *sum) {
    if (part.empty()) return;
    const cuda::Stream stream = streams_.reduce();
    const auto elements = static_cast<std::int64_t>(part.size());
    const vescomm_gpu_piece_t all = {0, 0, elements};
    const auto copy = [&](float *to, const float *from) {
        if (to != from)
            check(vescomm_gpu_copy(to, VESCOMM_F32, from, VESCOMM_F32, &all, 1, stream));
    };
    copy(sum, part.data());
    link.call(stream, [&](vescomm_gpu_comm_t *comm) {
        if (!ordered)
            return vescomm_gpu_all_reduce(comm, sum, sum, elements, VESCOMM_F32, VESCOMM_SUM,
                                          stream);
        // Elements behind the part have any values, and nobody reads their sums.
        vescomm_gpu_buffer_t *const buffer = ordered->buffer.get();
        const vescomm_status_t status =
            vescomm_gpu_buffer_reduce_scatter_v(&buffer, 1, VESCOMM_SUM, stream);
        if (status != VESCOMM_OK) return status;
        return vescomm_gpu_buffer_all_gather_v(&buffer, 1, stream);
    });
    const float factor = average_factor(spec_, ranks);
    if (factor != 1) check(vescomm_gpu_scale(sum, VESCOMM_F32, factor, &all, 1, stream));
    copy(part.data(), sum);
}

}  // namespace vescomm::fsdp::device

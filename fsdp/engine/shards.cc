// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/shards.h"

#include <cstring>

#include "fsdp/report/traffic.h"

namespace vescomm::fsdp {

Shards::Shards(const ModelPlan &plan, int rank, const std::string &folder)
    : plan_(plan), position_(plan.mesh.position(rank)), states_(plan.buckets.size()) {
    measure();
    for (Array *array : place_in_file(folder)) {
        array->own = AlignedBytes(array->size, plan_.allocator);
        array->data = array->own.data();
    }
}

Shards::Shards(const ModelPlan &plan, int rank, device::Place place, const std::string &folder)
    : plan_(plan),
      position_(plan.mesh.position(rank)),
      on_device_(place == device::Place::device),
      states_(plan.buckets.size()) {
    measure();
    for (Array *array : place_in_file(folder)) {
        array->of_cuda = device::Bytes(array->size, place, plan_.device_allocator);
        array->data = array->of_cuda.data();
    }
}

Shards Shards::of(const Spec &spec, const ModelPlan &plan, int rank) {
    const vescomm_fsdp_spec_options_t &options = spec.options();
    if (options.memory != VESCOMM_FSDP_DEVICE) return {plan, rank, spec.offload_folder()};
    if (options.offload_to_host == 0) return {plan, rank, device::Place::device};
    return {plan, rank, device::Place::pinned, spec.offload_folder()};
}

void Shards::measure() {
    std::int64_t master = 0;
    std::int64_t gradient = 0;
    master_begin_.resize(plan_.buckets.size());
    gradient_begin_.resize(plan_.buckets.size());
    for (const bool replicated : {false, true}) {
        for (std::size_t i = 0; i < plan_.buckets.size(); ++i) {
            const Bucket &bucket = plan_.buckets[i];
            if (bucket.replicated != replicated) continue;
            const std::int64_t aligned = align_shard(bucket.shard(position_));
            master_begin_[i] = master;
            gradient_begin_[i] = gradient;
            master += aligned;
            if (!bucket.trainable) continue;
            gradient += aligned;
            for (std::size_t state = 0; state < bucket.states.size(); ++state)
                states_[i].emplace_back().size =
                    static_cast<std::size_t>(align_shard(bucket.state_elements(state, position_))) *
                    bucket.states[state].bytes();
        }
        if (!replicated) sharded_gradients_ = static_cast<std::size_t>(gradient);
    }
    master_.size = static_cast<std::size_t>(master) * vescomm_type_get_bytes(master_type());
    gradient_.size = static_cast<std::size_t>(gradient) * sizeof(float);
}

vescomm_type_t Shards::master_type() const {
    return plan_.buckets.empty() ? VESCOMM_F32 : plan_.buckets.front().master_type;
}

std::vector<Shards::Array *> Shards::masters_and_states() {
    std::vector<Array *> all = {&master_};
    for (auto &states : states_)
        for (Array &state : states) all.push_back(&state);
    return all;
}

std::vector<Shards::Array *> Shards::place_in_file(const std::string &folder) {
    std::vector<Array *> arrays = masters_and_states();
    if (folder.empty()) {
        arrays.push_back(&gradient_);
        return arrays;
    }
    const std::size_t page = offload_alignment();
    std::vector<std::size_t> offsets;
    std::size_t end = 0;
    for (const Array *array : arrays) {
        offsets.push_back(end);
        end += (array->size + page - 1) / page * page;
    }
    file_ = OffloadFile(folder, end);
    for (std::size_t i = 0; i < arrays.size(); ++i) arrays[i]->data = file_.data() + offsets[i];
    return {&gradient_};
}

// The pages that only have masters of the bucket.
std::span<std::byte> Shards::master_pages(std::size_t bucket) const noexcept {
    const std::size_t page = offload_alignment();
    const std::span<std::byte> values = master(bucket).bytes();
    const auto begin = static_cast<std::size_t>(values.data() - master_.data);
    const std::size_t first = (begin + page - 1) / page * page;
    const std::size_t last = (begin + values.size()) / page * page;
    return {master_.data + first, last > first ? last - first : 0};
}

void Shards::will_need_master(std::size_t bucket) const noexcept {
    if (file_.size() == 0) return;
    const auto pages = master_pages(bucket);
    file_.will_need(pages.data(), pages.size());
}

void Shards::rest_master(std::size_t bucket) const noexcept {
    if (file_.size() == 0) return;
    const auto pages = master_pages(bucket);
    file_.rest(pages.data(), pages.size());
}

void Shards::will_need(std::size_t bucket) const noexcept {
    will_need_master(bucket);
    if (file_.size() == 0) return;
    for (const Array &state : states_[bucket]) file_.will_need(state.data, state.size);
}

void Shards::rest(std::size_t bucket) const noexcept {
    rest_master(bucket);
    if (file_.size() == 0) return;
    for (const Array &state : states_[bucket]) file_.rest(state.data, state.size);
}

Masters Shards::master(std::size_t bucket) const {
    const vescomm_type_t type = master_type();
    const Masters all{master_.data, 0, type};
    return {all.at(master_begin_[bucket]),
            static_cast<std::size_t>(plan_.buckets[bucket].shard(position_)), type};
}

std::span<float> Shards::gradient(std::size_t bucket) const {
    return {reinterpret_cast<float *>(gradient_.data) + gradient_begin_[bucket],
            static_cast<std::size_t>(plan_.buckets[bucket].shard(position_))};
}

void Shards::zero_states() const noexcept {
    for (const std::vector<Array> &states : states_)
        for (const Array &state : states)
            if (state.size > 0) std::memset(state.data, 0, state.size);
}

void *Shards::state(std::size_t bucket, std::size_t state) const {
    return states_[bucket][state].data;
}

std::span<std::byte> Shards::state_bytes(std::size_t bucket, std::size_t state) const {
    const Array &array = states_[bucket][state];
    return {array.data, array.size};
}

std::span<std::byte> Shards::masters() const {
    return {master_.data, master_.size};
}

std::span<float> Shards::gradients() const {
    return {reinterpret_cast<float *>(gradient_.data), gradient_.size / sizeof(float)};
}

std::span<float> Shards::sharded_gradients() const {
    return gradients().first(sharded_gradients_);
}

std::span<float> Shards::replicated_gradients() const {
    return gradients().subspan(sharded_gradients_);
}

std::uint64_t Shards::bytes() const {
    const auto of = [](const Array &array) { return array.own.size() + array.of_cuda.size(); };
    std::uint64_t bytes = of(master_) + of(gradient_);
    for (const auto &states : states_)
        for (const Array &state : states) bytes += of(state);
    return bytes;
}

}  // namespace vescomm::fsdp

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/shards.h"

#include <cstring>

#include "fsdp/report/traffic.h"

namespace vescomm::fsdp {

AlignedBytes::AlignedBytes(std::size_t bytes)
    : data_(static_cast<std::byte *>(::operator new (bytes, std::align_val_t{64}))), size_(bytes) {
    std::memset(data_.get(), 0, bytes);
}

Shards::Shards(const ModelPlan &plan, int rank)
    : plan_(plan), position_(plan.mesh.position(rank)), states_(plan.buckets.size()) {
    std::int64_t master = 0;
    std::int64_t gradient = 0;
    for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
        const Bucket &bucket = plan.buckets[i];
        const std::int64_t aligned = align_shard(bucket.shard(position_));
        master_begin_.push_back(master);
        gradient_begin_.push_back(gradient);
        master += aligned;
        if (!bucket.trainable) continue;
        gradient += aligned;
        for (const vescomm_type_t type : bucket.states)
            states_[i].emplace_back(static_cast<std::size_t>(aligned) *
                                    vescomm_type_get_bytes(type));
    }
    master_ = AlignedBytes(static_cast<std::size_t>(master) * sizeof(float));
    gradient_ = AlignedBytes(static_cast<std::size_t>(gradient) * sizeof(float));
}

std::span<float> Shards::master(std::size_t bucket) const {
    return {reinterpret_cast<float *>(master_.data()) + master_begin_[bucket],
            static_cast<std::size_t>(plan_.buckets[bucket].shard(position_))};
}

std::span<float> Shards::gradient(std::size_t bucket) const {
    return {reinterpret_cast<float *>(gradient_.data()) + gradient_begin_[bucket],
            static_cast<std::size_t>(plan_.buckets[bucket].shard(position_))};
}

void *Shards::state(std::size_t bucket, std::size_t state) const {
    return states_[bucket][state].data();
}

std::span<std::byte> Shards::state_bytes(std::size_t bucket, std::size_t state) const {
    const AlignedBytes &bytes = states_[bucket][state];
    return {bytes.data(), bytes.size()};
}

std::span<float> Shards::masters() const {
    return {reinterpret_cast<float *>(master_.data()), master_.size() / sizeof(float)};
}

std::span<float> Shards::gradients() const {
    return {reinterpret_cast<float *>(gradient_.data()), gradient_.size() / sizeof(float)};
}

std::uint64_t Shards::bytes() const {
    std::uint64_t bytes = master_.size() + gradient_.size();
    for (const auto &states : states_)
        for (const AlignedBytes &state : states) bytes += state.size();
    return bytes;
}

}  // namespace vescomm::fsdp

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "fsdp/engine/device/mirror.h"

namespace vescomm::fsdp::device {

namespace {

// Calls body(array of the device, array of the host) for masters and states.
template <typename Body>
void for_each_array(const ModelPlan &plan, const Shards &device, const Shards &host, Body &&body) {
    body(device.masters(), host.masters());
    for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket)
        for (std::size_t state = 0; state < plan.buckets[bucket].states.size(); ++state)
            body(device.state_bytes(bucket, state), host.state_bytes(bucket, state));
}

}  // namespace

Mirror::Mirror(const ModelPlan &plan, int rank, const Shards &shards, Streams *streams,
               Links *links)
    : plan_(plan), shards_(shards), streams_(streams), links_(links) {
    if (streams_ == nullptr) return;
    links_->settle(*streams_);
    if (!shards_.on_device()) return;
    copy_.emplace(plan, rank);
    for_each_array(plan_, shards_, *copy_, [&](auto device, auto host) {
        streams_->to_host(host.data(), device.data(), host.size());
    });
}

void Mirror::store() {
    if (!copy_) return;
    links_->settle(*streams_);
    for_each_array(plan_, shards_, *copy_, [&](auto device, auto host) {
        streams_->to_device(device.data(), host.data(), host.size());
    });
    streams_->write_masters();
}

}  // namespace vescomm::fsdp::device

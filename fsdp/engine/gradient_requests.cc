// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/gradient_requests.h"

#include <string>

namespace vescomm::fsdp {

Request &GradientRequests::make(const Key &key, vescomm_memory_t *memory, float *output) {
    const Bucket &bucket = model_.plan.buckets[key.bucket];
    Communicator &comm = comms_.shard(bucket.kind());
    comms_.complete_others(comm);
    auto buffer = buffers_.find({key.slot, key.bucket});
    if (buffer == buffers_.end()) {
        const std::string name = "gradients of " + model_.unit_names[bucket.unit];
        vescomm_buffer_options_t options = vescomm_buffer_options_init();
        options.type = bucket.gradient_type;
        options.memory = memory;
        options.name = name.c_str();
        buffer =
            buffers_
                .emplace(std::pair(key.slot, key.bucket), Buffer(comm, bucket.layout(), options))
                .first;
    }
    vescomm_request_options_t options = vescomm_request_options_init();
    options.output = output;
    options.type = VESCOMM_F32;
    const bool average = model_.spec.options().average != 0 && bucket.kind() == UnitKind::dense;
    options.op = average ? VESCOMM_AVERAGE : VESCOMM_SUM;
    return requests_.emplace(key, Request::reduce_scatter_v(comm, buffer->second, options))
        .first->second;
}

}  // namespace vescomm::fsdp

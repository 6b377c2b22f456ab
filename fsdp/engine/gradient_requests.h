// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The requests that sum buckets of gradients in slots, each made at its first use.
#pragma once

#include <compare>
#include <cstddef>
#include <map>
#include <utility>

#include "fsdp/engine/comms.h"
#include "fsdp/engine/model.h"

namespace vescomm::fsdp {

class GradientRequests {
public:
    // A bucket in a slot, summed into the gradient shard or, if the sum is added, into scratch.
    struct Key {
        int slot;
        std::size_t bucket;
        bool adds;
        auto operator<=>(const Key &) const = default;
    };

    // The arguments must outlive the requests.
    GradientRequests(const Model &model, Comms &comms) : model_(model), comms_(comms) {}

    bool contains(const Key &key) const { return requests_.contains(key); }
    // A request that exists.
    Request &at(const Key &key) { return requests_.at(key); }
    // Makes a request from the memory of the bucket to `output`, its shard or scratch. Collective.
    Request &make(const Key &key, vescomm_memory_t *memory, float *output);

private:
    const Model &model_;
    Comms &comms_;
    std::map<std::pair<int, std::size_t>, Buffer> buffers_;  // by slot and bucket
    std::map<Key, Request> requests_;
};

}  // namespace vescomm::fsdp

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// This rank's shards: masters, gradients and states of optimizers. They exist from creation to the
// end, whatever happens to communicators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "fsdp/engine/device/cuda.h"
#include "fsdp/engine/offload_file.h"
#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp {

// Masters of one bucket: `size` elements of `type`.
struct Masters {
    std::byte *data = nullptr;
    std::size_t size = 0;
    vescomm_type_t type = VESCOMM_F32;

    std::byte *at(std::int64_t element) const {
        return data + static_cast<std::size_t>(element) * vescomm_type_get_bytes(type);
    }
    std::span<std::byte> bytes() const { return {data, size * vescomm_type_get_bytes(type)}; }
};

class Shards {
public:
    // `folder`: for masters and states in a file; empty: all in memory.
    Shards(const ModelPlan &plan, int rank, const std::string &folder = {});
    // In the memory that the options of the specification name.
    static Shards of(const Spec &spec, const ModelPlan &plan, int rank);
    // In memory that the kernels of the current device can access, but for masters and states in a
    // file. `folder`: empty unless the place is pinned memory.
    Shards(const ModelPlan &plan, int rank, device::Place place, const std::string &folder = {});

    // True if the spans below have addresses that the host cannot access.
    bool on_device() const { return on_device_; }

    Masters master(std::size_t bucket) const;
    // The bucket must be trainable.
    std::span<float> gradient(std::size_t bucket) const;
    void *state(std::size_t bucket, std::size_t state) const;
    // The same, with the zeros that follow it.
    std::span<std::byte> state_bytes(std::size_t bucket, std::size_t state) const;
    // States of optimizers as at the beginning. Not on_device().
    void zero_states() const noexcept;

    // All masters, and all gradient shards, with zeros between them. Those of replicated buckets
    // come last.
    std::span<std::byte> masters() const;
    std::span<float> gradients() const;
    // The part of gradients() of sharded buckets, and that of replicated ones.
    std::span<float> sharded_gradients() const;
    std::span<float> replicated_gradients() const;
    std::uint64_t bytes() const;  // in memory

    // With a file: starts to read masters and states of a bucket from the disk, and removes them
    // from memory. Without one they do nothing.
    void will_need(std::size_t bucket) const noexcept;
    void rest(std::size_t bucket) const noexcept;
    void will_need_master(std::size_t bucket) const noexcept;
    void rest_master(std::size_t bucket) const noexcept;

private:
    // Memory of its own, or a part of the file.
    struct Array {
        AlignedBytes own;
        device::Bytes of_cuda;
        std::byte *data = nullptr;
        std::size_t size = 0;
    };

    // Decides where the shards of buckets lie.
    void measure();
    vescomm_type_t master_type() const;
    // Gives masters and states parts of a file, if there is a folder. Returns the arrays that need
    // memory.
    std::vector<Array *> place_in_file(const std::string &folder);
    std::vector<Array *> masters_and_states();
    std::span<std::byte> master_pages(std::size_t bucket) const noexcept;

    const ModelPlan &plan_;
    int position_;
    bool on_device_ = false;
    std::vector<std::int64_t> master_begin_, gradient_begin_;  // by bucket, in elements
    std::size_t sharded_gradients_ = 0;  // elements, with zeros between them
    Array master_;
    Array gradient_;
    std::vector<std::vector<Array>> states_;  // by bucket
    OffloadFile file_;
};

}  // namespace vescomm::fsdp

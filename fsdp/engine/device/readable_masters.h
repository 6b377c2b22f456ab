// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Masters as kernels read them. Kernels cannot access those in a file (offload_folder): the host
// copies them to pinned memory, into two parts in turn:
//
//     host            copy a │ copy b │ waits for the kernels of a │ copy c
//     gather stream            kernels of a ──────┘ │ kernels of b │ kernels of c
#pragma once

#include <cstdint>
#include <utility>

#include "fsdp/engine/device/links.h"
#include "fsdp/engine/device/streams.h"
#include "fsdp/engine/shards.h"
#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp::device {

// Bytes of pinned memory for masters in a file; 0: they are in no file.
std::uint64_t staged_master_bytes(const Spec &spec, const ModelPlan &plan, int position);

class ReadableMasters {
public:
    // `bytes`: staged_master_bytes(). The other arguments must outlive the object.
    ReadableMasters(const Shards &shards, std::uint64_t bytes, Links &links);

    // Calls the body with masters, to put kernels that read those of a bucket on the stream.
    // Masters in a file must not change meanwhile. Throws as Links::wait().
    template <typename Body>
    void read(std::size_t bucket, cuda::Stream stream, Body &&body) {
        if (staged_.size() == 0) return std::forward<Body>(body)(shards_.master(bucket));
        std::forward<Body>(body)(copy(bucket));
        read_[part_].record(stream);
    }
    std::uint64_t bytes() const { return staged_.size(); }

private:
    // Copies the masters of a bucket to the other part, when the kernels that read it have ended.
    Masters copy(std::size_t bucket);

    const Shards &shards_;
    Links &links_;
    Bytes staged_;
    int part_ = 0;  // that of the last copy
    Event read_[2];  // the kernels that read a part have ended
};

}  // namespace vescomm::fsdp::device

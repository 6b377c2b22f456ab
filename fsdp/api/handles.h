// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The objects behind the handles of fsdp.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "api/handle.h"
#include "fsdp/checkpoint/save_job.h"
#include "fsdp/engine/recovery.h"
#include "fsdp/spec/spec.h"

struct vescomm_fsdp_spec {
    vescomm::fsdp::Spec spec;
};

struct vescomm_job : vescomm::internal::Handle {
    std::unique_ptr<vescomm::fsdp::checkpoint::SaveJob> save;
};

struct vescomm_fsdp : vescomm::internal::Handle {
    explicit vescomm_fsdp(vescomm::fsdp::Engines made) : engines(std::move(made)) {}

    vescomm::fsdp::Engines engines;
    std::uint64_t number = next_number();  // in this process

    static std::uint64_t next_number() noexcept {
        static std::atomic<std::uint64_t> next{0};
        return next++;
    }

    // For functions that read, which functions of the program may call while the engine calls them.
    // The same until a recovery succeeds.
    vescomm::fsdp::Engine &observed() const { return *engines.current; }
    // For all other functions. Throws Failure in a function of the program that the engine calls.
    vescomm::fsdp::Engine &engine() const {
        observed().refuse_in_callback();
        return observed();
    }
};

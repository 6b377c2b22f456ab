// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fsdp/training.h"

namespace vescomm::fsdp::testing {

// An allocator that counts what it gives. Where the memory comes from: a derived class.
class CountingAllocator {
public:
    CountingAllocator() = default;
    virtual ~CountingAllocator() = default;
    CountingAllocator(const CountingAllocator &) = delete;
    CountingAllocator &operator=(const CountingAllocator &) = delete;

    vescomm_fsdp_allocator_t allocator() {
        vescomm_fsdp_allocator_t made = vescomm_fsdp_allocator_init();
        made.context = this;
        made.allocate = [](void *context, std::uint64_t bytes, std::uint64_t alignment) {
            return static_cast<CountingAllocator *>(context)->allocate(bytes, alignment);
        };
        made.deallocate = [](void *context, void *memory, std::uint64_t bytes) {
            static_cast<CountingAllocator *>(context)->deallocate(memory, bytes);
        };
        return made;
    }
    std::uint64_t live() const { return live_; }
    int calls() const { return calls_; }
    // The call of this number, from 1, returns NULL. 0: none.
    void fail_at(int call) { failing_ = call; }

protected:
    // Memory whose contents are not zero.
    virtual void *give(std::uint64_t bytes) = 0;
    virtual void take(void *memory) = 0;

private:
    void *allocate(std::uint64_t bytes, std::uint64_t alignment) {
        EXPECT_GT(bytes, 0u);
        EXPECT_EQ(alignment, 64u);
        if (++calls_ == failing_) return nullptr;
        void *memory = give(bytes);
        sizes_[memory] = bytes;
        live_ += bytes;
        return memory;
    }
    void deallocate(void *memory, std::uint64_t bytes) {
        const auto found = sizes_.find(memory);
        ASSERT_NE(found, sizes_.end());
        EXPECT_EQ(found->second, bytes);
        sizes_.erase(found);
        live_ -= bytes;
        take(memory);
    }

    std::map<void *, std::uint64_t> sizes_;
    std::uint64_t live_ = 0;
    int calls_ = 0, failing_ = 0;
};

inline std::vector<UnitModel> mixed_model() {
    std::vector<UnitModel> units = odd_model();
    units[1].parameters[1].flags = VESCOMM_FSDP_REPLICATED;
    return units;
}

// Each call of the allocator of rank 1 fails in turn: all ranks then have an error, and memory is
// given back. `train(comm, described)` creates an engine and trains. Returns the number of calls.
template <typename Counting, typename Train>
int fail_each_call(const std::vector<UnitModel> &units, const vescomm_fsdp_spec_options_t &base,
                   int limit, const Train &train) {
    bool failed = true;
    int call = 0;
    while (failed && call < limit) {
        ++call;
        failed = false;
        run_ranks(2, [&](Communicator &comm) {
            Counting counting;
            const vescomm_fsdp_allocator_t allocator = counting.allocator();
            vescomm_fsdp_spec_options_t options = base;
            options.allocator = &allocator;
            if (comm.rank() == 1) counting.fail_at(call);
            const Described described = describe(units, "zero3", options);
            try {
                train(comm, described);
                EXPECT_FALSE(comm.rank() == 1 && counting.calls() >= call);
            } catch (const Error &error) {
                EXPECT_NE(error.status(), VESCOMM_ERROR_TIMEOUT) << error.what();
                if (comm.rank() == 1) {
                    EXPECT_EQ(error.status(), VESCOMM_ERROR_OUT_OF_MEMORY) << error.what();
                    failed = true;
                }
            }
            EXPECT_EQ(counting.live(), 0u);
        });
    }
    EXPECT_FALSE(failed) << "more than " << limit << " calls fail";
    return call;
}

}  // namespace vescomm::fsdp::testing

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The order between the work of different devices. When work is given to a stream, the other ranks
// may not have called yet, so this order is found while work runs: a kernel that raises a flag of
// another device passes on the clock of its stream, and the kernel that waits for the flag takes
// it. An access is reported if it is not ordered, whether or not it happened to run in order.
#include "gpu/double/streams.h"

namespace gpu_double {
namespace {

// The work that the calling thread executes.
struct Running {
    CUstream_st *stream = nullptr;
    std::uint64_t number = 0;
    std::string name;
};
thread_local Running running;

// Under the lock.
void add_access(const Access &access) {
    if (access.bytes == 0 || !state().memory.contains(access.begin)) return;
    Allocation *allocation = state().memory.find(access.begin);
    if (allocation == nullptr || !allocation->of_nccl) return;
    CUstream_st &stream = *running.stream;
    const std::string text = running.name + (access.write ? " writes" : " reads") + " allocation " +
                             std::to_string(allocation->number) + " of device " +
                             std::to_string(allocation->device);
    if (allocation->device != stream.device) {
        const MappingCheck mapped = state().mapping_check;
        if (mapped == nullptr || !mapped(stream.device, access.begin, access.bytes))
            violation(text + ", which is not mapped on device " + std::to_string(stream.device));
    }
    const auto begin =
        static_cast<std::size_t>(static_cast<const char *>(access.begin) - allocation->begin);
    const std::string other =
        allocation->across.add(begin, begin + access.bytes, access.write,
                               {running.number, stream.ran.at(running.number), running.name,
                                stream.device, allocation->device != stream.device},
                               stream.ran);
    if (!other.empty() && !state().rank_has_died)
        violation(text + " without a meeting after " + other +
                  ", which accesses the same bytes on another device or stream");
}

}  // namespace

void push_work(CUstream_st &stream, const std::string &name, const std::vector<Access> &accesses,
               std::uint64_t number, std::uint64_t tick, std::function<void()> work) {
    const State::Known &known = state().known_ran[stream.device];
    StreamClock before;
    if (stream.host_waits != known.waits) before = known.ran;
    stream.host_waits = known.waits;
    before[number] = tick;
    push(stream,
         [&stream, name, accesses, number, before = std::move(before), work = std::move(work)] {
             {
                 const Lock lock(state().mutex);
                 if (failure_of(stream.device) != cuda::success) return;
                 if (has_ended(stream.process)) return;
                 join(stream.ran, before);
                 running = {&stream, number, name};
                 for (const Access &access : accesses) add_access(access);
             }
             work();
         });
}

void add_accesses(const std::vector<Access> &accesses) {
    const Lock lock(state().mutex);
    for (const Access &access : accesses) add_access(access);
}

void raise_flags(const std::vector<const void *> &flags, std::uint32_t value) {
    const Lock lock(state().mutex);
    const auto ran = std::make_shared<const StreamClock>(running.stream->ran);
    for (const void *flag : flags) state().raised[{flag, value}] = ran;
}

void see_flags(const std::vector<const void *> &flags, std::uint32_t value) {
    const Lock lock(state().mutex);
    for (const void *flag : flags) {
        const auto found = state().raised.find({flag, value});
        if (found == state().raised.end()) continue;  // the wait for it was ended
        join(running.stream->ran, *found->second);
        state().raised.erase(found);
    }
}

void note_death() {
    const Lock lock(state().mutex);
    state().rank_has_died = true;
}

void set_mapping_check(MappingCheck check) {
    const Lock lock(state().mutex);
    state().mapping_check = check;
}

}  // namespace gpu_double

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/double/streams.h"

#include <chrono>
#include <thread>

namespace gpu_double {
namespace {

thread_local int device_of_thread = 0;
thread_local int process_of_thread = 0;

void run_queue(CUstream_st *stream) {
    for (;;) {
        std::function<void()> work;
        {
            std::unique_lock<std::mutex> lock(stream->mutex);
            stream->running = false;
            stream->changed.notify_all();
            stream->changed.wait(lock, [&] { return stream->end || !stream->queue.empty(); });
            if (stream->queue.empty()) {
                stream->exited = true;
                return;
            }
            work = std::move(stream->queue.front());
            stream->queue.pop_front();
            stream->running = true;
        }
        work();
    }
}

// Nothing is called under the lock, so callers may hold any other one. Never destroyed, as State.
struct EndedProcesses {
    std::mutex mutex;
    std::set<int> numbers;
};
EndedProcesses &ended_processes() {
    static EndedProcesses *const all = new EndedProcesses;
    return *all;
}

std::string unordered(const std::string &other) {
    return " without a stream dependency on " + other +
           ", which accesses the same bytes on another stream";
}

}  // namespace

State &state() {
    static State *const all = new State;
    return *all;
}

void forget_complete_work() {
    State &all = state();
    if (!all.captures.empty()) return;
    for (CUstream_st *stream : all.streams) {
        const std::lock_guard<std::mutex> lock(stream->mutex);
        if (stream->running || !stream->queue.empty()) return;
    }
    std::erase_if(all.streams, [&](CUstream_st *stream) {
        if (stream->destroyed) all.ended.push_back(stream);
        return stream->destroyed;
    });
    for (CUstream_st *stream : all.streams) {
        for (StreamClock *clock : {&stream->clock, &stream->ran}) {
            const std::uint64_t tick = clock->at(stream->number);
            *clock = {};
            if (tick != 0) (*clock)[stream->number] = tick;
        }
    }
    all.known.clear();
    for (auto &[device, known] : all.known_ran) known.ran = {};
    all.raised.clear();
    all.memory.forget_accesses();
    all.pinned.forget_accesses();
}

int current_device() {
    return device_of_thread;
}
void set_current_device(int device) {
    device_of_thread = device;
}

int current_process() {
    return process_of_thread;
}
void set_process(int process) {
    process_of_thread = process;
}

void end_streams(int process) {
    {
        const std::lock_guard<std::mutex> lock(ended_processes().mutex);
        ended_processes().numbers.insert(process);
    }
    end_meetings(process);
}

bool has_ended(int process) {
    const std::lock_guard<std::mutex> lock(ended_processes().mutex);
    return ended_processes().numbers.contains(process);
}

CUstream_st *make_stream(int device, bool blocking) {
    auto *stream = new CUstream_st;
    stream->number = state().next_stream++;
    stream->device = device;
    stream->process = current_process();
    stream->blocking = blocking;
    state().streams.push_back(stream);
    std::thread(run_queue, stream).detach();
    return stream;
}

CUstream_st *stream_of(cuda::Stream handle, int device) {
    if (handle == nullptr) {
        CUstream_st *&legacy = state().legacy[{device, current_process()}];
        if (legacy == nullptr) legacy = make_stream(device, true);
        return legacy;
    }
    for (const auto *streams : {&state().streams, &state().ended})
        for (CUstream_st *stream : *streams) {
            if (stream != handle) continue;
            if (!stream->destroyed) return stream;
            violation("work on stream " + std::to_string(stream->number) + ", which is destroyed");
            return nullptr;
        }
    violation("work on a stream that does not exist");
    return nullptr;
}

void push(CUstream_st &stream, std::function<void()> work) {
    std::unique_lock<std::mutex> lock(stream.mutex);
    if (stream.exited) {
        lock.unlock();
        return work();
    }
    stream.queue.push_back(std::move(work));
    stream.changed.notify_all();
}

std::shared_ptr<Point> mark(CUstream_st &stream) {
    auto point = std::make_shared<Point>();
    point->clock = stream.clock;
    push(stream, [point, &stream] {
        {
            const Lock lock(state().mutex);
            point->ran = stream.ran;
        }
        point->reached = true;
        point->reached.notify_all();
    });
    return point;
}

void wait_for(CUstream_st &stream, const std::shared_ptr<Point> &point) {
    join(stream.clock, point->clock);
    push(stream, [point, &stream] {
        point->reached.wait(false);
        const Lock lock(state().mutex);
        join(stream.ran, point->ran);
    });
}

void waited(const StreamClock &clock, const StreamClock &ran, int device) {
    for (const int each : std::set<int>{device, current_device()}) {
        join(state().known[each], clock);
        state().known_ran[each].join(ran);
    }
}

cuda::Error wait_on_host(const std::shared_ptr<Point> &point, int device) {
    point->reached.wait(false);
    const Lock lock(state().mutex);
    waited(point->clock, point->ran, device);
    return noted(failure_of(device));
}

void order_with_legacy(CUstream_st &stream) {
    const auto found = state().legacy.find({stream.device, stream.process});
    if (found == state().legacy.end() || !stream.blocking) return;
    CUstream_st *legacy = found->second;
    if (&stream != legacy) {
        if (!legacy->clock.empty()) wait_for(stream, mark(*legacy));
        return;
    }
    for (CUstream_st *other : state().streams)
        if (other != legacy && other->device == stream.device && other->process == stream.process &&
            other->blocking && !other->destroyed && !other->capture)
            wait_for(stream, mark(*other));
}

bool check_accesses(const std::string &name, bool kernel, const std::vector<Access> &accesses,
                    int device, std::uint64_t stream, const StreamClock &clock) {
    bool legal = true;
    for (const Access &access : accesses) {
        if (access.bytes == 0) continue;
        const char *verb = access.write ? " writes " : " reads ";
        if (!state().memory.contains(access.begin)) {
            if (PinnedMemory::Allocation *pinned =
                    state().pinned.find(access.begin, access.bytes)) {
                const auto begin = static_cast<std::size_t>(
                    static_cast<const char *>(access.begin) - pinned->begin);
                const std::string other =
                    pinned->order.add(begin, begin + access.bytes, access.write,
                                      {stream, clock.at(stream), name, device}, clock);
                if (!other.empty()) violation(name + verb + "pinned memory" + unordered(other));
            } else if (kernel) {
                violation(name + verb + "host memory that is not pinned");
                legal = false;
            }
            continue;
        }
        Allocation *allocation = state().memory.find(access.begin);
        if (allocation == nullptr) {
            violation(name + verb + "device memory that was never allocated");
            continue;
        }
        const std::string where = "allocation " + std::to_string(allocation->number) + " of " +
                                  std::to_string(allocation->bytes) + " bytes";
        const auto begin =
            static_cast<std::size_t>(static_cast<const char *>(access.begin) - allocation->begin);
        if (kernel && !allocation->of_nccl && allocation->device != device) {
            violation(name + verb + where + " of device " + std::to_string(allocation->device) +
                      ", which device " + std::to_string(device) + " cannot access");
            legal = false;
            continue;
        }
        // Its order, and whether it is mapped, is known when the work runs.
        const bool of_other_device = allocation->of_nccl && allocation->device != device;
        if (allocation->freed && !of_other_device)
            violation(name + verb + where + ", which is freed");
        else if (begin + access.bytes > allocation->bytes)
            violation(name + verb + "bytes " + std::to_string(begin) + " to " +
                      std::to_string(begin + access.bytes) + " of " + where);
        if (of_other_device) continue;
        const std::string other =
            allocation->order.add(begin, begin + access.bytes, access.write,
                                  {stream, clock.at(stream), name, device}, clock);
        if (!other.empty()) violation(name + verb + where + unordered(other));
    }
    return legal;
}

void push_failure(CUstream_st &stream) {
    push(stream, [device = stream.device] {
        const Lock lock(state().mutex);
        state().failed.insert(device);
    });
}

cuda::Error failure_of(int device) {
    return state().failed.contains(device) ? illegal_address : cuda::success;
}

cuda::Error enqueue(cuda::Stream handle, const std::string &name,
                    const std::vector<Access> &accesses, const Prepare &prepare, int device) {
    const Lock lock(state().mutex);
    CUstream_st *stream = stream_of(handle, device == any_device ? current_device() : device);
    if (stream == nullptr) return noted(invalid_handle);
    if (device != any_device && device != stream->device) {
        violation(name + " of device " + std::to_string(device) + " on a stream of device " +
                  std::to_string(stream->device));
        return noted(invalid_handle);
    }
    if (const cuda::Error error = failure_of(stream->device)) return noted(error);
    const bool kernel = device != any_device;
    if (stream->capture) {
        Capture &capture = *stream->capture;
        if (capture.invalid) return noted(capture_invalid);
        if (stream->number != capture.origin) capture.unjoined.insert(stream->number);
        capture.entries.push_back(
            {GraphEntry::Kind::work, stream->number, 0, name, kernel, accesses, prepare});
        return cuda::success;
    }
    if (handle == nullptr)
        if (const cuda::Error error = legacy_call("work on the legacy stream")) return noted(error);
    order_with_legacy(*stream);
    join(stream->clock, state().known[stream->device]);
    ++stream->clock[stream->number];
    const std::uint64_t number = stream->number;
    if (check_accesses(name, kernel, accesses, stream->device, number, stream->clock))
        push_work(*stream, name, accesses, number, stream->clock[number], prepare());
    else push_failure(*stream);
    return cuda::success;
}

}  // namespace gpu_double

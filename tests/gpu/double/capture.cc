// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Capture of streams into graphs, and the launches of these. The nodes of a graph run in the order
// in which they were captured, which is one of the orders that CUDA permits; the order of accesses
// is checked along the captured dependencies.
#include <algorithm>

#include "gpu/double/streams.h"

namespace gpu_double {
namespace {

// Modes of captures and of threads: 0 global, 1 of the thread, 2 relaxed.
thread_local int mode_of_thread = 0;

// A number of the calling thread.
std::uint64_t thread_number() {
    static std::atomic<std::uint64_t> next{1};
    thread_local const std::uint64_t number = next++;
    return number;
}

void end_capture(Capture &capture) {
    capture.ended = true;
    for (CUstream_st *stream : capture.streams) stream->capture.reset();
    std::erase_if(state().captures, [&](const auto &other) { return other.get() == &capture; });
}

// Makes the captures that forbid a call invalid.
template <typename Forbids>
bool invalidate(const char *function, const Forbids &forbids) {
    bool any = false;
    for (const auto &capture : state().captures) {
        if (capture->process != current_process() || !forbids(*capture)) continue;
        capture->invalid = any = true;
        violation(std::string(function) + " during the capture of a graph");
    }
    return any;
}

bool has_blocking_stream(const Capture &capture) {
    return std::ranges::any_of(capture.streams, [](const CUstream_st *stream) {
        return stream->blocking && stream->device == current_device() &&
               stream->process == current_process();
    });
}

}  // namespace

cuda::Error unsafe_call(const char *function) {
    if (mode_of_thread == 2) return cuda::success;
    const bool forbidden = invalidate(function, [](const Capture &capture) {
        if (capture.thread == thread_number()) return capture.mode != 2;
        return capture.mode == 0 && mode_of_thread == 0;
    });
    return forbidden ? capture_unsupported : cuda::success;
}

cuda::Error legacy_call(const char *function) {
    return invalidate(function, has_blocking_stream) ? cuda::capture_implicit : cuda::success;
}

cuda::Error device_call(const char *function) {
    const bool forbidden = invalidate(function, [](const Capture &capture) {
        return std::ranges::any_of(capture.streams, [](const CUstream_st *stream) {
            return stream->device == current_device();
        });
    });
    return forbidden ? capture_unsupported : cuda::success;
}

bool captures_blocking_stream() {
    return std::ranges::any_of(state().captures,
                               [](const auto &one) { return has_blocking_stream(*one); });
}

cuda::Error check_capture(const char *function) {
    const Lock lock(state().mutex);
    return unsafe_call(function);
}

void record_in_capture(CUstream_st &stream, CUevent_st &event) {
    Capture &capture = *stream.capture;
    event.capture = stream.capture;
    event.token = capture.next_token++;
    event.point.reset();
    auto &joined = capture.joined_at[event.token];
    joined = capture.joined[stream.number];
    joined.insert(stream.number);
    capture.entries.push_back(
        {GraphEntry::Kind::record, stream.number, event.token, {}, {}, {}, {}});
}

cuda::Error wait_in_capture(CUstream_st &stream, CUevent_st &event) {
    if (!event.capture || event.capture->ended ||
        (stream.capture && stream.capture != event.capture)) {
        if (stream.capture) stream.capture->invalid = true;
        violation("a stream waits for an event across the border of a capture");
        return capture_isolation;
    }
    if (!stream.capture) {
        // The stream joins the capture.
        stream.capture = event.capture;
        event.capture->streams.insert(&stream);
    }
    Capture &capture = *stream.capture;
    const auto &joined = capture.joined_at[event.token];
    capture.joined[stream.number].insert(joined.begin(), joined.end());
    if (stream.number == capture.origin)
        for (const std::uint64_t other : joined) capture.unjoined.erase(other);
    capture.entries.push_back({GraphEntry::Kind::wait, stream.number, event.token, {}, {}, {}, {}});
    return cuda::success;
}

}  // namespace gpu_double

using namespace gpu_double;

extern "C" {

int cudaStreamBeginCapture(CUstream_st *handle, int mode) {
    if (const int result = injected_result("cudaStreamBeginCapture")) return result;
    const Lock lock(state().mutex);
    CUstream_st *stream = stream_of(handle);
    if (stream == nullptr) return invalid_handle;
    if (handle == nullptr || stream->capture) return cuda::invalid_value;
    auto capture = std::make_shared<Capture>();
    capture->origin = stream->number;
    capture->mode = mode;
    capture->process = current_process();
    capture->thread = thread_number();
    capture->streams.insert(stream);
    stream->capture = capture;
    state().captures.push_back(capture);
    return cuda::success;
}

int cudaThreadExchangeStreamCaptureMode(int *mode) {
    if (const int result = injected_result("cudaThreadExchangeStreamCaptureMode")) return result;
    std::swap(*mode, mode_of_thread);
    return cuda::success;
}

int cudaStreamEndCapture(CUstream_st *handle, CUgraph_st **graph) {
    if (const int result = injected_result("cudaStreamEndCapture")) return result;
    const Lock lock(state().mutex);
    CUstream_st *stream = stream_of(handle);
    if (stream == nullptr) return invalid_handle;
    const auto capture = stream->capture;
    if (!capture || capture->origin != stream->number) return cuda::invalid_value;
    end_capture(*capture);
    if (capture->invalid) return capture_invalid;
    if (!capture->unjoined.empty()) {
        violation("the end of a capture while a captured stream has work that nobody waits for");
        return capture_unjoined;
    }
    // Events may keep the capture; the graph alone keeps its work.
    *graph = new CUgraph_st{std::move(capture->entries)};
    state().graphs.insert(*graph);
    return cuda::success;
}

int cudaGraphInstantiateWithFlags(CUgraphExec_st **exec, CUgraph_st *graph, unsigned long long) {
    if (const int result = injected_result("cudaGraphInstantiateWithFlags")) return result;
    const Lock lock(state().mutex);
    if (!state().graphs.contains(graph)) return noted(invalid_handle);
    *exec = new CUgraphExec_st{graph->entries};
    state().graphs.insert(*exec);
    return cuda::success;
}

int cudaGraphLaunch(CUgraphExec_st *exec, CUstream_st *handle) {
    if (const int result = injected_result("cudaGraphLaunch")) return result;
    const Lock lock(state().mutex);
    CUstream_st *stream = stream_of(handle);
    if (stream == nullptr || !state().graphs.contains(exec)) return noted(invalid_handle);
    if (stream->capture) return capture_unsupported;
    if (const cuda::Error error = failure_of(stream->device)) return noted(error);
    order_with_legacy(*stream);
    join(stream->clock, state().known[stream->device]);
    // Each captured stream is a new one, which begins here.
    std::map<std::uint64_t, std::uint64_t> numbers;
    std::map<std::uint64_t, StreamClock> clocks, points;
    const StreamClock before = stream->clock;
    StreamClock after = before;
    for (const GraphEntry &entry : exec->entries) {
        if (!numbers.contains(entry.stream)) {
            numbers[entry.stream] = state().next_stream++;
            clocks[entry.stream] = before;
        }
        StreamClock &clock = clocks[entry.stream];
        const std::uint64_t number = numbers[entry.stream];
        switch (entry.kind) {
            case GraphEntry::Kind::record:
                points[entry.token] = clock;
                break;
            case GraphEntry::Kind::wait:
                join(clock, points[entry.token]);
                break;
            case GraphEntry::Kind::work:
                ++clock[number];
                if (check_accesses(entry.name, entry.kernel, entry.accesses, stream->device, number,
                                   clock))
                    push_work(*stream, entry.name, entry.accesses, number, clock[number],
                              entry.prepare());
                else push_failure(*stream);
                break;
        }
        join(after, clock);
    }
    stream->clock = after;
    return cuda::success;
}

int cudaGraphExecDestroy(CUgraphExec_st *exec) {
    const Lock lock(state().mutex);
    if (state().graphs.erase(exec) == 0) return noted(invalid_handle);
    delete exec;
    return cuda::success;
}

int cudaGraphDestroy(CUgraph_st *graph) {
    const Lock lock(state().mutex);
    if (state().graphs.erase(graph) == 0) return noted(invalid_handle);
    delete graph;
    return cuda::success;
}

}  // extern "C"

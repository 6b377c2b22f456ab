// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Streams, events and captures of the double, behind one lock.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpu/double/access_order.h"
#include "gpu/double/device_memory.h"
#include "gpu/double/gpu_double.h"
#include "gpu/double/pinned_memory.h"

namespace gpu_double {

// A point of a stream. `clock` is what has happened there by the order of streams; `ran`, also by
// meetings of kernels of several devices, is valid when the point is reached.
struct Point {
    std::atomic<bool> reached{false};
    StreamClock clock, ran;
};

// An entry of a captured graph. Captured streams keep their numbers; launches translate them.
struct GraphEntry {
    enum class Kind { work, record, wait };
    Kind kind = Kind::work;
    std::uint64_t stream = 0;
    std::uint64_t token = 0;  // record, wait: the captured point
    std::string name;  // work
    bool kernel = false;
    std::vector<Access> accesses;
    Prepare prepare;
};

// A capture that is under way.
struct Capture {
    std::uint64_t origin = 0;  // stream that began it
    int mode = 0;
    std::uint64_t thread = 0;  // thread that began it
    int process = 0;  // that of the thread
    bool invalid = false;
    bool ended = false;
    std::set<CUstream_st *> streams;
    std::set<std::uint64_t> unjoined;  // streams with work that the origin has not waited for
    std::vector<GraphEntry> entries;
    // streams that had joined the point, by token
    std::map<std::uint64_t, std::set<std::uint64_t>> joined_at;
    std::map<std::uint64_t, std::set<std::uint64_t>> joined;  // by stream
    std::uint64_t next_token = 1;
};

}  // namespace gpu_double

struct CUstream_st {
    std::uint64_t number = 0;
    int device = 0;
    int process = 0;  // see set_process()
    bool blocking = true;  // ordered with the legacy stream of its device
    bool destroyed = false;
    gpu_double::StreamClock clock;  // at its end
    gpu_double::StreamClock ran;  // at the work that its thread executes
    std::uint64_t host_waits = 0;  // State::Known::waits that its work follows
    std::shared_ptr<gpu_double::Capture> capture;

    // The queue has its own lock, which its thread waits for.
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> queue;
    bool running = false;  // the thread executes a work
    bool end = false;
    bool exited = false;  // the thread has executed all work of a destroyed stream
};

struct CUevent_st {
    int device = 0;
    std::shared_ptr<gpu_double::Point> point;  // nullptr: never recorded
    std::shared_ptr<gpu_double::Capture> capture;  // it was recorded in a capture
    std::uint64_t token = 0;
};

struct CUgraph_st {
    std::vector<gpu_double::GraphEntry> entries;
};

struct CUgraphExec_st {
    std::vector<gpu_double::GraphEntry> entries;
};

namespace gpu_double {

// Everything but the queues. Never destroyed: threads of streams use it until the process ends.
struct State {
    std::recursive_mutex mutex;
    DeviceMemory memory;
    PinnedMemory pinned;
    bool rank_has_died = false;  // see note_death()
    std::set<const void *> events, graphs;  // that exist; instances of graphs, too
    PinnedAllocation pinned_allocation = nullptr;
    std::set<int> failed;  // devices whose kernels have accessed an illegal address
    std::uint64_t next_stream = 1;
    std::map<std::pair<int, int>, CUstream_st *> legacy;  // by device and process
    std::vector<CUstream_st *> streams;  // also destroyed ones, until forget_complete_work()
    std::vector<CUstream_st *> ended;  // those destroyed before; their addresses are not used again
    std::vector<std::shared_ptr<Capture>> captures;  // under way
    std::map<int, StreamClock> known;  // what the host has waited for, by device
    // The same, as Point::ran, and the number of waits.
    struct Known {
        StreamClock ran;
        std::uint64_t waits = 0;
        void join(const StreamClock &other) {
            gpu_double::join(ran, other);
            ++waits;
        }
    };
    std::map<int, Known> known_ran;
    // The clock of a flag of another device when it was raised to a value.
    std::map<std::pair<const void *, std::uint32_t>, std::shared_ptr<const StreamClock>> raised;
    ReleaseCheck release_check = nullptr;
    MappingCheck mapping_check = nullptr;
    WaitCheck wait_check = nullptr;
};
State &state();
using Lock = std::lock_guard<std::recursive_mutex>;

// If no work waits or runs: all of it so far happened before later work, so that clocks and records
// of long programs stay short. Under the lock.
void forget_complete_work();

void set_current_device(int device);
// The kernels of a process that meet those of other ranks wait no longer.
void end_meetings(int process);

// The stream of a handle; that of the legacy stream depends on the device. Reports a stream that is
// destroyed, and returns nullptr. Under the lock.
CUstream_st *stream_of(cuda::Stream handle, int device = current_device());
CUstream_st *make_stream(int device, bool blocking);
// Adds an entry to the queue.
void push(CUstream_st &stream, std::function<void()> work);
// Adds work whose accesses have been checked along the order of streams. When it runs, they are
// compared with those of other devices. `number` and `tick`: it is this work of this stream. Under
// the lock.
void push_work(CUstream_st &stream, const std::string &name, const std::vector<Access> &accesses,
               std::uint64_t number, std::uint64_t tick, std::function<void()> work);
// Marks this point of the stream. Under the lock.
std::shared_ptr<Point> mark(CUstream_st &stream);
// Later work of the stream waits for the point. Under the lock.
void wait_for(CUstream_st &stream, const std::shared_ptr<Point> &point);
// The host has waited for work of a device: later work of this device, and of the current one,
// follows. Under the lock.
void waited(const StreamClock &clock, const StreamClock &ran, int device);
// The host waits until the point is reached, and knows what has happened there. Without the lock.
cuda::Error wait_on_host(const std::shared_ptr<Point> &point, int device);
// Orders the stream with the legacy stream of its device, as CUDA does. Under the lock.
void order_with_legacy(CUstream_st &stream);
// Checks the accesses of work of a device at the present point of the stream. Returns false if it
// is a kernel, and an address is illegal for it. Under the lock.
bool check_accesses(const std::string &name, bool kernel, const std::vector<Access> &accesses,
                    int device, std::uint64_t stream, const StreamClock &clock);
// The device of the stream fails when this point of the stream is reached. Under the lock.
void push_failure(CUstream_st &stream);
// The error of a device that has failed, or success. Under the lock.
cuda::Error failure_of(int device);

// capture.cc, under the lock. Each returns CUDA's error if a capture forbids the call; the captures
// that forbid it become invalid.
// A call that is potentially unsafe: the modes of the captures and of the thread decide.
cuda::Error unsafe_call(const char *function);
// A use of the legacy stream, which waits for the blocking streams of its device.
cuda::Error legacy_call(const char *function);
// A wait for the whole device, in any mode.
cuda::Error device_call(const char *function);
// True while a blocking stream of the current device is captured.
bool captures_blocking_stream();
void record_in_capture(CUstream_st &stream, CUevent_st &event);
// The stream, or the event, is part of a capture. Returns CUDA's error.
cuda::Error wait_in_capture(CUstream_st &stream, CUevent_st &event);

inline constexpr cuda::Error invalid_handle = 400;
inline constexpr cuda::Error illegal_address = 700;
using cuda::capture_unsupported;
inline constexpr cuda::Error capture_invalid = 901;
inline constexpr cuda::Error capture_unjoined = 904;
inline constexpr cuda::Error capture_isolation = 905;

}  // namespace gpu_double

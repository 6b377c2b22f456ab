// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The ranks of one communicator of the double, and the collectives and messages between them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "gpu/double/gpu_double.h"

namespace gpu_double {

enum class Kind { all_gather, reduce_scatter, all_reduce, broadcast, reduce, send, receive };

// One collective or message of one rank.
struct Call {
    Kind kind = Kind::all_gather;
    const void *source = nullptr;
    void *output = nullptr;
    std::size_t count = 0;
    nccl::Type type = 0;
    nccl::Op op = 0;
    int peer = 0;  // root of a collective, other rank of a message
    bool registered = false;  // source and output lie in registered memory
    // Offset of the output of ncclAllGather(), or of the source of other calls, in its window; -1:
    // it lies in no window.
    std::ptrdiff_t window_offset = -1;

    bool is_message() const { return kind == Kind::send || kind == Kind::receive; }
};

std::size_t bytes_of(nccl::Type type);
// "ncclAllGather(4 of type 7)"
std::string describe(const Call &call);

// A meeting of all ranks for one collective.
struct Meeting {
    std::vector<std::unique_ptr<Call>> calls;  // by rank
    int arrived = 0;
    bool done = false;
};

// A message on its way.
struct Message {
    Call call;
    bool taken = false;
};

struct Group;

// A meeting of ranks that create communicators from their own: ncclCommSplit(), ncclCommShrink().
struct Derivation {
    struct Part {
        int color = 0;
        int key = 0;
        std::vector<int> excluded;  // of a shrink, sorted
        int flags = 0;  // of a shrink
        bool blocking = true;
    };
    std::map<int, Part> parts;  // by rank of the parent
    std::map<int, ncclComm *> made;  // by rank of the parent; a rank without a color has none
    bool done = false;
    bool wrong = false;  // the ranks make different calls
};

// The ranks of a communicator.
struct Group {
    explicit Group(int ranks)
        : members(static_cast<std::size_t>(ranks)), devices(static_cast<std::size_t>(ranks), -1) {}

    int ranks() const { return static_cast<int>(members.size()); }
    // True if every rank that lives has called ncclCommFinalize(), or ended otherwise.
    bool all_finalized() const;

    std::mutex mutex;
    std::condition_variable changed;
    std::vector<ncclComm *> members;  // by rank; nullptr: not there yet
    std::vector<int> devices;  // by rank
    int arrived = 0;
    int finalized = 0;
    std::map<std::uint64_t, Meeting> meetings;  // by number of the collective
    // messages that wait for their receiver, by sender and receiver
    std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> messages;
    std::map<std::string, Derivation> derivations;  // by name and number
};

// All communicators of the process.
struct Comms {
    std::mutex mutex;
    std::map<std::string, std::shared_ptr<Group>> groups;  // by unique id
    std::vector<ncclComm *> all;
    std::uint64_t next_id = 1;
    nccl::Config last_config;
};
// Never destroyed, as the queues of streams.
Comms &comms();

// A sentence if a group of the calling thread is open; empty otherwise. The WaitCheck of NCCL.
std::string group_is_open();
bool exists(const ncclComm *comm);
// Reports a communicator that does not exist any more, and returns false for it.
bool usable(const ncclComm *comm, const char *function);
// Waits until the work of a communicator that streams have been given is complete. The caller holds
// the lock of the group. Returns false if it takes too long.
bool wait_for_work(std::unique_lock<std::mutex> &lock, ncclComm &comm);
// Reads a configuration. Returns false if it is none; nullptr is the default one.
bool valid(const nccl::Config *config);
// Makes `call` at once. In the non-blocking mode two of three calls start later, when the program
// has asked for their state once or twice.
nccl::Result make(ncclComm &comm, const std::function<nccl::Result()> &call);
// Keeps a sentence for ncclGetLastError(), and returns the result.
nccl::Result refuse(ncclComm &comm, nccl::Result result, const std::string &why);

// Bytes of registered memory.
struct ByteRange {
    const char *begin = nullptr;
    std::size_t bytes = 0;
};
struct Registered {
    bool found = false;
    bool window = false;  // in a window, at this offset
    std::ptrdiff_t offset = 0;
};
// The registered memory of a communicator that contains the bytes.
Registered find_registered(const ncclComm &comm, const void *begin, std::size_t bytes);
// The ReleaseCheck of NCCL.
std::string still_registered(const void *begin, std::size_t bytes);

// The MappingCheck of NCCL.
bool is_mapped(int device, const void *begin, std::size_t bytes);

// Bytes of the source and of the output of a call, on its rank.
std::pair<std::size_t, std::size_t> sizes(const Call &call, const ncclComm &comm);
// A source and an output overlap only in place.
void check_overlap(const Call &call, const ncclComm &comm);
// Starts the calls of one group on one communicator.
cuda::Error start(ncclComm *comm, cuda::Stream stream, const std::vector<Call> &calls);

// Moves the bytes of a complete meeting. Returns a sentence if the calls of the ranks differ.
std::string execute(const Meeting &meeting);

}  // namespace gpu_double

struct ncclComm {
    std::shared_ptr<gpu_double::Group> group;
    int rank = 0;
    int device = 0;
    // The lock of the group guards the rest.
    bool aborted = false;
    bool held = false;  // see hold_call()
    bool revoked = false;
    bool interrupted = false;  // ncclCommShrink() ends its work
    bool dead = false;  // see kill_device()
    int process = 0;
    bool process_ended = false;
    bool destroyed = false;
    bool blocking = true;
    bool finalizing = false;
    gpu_double::nccl::Result error = 0;
    gpu_double::nccl::Result pending_break = 0;  // see break_device()
    std::uint64_t next_collective = 0;
    std::map<std::string, std::uint64_t> next_derivation;  // by function
    int deriving = 0;  // calls of ncclCommSplit() and ncclCommShrink() that have not returned
    int outstanding = 0;  // works that streams have been given, and have not completed
    std::string last_error;
    // The lock of Comms guards registered memory.
    std::map<gpu_double::nccl::Window, gpu_double::ByteRange> windows;
    std::map<void *, gpu_double::ByteRange> registrations;  // of ncclCommRegister()
    // Windows of other ranks whose addresses were asked for, by the window of this one.
    std::map<gpu_double::nccl::Window, std::vector<gpu_double::ByteRange>> mapped;
    std::uint64_t next_window = 1;
    std::vector<gpu_double::nccl::Window> window_order;  // of all that were registered
    // In the non-blocking mode: the calls in progress, and the number of questions for their state
    // until they start. An entry returns NCCL's result.
    std::vector<std::function<gpu_double::nccl::Result()>> in_progress;
    int questions_left = 0;
    int next_delay = 1;
    int queued = 0;  // calls in open groups
    // Captured work has a copy: with more than one owner there are graphs.
    std::shared_ptr<int> graphs = std::make_shared<int>(0);

    bool in_graphs() const { return graphs.use_count() > 1; }
    // Its work ends without a result.
    bool ends_work() const { return aborted || revoked || interrupted || process_ended; }
};

inline bool gpu_double::Group::all_finalized() const {
    int missing = ranks() - finalized;
    for (const ncclComm *member : members)
        if (member != nullptr && member->process_ended && !member->finalizing && !member->aborted)
            --missing;
    return missing <= 0;
}

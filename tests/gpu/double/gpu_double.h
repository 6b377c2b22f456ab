// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The test double of the CUDA runtime and of NCCL: two shared libraries, libcudart.so.13 and
// libnccl.so.2, which implement the functions that vescomm calls and those that its tests call.
//
// A rank is a thread of one process with a device of its own, as NCCL permits;
// processes/functions.h has ranks that are processes. Device memory is host memory at addresses
// that no code of the program can access: a second mapping, which only the double uses, has the
// bytes. A stream is a queue with a thread. Addresses are never used twice, so every use of freed
// memory is found.
//
// The double checks rules that the real libraries leave to the program. A broken rule is a
// *violation*: a sentence that take_violations() returns. With GPU_DOUBLE_STRICT=1 it is printed,
// and the process ends with exit code 70.
//
//     stream order   work of two streams on the same bytes of device memory or of pinned memory,
//     one
//                    of them writing, without an event or a wait of the host between them
//     streams        a kernel, or a call of NCCL, on a stream of another device; an event that is
//                    recorded on a stream of another device
//     devices        work of two devices on the same bytes of memory of NCCL, one of them writing,
//                    without a meeting of their kernels between them; memory of another device that
//                    is read when the reader's communicator has ended, which had mapped it
//     addresses      a kernel, or a call of NCCL, on host memory that is not pinned, or on memory
//     of
//                    cudaMalloc() of another device. Then the work does not run, and the device
//                    fails: its calls return the error of an illegal address
//     lifetime       work on freed memory, on destroyed streams, events and communicators; memory
//                    that is freed while it is registered; memory of NCCL that is freed while work
//                    may use it: ncclMemFree() does not wait for the device
//     calls          a collective that differs between ranks: its kind, count, type, operator, root
//     overlap        source and output that overlap, but not in place
//     groups         a wait of the host, or the end of a communicator, within an open group, in
//                    the thread that opened it or in another one
//     non-blocking   a call on a communicator whose previous call is still in progress
//     registration   a collective on registered memory of one rank and unregistered memory of
//                    another; ncclAllGather(), ncclReduceScatter() and ncclAllReduce() at different
//                    offsets of windows
//     derivation     ncclCommSplit() and ncclCommShrink(): a rank that does not call, or that is
//                    excluded and calls; outstanding work of the parent; ranks that exclude
//                    different ranks, or pass different flags or configurations; a shrink without
//                    NCCL_SHRINK_ABORT after a failure of the parent, or of one of its ranks
//     revocation     a call on a revoked communicator, other than a derivation and its abort
//     capture        calls that CUDA does not permit during the capture of a graph, by the mode of
//                    the capture and that of the thread
//     deadlock       work that waits for another rank, or ncclCommAbort() for the end of graphs,
//                    for longer than GPU_DOUBLE_SECONDS (20)
//
// In the non-blocking mode of NCCL, two of three groups and registrations return ncclInProgress and
// start in one of the next calls of ncclCommGetAsyncError(). The end of a communicator waits until
// all graphs with its work are destroyed, as in NCCL, which does not wait for them after a
// revocation.
//
// Kernels of vescomm run on the host, from the source of those for GPUs: their blocks and threads
// one after another. The double knows which bytes each of them accesses. launch() stands for
// kernels of the program.
//
// The double does not model time, and anything that vescomm does not call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gpu/cuda_functions.h"
#include "gpu/nccl_functions.h"

namespace gpu_double {

namespace cuda = vescomm::internal::cuda;
namespace nccl = vescomm::internal::nccl;

// ---- for tests ----

// Returns the violations since the last call, one per line, and forgets them. Devices that have
// failed work again. While no work waits or runs, what was done so far counts as done before all
// later work.
std::string take_violations();

// Bytes of device memory that work on a stream reads or writes.
struct Access {
    const void *begin = nullptr;
    std::size_t bytes = 0;
    bool write = false;
};

// Stands for a kernel: `work` runs on the stream, and accesses the bytes of `accesses` through
// host_view(). Returns an error of CUDA.
cuda::Error launch(cuda::Stream stream, const std::string &name,
                   const std::vector<Access> &accesses, std::function<void()> work);

// Kernels run their blocks, and the threads of a block, in the opposite order. Results must not
// depend on it.
void reverse_kernels(bool reversed);

// The bytes at a device address, for work on a stream.
void *host_view(const void *device_address);

// True if the address lies in device memory, freed or not.
bool is_device_address(const void *address);

// The call of this function after `skip` others of it returns `result` and has no other effect.
// Empty name: forgets all such failures. `own`: only calls of this thread count.
void fail_call(const std::string &function, int skip, int result, bool own = false);
// A result for fail_call(): the call returns success.
inline constexpr int no_effect = -1;

// The next collective or message of the communicators of a device does not complete, until its
// communicator is aborted; ncclCommGetAsyncError() returns `result`.
void break_device(int device, nccl::Result result);

// The next call of the communicators of a device does not return, as while NCCL connects to a rank
// that has died, until its communicator is revoked or aborted.
void hold_call(int device);

// The rank of a device has died: a communicator with it has a failed rank. The thread of the rank
// makes no further call but ncclCommAbort().
void kill_device(int device);

// Number of collectives and messages, of all ranks, that NCCL has been given, by name; such as
// "ncclAllGather". Counts those in groups one by one.
int calls_of(const std::string &function);
void forget_calls();
// The same for programs in C and Python; of functions of CUDA too.
extern "C" int gpu_double_calls_of(const char *function);

// The last configuration that NCCL was given, with the members of its size.
nccl::Config last_config();

// Number of communicators of NCCL that are neither destroyed nor aborted.
int live_communicators();

// True while a thread is in ncclCommSplit() or ncclCommShrink() of the communicator.
bool is_deriving(nccl::Comm comm);

// Number of libraries of kernels that are loaded.
int loaded_libraries();

// ---- between the two libraries ----

// Counts a call. Returns the result of an injected failure, or 0.
int injected_result(const char *function);
void violation(const std::string &sentence);
double patience_seconds();
// Keeps an error of CUDA for cudaGetLastError() of the calling thread, and returns it.
cuda::Error noted(cuda::Error error);

// Called when the work is given to the stream, and again at each launch of a graph that captured
// it; returns what the stream runs.
using Prepare = std::function<std::function<void()>()>;
// Work that CUDA accepts on the streams of all devices: copies.
inline constexpr int any_device = -1;
// `device`: the device of a kernel, or any_device.
cuda::Error enqueue(cuda::Stream stream, const std::string &name,
                    const std::vector<Access> &accesses, const Prepare &prepare, int device);
// Device of the calling thread.
int current_device();

// Memory of ncclMemAlloc().
void *allocate(std::size_t bytes, bool of_nccl);
// Returns false if no live allocation of this kind begins there. Does not wait.
bool release(void *pointer, bool of_nccl);
// The live memory of ncclMemAlloc() that contains the bytes: its beginning, or nullptr.
void *nccl_memory_of(const void *begin, std::size_t bytes);
// The caller examines a release of the bytes; returns a sentence if it must not happen.
using ReleaseCheck = std::string (*)(const void *begin, std::size_t bytes);
void set_release_check(ReleaseCheck check);
// True if a communicator of a device has mapped the bytes, which are memory of another one. They
// stay mapped when that one frees them.
using MappingCheck = bool (*)(int device, const void *begin, std::size_t bytes);
void set_mapping_check(MappingCheck check);

// For kernels that meet those of other devices, while they run: flags are raised to a value; they
// have been waited for; the kernel accesses bytes.
void raise_flags(const std::vector<const void *> &flags, std::uint32_t value);
void see_flags(const std::vector<const void *> &flags, std::uint32_t value);
void add_accesses(const std::vector<Access> &accesses);

// ---- for ranks that are processes: processes/server.h ----

// The process for which the calling thread makes calls, from 1. The double counts its own as 0.
void set_process(int process);
int current_process();
// A process has ended: work on its streams does not run any more, and its communicators are those
// of a dead rank.
void end_streams(int process);
bool has_ended(int process);
// Returns whether it had one that was neither destroyed nor aborted: a rank has died.
bool end_communicators(int process);
// From now on the order between devices is not judged: meetings with the dead rank end early.
void note_death();
// The calling thread ends, and its process has ended: an open group is no violation.
void leave_group();
// Pinned memory, with zeros, comes from this function, and is not freed.
using PinnedAllocation = void *(*)(std::size_t bytes);
void set_pinned_allocation(PinnedAllocation allocation);
// Called before a violation ends the process, with GPU_DOUBLE_STRICT.
void set_strict_end(void (*end)());
// The address at which device memory begins, and its size.
std::pair<std::uint64_t, std::uint64_t> device_addresses();
// 0 for an address that is no kernel.
std::size_t kernel_parameter_bytes(const void *kernel);

// ---- of captures and waits ----

// CUDA's error if the capture of a graph forbids a call of the calling thread.
cuda::Error check_capture(const char *function);
// Returns a sentence if the calling thread must not wait; empty otherwise.
using WaitCheck = std::string (*)();
void set_wait_check(WaitCheck check);

}  // namespace gpu_double

// The functions of CUDA that tests call besides those of gpu/cuda_functions.h.
struct CUgraph_st;
struct CUgraphExec_st;
extern "C" {
int cudaMalloc(void **pointer, std::size_t bytes);
int cudaFree(void *pointer);
int cudaMemcpy(void *target, const void *source, std::size_t bytes, int kind);
int cudaMemsetAsync(void *target, int value, std::size_t bytes, CUstream_st *stream);
int cudaStreamCreateWithFlags(CUstream_st **stream, unsigned flags);
int cudaStreamDestroy(CUstream_st *stream);
int cudaStreamSynchronize(CUstream_st *stream);
int cudaStreamWaitEvent(CUstream_st *stream, CUevent_st *event, unsigned flags);
int cudaEventCreateWithFlags(CUevent_st **event, unsigned flags);
int cudaEventRecord(CUevent_st *event, CUstream_st *stream);
int cudaEventDestroy(CUevent_st *event);
int cudaEventQuery(CUevent_st *event);
int cudaEventSynchronize(CUevent_st *event);
int cudaStreamBeginCapture(CUstream_st *stream, int mode);
int cudaStreamEndCapture(CUstream_st *stream, CUgraph_st **graph);
int cudaGraphInstantiateWithFlags(CUgraphExec_st **exec, CUgraph_st *graph,
                                  unsigned long long flags);
int cudaGraphLaunch(CUgraphExec_st *exec, CUstream_st *stream);
int cudaGraphExecDestroy(CUgraphExec_st *exec);
int cudaGraphDestroy(CUgraph_st *graph);
#define GPU_DOUBLE_DECLARE(symbol, member, parameters) int symbol parameters;
namespace gpu_double {
using cuda::Dim3;
using cuda::Event;
using cuda::Kernel;
using cuda::Library;
using cuda::Stream;
VESCOMM_CUDA_FUNCTIONS(GPU_DOUBLE_DECLARE)
VESCOMM_CUDA_KERNEL_FUNCTIONS(GPU_DOUBLE_DECLARE)
}  // namespace gpu_double
const char *cudaGetErrorString(int error);
namespace gpu_double {
using nccl::Comm;
using nccl::Config;
using nccl::Op;
using nccl::Result;
using nccl::Type;
using nccl::UniqueId;
using nccl::Window;
VESCOMM_NCCL_FUNCTIONS(GPU_DOUBLE_DECLARE)
VESCOMM_NCCL_OPTIONAL_FUNCTIONS(GPU_DOUBLE_DECLARE)
}  // namespace gpu_double
const char *ncclGetErrorString(int result);
const char *ncclGetLastError(ncclComm *comm);
#undef GPU_DOUBLE_DECLARE
}

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The functions of NCCL in a program that gpu_double_run has started.
#include <cstdio>

#include "gpu/double/processes/client.h"

using namespace gpu_double;
using processes::Answer;
using processes::ask;
using processes::Function;
using processes::Writer;

namespace {

// In the non-blocking mode NCCL writes results of calls that have returned.
bool blocks(const nccl::Config *config) {
    if (config == nullptr || config->blocking != 0) return true;
    std::fputs("gpu double: it has no non-blocking mode for processes\n", stderr);
    return false;
}

}  // namespace

extern "C" {

int ncclGetVersion(int *version) {
    FORWARD(ncclGetVersion, version);
}
const char *ncclGetErrorString(int result) {
    return processes::text_of(Function::ncclGetErrorString, result);
}
const char *ncclGetLastError(nccl::Comm comm) {
    Writer call;
    call.put(comm);
    Answer answer = ask(Function::ncclGetLastError, call);
    const auto text = answer.rest.get_bytes();
    thread_local std::string last;
    last.assign(text.data(), text.size());
    return last.c_str();
}

int ncclGetUniqueId(nccl::UniqueId *id) {
    FORWARD(ncclGetUniqueId, id);
}
int ncclCommInitRankConfig(nccl::Comm *comm, int ranks, nccl::UniqueId id, int rank,
                           nccl::Config *config) {
    if (!blocks(config)) return nccl::invalid_usage;
    FORWARD(ncclCommInitRankConfig, comm, ranks, id, rank, config);
}
int ncclCommSplit(nccl::Comm comm, int color, int key, nccl::Comm *child, nccl::Config *config) {
    if (!blocks(config)) return nccl::invalid_usage;
    FORWARD(ncclCommSplit, comm, color, key, child, config);
}
int ncclCommShrink(nccl::Comm comm, int *excluded, int count, nccl::Comm *child,
                   nccl::Config *config, int flags) {
    if (excluded == nullptr || count < 0 || !blocks(config)) return nccl::invalid_argument;
    Writer call;
    call.put(comm);
    call.put_bytes(excluded, static_cast<std::size_t>(count) * sizeof *excluded);
    processes::put_argument(call, config);
    call.put(flags);
    Answer answer = ask(Function::ncclCommShrink, call);
    *child = answer.rest.get<nccl::Comm>();
    return answer.result;
}
int ncclCommFinalize(nccl::Comm comm) {
    FORWARD(ncclCommFinalize, comm);
}
int ncclCommDestroy(nccl::Comm comm) {
    FORWARD(ncclCommDestroy, comm);
}
int ncclCommAbort(nccl::Comm comm) {
    FORWARD(ncclCommAbort, comm);
}
int ncclCommRevoke(nccl::Comm comm, int flags) {
    FORWARD(ncclCommRevoke, comm, flags);
}
int ncclCommGetAsyncError(nccl::Comm comm, nccl::Result *error) {
    FORWARD(ncclCommGetAsyncError, comm, error);
}
int ncclCommCount(nccl::Comm comm, int *count) {
    FORWARD(ncclCommCount, comm, count);
}
int ncclCommUserRank(nccl::Comm comm, int *rank) {
    FORWARD(ncclCommUserRank, comm, rank);
}
int ncclCommCuDevice(nccl::Comm comm, int *device) {
    FORWARD(ncclCommCuDevice, comm, device);
}

int ncclMemAlloc(void **pointer, std::size_t bytes) {
    FORWARD(ncclMemAlloc, pointer, bytes);
}
int ncclMemFree(void *pointer) {
    FORWARD(ncclMemFree, pointer);
}
int ncclCommWindowRegister(nccl::Comm comm, void *pointer, std::size_t bytes, nccl::Window *window,
                           int flags) {
    FORWARD(ncclCommWindowRegister, comm, pointer, bytes, window, flags);
}
int ncclCommWindowDeregister(nccl::Comm comm, nccl::Window window) {
    FORWARD(ncclCommWindowDeregister, comm, window);
}
int ncclGetPeerDevicePointer(nccl::Window window, std::size_t offset, int peer, void **pointer) {
    FORWARD(ncclGetPeerDevicePointer, window, offset, peer, pointer);
}
int ncclCommRegister(nccl::Comm comm, void *pointer, std::size_t bytes, void **registration) {
    FORWARD(ncclCommRegister, comm, pointer, bytes, registration);
}
int ncclCommDeregister(nccl::Comm comm, void *registration) {
    FORWARD(ncclCommDeregister, comm, registration);
}

int ncclGroupStart() {
    FORWARD(ncclGroupStart);
}
int ncclGroupEnd() {
    FORWARD(ncclGroupEnd);
}
int ncclAllGather(const void *source, void *output, std::size_t count, nccl::Type type,
                  nccl::Comm comm, cuda::Stream stream) {
    FORWARD(ncclAllGather, source, output, count, type, comm, stream);
}
int ncclReduceScatter(const void *source, void *output, std::size_t count, nccl::Type type,
                      nccl::Op op, nccl::Comm comm, cuda::Stream stream) {
    FORWARD(ncclReduceScatter, source, output, count, type, op, comm, stream);
}
int ncclAllReduce(const void *source, void *output, std::size_t count, nccl::Type type, nccl::Op op,
                  nccl::Comm comm, cuda::Stream stream) {
    FORWARD(ncclAllReduce, source, output, count, type, op, comm, stream);
}
int ncclBroadcast(const void *source, void *output, std::size_t count, nccl::Type type, int root,
                  nccl::Comm comm, cuda::Stream stream) {
    FORWARD(ncclBroadcast, source, output, count, type, root, comm, stream);
}
int ncclReduce(const void *source, void *output, std::size_t count, nccl::Type type, nccl::Op op,
               int root, nccl::Comm comm, cuda::Stream stream) {
    FORWARD(ncclReduce, source, output, count, type, op, root, comm, stream);
}
int ncclSend(const void *source, std::size_t count, nccl::Type type, int peer, nccl::Comm comm,
             cuda::Stream stream) {
    FORWARD(ncclSend, source, count, type, peer, comm, stream);
}
int ncclRecv(void *output, std::size_t count, nccl::Type type, int peer, nccl::Comm comm,
             cuda::Stream stream) {
    FORWARD(ncclRecv, output, count, type, peer, comm, stream);
}

}  // extern "C"

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The types, constants and functions of NCCL that vescomm uses, in declarations of its own. The
// binary interface is that of NCCL 2.28; a configuration states the size and the version that it
// has been made for, which later versions accept. tests/gpu/declarations_test.cc compares it with
// NCCL's header where that is installed. Decision:
// docs/design/0027-gpu-libraries-are-found-at-run-time.md.
#pragma once

#include <climits>
#include <cstddef>

#include "gpu/cuda_functions.h"

// Opaque types of NCCL, with NCCL's names.
struct ncclComm;
struct ncclWindow_vidmem;

namespace vescomm::internal::nccl {

using Comm = ncclComm *;  // ncclComm_t
using Window = ncclWindow_vidmem *;  // ncclWindow_t
using Type = int;  // ncclDataType_t
using Op = int;  // ncclRedOp_t
using Result = int;  // ncclResult_t

inline constexpr int oldest_version = 22800;
// Since 2.29.2 NCCL fuses the broadcasts of a group into one ragged ring.
inline constexpr int version_with_fused_broadcasts = 22902;

inline constexpr int version_with_peer_pointers = 22902;

inline constexpr Result success = 0;
inline constexpr Result unhandled_cuda_error = 1;
inline constexpr Result system_error = 2;
inline constexpr Result internal_error = 3;
inline constexpr Result invalid_argument = 4;
inline constexpr Result invalid_usage = 5;
inline constexpr Result remote_error = 6;
inline constexpr Result in_progress = 7;

inline constexpr Type i8 = 0, u8 = 1, i32 = 2, u32 = 3, i64 = 4, u64 = 5, f16 = 6, f32 = 7, f64 = 8,
                      bf16 = 9, f8e4m3 = 10, f8e5m2 = 11;

inline constexpr Op sum = 0, prod = 1, max = 2, min = 3, average = 4;

inline constexpr int window_symmetric = 1;  // NCCL_WIN_COLL_SYMMETRIC
inline constexpr std::size_t window_alignment = 4096;  // NCCL_WIN_REQUIRED_ALIGNMENT

inline constexpr int no_color = -1;  // NCCL_SPLIT_NOCOLOR
inline constexpr int shrink_default = 0;  // NCCL_SHRINK_DEFAULT
inline constexpr int shrink_abort = 1;  // NCCL_SHRINK_ABORT

struct UniqueId {
    char internal[128];
};

// ncclConfig_t of NCCL 2.30.5. NCCL 2.28 has its first 80 bytes, and that is the default.
inline constexpr std::size_t oldest_config_bytes = 80;
struct Config {
    std::size_t size = oldest_config_bytes;
    unsigned int magic = 0xcafebeef;
    unsigned int version = 22809;
    int blocking = INT_MIN;  // INT_MIN: NCCL's default, here and below
    int cga_cluster_size = INT_MIN;
    int min_ctas = INT_MIN;
    int max_ctas = INT_MIN;
    const char *net_name = nullptr;
    int split_share = INT_MIN;
    int traffic_class = INT_MIN;
    const char *comm_name = nullptr;
    int collnet_enable = INT_MIN;
    int cta_policy = INT_MIN;
    int shrink_share = INT_MIN;
    int nvls_ctas = INT_MIN;
    int channels_per_net_peer = INT_MIN;
    int nvlink_centric_sched = INT_MIN;
    int graph_usage_mode = INT_MIN;  // since 2.29.0, as the next one
    int rma_contexts = INT_MIN;
    int max_p2p_peers = INT_MIN;  // since 2.30.0
    int graph_stream_ordering = INT_MIN;  // since 2.30.5
};
static_assert(offsetof(Config, graph_usage_mode) == oldest_config_bytes);

// The versions of NCCL that have appended members to ncclConfig_t. NCCL takes the defaults for
// members that are younger than the version that a configuration states.
struct ConfigVersion {
    int version;
    std::size_t bytes;
};
inline constexpr ConfigVersion config_versions[] = {
    {23005, sizeof(Config)}, {23000, sizeof(Config)}, {22900, offsetof(Config, max_p2p_peers)}};

// The functions of NCCL that vescomm calls: symbol, member of Library, parameters.
#define VESCOMM_NCCL_FUNCTIONS(X)                                                                  \
    X(ncclGetVersion, get_version, (int *version))                                                 \
    X(ncclGetUniqueId, get_unique_id, (UniqueId * id))                                             \
    X(ncclCommInitRankConfig, comm_init_rank_config,                                               \
      (Comm * comm, int ranks, UniqueId id, int rank, Config *config))                             \
    X(ncclCommFinalize, comm_finalize, (Comm comm))                                                \
    X(ncclCommDestroy, comm_destroy, (Comm comm))                                                  \
    X(ncclCommAbort, comm_abort, (Comm comm))                                                      \
    X(ncclCommGetAsyncError, comm_get_async_error, (Comm comm, Result * error))                    \
    X(ncclCommCount, comm_count, (Comm comm, int *count))                                          \
    X(ncclCommUserRank, comm_user_rank, (Comm comm, int *rank))                                    \
    X(ncclCommCuDevice, comm_cu_device, (Comm comm, int *device))                                  \
    X(ncclMemAlloc, mem_alloc, (void **pointer, std::size_t bytes))                                \
    X(ncclMemFree, mem_free, (void *pointer))                                                      \
    X(ncclCommWindowRegister, comm_window_register,                                                \
      (Comm comm, void *pointer, std::size_t bytes, Window *window, int flags))                    \
    X(ncclCommWindowDeregister, comm_window_deregister, (Comm comm, Window window))                \
    X(ncclCommRegister, comm_register,                                                             \
      (Comm comm, void *pointer, std::size_t bytes, void **registration))                          \
    X(ncclCommDeregister, comm_deregister, (Comm comm, void *registration))                        \
    X(ncclGroupStart, group_start, ())                                                             \
    X(ncclGroupEnd, group_end, ())                                                                 \
    X(ncclAllGather, all_gather,                                                                   \
      (const void *source, void *output, std::size_t count, Type type, Comm comm,                  \
       cuda::Stream stream))                                                                       \
    X(ncclReduceScatter, reduce_scatter,                                                           \
      (const void *source, void *output, std::size_t count, Type type, Op op, Comm comm,           \
       cuda::Stream stream))                                                                       \
    X(ncclAllReduce, all_reduce,                                                                   \
      (const void *source, void *output, std::size_t count, Type type, Op op, Comm comm,           \
       cuda::Stream stream))                                                                       \
    X(ncclBroadcast, broadcast,                                                                    \
      (const void *source, void *output, std::size_t count, Type type, int root, Comm comm,        \
       cuda::Stream stream))                                                                       \
    X(ncclReduce, reduce,                                                                          \
      (const void *source, void *output, std::size_t count, Type type, Op op, int root, Comm comm, \
       cuda::Stream stream))                                                                       \
    X(ncclSend, send,                                                                              \
      (const void *source, std::size_t count, Type type, int peer, Comm comm,                      \
       cuda::Stream stream))                                                                       \
    X(ncclRecv, recv,                                                                              \
      (void *output, std::size_t count, Type type, int peer, Comm comm, cuda::Stream stream))

// Functions that NCCL may lack. Then they are nullptr.
#define VESCOMM_NCCL_OPTIONAL_FUNCTIONS(X)                                                     \
    X(ncclCommSplit, comm_split, (Comm comm, int color, int key, Comm *child, Config *config)) \
    X(ncclCommShrink, comm_shrink,                                                             \
      (Comm comm, int *excluded, int count, Comm *child, Config *config, int flags))           \
    X(ncclCommRevoke, comm_revoke, (Comm comm, int flags)) /* since 2.28.7 */                  \
    X(ncclGetPeerDevicePointer, get_peer_device_pointer,                                       \
      (Window window, std::size_t offset, int peer, void **pointer)) /* since 2.29.2 */

// Loaded functions. All of them return ncclResult_t, except the two that return text.
struct Library {
#define VESCOMM_MEMBER(symbol, member, parameters) Result(*member) parameters;
    VESCOMM_NCCL_FUNCTIONS(VESCOMM_MEMBER)
    VESCOMM_NCCL_OPTIONAL_FUNCTIONS(VESCOMM_MEMBER)
#undef VESCOMM_MEMBER
    const char *(*get_error_string)(Result result);  // ncclGetErrorString
    const char *(*get_last_error)(Comm comm);  // ncclGetLastError
};

}  // namespace vescomm::internal::nccl

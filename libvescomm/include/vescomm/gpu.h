/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * vescomm on device memory: ragged collectives through NCCL, or through kernels that read
 * windows of other ranks, on the layouts of vescomm.h.
 *
 * This interface is experimental, and may change: it has been tested on a test double of the CUDA
 * runtime and NCCL, and with one to four ranks on one GPU (H100, H200), never on several.
 *
 * Every build has it. The CUDA runtime (12 or 13) and NCCL (2.28 or later) are found at run time;
 * without them, or without a GPU, vescomm_gpu_comm_create() returns VESCOMM_ERROR_UNSUPPORTED, and
 * the error text states what is missing. If the process has loaded them, these are used.
 *
 * A *device communicator* is an NCCL communicator of the ranks of a vescomm_comm_t, its *host
 * communicator*, each with its GPU. Its collectives are calls on a CUDA stream: they run after the
 * earlier work of the stream, return before it is complete, and may be captured into a CUDA graph.
 * The first calls take longer, because NCCL connects, and wait for the other ranks. Such a wait
 * ends when the communicator breaks, and at the timeout of the host communicator; it does not ask
 * vescomm_set_interrupt().
 *
 * A `stream` is a cudaStream_t; NULL is the legacy default stream. Addresses of memory are device
 * addresses, which are not checked. Memory belongs to the device of the communicator. Calls on one
 * communicator must be ordered: on one stream, or on several that the program orders by events or
 * by vescomm_gpu_order_stream(), because they share a workspace.
 *
 * The two communicators fail together. If NCCL reports an error, the vescomm_comm_t breaks on all
 * ranks, and the error text names the rank. If the vescomm_comm_t is broken, because a rank died or
 * called vescomm_comm_abort(), the next call of vescomm_gpu_comm_check(), vescomm_gpu_wait() or a
 * collective aborts NCCL's communicator, or revokes it with the option shrinkable: its kernels end,
 * and the results are undefined. Calls that free abort it. Without any of these calls it is revoked
 * a second after the failure (NCCL 2.28.7 and later). Wait with vescomm_gpu_wait() instead of
 * cudaStreamSynchronize(), which reports no failure, and waits for a rank that does not come
 * forever. After a failure, vescomm_comm_shrink() and vescomm_gpu_comm_shrink() make new
 * communicators of the ranks that live.
 *
 * NCCL's communicator does not end while a CUDA graph that captured its calls exists, or while
 * earlier work of its streams hangs. vescomm waits 10 seconds for the end of an aborted one, or the
 * timeout of the vescomm_comm_t if that is shorter. Then the call returns, and the following leak
 * until the process ends: NCCL's communicator, a thread that waits for its end, the workspace and
 * the memory of vescomm_gpu_malloc(). The log has a line about it. Destroy graphs before the
 * communicator.
 *
 * While the program captures a stream of the device, it may call all functions, and the capture
 * stays valid, with one exception. vescomm_gpu_mfree(), vescomm_gpu_comm_free(),
 * vescomm_gpu_buffer_free() of a buffer with memory of its own, vescomm_gpu_comm_split(), and
 * vescomm_gpu_comm_shrink() without a failure wait for the device. CUDA forbids that: the capture
 * becomes invalid, the memory is not freed (vescomm_gpu_comm_free() leaks it), and no communicator
 * is created. vescomm_gpu_wait() refuses the captured stream, and the default stream if the
 * captured one is blocking.
 *
 * For its own calls of CUDA vescomm relaxes the capture mode of the calling thread. NCCL's threads
 * keep theirs, so capture with cudaStreamCaptureModeThreadLocal while a communicator is created.
 *
 * cudaGetLastError() does not return errors of CUDA that vescomm has reported.
 *
 * All ranks make the same collective calls on a device communicator in the same order, captured
 * ones included, with the same types, operators, counts, roots and layouts, on the same device
 * buffers, and at the same offsets in the same memory of vescomm_gpu_malloc(). Otherwise they get
 * VESCOMM_ERROR_MISMATCH: from the call, from vescomm_gpu_wait(), or from a later call, between
 * nodes after a wait of a quarter of a second or up to 32 calls later. Until then NCCL hangs, or
 * gives wrong results. Replays of a graph are not compared. The order includes the collective calls
 * on the host communicator: a rank that waits in one, and another one that waits for its device in
 * vescomm_gpu_wait(), get VESCOMM_ERROR_MISMATCH if each has made its call and not that of the
 * other.
 */
#ifndef VESCOMM_GPU_H
#define VESCOMM_GPU_H

#include <stddef.h>
#include <stdint.h>

#include "vescomm/vescomm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------- device communicators ---- */

/**
 * Tests whether device communicators can be created in this process. Loads the libraries.
 *
 * @param nccl_version  [out] as ncclGetVersion(), such as 22809 for 2.28.9. May be NULL.
 * @return VESCOMM_OK. VESCOMM_ERROR_UNSUPPORTED: the error text states what is missing.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_check_support(int32_t *nccl_version);

/** An NCCL communicator of the ranks of a vescomm_comm_t, each with its GPU. */
typedef struct vescomm_gpu_comm vescomm_gpu_comm_t;

/** Options of a device communicator. Append-only; the same on every rank. */
typedef struct vescomm_gpu_comm_options {
    uint32_t struct_size;
    /** Minimum and maximum number of thread blocks of NCCL's kernels. 0: NCCL chooses. */
    int32_t min_ctas;
    int32_t max_ctas;
    /** 0: a failure aborts NCCL's communicator, unless calls had the method "peer" or
     * "copy_engine". 1: a failure revokes it instead, as after such calls, so that
     * vescomm_gpu_comm_shrink() can use ncclCommShrink(); vescomm_gpu_comm_free() aborts it. NCCL
     * before 2.28.7 aborts it in any case. Graphs that captured its calls must not be launched
     *  after the failure: their kernels would wait for ever. Not used with nccl_comm. */
    int32_t shrinkable;
    /** Bytes of device memory for the method "padded". It needs the number of ranks times the bytes
     *  of the largest shard, rounded up to a multiple of 16; with less, other methods are used. */
    uint64_t workspace_bytes;
    /** Method of all_gather_v and reduce_scatter_v: "equal", "padded_in_place", "padded", "rooted",
     *  "messages", "peer" or "copy_engine"; see vescomm_gpu_explain(). A call that it does not suit
     *  fails; "copy_engine" applies to all_gather_v only, and vescomm chooses the method of
     *  reduce_scatter_v. After calls by "copy_engine" or "peer", which vescomm may choose itself, a
     *  failure revokes NCCL's communicator, as with shrinkable. NULL: vescomm chooses. Borrowed for
     *  the call. */
    const char *method;
    /** An ncclComm_t of the program, of the same ranks, on the current device, without a call in
     *  progress. The program keeps it, and destroys it after vescomm_gpu_comm_free(). After a
     *  failure the program aborts it first; vescomm does not, so its kernels do not end by
     *  themselves. min_ctas, max_ctas and nccl_config are not used. Given on all ranks or on none.
     *  NULL: a new one.
     *
     *  It must come from the library of NCCL that vescomm has loaded; vescomm-info shows the file.
     *  The behaviour with a communicator of another copy in the process, such as one that is linked
     *  statically, is undefined. It is refused if the process exports the functions of another
     *  copy, or if NCCL does not recognise it; a copy of the same version whose functions are
     *  hidden is not detected. */
    void *nccl_comm;
    /** Settings of ncclConfig_t that are passed to NCCL, by their names there and separated by
     *  commas: "cgaClusterSize=4,netName=IB". Numbers: cgaClusterSize, trafficClass,
     *  collnetEnable, CTAPolicy, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched; since NCCL 2.29
     *  also graphUsageMode and numRmaCtx, since 2.30.0 maxP2pPeers, since 2.30.5
     *  graphStreamOrdering. Texts: netName, commName. vescomm sets the others. Not used with
     * nccl_comm. NULL: none. Borrowed for the call. */
    const char *nccl_config;
} vescomm_gpu_comm_options_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_gpu_comm_options_t vescomm_gpu_comm_options_init(void) {
    vescomm_gpu_comm_options_t options = {
        sizeof(vescomm_gpu_comm_options_t), 0, 0, 0, 0, NULL, NULL, NULL};
    return options;
}

/**
 * Creates a device communicator on the current device of the calling thread. Each rank has a device
 * of its own.
 *
 * @param comm     its control plane connects NCCL.
 * @param options  NULL: defaults. Borrowed for the call.
 * @param out      [out] owned by the caller; free with vescomm_gpu_comm_free(), before or after
 *                 @p comm.
 * @return VESCOMM_OK. VESCOMM_ERROR_UNSUPPORTED: see vescomm_gpu_check_support(); all ranks return
 *         it if one rank lacks something, the error text names that rank, and @p comm stays usable.
 *         Also between nodes with VESCOMM_ENCRYPTION=yes, because NCCL does not encrypt.
 *         VESCOMM_ERROR_MISMATCH: the ranks passed different options, or have different versions of
 *         NCCL. VESCOMM_ERROR_OUT_OF_MEMORY: the workspace. VESCOMM_ERROR_INVALID_ARGUMENT.
 *         VESCOMM_ERROR_SYSTEM: NCCL or CUDA failed, also because two ranks have the same device;
 *         the error text names them.
 *         VESCOMM_ERROR_TIMEOUT, VESCOMM_ERROR_PEER_FAILED.
 *
 * Collective: yes, same order.  Blocking: yes, at most the timeout of @p comm.
 * Threads: one at a time per communicator.  Source: ncclCommInitRankConfig.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_comm_create(vescomm_comm_t *comm,
                                                     const vescomm_gpu_comm_options_t *options,
                                                     vescomm_gpu_comm_t **out);

/**
 * Creates device communicators of some ranks of another one by ncclCommSplit(): one for each host
 * communicator that is passed. NCCL then needs no address of a first rank, and finds
 * the other ranks through the parent. The parent stays usable, and shares no memory with the new
 * ones.
 *
 * If NCCL lacks ncclCommSplit() or ncclCommRevoke() (before 2.28.7) on a rank, or if the parent
 * uses an nccl_comm of the program, the call does what vescomm_gpu_comm_create() does on @p comm,
 * on all ranks. vescomm_gpu_comm_get_info() shows it, and the log has the reason (level info).
 *
 * @param parent   its device must be current.
 * @param comm     of ranks of @p parent alone, in any order, usually from vescomm_comm_split().
 *                 Each of its ranks passes it. NULL: this rank is in no new communicator.
 * @param options  as for vescomm_gpu_comm_create(), the same on every rank of @p comm. nccl_comm
 *                 must be NULL. NULL: defaults. Borrowed for the call.
 * @param out      [out] owned by the caller; free with vescomm_gpu_comm_free(), before or after
 *                 @p parent. NULL where @p comm is NULL.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: also if ranks of @p comm are no ranks of
 *         @p parent, and if a stream of the device is captured. VESCOMM_ERROR_MISMATCH: the options
 *         differ. VESCOMM_ERROR_TIMEOUT, VESCOMM_ERROR_PEER_FAILED, VESCOMM_ERROR_SYSTEM: if
 *         ncclCommSplit() fails on a rank, all ranks of @p parent have an error, and @p parent is
 *         broken. Otherwise as vescomm_gpu_comm_create(), on the ranks of @p comm, and @p parent
 *         stays usable.
 *
 * Collective: yes, all ranks of @p parent, same order.
 * Blocking: yes, at most the timeout of the parent's vescomm_comm_t for the work of the device, the
 * same for ncclCommSplit(), and the timeout of @p comm for memory.
 * Threads: one at a time per communicator.  Source: ncclCommSplit.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_comm_split(vescomm_gpu_comm_t *parent,
                                                    vescomm_comm_t *comm,
                                                    const vescomm_gpu_comm_options_t *options,
                                                    vescomm_gpu_comm_t **out);

/**
 * Creates a device communicator of the survivors of another one by ncclCommShrink(), after a
 * failure or without one. The other ranks do not call it, and may be dead.
 *
 * After a failure of @p parent, NCCL's communicator must still exist on all survivors: the parent
 * was created with the option shrinkable, and nothing on it was freed since. Free its memory,
 * buffers and the parent itself after this call. NCCL then ends the work of the parent
 * (NCCL_SHRINK_ABORT). Without a failure the call waits for the work of the device instead
 * (NCCL_SHRINK_DEFAULT), and @p parent stays usable.
 *
 * Otherwise all ranks do what vescomm_gpu_comm_create() does on @p survivors. This happens if no
 * rank of the parent is missing, or if on any rank NCCL's communicator was aborted,
 * ncclCommGetAsyncError() reports an error, the parent uses nccl_comm of the options, or NCCL lacks
 * ncclCommShrink() or ncclCommRevoke() (before 2.28.7). vescomm_gpu_comm_get_info() shows it, and
 * the log has the reason (level info).
 *
 * @param parent     its device must be current.
 * @param survivors  of ranks of @p parent alone, in the parent's order: as vescomm_comm_shrink()
 *                   returns it for the vescomm_comm_t of @p parent.
 * @param options    as for vescomm_gpu_comm_create(); nccl_comm must be NULL. NULL: defaults.
 *                   Borrowed for the call.
 * @param out        [out] owned by the caller; free with vescomm_gpu_comm_free(), before or after
 *                   @p parent.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: also for survivors in another order.
 *         VESCOMM_ERROR_MISMATCH: the options differ. VESCOMM_ERROR_TIMEOUT,
 *         VESCOMM_ERROR_PEER_FAILED, VESCOMM_ERROR_SYSTEM: if ncclCommShrink() fails on a rank, all
 *         survivors have an error, and @p survivors is broken; shrink it, and call this function
 *         again, which then creates a new communicator. Otherwise as vescomm_gpu_comm_create().
 *
 * Collective: yes, all ranks of @p survivors, same order.
 * Blocking: yes, as vescomm_gpu_comm_split().
 * Threads: one at a time per communicator.  Source: ncclCommShrink.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_comm_shrink(vescomm_gpu_comm_t *parent,
                                                     vescomm_comm_t *survivors,
                                                     const vescomm_gpu_comm_options_t *options,
                                                     vescomm_gpu_comm_t **out);

/** A device communicator, as vescomm_gpu_comm_get_info() reports it. Append-only. */
typedef struct vescomm_gpu_comm_info {
    uint32_t struct_size;
    int32_t device; /**< number of its device, as cudaGetDevice() returned it at the creation */
    int32_t nccl_version; /**< as ncclGetVersion(), such as 22809 for 2.28.9 */
    /** 1: NCCL has created its communicator from that of a parent, by ncclCommSplit() or
     *  ncclCommShrink(). 0: NCCL created it without a parent, or the caller passed it. */
    int32_t derived;
} vescomm_gpu_comm_info_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_gpu_comm_info_t vescomm_gpu_comm_info_init(void) {
    vescomm_gpu_comm_info_t info = {sizeof(vescomm_gpu_comm_info_t), 0, 0, 0};
    return info;
}

/**
 * Returns facts of a device communicator.
 *
 * @param info  [in,out] with struct_size set; vescomm_gpu_comm_info_init() makes one.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_comm_get_info(const vescomm_gpu_comm_t *comm,
                                                       vescomm_gpu_comm_info_t *info);

/**
 * Returns the first failure of a device communicator, also one of work that still runs.
 *
 * @return VESCOMM_OK. The first error of the vescomm_comm_t, which NCCL's failures break too. Never
 *         VESCOMM_ERROR_INVALID_ARGUMENT: that status is of rejected calls, which have no effect.
 *
 * Collective: no.  Blocking: no; after a failure at most 10.5 seconds, once, to abort NCCL.
 * Threads: one at a time per communicator.
 * Source: ncclCommGetAsyncError.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_comm_check(vescomm_gpu_comm_t *comm);

/**
 * Waits until the work of a stream is complete, and returns early if the communicator fails.
 * Makes progress on the vescomm_comm_t meanwhile.
 *
 * @param stream  must not be captured. If it is NULL, no blocking stream may be captured either.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: the stream is captured, or another device is
 *         current; nothing happened. VESCOMM_ERROR_TIMEOUT: the work takes longer than the timeout
 *         of the vescomm_comm_t, which is broken; the error text names the ranks of this node that
 *         have made fewer calls, or do not wait. VESCOMM_ERROR_MISMATCH: the ranks have made
 * different calls; the vescomm_comm_t is broken. Otherwise as vescomm_gpu_comm_check().
 *
 * Collective: no.  Blocking: yes, at most the timeout; after a failure, also at the timeout, longer
 * by that of vescomm_gpu_comm_check().  Threads: one at a time per communicator.
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_wait(vescomm_gpu_comm_t *comm, void *stream);

/**
 * Makes the later work of a stream wait for the collectives on the communicator so far, on
 * whichever streams they are. The host does not wait. Collectives that were captured into a graph,
 * and kernels of the program, do not count.
 *
 * @param stream  of any device; must not be captured, because a graph cannot wait for work outside
 *                it. NULL: the default stream of the communicator's device.
 * @return VESCOMM_OK: also if there was no collective, and on a broken communicator.
 *         VESCOMM_ERROR_INVALID_ARGUMENT: the stream is captured, or it is the default stream and a
 *         blocking stream is captured; nothing happened. VESCOMM_ERROR_SYSTEM: CUDA failed; the
 *         vescomm_comm_t is broken.
 *
 * Collective: no.  Blocking: no.  Threads: one at a time per communicator.
 * Source: cudaStreamWaitEvent.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_order_stream(vescomm_gpu_comm_t *comm, void *stream);

/**
 * Frees a device communicator, and the memory of vescomm_gpu_malloc() and of device buffers on it,
 * when the work of the device is complete. If a rank or NCCL fails meanwhile, and at the timeout,
 * it aborts NCCL's communicator, so that its kernels end, and returns the failure.
 *
 * Before: all graphs that captured its calls are destroyed; otherwise it waits until the timeout,
 * and leaks (see above).
 * After: the communicator does not exist, also after an error, unless that is
 * VESCOMM_ERROR_INVALID_ARGUMENT. Its device buffers can only be freed.
 *
 * @param comm  NULL: no effect.
 * @return VESCOMM_OK: also if the vescomm_comm_t was broken before; the results of work that was
 * not complete are undefined then. VESCOMM_ERROR_TIMEOUT: the work takes longer than the timeout of
 * the vescomm_comm_t, or NCCL waits for a rank of the node that does not make this call within it;
 * the vescomm_comm_t is broken. VESCOMM_ERROR_MISMATCH: as vescomm_gpu_wait().
 * VESCOMM_ERROR_INVALID_ARGUMENT: the handle was inherited by fork(); nothing happened. Otherwise
 * as vescomm_gpu_comm_check().
 *
 * Collective: yes, unless the vescomm_comm_t is broken.  Blocking: yes, at most the timeout each
 * for the device and for NCCL.  Threads: one, the last to use it.  Source: ncclCommDestroy.
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_comm_free(vescomm_gpu_comm_t *comm);

/**
 * Allocates device memory, and registers it with NCCL as a symmetric window. Collectives on it may
 * take NCCL's faster paths. If one rank passes such memory to a collective, all ranks do, at the
 * same offset from its beginning, as NCCL requires. Between devices without symmetric memory it is
 * registered with the communicator only.
 *
 * After: the contents are undefined.
 *
 * @param bytes    the same on every rank; rounded up to a multiple of 4096.
 * @param pointer  [out] aligned to 4096 bytes; free with vescomm_gpu_mfree().
 * @return VESCOMM_OK. VESCOMM_ERROR_OUT_OF_MEMORY on every rank when one rank has too little.
 *         VESCOMM_ERROR_MISMATCH: the ranks passed different sizes. Otherwise as
 *         vescomm_gpu_comm_check().
 *
 * Collective: yes, same order.  Blocking: yes, at most the timeout.
 * Threads: one at a time per communicator.
 * Source: ncclMemAlloc, ncclCommWindowRegister, ncclCommRegister.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_malloc(vescomm_gpu_comm_t *comm, uint64_t bytes,
                                                void **pointer);

/**
 * Frees memory of vescomm_gpu_malloc() when the work of the device is complete.
 *
 * Before: graphs with work on it are not launched again.
 *
 * @param pointer  NULL: no effect.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: no such memory begins at @p pointer, device
 *         buffers use it, or a stream of the device is captured; nothing was freed.
 *         VESCOMM_ERROR_TIMEOUT: the work takes longer than the timeout of the vescomm_comm_t,
 *         which is broken. Otherwise as vescomm_gpu_comm_check(). If the vescomm_comm_t was broken
 *         before, VESCOMM_OK, and the memory leaks if the work does not end; see above.
 *
 * Collective: yes, same order, unless the vescomm_comm_t is broken.
 * Blocking: yes, at most the timeout.  Threads: one at a time per communicator.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_mfree(vescomm_gpu_comm_t *comm, void *pointer);

/**
 * Gathers the shards of all ranks on all ranks.
 * After completion: output holds all elements of @p layout.
 *
 * @param layout  the same on every rank, with one shard for each rank; used during the call only.
 * @param type    type of the elements; the same on every rank.
 * @param source  the shard of this rank. NULL: in place, where the shard lies in @p output. Must
 *                not overlap output otherwise.
 * @param output  the whole buffer. Fastest if its beginning and the cuts are multiples of 16 bytes.
 * @return VESCOMM_OK: it is on the stream. VESCOMM_ERROR_INVALID_ARGUMENT: nothing happened.
 *         VESCOMM_ERROR_UNSUPPORTED: the method of the options does not suit; nothing happened.
 *         Otherwise as vescomm_gpu_comm_check().
 *
 * Collective: yes, same order.  Blocking: until it is on the stream, at most the timeout.
 * Threads: one at a time per communicator.
 * Cost: shown by vescomm_gpu_explain().  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_all_gather_v(vescomm_gpu_comm_t *comm,
                                                      const vescomm_layout_t *layout,
                                                      vescomm_type_t type, const void *source,
                                                      void *output, void *stream);

/**
 * Reduces the buffers of all ranks and leaves each rank its own shard of the result.
 * After completion: output holds the reduction of this rank's shard. In place, the rest of source
 * is undefined; otherwise source is unchanged.
 *
 * NCCL chooses the order of contributions, and may round bf16 and f16 after each of them. Two
 * operators differ from those of vescomm.h if there are several ranks:
 *
 * - the minimum and the maximum ignore NaN: they are NaN only if all contributions are NaN.
 *   Switches that reduce (SHARP) may treat NaN in another way;
 * - the average multiplies each contribution by 1 / ranks, and adds the products. The factor and
 *   each product are rounded to the type. The average of equal values may thus be another value:
 *   three times 1.75 in bf16 may give 1.7578125. To avoid this, sum in f32, and divide in the
 *   program.
 *
 * @param layout  the same on every rank, with one shard for each rank; used during the call only.
 * @param type    f32, f64, f16, bf16, i8, u8, i32, u32, i64 or u64.
 * @param op      sum, product, minimum, maximum; average of floats.
 * @param source  the whole buffer.
 * @param output  the shard of this rank. NULL: in place, where the shard lies in @p source. Must
 *                not overlap source otherwise.
 * @return as vescomm_gpu_all_gather_v(). VESCOMM_ERROR_UNSUPPORTED: also for another type or
 *         operator, and of floats if the vescomm_comm_t asks for reproducible sums.
 *
 * Collective: yes, same order.  Blocking: until it is on the stream, at most the timeout.
 * Threads: one at a time per communicator.
 * Cost: shown by vescomm_gpu_explain().  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_reduce_scatter_v(vescomm_gpu_comm_t *comm,
                                                          const vescomm_layout_t *layout,
                                                          vescomm_type_t type, vescomm_op_t op,
                                                          void *source, void *output, void *stream);

/**
 * Reduces the sources of all ranks and leaves every rank the result.
 *
 * @param source  @p count elements.
 * @param output  @p count elements; may be @p source, and must not overlap it otherwise.
 * @param count   from 0 to 2^40; the same on every rank.
 * @param type    as vescomm_gpu_reduce_scatter_v().
 * @param op      as vescomm_gpu_reduce_scatter_v().
 * @return as vescomm_gpu_reduce_scatter_v().
 *
 * Collective: yes, same order.  Blocking: until it is on the stream, at most the timeout.
 * Threads: one at a time per communicator.
 * Source: ncclAllReduce.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_all_reduce(vescomm_gpu_comm_t *comm, const void *source,
                                                    void *output, int64_t count,
                                                    vescomm_type_t type, vescomm_op_t op,
                                                    void *stream);

/**
 * Copies the data of the root to all ranks.
 *
 * @param data   @p count elements: read on rank @p root, written on all others.
 * @param count  from 0 to 2^40; the same on every rank.
 * @param type   type of the elements; the same on every rank.
 * @param root   the same on every rank.
 * @return as vescomm_gpu_all_gather_v().
 *
 * Collective: yes, same order.  Blocking: until it is on the stream, at most the timeout.
 * Threads: one at a time per communicator.
 * Source: ncclBroadcast.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_broadcast(vescomm_gpu_comm_t *comm, void *data,
                                                   int64_t count, vescomm_type_t type, int32_t root,
                                                   void *stream);

/**
 * Sends one block from every rank to every rank.
 *
 * The blocks may have any sizes, also 0. If a rank sends another one of its node a block of another
 * size than that rank expects, they get VESCOMM_ERROR_MISMATCH, from this call or a later one: see
 * the beginning of this file. Counts are not compared between nodes: NCCL does not complete the
 * call, and vescomm_gpu_wait() returns VESCOMM_ERROR_TIMEOUT, or the results are undefined.
 *
 * @param source          source_counts[k] elements for rank k at source_offsets[k].
 * @param source_counts   number of elements for each rank, in memory of the host, from 0 to 2^40;
 *                        used during the call only. source_counts[j] on rank k must equal
 *                        output_counts[k] on rank j.
 * @param source_offsets  of the blocks in @p source, in elements; as @p source_counts in memory of
 *                        the host. NULL: one after another.
 * @param output          gets output_counts[k] elements of rank k at output_offsets[k]. A block of
 *                        it must not overlap another block; only that of this rank may be at the
 *                        same place as in @p source.
 * @param output_counts   number of elements of each rank, as @p source_counts.
 * @param output_offsets  of the blocks in @p output, as @p source_offsets.
 * @param type            type of the elements; the same on every rank.
 * @return as vescomm_gpu_all_gather_v().
 *
 * Collective: yes, same order.  Blocking: until it is on the stream, at most the timeout.
 * Threads: one at a time per communicator.
 * Cost: one group of NCCL; the block of this rank is one copy.
 * Source: ncclSend, ncclRecv.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_all_to_all_v(vescomm_gpu_comm_t *comm, const void *source,
                                                      const int64_t *source_counts,
                                                      const int64_t *source_offsets, void *output,
                                                      const int64_t *output_counts,
                                                      const int64_t *output_offsets,
                                                      vescomm_type_t type, void *stream);

/**
 * Describes how a ragged collective on a layout will run: its method, the reason, and the predicted
 * times of all methods. The constants of the predictions have not been measured.
 *
 * - equal: one call of NCCL in place, for shards of equal size;
 * - padded_in_place: one call in place with counts of the largest shard, for device buffers with
 * gaps behind their shards (VESCOMM_GPU_STRIDED, or a short last shard);
 * - padded: the same in the workspace, with shards of the largest size, and copies;
 * - rooted: a group of one broadcast from each rank, or of one reduction to each rank;
 * - messages: a group of sends and receives, for all_gather_v;
 * - peer: for device buffers whose ranks can address one another's memory: a kernel of vescomm on
 *   each rank, which reads that memory;
 * - copy_engine: for all_gather_v of such buffers, if the options ask for it: copies from the
 * memory of the other ranks, which need no multiprocessor but for two short kernels, so that
 * computation goes on beside them. Not with nccl_comm. It has run on a test double only.
 *
 * @param reduces  0: vescomm_gpu_all_gather_v(); 1: vescomm_gpu_reduce_scatter_v().
 * @param text     [out] owned by @p comm, valid until the next call of this function on it.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT. VESCOMM_ERROR_UNSUPPORTED: the method of the
 *         options does not suit, or vescomm_gpu_reduce_scatter_v() does not reduce the type.
 *
 * Collective: no.  Blocking: no.  Threads: one at a time per communicator.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_explain(vescomm_gpu_comm_t *comm,
                                                 const vescomm_layout_t *layout,
                                                 vescomm_type_t type, int32_t reduces,
                                                 const char **text);

/* ---------------------------------------------------------------------- device buffers ---- */

/** A layout in registered device memory: tensors and shards at stable device addresses. */
typedef struct vescomm_gpu_buffer vescomm_gpu_buffer_t;

/** The distance between the shards of a device buffer. */
typedef int32_t vescomm_gpu_placement_t;
/** Shards follow one another as in the layout; each tensor is contiguous. If all shards but short
 * or empty last ones have one size, memory is added so that each shard has space for that size: at
 * most 4096 bytes or an eighth of the buffer, whichever is more. "padded_in_place" then suits. */
#define VESCOMM_GPU_PACKED ((vescomm_gpu_placement_t)0)
/** Shards begin at multiples of the largest one, rounded up to 16 bytes. One call of NCCL moves
 * them in place, and the gaps behind them too. Tensors with elements of several ranks are not
 *  contiguous. Suits shards of similar size. */
#define VESCOMM_GPU_STRIDED ((vescomm_gpu_placement_t)1)

/** Options of a device buffer. Append-only; the same on every rank. */
typedef struct vescomm_gpu_buffer_options {
    uint32_t struct_size;
    /** Type of the elements. 0, VESCOMM_TYPE_DEFAULT: f32. */
    vescomm_type_t type;
    /** Memory that holds the buffer: an address that vescomm_gpu_malloc() has returned on the same
     *  communicator. All ranks pass the memory of the same call. It cannot be freed before the
     *  buffer. NULL: new memory, which is freed with the buffer. */
    void *memory;
    /** First byte within the memory, a multiple of 256. Not used for new memory. */
    uint64_t offset_bytes;
    vescomm_gpu_placement_t placement;
    /** 0: a shard with elements that does not begin at a multiple of 16 bytes is an error, because
     *  NCCL is several times slower there. 1: shards may begin at any element. */
    int32_t any_cuts;
    /** Name in error texts. NULL: "buffer". Borrowed for the call. */
    const char *name;
} vescomm_gpu_buffer_options_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_gpu_buffer_options_t vescomm_gpu_buffer_options_init(void) {
    vescomm_gpu_buffer_options_t options = {
        sizeof(vescomm_gpu_buffer_options_t), 0, NULL, 0, VESCOMM_GPU_PACKED, 0, NULL};
    return options;
}

/**
 * Returns the bytes of device memory that a device buffer needs, with gaps and padding. Needs no
 * GPU.
 *
 * @param options  NULL: defaults. The memory and its offset are not used.
 * @param bytes    [out]
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: also for a shard that does not begin at a
 *         multiple of 16 bytes, see any_cuts.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: O(ranks).  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_buffer_get_bytes(
    const vescomm_layout_t *layout, const vescomm_gpu_buffer_options_t *options, uint64_t *bytes);

/**
 * Creates a device buffer, and checks that all ranks pass the same layout and options. Its memory
 * is allocated and registered with NCCL once, as by vescomm_gpu_malloc().
 *
 * After: the contents are undefined.
 *
 * @param layout   must have the number of ranks of @p comm. Copied.
 * @param options  NULL: f32, packed, new memory, shards at multiples of 16 bytes.
 * @param buffer   [out] owned by the caller; free with vescomm_gpu_buffer_free().
 * @return VESCOMM_OK. VESCOMM_ERROR_MISMATCH: the layouts or options differ; the error text names
 *         two ranks and the first difference. VESCOMM_ERROR_INVALID_ARGUMENT: also for a shard that
 *         does not begin at a multiple of 16 bytes, and for memory that is too small.
 *         VESCOMM_ERROR_OUT_OF_MEMORY on every rank when one rank has too little. Otherwise as
 *         vescomm_gpu_comm_check().
 *
 * Collective: yes, same order.  Blocking: yes, at most the timeout.
 * Threads: one at a time per communicator.  Source: vescomm_buffer_create().  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_buffer_create(vescomm_gpu_comm_t *comm,
                                                       const vescomm_layout_t *layout,
                                                       const vescomm_gpu_buffer_options_t *options,
                                                       vescomm_gpu_buffer_t **buffer);

/**
 * Returns a view of the whole buffer; its data is a device address.
 *
 * @param view  [out] includes the gaps of a strided buffer, whose contents are undefined after
 *              collectives.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: also after vescomm_gpu_comm_free().
 *
 * Collective: no.  Blocking: no.  Threads: one at a time per communicator.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_buffer_get_data(const vescomm_gpu_buffer_t *buffer,
                                                         vescomm_view_t *view);

/**
 * Returns a view of one tensor, a dense row-major array of its shape; its data is a device address.
 *
 * @param index  as for vescomm_layout_get_tensor(); vescomm_layout_find_tensor() returns it for a
 *               name.
 * @param view   [out] valid until the buffer is freed.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: also for a tensor of a strided buffer with
 *         elements of several ranks; vescomm_gpu_buffer_get_shard() and vescomm_layout_get_piece()
 *         return its parts. Also after vescomm_gpu_comm_free().
 *
 * Collective: no.  Blocking: no.  Threads: one at a time per communicator.
 * Cost: O(log ranks).  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_buffer_get_tensor(const vescomm_gpu_buffer_t *buffer,
                                                           size_t index, vescomm_view_t *view);

/**
 * Returns a view of the shard of a rank in the memory of the calling rank; its data is a device
 * address.
 *
 * @param rank  any rank. After an all_gather_v the shard has the data of that rank.
 * @param view  [out] valid until the buffer is freed.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: also after vescomm_gpu_comm_free().
 *
 * Collective: no.  Blocking: no.  Threads: one at a time per communicator.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_buffer_get_shard(const vescomm_gpu_buffer_t *buffer,
                                                          int32_t rank, vescomm_view_t *view);

/**
 * Gathers the shards of all ranks on all ranks, in place, in each of several buffers. All calls of
 * NCCL are one group, which NCCL may run as one kernel.
 *
 * Before: the shard of this rank in each buffer has its data, in the order of the stream.
 * After completion: each buffer holds all elements; the contents of gaps are undefined.
 *
 * @param buffers  of one communicator, which do not overlap; the same on every rank, in the same
 *                 order. Used during the call only.
 * @param count    0: no effect.
 * @return VESCOMM_OK: it is on the stream. VESCOMM_ERROR_INVALID_ARGUMENT: nothing happened.
 *         VESCOMM_ERROR_UNSUPPORTED: the method of the options does not suit, or it is "padded" and
 *         the workspace is too small for all buffers; nothing happened. Otherwise as
 *         vescomm_gpu_comm_check().
 *
 * Collective: yes, same order.  Blocking: until it is on the stream, at most the timeout.
 * Threads: one at a time per communicator.
 * Cost: of one buffer shown by vescomm_gpu_buffer_explain().  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_buffer_all_gather_v(vescomm_gpu_buffer_t *const *buffers,
                                                             size_t count, void *stream);

/**
 * Reduces the buffers of all ranks, in place, and leaves each rank its own shard of the result, in
 * each of several buffers. All calls of NCCL are one group, which NCCL may run as one kernel.
 *
 * Before: each buffer has all its elements, in the order of the stream. Gaps may have any contents.
 * After completion: the shard of this rank in each buffer holds the result; the rest is undefined.
 *
 * @param buffers  as for vescomm_gpu_buffer_all_gather_v(), of types that
 *                 vescomm_gpu_reduce_scatter_v() reduces.
 * @param count    0: no effect.
 * @param op       of all buffers, as for vescomm_gpu_reduce_scatter_v(), with the same rules.
 *                 With the method "peer" results are bit-identical to host memory: contributions
 *                 are reduced in the order of the ranks, and rounded once.
 * @return as vescomm_gpu_buffer_all_gather_v(). VESCOMM_ERROR_UNSUPPORTED: also for another type or
 *         operator, and of floats if the vescomm_comm_t asks for reproducible sums and the method
 *         "peer" does not suit.
 *
 * Collective: yes, same order.  Blocking: until it is on the stream, at most the timeout.
 * Threads: one at a time per communicator.
 * Cost: of one buffer shown by vescomm_gpu_buffer_explain().  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_buffer_reduce_scatter_v(
    vescomm_gpu_buffer_t *const *buffers, size_t count, vescomm_op_t op, void *stream);

/**
 * Describes the memory of a device buffer, and how a collective on it alone will run, as
 * vescomm_gpu_explain(). In a call on several buffers, those for which vescomm chooses "padded"
 * share the workspace: a buffer for which too little is left gets another method.
 *
 * @param reduces  0: vescomm_gpu_buffer_all_gather_v(); 1: vescomm_gpu_buffer_reduce_scatter_v().
 * @param text     [out] owned by @p buffer, valid until the next call of this function on it.
 * @return as vescomm_gpu_explain(). VESCOMM_ERROR_INVALID_ARGUMENT: also after
 *         vescomm_gpu_comm_free().
 *
 * Collective: no.  Blocking: no.  Threads: one at a time per communicator.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_buffer_explain(vescomm_gpu_buffer_t *buffer,
                                                        int32_t reduces, const char **text);

/**
 * Frees a device buffer. Its own memory is deregistered and then freed, when the work of the device
 * is complete; memory of the options stays.
 *
 * Before: graphs with work on it are not launched again.
 *
 * @param buffer  NULL: no effect. May be freed after its communicator, which frees the memory.
 * @return as vescomm_gpu_mfree(). After an error the buffer still exists.
 *
 * Collective: yes, same order, unless the vescomm_comm_t is broken or the device communicator was
 * freed.  Blocking: yes, at most the timeout.  Threads: one at a time per communicator.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_buffer_free(vescomm_gpu_buffer_t *buffer);

#ifdef __cplusplus
}
#endif

#endif /* VESCOMM_GPU_H */

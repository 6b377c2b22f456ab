/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * vescomm: ragged grouped collectives over fused persistent buffers. The whole C API; read it from
 * top to bottom:
 *
 *     status          what a call returns, and the sentence that explains a failure
 *     communicator    the ranks that work together
 *     layout          where tensors and shards lie in a fused buffer (a plain value)
 *     memory, buffer  the bytes themselves, at addresses that never change
 *     request         a collective on a buffer, made once and started many times
 *     arrays          collectives and messages on arrays of the caller, made as they are called
 *     trace           what happened when
 *     flight recorder what happened last
 *
 * Words used throughout. A *rank* is one process (or thread) of a job, counted from 0. A *node* is
 * a set of ranks that can map one another's memory. A *buffer* holds the tensors of a *layout*; the
 * layout's *cuts* divide it into one *shard* for each rank, which may be unequal or empty. Offsets
 * and sizes are in elements unless a name says bytes.
 *
 * Every function returns a status, sets its outputs only on success, and never lets an exception
 * out. Options structs start with struct_size, are made by the inline function of the same name,
 * and mean "the default" wherever a member is zero. Strings are UTF-8 and copied.
 *
 * Communicators, memory, buffers and requests are made by all ranks together. If one of them is
 * refused, for an argument or a variable of its own, all of them fail, and the others' sentence
 * says which rank it was and why; the communicator is broken. A call on arrays that is refused has
 * not happened, and may be made again.
 *
 * A communicator, memory, buffer or request belongs to the process that made it. In a child that
 * fork() has made, every call on it returns VESCOMM_ERROR_INVALID_ARGUMENT and does nothing else;
 * so do the functions that free it, which release neither it nor anything that the parent uses. The
 * child must not write into its memory, which it shares with the parent. Layouts are plain values
 * and stay usable. To make communicators of its own, a child of a process that has some calls
 * exec() first.
 *
 * A function with "Threads: safe" may be called at any time, also while another thread is in a call
 * on the same communicator; one with "one at a time per communicator" while no other thread is in
 * another such call. Every call that blocks moves the requests of its communicator along: ranks
 * start requests and create things in one order, and wait, test and free when they like.
 *
 * A communicator has room for 65,536 memories and requests on buffers at a time. Those that every
 * rank has freed do not count. A request can be started at least 2^31 times.
 */
#ifndef VESCOMM_VESCOMM_H
#define VESCOMM_VESCOMM_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define VESCOMM_API __attribute__((visibility("default")))
#else
#define VESCOMM_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define VESCOMM_VERSION_MAJOR 0
#define VESCOMM_VERSION_MINOR 1
#define VESCOMM_VERSION_PATCH 0

/* -------------------------------------------------------------------------------- status ---- */

/** What a call returns: zero for success, positive for "not yet", negative for an error. */
typedef int32_t vescomm_status_t;

#define VESCOMM_OK ((vescomm_status_t)0)
/** Not an error: the request has not completed yet. */
#define VESCOMM_IN_PROGRESS ((vescomm_status_t)1)
/** An argument is wrong; nothing happened. */
#define VESCOMM_ERROR_INVALID_ARGUMENT ((vescomm_status_t)-1)
/** Memory, or another resource of this machine, ran out; nothing happened. */
#define VESCOMM_ERROR_OUT_OF_MEMORY ((vescomm_status_t)-2)
/** A peer stayed silent past the deadline. The communicator is broken from here on. */
#define VESCOMM_ERROR_TIMEOUT ((vescomm_status_t)-3)
/** A peer died, or its connection did. The communicator is broken from here on. */
#define VESCOMM_ERROR_PEER_FAILED ((vescomm_status_t)-4)
/** The ranks called different things, or the same thing with different arguments. */
#define VESCOMM_ERROR_MISMATCH ((vescomm_status_t)-5)
/** What was asked for exists, but not in this build, on this machine, or for these arguments. */
#define VESCOMM_ERROR_UNSUPPORTED ((vescomm_status_t)-6)
/** The operating system or a library below refused; the sentence says which and why. */
#define VESCOMM_ERROR_SYSTEM ((vescomm_status_t)-7)
/** Somebody called vescomm_comm_abort(). The communicator is broken from here on. */
#define VESCOMM_ERROR_ABORTED ((vescomm_status_t)-8)
/** A defect of vescomm itself; please report it. */
#define VESCOMM_ERROR_INTERNAL ((vescomm_status_t)-9)

/**
 * Names a status, such as "timeout".
 *
 * @return a constant string, never NULL; "unknown status" for a value that is none.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API const char *vescomm_status_name(vescomm_status_t status);

/**
 * Returns the sentence that explains the last error of the calling thread: what failed, where, the
 * values, and what to do.
 *
 * @return never NULL, empty before the first error, cut after 1,023 bytes; valid until this
 * thread's next failing call.
 *
 * Collective: no.  Blocking: no.  Threads: safe (each thread has its own).  Since: 0.1
 */
VESCOMM_API const char *vescomm_last_error(void);

/**
 * Returns the version of the library that is loaded, as "major.minor.patch".
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API const char *vescomm_version(void);

/**
 * Receives one line of the log, without a newline.
 *
 * @param level  0 error, 1 warn, 2 info, 3 debug.
 * @param line   valid during the call. Calls may come from any thread, at the same time.
 */
typedef void (*vescomm_log_function_t)(void *context, int32_t level, const char *line);

/**
 * Sends the log of this process somewhere else. VESCOMM_LOG says what is logged.
 *
 * @param sink     NULL: standard error again. Must not call vescomm.
 * @param context  handed to @p sink.
 * @return VESCOMM_OK.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_set_log(vescomm_log_function_t sink, void *context);

/* -------------------------------------------------------------------------- communicator ---- */

/** The ranks that work together, and the connections between them. */
typedef struct vescomm_comm vescomm_comm_t;

/** How a communicator is made. Append-only; a zero member means its default. */
typedef struct vescomm_comm_options {
    uint32_t struct_size;
    uint32_t reserved;
    /** Seconds that any wait may last before a silent peer becomes an error. 0: the variable
     *  VESCOMM_TIMEOUT_SECONDS, or 300. */
    double timeout_seconds;
    /** Name of the node of this rank: ranks with the same name share memory. NULL: the variable
     *  VESCOMM_NODE, or what the operating system says. Borrowed for the call. */
    const char *node;
    /** Not 0: sums have the same bits whatever algorithm is chosen and whichever ranks share nodes,
     *  see vescomm_op_t; between nodes that takes longer, and requests on buffers keep memory in
     *  proportion to them. The same on every rank. 0: the variable VESCOMM_REPRODUCIBLE, or no. */
    int32_t reproducible;
    uint32_t reserved_2;
    /** Tells apart communicators of the same ranks that several threads create at the same time:
     * each thread gives a tag of its own, the same on every rank. NULL or empty: they are told
     * apart by the order in which they are created, one after the other. At most 255 bytes;
     * borrowed for the call. Since: 0.2 */
    const char *tag;
} vescomm_comm_options_t;

static inline vescomm_comm_options_t vescomm_comm_options(void) {
    vescomm_comm_options_t options = {sizeof(vescomm_comm_options_t), 0, 0.0, NULL, 0, 0, NULL};
    return options;
}

/**
 * Gathers the same number of bytes from every rank: the one thing a caller's own bootstrap offers.
 *
 * @param context  as given to vescomm_comm_create_from_all_gather().
 * @param mine     @p bytes bytes of this rank.
 * @param all      [out] ranks * @p bytes bytes, by rank.
 * @return 0 for success.
 */
typedef int (*vescomm_all_gather_function_t)(void *context, const void *mine, size_t bytes,
                                             void *all);

/**
 * Makes a communicator from an explicit rank, number of ranks, address and secret.
 *
 * @param rank     of the caller, in [0, @p ranks).
 * @param ranks    of the job, at least 1.
 * @param address  "host:port" on which rank 0 listens and which the others can reach. Ignored, and
 *                 may be NULL, when @p ranks is 1.
 * @param secret   the same on every rank; connections that do not know it change nothing. Ignored,
 *                 and may be NULL, when @p ranks is 1.
 * @param options  NULL: defaults. Borrowed for the call.
 * @param comm     [out] owned by the caller; release with vescomm_comm_free().
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: also when another thread creates one of the
 *         same ranks at the same time without a tag of its own; both fail then, on all ranks.
 *         VESCOMM_ERROR_TIMEOUT: ranks stayed away, the sentence names them.
 *         VESCOMM_ERROR_PEER_FAILED. VESCOMM_ERROR_MISMATCH: two processes claim one rank, or the
 *         number of ranks or the build of the library differs. VESCOMM_ERROR_SYSTEM. After any
 * error nothing is left behind.
 *
 * Communicators of a process with the same ranks, address and secret share one connection to rank
 * 0, one thread, and their descriptors.
 *
 * Collective: yes.  Blocking: until all ranks are here, at most the timeout.  Threads: safe.
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_comm_create(int32_t rank, int32_t ranks, const char *address,
                                                 const char *secret,
                                                 const vescomm_comm_options_t *options,
                                                 vescomm_comm_t **comm);

/**
 * Makes a communicator of the ranks that a launcher started: vescomm-run, torchrun, mpirun, srun.
 * Without any launcher it has one rank.
 *
 * Reads VESCOMM_RANK, VESCOMM_RANKS, VESCOMM_ADDRESS and VESCOMM_SECRET first, then the variables
 * of torchrun, Open MPI, Hydra and Slurm, in this order; docs/launching.md has the details.
 *
 * @return as vescomm_comm_create(). VESCOMM_ERROR_INVALID_ARGUMENT: a variable is missing or wrong;
 *         the sentence names it.
 *
 * Collective: yes.  Blocking: as vescomm_comm_create().  Threads: safe, as long as no thread
 * changes the environment.  Since: 0.1
 */
VESCOMM_API vescomm_status_t
vescomm_comm_create_from_environment(const vescomm_comm_options_t *options, vescomm_comm_t **comm);

/**
 * Makes a communicator where the caller already has a way to gather bytes (MPI, a store, sockets).
 *
 * @param all_gather  called a few times, only during this call, from the calling thread.
 * @param context     handed to @p all_gather.
 * @return as vescomm_comm_create(). VESCOMM_ERROR_SYSTEM: @p all_gather returned non-zero.
 *
 * Collective: yes.  Blocking: as vescomm_comm_create(), plus what @p all_gather takes.
 * Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_comm_create_from_all_gather(
    int32_t rank, int32_t ranks, vescomm_all_gather_function_t all_gather, void *context,
    const vescomm_comm_options_t *options, vescomm_comm_t **comm);

/**
 * Makes communicators of the ranks of another one, which stays as it is. They share its
 * connections.
 *
 * @param comm     the parent.
 * @param color    ranks with the same color make one communicator. Negative: this rank is in none.
 * @param key      orders the ranks of a color; equal keys by their rank in the parent.
 * @param options  NULL or zero members: as the parent. `tag` is not used. Borrowed for the call.
 * @param out      [out] owned by the caller, release with vescomm_comm_free(), before or after the
 *                 parent; NULL where color is negative.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT. The first error of a broken parent.
 *         VESCOMM_ERROR_TIMEOUT, VESCOMM_ERROR_PEER_FAILED: the sentence names the rank.
 *
 * Collective: yes, all ranks of the parent, same order.  Blocking: yes, at most the timeout.
 * Threads: one at a time per communicator.  Cost: a few rounds of the control plane.
 * Source: MPI_Comm_split.  Since: 0.2
 */
VESCOMM_API vescomm_status_t vescomm_comm_split(vescomm_comm_t *comm, int32_t color, int32_t key,
                                                const vescomm_comm_options_t *options,
                                                vescomm_comm_t **out);

/**
 * Makes another communicator of the same ranks, so that its calls are independent of those on the
 * parent: another thread or library may use it.
 *
 * @return as vescomm_comm_split().
 *
 * Collective: yes, all ranks of the parent, same order.  Blocking: yes, at most the timeout.
 * Threads: one at a time per communicator.  Cost: as vescomm_comm_split().  Source: MPI_Comm_dup.
 * Since: 0.2
 */
VESCOMM_API vescomm_status_t vescomm_comm_dup(vescomm_comm_t *comm,
                                              const vescomm_comm_options_t *options,
                                              vescomm_comm_t **out);

/**
 * Makes a communicator of the ranks that survive a failure. They agree on who is gone: a rank whose
 * process has ended, and those in @p failed. Ranks keep their order.
 *
 * Before: usually broken, by the failure. After: @p comm is broken on every rank and must still be
 * freed; memory, buffers and requests made on it are of no more use.
 *
 * @param comm    the communicator that has lost ranks. Not one that was freed.
 * @param failed  ranks of @p comm that are to be left out although their process may not have ended
 *                (one that is stuck, or on a machine that cannot be reached), @p count of them; the
 *                same on every rank. NULL when @p count is 0.
 * @param out     [out] owned by the caller; release with vescomm_comm_free().
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT. VESCOMM_ERROR_TIMEOUT: a rank lives and has
 *         not called this; the sentence names it. VESCOMM_ERROR_PEER_FAILED: one more rank died
 *         meanwhile; call it again. VESCOMM_ERROR_MISMATCH: another rank has named this one as
 *         failed.
 *
 * Collective: yes, all ranks that live and are not in @p failed.  Blocking: yes, at most the
 * timeout. Threads: one at a time per communicator.  Cost: milliseconds, and as
 * vescomm_comm_create(). Source: MPIX_Comm_shrink.  Since: 0.2
 */
VESCOMM_API vescomm_status_t vescomm_comm_shrink(vescomm_comm_t *comm, const int32_t *failed,
                                                 size_t count, vescomm_comm_t **out);

/** Who is who. Filled by vescomm_comm_query(); append-only. */
typedef struct vescomm_comm_info {
    uint32_t struct_size;
    int32_t rank; /**< of the caller */
    int32_t ranks; /**< of the communicator */
    int32_t node; /**< of the caller, counted by first rank */
    int32_t nodes; /**< of the communicator */
    int32_t local_rank; /**< the caller's place among the ranks of its node */
    int32_t local_ranks; /**< of the caller's node */
    int32_t reserved;
} vescomm_comm_info_t;

static inline vescomm_comm_info_t vescomm_comm_info(void) {
    vescomm_comm_info_t info = {sizeof(vescomm_comm_info_t), 0, 0, 0, 0, 0, 0, 0};
    return info;
}

/**
 * Says who is who in a communicator.
 *
 * @param info  [in,out] struct_size set by the caller, the rest filled.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_comm_query(const vescomm_comm_t *comm,
                                                vescomm_comm_info_t *info);

/** What a communicator has done so far on this rank. Filled by vescomm_comm_count(); append-only.
 */
typedef struct vescomm_comm_counters {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t operations; /**< requests started */
    uint64_t bytes_written; /**< bytes written by copies and conversions on this node */
    uint64_t bytes_reduced; /**< bytes read by reductions */
    uint64_t bytes_sent; /**< bytes sent to other nodes */
    uint64_t sleeps; /**< times a wait gave up its core */
    double busy_seconds; /**< moving and reducing bytes, 16 KiB and more at a time */
    double waiting_seconds; /**< in waits that came to an end, less what was busy meanwhile */
} vescomm_comm_counters_t;

static inline vescomm_comm_counters_t vescomm_comm_counters(void) {
    vescomm_comm_counters_t counters = {
        sizeof(vescomm_comm_counters_t), 0, 0, 0, 0, 0, 0, 0.0, 0.0};
    return counters;
}

/**
 * Counts what a communicator has done so far on this rank.
 *
 * @param counters  [in,out] struct_size set by the caller, the rest filled.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_comm_count(const vescomm_comm_t *comm,
                                                vescomm_comm_counters_t *counters);

/**
 * Writes what vescomm_comm_count() counts, who this rank is, and whether the communicator is
 * broken, as text in the format of Prometheus (0.0.4). The program decides where it goes: over
 * HTTP, or into a file for a collector. Samples have the labels rank and communicator, which counts
 * those of this process from 0; text of several communicators is to be served apart.
 *
 * @param text      [out] all of it, with a zero at its end, when @p capacity suffices, otherwise
 *                  untouched. May be NULL when that is 0.
 * @param capacity  in bytes; 4096 are enough for this version.
 * @param size      [out] number of bytes there are, with the zero.
 * @return VESCOMM_OK, also when @p capacity does not suffice. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.2
 */
VESCOMM_API vescomm_status_t vescomm_comm_metrics(const vescomm_comm_t *comm, char *text,
                                                  size_t capacity, size_t *size);

/**
 * Moves started requests along without waiting: call it now and then inside long computations.
 *
 * @return VESCOMM_OK. The first error of a broken communicator.
 *
 * Collective: no.  Blocking: no, but does the copying and reducing that has become possible.
 * Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_comm_progress(vescomm_comm_t *comm);

/**
 * Waits until every rank has called it.
 *
 * @return VESCOMM_OK. VESCOMM_ERROR_TIMEOUT, VESCOMM_ERROR_PEER_FAILED: the sentence names the
 * rank.
 *
 * Collective: yes, same order.  Blocking: yes, at most the timeout.
 * Threads: one at a time per communicator.  Cost: one signal to each rank of the node, and
 * ceil(log2(nodes)) rounds between nodes.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_barrier(vescomm_comm_t *comm);

/**
 * Breaks a communicator on purpose: every rank's waits return VESCOMM_ERROR_ABORTED with the
 * reason.
 *
 * @param reason  one sentence for the people who read the other ranks' errors. NULL: none.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_comm_abort(vescomm_comm_t *comm, const char *reason);

/**
 * Ends a communicator: waits until every rank has come here.
 *
 * Memory, buffers and requests made on it keep what they need alive and must still be freed, in any
 * order; their pointers stay valid until then, but no request can be started any more. Connections
 * close with the last of them. Requests that are under way complete first, and operations of other
 * ranks move along. A rank that waits for one that has come here, and has not made the call that is
 * waited for, gets VESCOMM_ERROR_MISMATCH after two seconds in which nothing has moved.
 *
 * @param comm  NULL: nothing happens. Not usable afterwards, whatever is returned.
 * @return VESCOMM_OK, also for a broken communicator, which is closed without waiting.
 *
 * Collective: yes.  Blocking: until all ranks are here, at most the timeout.
 * Threads: one, the last to use the communicator.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_comm_free(vescomm_comm_t *comm);

/* -------------------------------------------------------------------------------- layout ---- */

/** Where tensors and shards lie in a fused buffer. Immutable; the same on every rank. */
typedef struct vescomm_layout vescomm_layout_t;

/** One tensor of a layout. Append-only. */
typedef struct vescomm_tensor {
    uint32_t struct_size;
    /** Number of entries of shape; 0 is a scalar. */
    int32_t dimensions;
    /** Unique within the layout. Borrowed for the call; owned by the layout in queries. */
    const char *name;
    /** Row-major extents, each at least 0. Borrowed likewise. */
    const int64_t *shape;
    /** First element in the buffer. */
    int64_t offset;
    /** Elements that stay on one rank; cuts lie on multiples of it inside each sub-matrix. 0: 1.
     *  The last block of a sub-matrix may be short. */
    int64_t block;
    /** Leading dimensions whose sub-matrices restart the grid of blocks. */
    int32_t batch_dimensions;
    int32_t reserved;
} vescomm_tensor_t;

static inline vescomm_tensor_t vescomm_tensor(void) {
    vescomm_tensor_t tensor = {sizeof(vescomm_tensor_t), 0, NULL, NULL, 0, 0, 0, 0};
    return tensor;
}

/**
 * Makes a layout from tensors at given offsets and given cuts, and checks it. A planner makes both;
 * a user may write them by hand.
 *
 * @param tensors   @p count tensors, in order of offset, not overlapping. Borrowed for the call.
 * @param elements  of the whole buffer.
 * @param cuts      @p ranks + 1 offsets in elements, not decreasing, from 0 to @p elements: rank k
 *                  owns [cuts[k], cuts[k + 1]). Borrowed for the call.
 * @param layout    [out] owned by the caller; release with vescomm_layout_free().
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: the sentence names the tensor or the cut.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: O(tensors log tensors + ranks).  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_layout_create(const vescomm_tensor_t *tensors, size_t count,
                                                   int64_t elements, const int64_t *cuts,
                                                   int32_t ranks, vescomm_layout_t **layout);

/**
 * Makes a layout of one vector, "data", of which rank k owns counts[k] elements.
 *
 * @param counts  @p ranks numbers of elements, each at least 0. Borrowed for the call.
 * @param layout  [out] owned by the caller; release with vescomm_layout_free().
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_layout_create_from_counts(const int64_t *counts, int32_t ranks,
                                                               vescomm_layout_t **layout);

/**
 * Releases a layout. Buffers made from it keep their own copy.
 *
 * @param layout  NULL: nothing happens.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_layout_free(vescomm_layout_t *layout);

/** The sizes of a layout. Filled by vescomm_layout_query(); append-only. */
typedef struct vescomm_layout_info {
    uint32_t struct_size;
    int32_t ranks; /**< shards */
    int64_t elements; /**< of the whole buffer, padding included */
    int64_t padding; /**< elements that belong to no tensor */
    int64_t largest; /**< elements of the largest shard */
    uint64_t tensors; /**< number of tensors */
    uint64_t hash; /**< the same on every platform; differs when anything differs */
} vescomm_layout_info_t;

static inline vescomm_layout_info_t vescomm_layout_info(void) {
    vescomm_layout_info_t info = {sizeof(vescomm_layout_info_t), 0, 0, 0, 0, 0, 0};
    return info;
}

/**
 * Says how large a layout is.
 *
 * @param info  [in,out] struct_size set by the caller, the rest filled.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_layout_query(const vescomm_layout_t *layout,
                                                  vescomm_layout_info_t *info);

/**
 * Describes one tensor of a layout.
 *
 * @param index   in [0, tensors), by offset.
 * @param tensor  [in,out] struct_size set by the caller; name and shape are owned by @p layout.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_layout_tensor(const vescomm_layout_t *layout, size_t index,
                                                   vescomm_tensor_t *tensor);

/**
 * Finds a tensor by name.
 *
 * @param index  [out] for vescomm_layout_tensor() and vescomm_buffer_tensor().
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: there is none of that name.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_layout_find(const vescomm_layout_t *layout, const char *name,
                                                 size_t *index);

/**
 * Says which elements [begin, end) of the buffer are the shard of a rank.
 *
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_layout_shard(const vescomm_layout_t *layout, int32_t rank,
                                                  int64_t *begin, int64_t *end);

/** The part of one tensor that lies in one shard. */
typedef struct vescomm_piece {
    uint64_t tensor; /**< index in the layout */
    int64_t first; /**< first element, counted within the tensor */
    int64_t elements; /**< at least 1 */
    int64_t offset; /**< of that element within the shard */
} vescomm_piece_t;

/**
 * Lists the pieces of tensors that a rank owns, by offset.
 *
 * @param pieces    [out] up to @p capacity pieces; may be NULL when that is 0.
 * @param count     [out] number of pieces there are, which may exceed @p capacity.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: O(log tensors + pieces).  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_layout_pieces(const vescomm_layout_t *layout, int32_t rank,
                                                   vescomm_piece_t *pieces, size_t capacity,
                                                   size_t *count);

/**
 * Says which part of one tensor a rank owns.
 *
 * @param tensor  index in the layout, below vescomm_layout_info_t.tensors.
 * @param piece   [out] elements is 0 when the rank owns none of the tensor; first and offset are 0
 *                then.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: O(1).  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_layout_piece(const vescomm_layout_t *layout, size_t tensor,
                                                  int32_t rank, vescomm_piece_t *piece);

/**
 * Describes consecutive elements of a tensor, such as a piece, as boxes: what slicing calls and
 * checkpoint formats understand. There are at most 2 * dimensions - 1.
 *
 * @param tensor    index in the layout.
 * @param first     first element, counted within the tensor; row-major.
 * @param elements  how many; 0: there are no boxes.
 * @param boxes     [out] up to @p capacity boxes in the order of their elements; each is
 *                  2 * dimensions numbers: where it starts in every dimension, then how far it
 *                  extends. May be NULL when @p capacity is 0.
 * @param capacity  in boxes.
 * @param count     [out] number of boxes there are, which may exceed @p capacity.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: O(dimensions^2).  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_layout_boxes(const vescomm_layout_t *layout, size_t tensor,
                                                  int64_t first, int64_t elements, int64_t *boxes,
                                                  size_t capacity, size_t *count);

/**
 * Writes a layout as bytes, to keep it beside a checkpoint or to send it. Equal layouts have equal
 * bytes on every platform; vescomm_layout_info_t.hash is their XXH3-64.
 *
 * @param bytes     [out] all of them when @p capacity suffices, otherwise untouched. May be NULL
 *                  when that is 0.
 * @param capacity  in bytes.
 * @param size      [out] number of bytes there are.
 * @return VESCOMM_OK, also when @p capacity does not suffice. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: O(tensors + ranks).  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_layout_serialise(const vescomm_layout_t *layout, void *bytes,
                                                      size_t capacity, size_t *size);

/**
 * Makes a layout from the bytes that vescomm_layout_serialise() wrote. They may come from anywhere:
 * whatever they are, they cost memory in proportion to their number.
 *
 * @param bytes   @p size bytes. Borrowed for the call.
 * @param layout  [out] owned by the caller; release with vescomm_layout_free().
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: these bytes are not a layout.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: O(size log size).  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_layout_parse(const void *bytes, size_t size,
                                                  vescomm_layout_t **layout);

/* ------------------------------------------------------------------------ memory, buffer ---- */

/** Type of the elements of a buffer or an array. Floats are those of IEEE 754, but bf16 (the upper
 * half of an f32) and the two f8 of the OCP 8-bit floating point specification: e5m2 is like them,
 * and e4m3 (called e4m3fn elsewhere) has no infinities; what is too large for it becomes NaN. */
typedef int32_t vescomm_type_t;

#define VESCOMM_F32 ((vescomm_type_t)0)
#define VESCOMM_BF16 ((vescomm_type_t)1)
#define VESCOMM_F16 ((vescomm_type_t)2)
#define VESCOMM_F64 ((vescomm_type_t)3)
#define VESCOMM_F8E4M3 ((vescomm_type_t)4)
#define VESCOMM_F8E5M2 ((vescomm_type_t)5)
#define VESCOMM_I8 ((vescomm_type_t)6)
#define VESCOMM_U8 ((vescomm_type_t)7)
#define VESCOMM_I16 ((vescomm_type_t)8)
#define VESCOMM_U16 ((vescomm_type_t)9)
#define VESCOMM_I32 ((vescomm_type_t)10)
#define VESCOMM_U32 ((vescomm_type_t)11)
#define VESCOMM_I64 ((vescomm_type_t)12)
#define VESCOMM_U64 ((vescomm_type_t)13)

/** Bytes of one element; 0 for a number that names no type. */
static inline size_t vescomm_type_bytes(vescomm_type_t type) {
    switch (type) {
        case VESCOMM_F8E4M3:
        case VESCOMM_F8E5M2:
        case VESCOMM_I8:
        case VESCOMM_U8:
            return 1;
        case VESCOMM_BF16:
        case VESCOMM_F16:
        case VESCOMM_I16:
        case VESCOMM_U16:
            return 2;
        case VESCOMM_F32:
        case VESCOMM_I32:
        case VESCOMM_U32:
            return 4;
        case VESCOMM_F64:
        case VESCOMM_I64:
        case VESCOMM_U64:
            return 8;
        default:
            return 0;
    }
}

/** Where bytes are. */
typedef int32_t vescomm_memory_kind_t;

/** Ordinary memory of the machine. */
#define VESCOMM_HOST ((vescomm_memory_kind_t)0)

/** Who has bytes of their own. */
typedef int32_t vescomm_sharing_t;

/** One slab for each rank: the rank writes it, and the ranks of its node can read it. */
#define VESCOMM_PER_RANK ((vescomm_sharing_t)0)
/** One slab for each node, the same bytes for all its ranks. */
#define VESCOMM_PER_NODE ((vescomm_sharing_t)1)

/** Bytes, mapped and registered once. Several buffers may lie in one memory, one after another in
 *  time (units of a model that take turns) or side by side. */
typedef struct vescomm_memory vescomm_memory_t;

/** How memory is made. Append-only. */
typedef struct vescomm_memory_options {
    uint32_t struct_size;
    vescomm_memory_kind_t kind;
    vescomm_sharing_t sharing;
    uint32_t reserved;
    /** Size of the slab, the same on every rank. */
    uint64_t bytes;
} vescomm_memory_options_t;

static inline vescomm_memory_options_t vescomm_memory_options(void) {
    vescomm_memory_options_t options = {sizeof(vescomm_memory_options_t), 0, 0, 0, 0};
    return options;
}

/**
 * Allocates memory, maps it on every rank of each node, and registers it with the transports.
 *
 * After: every byte is zero. Nothing of it has a name in a file system: when the last process is
 * gone, however it went, so is the memory.
 *
 * @param options  Borrowed for the call.
 * @param memory   [out] owned by the caller; release with vescomm_memory_free().
 * @return VESCOMM_OK. VESCOMM_ERROR_MISMATCH: ranks gave different options, and the sentence says
 *         which. VESCOMM_ERROR_OUT_OF_MEMORY on every rank when one has too little.
 *         VESCOMM_ERROR_TIMEOUT, VESCOMM_ERROR_PEER_FAILED.
 *
 * Collective: yes, same order.  Blocking: yes.  Threads: one at a time per communicator.
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_memory_create(vescomm_comm_t *comm,
                                                   const vescomm_memory_options_t *options,
                                                   vescomm_memory_t **memory);

/**
 * Says where memory is mapped here.
 *
 * @param data   [out] this rank's slab (VESCOMM_PER_RANK) or its node's (VESCOMM_PER_NODE), aligned
 *               to a page; the same address until vescomm_memory_free().
 * @param bytes  [out] its size. May be NULL.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_memory_data(const vescomm_memory_t *memory, void **data,
                                                 uint64_t *bytes);

/**
 * Releases memory. Buffers in it keep it alive.
 *
 * @param memory  NULL: nothing happens.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_memory_free(vescomm_memory_t *memory);

/** Memory seen through a layout: tensors and shards at stable addresses. */
typedef struct vescomm_buffer vescomm_buffer_t;

/** How a buffer is made. Append-only. */
typedef struct vescomm_buffer_options {
    uint32_t struct_size;
    vescomm_type_t type;
    /** Memory to lie in. NULL: memory of its own, of the kind and sharing given below. Kept alive.
     */
    vescomm_memory_t *memory;
    /** First byte within the memory, a multiple of 64. */
    uint64_t offset_bytes;
    vescomm_memory_kind_t kind;
    vescomm_sharing_t sharing;
    /** For error messages and traces. NULL: "buffer". Borrowed for the call. */
    const char *name;
} vescomm_buffer_options_t;

static inline vescomm_buffer_options_t vescomm_buffer_options(void) {
    vescomm_buffer_options_t options = {sizeof(vescomm_buffer_options_t), 0, NULL, 0, 0, 0, NULL};
    return options;
}

/**
 * Makes a buffer, and checks that every rank means the same one.
 *
 * @param layout   with as many ranks as @p comm. Copied.
 * @param options  NULL: f32, one slab for each rank, memory of its own.
 * @param buffer   [out] owned by the caller; release with vescomm_buffer_free().
 * @return VESCOMM_OK. VESCOMM_ERROR_MISMATCH: the layouts or options differ; the sentence names two
 *         ranks and the first difference. VESCOMM_ERROR_INVALID_ARGUMENT.
 *         VESCOMM_ERROR_OUT_OF_MEMORY. VESCOMM_ERROR_TIMEOUT, VESCOMM_ERROR_PEER_FAILED.
 *
 * Collective: yes, same order.  Blocking: yes.  Threads: one at a time per communicator.
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_buffer_create(vescomm_comm_t *comm,
                                                   const vescomm_layout_t *layout,
                                                   const vescomm_buffer_options_t *options,
                                                   vescomm_buffer_t **buffer);

/** A run of elements. */
typedef struct vescomm_view {
    void *data; /**< valid until the buffer is freed */
    int64_t elements; /**< at @p data */
} vescomm_view_t;

/**
 * Views the whole buffer.
 *
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_buffer_data(const vescomm_buffer_t *buffer,
                                                 vescomm_view_t *view);

/**
 * Views one tensor: a dense row-major array of its shape.
 *
 * @param index  in [0, tensors); vescomm_layout_find() gives it for a name.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_buffer_tensor(const vescomm_buffer_t *buffer, size_t index,
                                                   vescomm_view_t *view);

/**
 * Views the calling rank's shard.
 *
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_buffer_shard(const vescomm_buffer_t *buffer,
                                                  vescomm_view_t *view);

/**
 * Says that this rank no longer reads what was gathered into the buffer's memory, so that the next
 * gather may overwrite it. A counter, not a barrier. Starting the next gather says the same; saying
 * it early lets faster peers go ahead.
 *
 * @return VESCOMM_OK, also when there was nothing to release. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: one at a time per communicator.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_buffer_release(vescomm_buffer_t *buffer);

/**
 * Waits until this rank may write its own shard of a VESCOMM_PER_NODE buffer: releases it here, and
 * waits for every rank of the node to have released it. Needed only before writing in place; a
 * gather from a source of its own does this itself. Returns at once for VESCOMM_PER_RANK.
 *
 * @return VESCOMM_OK. VESCOMM_ERROR_TIMEOUT: the sentence names the rank that still reads.
 *         VESCOMM_ERROR_PEER_FAILED.
 *
 * Collective: no.  Blocking: yes, at most the timeout.  Threads: one at a time per communicator.
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_buffer_acquire(vescomm_buffer_t *buffer);

/**
 * Releases a buffer. Requests made on it keep it alive.
 *
 * @param buffer  NULL: nothing happens.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_buffer_free(vescomm_buffer_t *buffer);

/* ------------------------------------------------------------------------------- request ---- */

/** A collective operation, or a group of them, made once and started many times. */
typedef struct vescomm_request vescomm_request_t;

/** How contributions are combined: element by element, in f32 for floats of 16 and 8 bits and
 *  otherwise in the type of the elements, and rounded once. Integers wrap modulo 2^bits. On one
 *  node, and on a reproducible communicator, one after another in the order of ranks; between nodes
 *  otherwise in an order that depends on the algorithm. */
typedef int32_t vescomm_op_t;

#define VESCOMM_SUM ((vescomm_op_t)0)
/** The sum, multiplied by 1 / ranks; integers are divided, towards zero. */
#define VESCOMM_AVERAGE ((vescomm_op_t)1)
#define VESCOMM_PROD ((vescomm_op_t)2)
/** The least; NaN if any is NaN. -0 is less than +0. */
#define VESCOMM_MIN ((vescomm_op_t)3)
/** The greatest; likewise. */
#define VESCOMM_MAX ((vescomm_op_t)4)
/** The sum of contributions that are each multiplied by a factor first. */
#define VESCOMM_PREMULTIPLIED_SUM ((vescomm_op_t)5)

/** Details of a collective. Members that an operation does not use must be zero. Append-only. */
typedef struct vescomm_request_options {
    uint32_t struct_size;
    /** reduce_scatter_v, all_reduce, reduce: how to combine. */
    vescomm_op_t op;
    /** broadcast: the rank whose bytes everyone gets. reduce: the rank that gets the result. */
    int32_t root;
    /** all_gather_v: type of @p source. reduce_scatter_v: type of @p output. Used only with them.
     */
    vescomm_type_t type;
    /** all_gather_v: this rank's shard, converted on the way into the buffer. NULL: the shard is in
     *  the buffer already. reduce_scatter_v: must be NULL. Borrowed until the request is freed;
     *  must not change between start and completion. */
    const void *source;
    /** reduce_scatter_v: receives this rank's shard of the result, of the buffer's type or, for
     *  floats of 16 and 8 bits, f32. NULL: in place, at the shard's own elements of the buffer.
     *  Borrowed until the request is freed. */
    void *output;
    /** Forces an algorithm by name. NULL: the variable VESCOMM_ALGORITHM, or the library chooses;
     *  vescomm_request_explain() says what. Borrowed for the call. */
    const char *algorithm;
    /** VESCOMM_PREMULTIPLIED_SUM: what contributions are multiplied by, not 0; the same on every
     *  rank. */
    double factor;
} vescomm_request_options_t;

static inline vescomm_request_options_t vescomm_request_options(void) {
    vescomm_request_options_t options = {
        sizeof(vescomm_request_options_t), 0, 0, 0, NULL, NULL, NULL, 0.0};
    return options;
}

/**
 * Makes an all_gather_v: gathers every rank's shard into the whole buffer.
 *
 * Before start: rank k holds elements [cuts[k], cuts[k + 1]), in the buffer or in its source; the
 * rest of the buffer is undefined.
 * After completion: every rank (every node, for VESCOMM_PER_NODE) holds all elements.
 *
 * @param options  NULL: in place, algorithm chosen. source, type and algorithm are used.
 * @param request  [out] owned by the caller; release with vescomm_request_free().
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT. VESCOMM_ERROR_UNSUPPORTED: no conversion
 *         between these types. VESCOMM_ERROR_MISMATCH: the ranks gave different options.
 *         VESCOMM_ERROR_TIMEOUT, VESCOMM_ERROR_PEER_FAILED.
 *
 * Collective: yes, same order.  Blocking: until all ranks agree.
 * Threads: one at a time per communicator.  Cost: on one node with VESCOMM_PER_NODE each rank
 * writes its own shard once; `vescomm-info --explain all_gather_v` for the rest.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_all_gather_v_create(vescomm_comm_t *comm,
                                                         vescomm_buffer_t *buffer,
                                                         const vescomm_request_options_t *options,
                                                         vescomm_request_t **request);

/**
 * Makes a reduce_scatter_v: combines every rank's buffer and leaves each rank its own shard.
 *
 * Before start: every rank holds all elements of its own buffer (VESCOMM_PER_RANK).
 * After completion: rank k holds the combination of everyone's [cuts[k], cuts[k + 1]) in its
 * output, accumulated in f32; the buffer may be written again. In place, the rest of the buffer is
 * unchanged.
 *
 * @param options  NULL: sum, in place, algorithm chosen. op, factor, type, output and algorithm are
 *                 used.
 * @param request  [out] owned by the caller; release with vescomm_request_free().
 * @return as vescomm_all_gather_v_create(). VESCOMM_ERROR_UNSUPPORTED: the output has a type that
 *         the buffer cannot be reduced to.
 *
 * Collective: yes, same order.  Blocking: until all ranks agree.
 * Threads: one at a time per communicator.  Cost: on one node one pass that reads each element once
 * per rank and writes it once.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_reduce_scatter_v_create(
    vescomm_comm_t *comm, vescomm_buffer_t *buffer, const vescomm_request_options_t *options,
    vescomm_request_t **request);

/**
 * Makes an all_reduce: combines every rank's buffer and leaves everyone the result, in place.
 *
 * Before start: every rank holds all elements of its own buffer (VESCOMM_PER_RANK).
 * After completion: every rank holds the same combination, bit for bit. Each rank combines the
 * elements of its own shard, so equal shards are fastest.
 *
 * @param options  NULL: sum, algorithm chosen. op, factor and algorithm are used.
 * @param request  [out] owned by the caller; release with vescomm_request_free().
 * @return as vescomm_reduce_scatter_v_create().
 *
 * Collective: yes, same order.  Blocking: until all ranks agree.
 * Threads: one at a time per communicator.  Cost: a reduce_scatter_v and an all_gather_v.
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_all_reduce_create(vescomm_comm_t *comm,
                                                       vescomm_buffer_t *buffer,
                                                       const vescomm_request_options_t *options,
                                                       vescomm_request_t **request);

/**
 * Makes a reduce: combines every rank's buffer and leaves the root the result, in place.
 * Before start: every rank holds all elements of its own buffer (VESCOMM_PER_RANK).
 * After completion: rank root holds the combination; the buffers of the others are unchanged.
 * @param options  NULL: sum, to rank 0, algorithm chosen. op, factor, root and algorithm are used.
 * @param request  [out] owned by the caller; release with vescomm_request_free().
 * @return as vescomm_reduce_scatter_v_create().
 * Collective: yes, same order.  Blocking: until all ranks agree.
 * Threads: one at a time per communicator.  Cost: the root reads each element once per rank of its
 * node, in one pass.  Since: 0.2
 */
VESCOMM_API vescomm_status_t vescomm_reduce_create(vescomm_comm_t *comm, vescomm_buffer_t *buffer,
                                                   const vescomm_request_options_t *options,
                                                   vescomm_request_t **request);

/**
 * Makes a broadcast: copies the root's buffer to everyone's, in place.
 *
 * Before start: rank root holds all elements. After completion: every rank does.
 *
 * @param options  NULL: from rank 0, algorithm chosen. root and algorithm are used.
 * @param request  [out] owned by the caller; release with vescomm_request_free().
 * @return as vescomm_all_gather_v_create().
 *
 * Collective: yes, same order.  Blocking: until all ranks agree.
 * Threads: one at a time per communicator.  Cost: every other rank writes the buffer once; between
 * nodes ceil(log2(nodes)) rounds.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_broadcast_create(vescomm_comm_t *comm,
                                                      vescomm_buffer_t *buffer,
                                                      const vescomm_request_options_t *options,
                                                      vescomm_request_t **request);

/**
 * Makes a barrier: completes on each rank only after every rank has started it.
 *
 * @param options  NULL: algorithm chosen. Only algorithm is used.
 * @param request  [out] owned by the caller; release with vescomm_request_free().
 * @return as vescomm_all_gather_v_create().
 *
 * Collective: yes, same order.  Blocking: until all ranks agree.
 * Threads: one at a time per communicator.  Cost: as vescomm_barrier().  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_barrier_create(vescomm_comm_t *comm,
                                                    const vescomm_request_options_t *options,
                                                    vescomm_request_t **request);

/**
 * Starts a request. Requests on one communicator may overlap in time; those on one memory must not.
 *
 * @param stream  the queue of the device that the buffer lives on, behind which the operation is
 *                ordered. NULL for VESCOMM_HOST: the operation starts now.
 * @return VESCOMM_OK: started. VESCOMM_ERROR_INVALID_ARGUMENT: it is running already, or a stream
 * was given for host memory; nothing happened. The first error of a broken communicator.
 *
 * Collective: yes, same order.  Blocking: no; does what can be done at once.
 * Threads: one at a time per communicator.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_request_start(vescomm_request_t *request, void *stream);

/**
 * Moves a request along and says whether it is complete.
 *
 * @return VESCOMM_OK: complete, or never started. VESCOMM_IN_PROGRESS. The first error of a broken
 *         communicator: the contents of the buffer and of outputs are undefined; neither this rank
 *         nor another node writes them any more.
 *
 * Collective: no.  Blocking: no.  Threads: one at a time per communicator.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_request_test(vescomm_request_t *request);

/**
 * Waits until a request is complete.
 *
 * @return VESCOMM_OK. VESCOMM_ERROR_TIMEOUT: the sentence names the peer that stayed silent.
 *         VESCOMM_ERROR_PEER_FAILED, VESCOMM_ERROR_ABORTED: as vescomm_request_test().
 *
 * Collective: no.  Blocking: yes, at most the timeout.  Threads: one at a time per communicator.
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_request_wait(vescomm_request_t *request);

/**
 * Says how a request will run: its algorithm, the reason for the choice, and its steps on this
 * rank.
 *
 * @param text  [out] owned by the request, valid until it is freed.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: one at a time per communicator.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_request_explain(vescomm_request_t *request, const char **text);

/**
 * Releases a request.
 *
 * @param request  NULL: nothing happens. Must not be running, unless its communicator is broken.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: it is running; nothing happened.
 *
 * Collective: no.  Blocking: no.  Threads: one at a time per communicator.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_request_free(vescomm_request_t *request);

/* ----------------------------------------------------------------- collectives on arrays ---- */

/* Collectives on arrays of the caller, which may lie anywhere. What passes between ranks goes
 * through a staging buffer that the communicator has; buffers avoid that copy and are faster for
 * large data.
 *
 * All of them start at once. With a request they return then, and the arrays are borrowed until it
 * completes: sources must not change, and outputs not be looked at. The request can be started
 * again, on the same arrays, and is released with vescomm_request_free(). Without one (NULL) they
 * return when the operation is complete on this rank. Within a group (vescomm_group_begin())
 * nothing starts before vescomm_group_end(). After an error the contents of the outputs are
 * undefined.
 *
 * Counts and offsets are in elements, from 0 to 2^40, and borrowed for the call; where a count is 0
 * the array may be NULL. Arrays are aligned to their elements. What is written shares no element
 * with any other block. In place, source and output are the same where this rank's own block goes:
 * all of it (all_reduce, reduce), or what it has for itself in the array that has something of
 * every rank.
 *
 * @return of all of them: VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: nothing happened on this
 *         rank; the sentence names the argument. VESCOMM_ERROR_MISMATCH: ranks called different
 *         things, and the sentence names two of them; the communicator is broken. A rank that waits
 *         for nobody may be told in a later call. VESCOMM_ERROR_TIMEOUT, VESCOMM_ERROR_PEER_FAILED.
 * Collective: yes, same order.  Blocking: without a request, at most the timeout.
 * Threads: one at a time per communicator.  Cost: as on a buffer, and one more copy of what passes
 * between ranks.  Since: 0.2 */

/** Details of a collective on arrays. Append-only. */
typedef struct vescomm_call_options {
    uint32_t struct_size;
    uint32_t reserved;
    /** VESCOMM_PREMULTIPLIED_SUM: what contributions are multiplied by, not 0; the same on every
     *  rank. */
    double factor;
    /** Forces an algorithm by name. NULL: the variable VESCOMM_ALGORITHM, or the library chooses.
     *  Borrowed for the call. */
    const char *algorithm;
} vescomm_call_options_t;

static inline vescomm_call_options_t vescomm_call_options(void) {
    vescomm_call_options_t options = {sizeof(vescomm_call_options_t), 0, 0.0, NULL};
    return options;
}

/**
 * Gathers what every rank has to all ranks.
 * After completion: output holds the counts[k] elements of rank k at offsets[k], for every k.
 * @param source   counts[rank] elements.
 * @param counts   of every rank; the same on every rank.
 * @param offsets  in @p output. NULL: one after another.
 */
VESCOMM_API vescomm_status_t vescomm_all_gather_v(vescomm_comm_t *comm, const void *source,
                                                  void *output, const int64_t *counts,
                                                  const int64_t *offsets, vescomm_type_t type,
                                                  const vescomm_call_options_t *options,
                                                  vescomm_request_t **request);

/**
 * Combines what every rank has, and leaves each its own part.
 * After completion: output of rank k holds the combination of everyone's counts[k] elements for it.
 * @param source  the elements for rank 0, then those for rank 1, and so on.
 * @param output  counts[rank] elements.
 * @param counts  for every rank; the same on every rank.
 */
VESCOMM_API vescomm_status_t vescomm_reduce_scatter_v(vescomm_comm_t *comm, const void *source,
                                                      void *output, const int64_t *counts,
                                                      vescomm_type_t type, vescomm_op_t op,
                                                      const vescomm_call_options_t *options,
                                                      vescomm_request_t **request);

/**
 * Combines what every rank has, and leaves everyone the result, bit for bit the same.
 * @param source  @p count elements.
 * @param output  @p count elements.
 * @param count   the same on every rank.
 */
VESCOMM_API vescomm_status_t vescomm_all_reduce(vescomm_comm_t *comm, const void *source,
                                                void *output, int64_t count, vescomm_type_t type,
                                                vescomm_op_t op,
                                                const vescomm_call_options_t *options,
                                                vescomm_request_t **request);

/**
 * Combines what every rank has, and leaves the root the result.
 * @param output  @p count elements; used on rank @p root only.
 */
VESCOMM_API vescomm_status_t vescomm_reduce(vescomm_comm_t *comm, const void *source, void *output,
                                            int64_t count, vescomm_type_t type, vescomm_op_t op,
                                            int32_t root, const vescomm_call_options_t *options,
                                            vescomm_request_t **request);

/**
 * Copies what the root has to all ranks.
 * @param data   @p count elements: read on rank @p root, written on all others.
 * @param count  the same on every rank.
 */
VESCOMM_API vescomm_status_t vescomm_broadcast(vescomm_comm_t *comm, void *data, int64_t count,
                                               vescomm_type_t type, int32_t root,
                                               const vescomm_call_options_t *options,
                                               vescomm_request_t **request);

/**
 * Gathers what every rank has to the root.
 * @param source   counts[rank] elements.
 * @param output   used on rank @p root only, where it gets counts[k] elements at offsets[k].
 * @param counts   of every rank; the same on every rank.
 * @param offsets  used on rank @p root only. NULL: one after another.
 */
VESCOMM_API vescomm_status_t vescomm_gather_v(vescomm_comm_t *comm, const void *source,
                                              void *output, const int64_t *counts,
                                              const int64_t *offsets, vescomm_type_t type,
                                              int32_t root, const vescomm_call_options_t *options,
                                              vescomm_request_t **request);

/**
 * Deals out what the root has.
 * @param source   used on rank @p root only, which has counts[k] elements at offsets[k] for rank k.
 * @param output   counts[rank] elements.
 * @param counts   of every rank; the same on every rank.
 * @param offsets  used on rank @p root only. NULL: one after another.
 */
VESCOMM_API vescomm_status_t vescomm_scatter_v(vescomm_comm_t *comm, const void *source,
                                               void *output, const int64_t *counts,
                                               const int64_t *offsets, vescomm_type_t type,
                                               int32_t root, const vescomm_call_options_t *options,
                                               vescomm_request_t **request);

/**
 * Sends from every rank to every rank.
 * @param source          source_counts[k] elements at source_offsets[k] for rank k.
 * @param output          gets output_counts[k] elements of rank k at output_offsets[k].
 * @param source_counts   what rank k has here for rank j is what rank j has as output_counts[k].
 * @param source_offsets  NULL: one after another; likewise @p output_offsets.
 */
VESCOMM_API vescomm_status_t
vescomm_all_to_all_v(vescomm_comm_t *comm, const void *source, const int64_t *source_counts,
                     const int64_t *source_offsets, void *output, const int64_t *output_counts,
                     const int64_t *output_offsets, vescomm_type_t type,
                     const vescomm_call_options_t *options, vescomm_request_t **request);

/**
 * Sends to one rank, which calls vescomm_receive(). Only the two of them call.
 * Before: the peer has called vescomm_receive() for this message, or will; with the same count and
 *         type. Messages from one rank to another are received in the order in which they are sent.
 * After completion: source may be changed. What is small (128 KiB among up to 8 ranks, 2 KiB among
 *         512 and more) completes at once, as long as fewer than four messages before it to the
 *         same peer are still to be received. What is larger completes when all but that much of
 *         it has been received.
 * @param source  @p count elements. With count 0 nothing but the fact is sent.
 * @param peer    who receives; it may be this rank itself.
 * @return as the collectives. VESCOMM_ERROR_INVALID_ARGUMENT: there is no such peer.
 *         VESCOMM_ERROR_MISMATCH: the peer received another count or type; the sentence names both.
 *         VESCOMM_ERROR_TIMEOUT, VESCOMM_ERROR_PEER_FAILED: the sentence names the peer.
 * Collective: no, but one vescomm_receive() of the peer.  Blocking: as the collectives.
 * Threads: as the collectives.  Cost: two copies, which overlap.  Since: 0.2
 */
VESCOMM_API vescomm_status_t vescomm_send(vescomm_comm_t *comm, const void *source, int64_t count,
                                          vescomm_type_t type, int32_t peer,
                                          const vescomm_call_options_t *options,
                                          vescomm_request_t **request);

/**
 * Receives what one rank sends with vescomm_send(). Only the two of them call.
 * Before: as vescomm_send().
 * After completion: output holds what the peer sent.
 * @param output  @p count elements. With count 0 it completes when the peer has called.
 * @param peer    who sends; it may be this rank itself.
 * @return as vescomm_send(). After VESCOMM_ERROR_MISMATCH nothing has been written.
 * Collective: no, but one vescomm_send() of the peer.  Blocking: as the collectives.
 * Threads: as the collectives.  Cost: as vescomm_send().  Since: 0.2
 */
VESCOMM_API vescomm_status_t vescomm_receive(vescomm_comm_t *comm, void *output, int64_t count,
                                             vescomm_type_t type, int32_t peer,
                                             const vescomm_call_options_t *options,
                                             vescomm_request_t **request);

/**
 * Begins a group: collectives on arrays that follow are collected, and everything else happens at
 * once, as ever. Those that differ in nothing but their arrays and counts become one operation,
 * however many there are. Sends and receives stay apart, and are all under way at once: ranks that
 * send to one another in a group do not wait for each other in a circle. Between two ranks they
 * keep their order; else the calls of a group have none: none may write what another one reads or
 * writes, which is not checked. A call that is refused is not part of the group, which goes on
 * without it. A group that has not ended when its communicator is freed has no effect.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: a group has begun already.
 * Collective: no.  Blocking: no.  Threads: one at a time per communicator.  Since: 0.2
 */
VESCOMM_API vescomm_status_t vescomm_group_begin(vescomm_comm_t *comm);

/**
 * Ends a group and starts all of it, or, after an error, none.
 * @param request  [out] of the whole group; release with vescomm_request_free(). NULL: returns when
 *                 all is complete on this rank.
 * @return as the collectives. VESCOMM_ERROR_INVALID_ARGUMENT: no group has begun, there is no such
 *         algorithm, or the calls of one operation have more than 2^40 elements together. The group
 *         is over in any case.
 * Collective: yes, same order.  Blocking: without a request, at most the timeout.
 * Threads: one at a time per communicator.  Since: 0.2
 */
VESCOMM_API vescomm_status_t vescomm_group_end(vescomm_comm_t *comm, vescomm_request_t **request);

/* --------------------------------------------------------------------------------- trace ---- */

/**
 * Starts recording what happens on this rank: requests, waits, and the caller's own spans.
 *
 * @param spans  most spans to keep; later ones are counted and dropped. 0: 1,000,000.
 * @return VESCOMM_OK. VESCOMM_ERROR_OUT_OF_MEMORY.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_trace_start(vescomm_comm_t *comm, uint64_t spans);

/**
 * Tells the time in seconds, by the clock that spans use: the same for all processes of a machine.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API double vescomm_trace_seconds(void);

/**
 * Records a span of the caller's own. Does nothing when no trace was started.
 *
 * @param name   of the span, such as "forward block.3".
 * @param track  row of the picture, such as "compute".
 * @param begin,end  from vescomm_trace_seconds().
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_trace_span(vescomm_comm_t *comm, const char *name,
                                                const char *track, double begin, double end);

/**
 * Writes what all ranks recorded into one file in the Chrome trace event format, which Perfetto
 * opens. All ranks together have 512 MiB: spans beyond a rank's part are dropped, and counted in
 * the rank's label.
 *
 * @param path  of the file, written by rank 0, replaced when it exists. Other ranks may give NULL.
 * @return VESCOMM_OK. VESCOMM_ERROR_SYSTEM on every rank: the file cannot be written.
 *         VESCOMM_ERROR_INVALID_ARGUMENT on every rank: the path is that of a device, a pipe or a
 *         socket. VESCOMM_ERROR_TIMEOUT, VESCOMM_ERROR_PEER_FAILED.
 *
 * Collective: yes, same order.  Blocking: yes.  Threads: one at a time per communicator.
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_trace_write(vescomm_comm_t *comm, const char *path);

/* ----------------------------------------------------------------------- flight recorder ---- */

/**
 * Writes the last operations of this rank into a file, replaced when it exists: one line of JSON
 * that says who writes, and one for each operation, with its number, what it is, whether it is
 * complete, and when. A communicator records its last 128 operations at any time. When
 * VESCOMM_FLIGHT_RECORDER names a file it also writes them there as soon as it breaks.
 * `vescomm-info --flight FILES` compares what several ranks wrote and says which of them is behind.
 *
 * @param path  of the file. In it %r is this rank, %c the communicator of this process, counted
 *              from 0, %p the process, and %% a %.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: also for the path of a device, a pipe or a
 *         socket. VESCOMM_ERROR_SYSTEM: the file cannot be written. VESCOMM_ERROR_TIMEOUT: its file
 *         system does not answer; the file may still come.
 *
 * Collective: no.  Blocking: while the file is written.  Threads: safe, also while another one
 * waits.  Since: 0.2
 */
VESCOMM_API vescomm_status_t vescomm_flight_recorder_write(const vescomm_comm_t *comm,
                                                           const char *path);

#ifdef __cplusplus
}
#endif

#endif

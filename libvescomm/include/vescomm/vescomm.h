/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * vescomm: ragged collectives over fused, persistent buffers. This header is the C API on host
 * memory; gpu.h is that on device memory. Read this one from top to bottom:
 *
 *     status          the result of a call, and the error text that explains a failure
 *     communicator    the ranks that work together
 *     layout          the places of tensors and shards in a fused buffer (a plain value)
 *     memory, buffer  the bytes, at addresses that never change
 *     request         a collective or a message, created once and started many times
 *     arrays          collectives and messages on the caller's arrays, without a create call
 *     trace           a timeline of requests and waits
 *     flight recorder the last operations of a rank
 *
 * Terms. A *rank* is one process (or thread) of a job, counted from 0. A *node* is a set of ranks
 * that can map one another's memory. A *buffer* holds the tensors of a *layout*. The *cuts* of the
 * layout divide the buffer into one *shard* for each rank. Shards may be unequal or empty. A buffer
 * lies in a *memory*. A *slab* is one copy of a memory: there is one for each rank, or one for each
 * node. An *array* is memory of the caller at any address. Other ranks cannot access it, unless it
 * lies in registered memory (below). An *operation* is one execution of a collective or of a
 * message. A *transport* moves bytes between ranks: through shared memory within a node, over TCP
 * or UCX between nodes. The *control plane* is a TCP connection from each process to that of rank
 * 0. It carries set-up, traces and failures, never data.
 *
 * *Registered memory* is memory of vescomm_malloc(), or of vescomm_memory_create() with a slab for
 * each rank, under the conditions that these functions state. All ranks of the node map it, and
 * read arrays in it where they are. (Memory that is registered with a transport, as for RDMA, or
 * with NCCL is always called "registered with" it.)
 *
 * Offsets and sizes are in elements unless a name or a comment says bytes.
 *
 * Every function that can fail returns a status, sets its [out] parameters only on success, and
 * throws no exception. An options struct starts with struct_size; `vescomm_X_init()` initialises a
 * `vescomm_X_t`. A member that is zero means "the default". Strings are UTF-8 and copied.
 *
 * Names. A function of an object is `vescomm_OBJECT_VERB_NOUN`, and one that reads a property of it
 * is `vescomm_OBJECT_get_NOUN`. Four kinds of functions have other names. Those of the process
 * have no object: vescomm_get_version(), vescomm_is_interrupted(). The trace, the flight recorder
 * and the group of calls of a communicator have no handle: vescomm_trace_start() takes the
 * communicator. Collectives, messages and allocations have their usual names: vescomm_all_reduce(),
 * vescomm_send(), vescomm_malloc(), vescomm_mfree(). A function that creates a request has the name
 * of its collective: vescomm_all_reduce_create().
 *
 * *In place* means that the calling rank's own elements have the same address in source and output.
 * This holds for buffers and for arrays. In the options of a request on a buffer, NULL means in
 * place too.
 *
 * A communicator is *broken* after a failure that ended it for all ranks. From then on every call
 * that creates, starts or waits returns the first error. The functions that read properties, the
 * flight recorder, vescomm_comm_shrink() and the functions that free an object still work.
 *
 * Creating a communicator, memory, buffer or request is collective. If the call fails on one rank,
 * because of an argument or an environment variable of that rank, it fails on all ranks, and the
 * communicator is broken. The error text on the other ranks (VESCOMM_ERROR_MISMATCH) names the rank
 * and the reason. An error in the values by which ranks find one another (rank, address, secret,
 * tag, and the launcher's variables for them) is known to its rank only: the others wait until
 * their timeout, and name that rank. If the call fails on all ranks for the same reason, the
 * communicator is not broken. A call on arrays that is rejected (VESCOMM_ERROR_INVALID_ARGUMENT,
 * VESCOMM_ERROR_OUT_OF_MEMORY) has no effect and may be repeated.
 *
 * A communicator, memory, buffer or request belongs to the process that created it. In a child of
 * fork(), every call on such a handle returns VESCOMM_ERROR_INVALID_ARGUMENT and has no other
 * effect. This includes the functions that free it: they free neither the object nor anything that
 * the parent uses. The child must not write into the memory, which it shares with the parent.
 * Layouts are plain values and stay usable. If the parent has communicators, a child that needs
 * communicators calls exec() first.
 *
 * "Threads: safe" means: the function may be called at any time, also while another thread is in a
 * call on the same communicator. "Threads: one at a time per communicator" means: no other thread
 * may be in another such call on that communicator. Every blocking call makes progress on all
 * requests of its communicator.
 *
 * "Collective: yes, same order" means: all ranks of the communicator make these calls, in the same
 * order. They may wait, test and free in any order.
 *
 * A communicator holds at most 65,536 memories and requests on buffers together; those that every
 * rank has freed do not count. Creating more is VESCOMM_ERROR_OUT_OF_MEMORY. A request can be
 * started at least 2^31 times. A communicator executes at most 2^34 - 4 operations that use its
 * staging buffer (collectives on arrays, some requests on buffers), 2^34 - 4 messages from one rank
 * to another, and 2^32 - 1 calls of vescomm_barrier(). A start or call above its limit returns
 * VESCOMM_ERROR_UNSUPPORTED and has no effect.
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

/** Result of a call: zero for success, positive for "not yet", negative for an error. */
typedef int32_t vescomm_status_t;

#define VESCOMM_OK ((vescomm_status_t)0)
/** Not an error: the request has not completed yet. */
#define VESCOMM_IN_PROGRESS ((vescomm_status_t)1)
/** An argument is wrong. Nothing was created or started. If the arguments of a call that creates an
 *  object are wrong on some ranks only, the call fails on all ranks (the others get
 *  VESCOMM_ERROR_MISMATCH), and the communicator is broken. */
#define VESCOMM_ERROR_INVALID_ARGUMENT ((vescomm_status_t)-1)
/** Memory or another resource of this machine ran out. Nothing was created or started. */
#define VESCOMM_ERROR_OUT_OF_MEMORY ((vescomm_status_t)-2)
/** The deadline passed. If the call waited for another rank, the communicator is broken from now
 *  on. vescomm_flight_recorder_write() and vescomm_job_wait() of fsdp.h leave it intact. */
#define VESCOMM_ERROR_TIMEOUT ((vescomm_status_t)-3)
/** A peer or the connection to it failed. The communicator is broken from now on. */
#define VESCOMM_ERROR_PEER_FAILED ((vescomm_status_t)-4)
/** The ranks made different calls, or the same call with different arguments. The communicator is
 *  broken from now on, unless all ranks detect the difference while they create an object. */
#define VESCOMM_ERROR_MISMATCH ((vescomm_status_t)-5)
/** The feature exists, but not in this build, on this machine, or for these arguments. */
#define VESCOMM_ERROR_UNSUPPORTED ((vescomm_status_t)-6)
/** The operating system or a library failed; the error text says which one and why. */
#define VESCOMM_ERROR_SYSTEM ((vescomm_status_t)-7)
/** A rank called vescomm_comm_abort(). The communicator is broken from now on. */
#define VESCOMM_ERROR_ABORTED ((vescomm_status_t)-8)
/** A defect of vescomm itself; please report it. */
#define VESCOMM_ERROR_INTERNAL ((vescomm_status_t)-9)

/**
 * Returns the name of a status, such as "timeout".
 *
 * @return a constant string, never NULL; "unknown status" for a value that is not a status.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API const char *vescomm_status_get_name(vescomm_status_t status);

/**
 * Returns the error text of the calling thread: one sentence about its last error, with what
 * failed, where, the values, and what to do.
 *
 * @return never NULL, empty before the first error, truncated after 1,023 bytes; valid until the
 *         next failing call of this thread.
 *
 * Collective: no.  Blocking: no.  Threads: safe (each thread has its own).  Since: 0.1
 */
VESCOMM_API const char *vescomm_get_last_error(void);

/**
 * Returns the version of the library that is loaded, as "major.minor.patch".
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API const char *vescomm_get_version(void);

/**
 * Receives one line of the log, without a newline. May be called from any thread, also
 * concurrently.
 *
 * @param level  0 error, 1 warn, 2 info, 3 debug.
 * @param line   valid during the call.
 */
typedef void (*vescomm_log_function_t)(void *context, int32_t level, const char *line);

/**
 * Redirects the log of this process. The variable VESCOMM_LOG selects what is logged;
 * docs/configuration.md lists the lines of each level.
 *
 * @param sink     receives the lines; must not call vescomm. NULL: back to standard error.
 * @param context  passed to @p sink.
 * @return VESCOMM_OK.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_set_log(vescomm_log_function_t sink, void *context);

/**
 * Decides whether a wait goes on. Called by a thread that waits in a function of the library, about
 * ten times each second, and when a signal has interrupted its sleep. The thread holds no lock of
 * the library. The function may run for long, and may call functions of vescomm that are safe for
 * threads.
 *
 * @param context  as passed to vescomm_set_interrupt().
 * @return 0: the wait goes on. Not 0: it ends.
 */
typedef int (*vescomm_interrupt_function_t)(void *context);

/**
 * Sets a function that can end the waits of this process early. An interpreter handles signals in
 * it, a program its own deadlines.
 *
 * A wait that it ends returns
 *
 * - VESCOMM_IN_PROGRESS from vescomm_request_wait() and vescomm_request_wait_with(): the request is
 *   still running, and may be waited for again;
 * - VESCOMM_ERROR_ABORTED from any other function, because other ranks rely on the call: the
 *   communicator is broken, and the error text on the other ranks names this rank and the call.
 *
 * Waits of a few milliseconds may end without a call of the function.
 *
 * @param function  called by all threads, also concurrently. NULL: none, the default.
 * @param context   passed to @p function.
 * @return VESCOMM_OK.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_set_interrupt(vescomm_interrupt_function_t function,
                                                   void *context);

/**
 * Calls the function of vescomm_set_interrupt() in the calling thread, which waits for something
 * that the library does not know of, such as memory that another rank writes.
 *
 * @return 1: the wait is to end. 0: it goes on, or there is no such function.
 *
 * Collective: no.  Blocking: as long as the function runs.  Threads: safe; the caller holds no lock
 * that the function takes.  Cost: that of the function; ten calls a second suffice.  Since: 0.1
 */
VESCOMM_API int32_t vescomm_is_interrupted(void);

/* -------------------------------------------------------------------------- communicator ---- */

/** The ranks that work together, and the connections between them. */
typedef struct vescomm_comm vescomm_comm_t;

/** Options of a communicator. Append-only; a zero member means its default. */
typedef struct vescomm_comm_options {
    uint32_t struct_size;
    uint32_t reserved;
    /** Maximum duration of a wait for a peer, in seconds; after it the wait fails. Time in which
     * the process is suspended does not count. 0: the variable VESCOMM_TIMEOUT_SECONDS, or 300. */
    double timeout_seconds;
    /** Name of the node of this rank; ranks with the same name share memory. NULL: the variable
     *  VESCOMM_NODE, or the identity of host and network namespace that the operating system
     *  reports. Borrowed for the call. */
    const char *node;
    /** Not 0: sums are bit-identical for any algorithm and any placement of ranks on nodes; see
     *  vescomm_op_t. Reductions between nodes take longer, and requests on buffers keep additional
     *  memory in proportion to the buffer. The same on every rank. 0: the variable
     *  VESCOMM_REPRODUCIBLE, or no. */
    int32_t reproducible;
    uint32_t reserved_2;
    /** Identifies a communicator when several threads create communicators of the same ranks at the
     *  same time: each thread passes its own tag, and the tag is the same on every rank. NULL or
     *  empty: a communicator is identified by the number of earlier creations, so all ranks must
     *  create them one after another, in the same order. At most 255 bytes; borrowed for the call.
     *  Since: 0.1 */
    const char *tag;
} vescomm_comm_options_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_comm_options_t vescomm_comm_options_init(void) {
    vescomm_comm_options_t options = {sizeof(vescomm_comm_options_t), 0, 0.0, NULL, 0, 0, NULL};
    return options;
}

/**
 * Gathers the same number of bytes from every rank. A caller with its own bootstrap implements it.
 *
 * @param context  as passed to vescomm_comm_create_from_all_gather().
 * @param mine     @p bytes bytes of this rank.
 * @param all      [out] ranks * @p bytes bytes, by rank.
 * @return 0 for success.
 */
typedef int (*vescomm_all_gather_function_t)(void *context, const void *mine, size_t bytes,
                                             void *all);

/**
 * Creates a communicator from an explicit rank, number of ranks, address and secret.
 *
 * @param rank     rank of the caller, in [0, @p ranks).
 * @param ranks    number of ranks of the job, at least 1.
 * @param address  "host:port" on which rank 0 listens and which the others can reach. Ignored, and
 *                 may be NULL, when @p ranks is 1.
 * @param secret   the same on every rank; a connection without it is rejected and has no effect. At
 *                 least 16 characters, unless VESCOMM_INSECURE is 1 or the address is a loopback
 *                 address, where it is mixed with a key file that only this user can read. Ignored,
 *                 and may be NULL, when @p ranks is 1.
 * @param options  NULL: defaults. Borrowed for the call.
 * @param comm     [out] owned by the caller; free with vescomm_comm_free().
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: also when two threads create a communicator
 *         of the same ranks at the same time without different tags; both calls fail, on all ranks.
 *         VESCOMM_ERROR_TIMEOUT: ranks did not connect; the error text names them.
 *         VESCOMM_ERROR_PEER_FAILED. VESCOMM_ERROR_MISMATCH: two processes claim one rank, or the
 *         number of ranks or the build of the library differs. VESCOMM_ERROR_UNSUPPORTED: the
 *         variables require UCX, which this build or machine lacks; or they require UCX together
 *         with encryption.
 *         VESCOMM_ERROR_OUT_OF_MEMORY. VESCOMM_ERROR_SYSTEM. After any error all resources have
 *         been freed.
 *
 * Communicators of a process with the same ranks, address and secret share the connection of the
 * control plane, its thread, and the connections to other nodes.
 *
 * Collective: yes.  Blocking: until all ranks have called it, at most the timeout.  Threads: safe,
 * as long as no thread changes the environment.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_comm_create(int32_t rank, int32_t ranks, const char *address,
                                                 const char *secret,
                                                 const vescomm_comm_options_t *options,
                                                 vescomm_comm_t **comm);

/**
 * Creates a communicator of the ranks that a launcher started: vescomm-run, torchrun, mpirun, srun.
 * Without a launcher it has one rank.
 *
 * Reads VESCOMM_RANK, VESCOMM_RANKS, VESCOMM_ADDRESS and VESCOMM_SECRET first, then the variables
 * of torchrun, Open MPI, Hydra and Slurm, in this order; docs/launching.md has the details.
 *
 * @param options  NULL: defaults. Borrowed for the call.
 * @param comm     [out] owned by the caller; free with vescomm_comm_free().
 * @return as vescomm_comm_create(). VESCOMM_ERROR_INVALID_ARGUMENT: a variable is missing or wrong;
 *         the error text names it.
 *
 * Collective: yes.  Blocking: as vescomm_comm_create().  Threads: safe, as long as no thread
 * changes the environment.  Since: 0.1
 */
VESCOMM_API vescomm_status_t
vescomm_comm_create_from_environment(const vescomm_comm_options_t *options, vescomm_comm_t **comm);

/**
 * Creates a communicator with an all-gather of the caller (MPI, a store, sockets). Rank 0 sends its
 * address and a random secret through it, so neither has to be given.
 *
 * @param rank        rank of the caller, in [0, @p ranks).
 * @param ranks       number of ranks of the job, at least 1.
 * @param all_gather  called a few times, only during this call, from the calling thread.
 * @param context     passed to @p all_gather.
 * @param options     NULL: defaults. Borrowed for the call.
 * @param comm        [out] owned by the caller; free with vescomm_comm_free().
 * @return as vescomm_comm_create(). VESCOMM_ERROR_SYSTEM: @p all_gather returned non-zero.
 *
 * Collective: yes.  Blocking: as vescomm_comm_create(), plus the calls of @p all_gather.
 * Threads: safe, as long as no thread changes the environment.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_comm_create_from_all_gather(
    int32_t rank, int32_t ranks, vescomm_all_gather_function_t all_gather, void *context,
    const vescomm_comm_options_t *options, vescomm_comm_t **comm);

/**
 * Divides the ranks of a communicator into new communicators, one for each color. The parent is
 * unchanged. The new communicators share its connections.
 *
 * @param comm     the parent.
 * @param color    ranks with the same color form one communicator. Negative: this rank is in none.
 * @param key      orders the ranks of a color; equal keys are ordered by rank in the parent.
 * @param options  NULL or zero members: as the parent. `tag` is not used. Borrowed for the call.
 * @param out      [out] owned by the caller; free with vescomm_comm_free(), before or after the
 *                 parent. NULL where @p color is negative.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT. The first error of a broken parent.
 *         VESCOMM_ERROR_TIMEOUT, VESCOMM_ERROR_PEER_FAILED: the error text names the rank. If one
 *         rank has an error, all ranks of the parent have one, also those of other colors.
 *
 * Collective: yes, all ranks of the parent, same order.  Blocking: yes, at most the timeout of the
 * parent, also if the options have a longer one.  Threads: one at a time per communicator.
 * Cost: a few round trips on the control plane.  Source: MPI_Comm_split.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_comm_split(vescomm_comm_t *comm, int32_t color, int32_t key,
                                                const vescomm_comm_options_t *options,
                                                vescomm_comm_t **out);

/**
 * Creates another communicator of the same ranks. Its calls are independent of those on the parent,
 * so another thread or library may use it.
 *
 * @param comm     the parent.
 * @param options  NULL or zero members: as the parent. `tag` is not used. Borrowed for the call.
 * @param out      [out] owned by the caller; free with vescomm_comm_free(), before or after the
 *                 parent.
 * @return as vescomm_comm_split().
 *
 * Collective: yes, all ranks of the parent, same order.  Blocking: as vescomm_comm_split().
 * Threads: one at a time per communicator.  Cost: as vescomm_comm_split().  Source: MPI_Comm_dup.
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_comm_dup(vescomm_comm_t *comm,
                                              const vescomm_comm_options_t *options,
                                              vescomm_comm_t **out);

/**
 * Creates a communicator of the ranks that survive a failure, with the options of @p comm. The
 * survivors agree on the failed ranks: those whose process has ended, and those in @p failed. Ranks
 * keep their order. If more ranks die during the call, the others shrink again within it.
 *
 * Before: @p comm is usually broken by the failure.
 * After: @p comm is broken on every rank and must still be freed. Memory, buffers and requests
 * created on it can only be freed. Memory of vescomm_malloc() stays valid. Pages that a failed rank
 * allocated with vescomm_malloc() stay in use on its node until all communicators that share them
 * are freed there. Pages of vescomm_memory_create() that a living rank in @p failed maps stay in
 * use, and later memories of vescomm_memory_create() on that node are not registered memory.
 *
 * @param comm    the communicator that has lost ranks; not yet freed.
 * @param failed  @p count ranks of @p comm to exclude although their process may not have ended (it
 *                is stuck, or its machine cannot be reached); the same on every rank. NULL when
 *                @p count is 0.
 * @param out     [out] owned by the caller; free with vescomm_comm_free().
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT. VESCOMM_ERROR_TIMEOUT: a rank is alive and
 *         has not called this function; the error text names it. VESCOMM_ERROR_PEER_FAILED: more
 *         ranks died, and no time was left to shrink again. VESCOMM_ERROR_MISMATCH: another rank
 *         passed this one in @p failed.
 *
 * Collective: yes, all ranks that are alive and not in @p failed.  Blocking: yes, at most the
 * timeout.  Threads: one at a time per communicator.  Cost: milliseconds, plus
 * vescomm_comm_create().  Source: MPIX_Comm_shrink.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_comm_shrink(vescomm_comm_t *comm, const int32_t *failed,
                                                 size_t count, vescomm_comm_t **out);

/** Ranks and nodes of a communicator. Filled by vescomm_comm_get_info(); append-only. */
typedef struct vescomm_comm_info {
    uint32_t struct_size;
    int32_t rank; /**< rank of the caller */
    int32_t ranks; /**< number of ranks */
    int32_t node; /**< node of the caller; nodes are numbered in the order of their first rank */
    int32_t nodes; /**< number of nodes */
    int32_t local_rank; /**< position of the caller among the ranks of its node */
    int32_t local_ranks; /**< number of ranks on the caller's node */
    int32_t reserved;
    double timeout_seconds; /**< maximum duration of a wait, as given or by default */
} vescomm_comm_info_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_comm_info_t vescomm_comm_info_init(void) {
    vescomm_comm_info_t info = {sizeof(vescomm_comm_info_t), 0, 0, 0, 0, 0, 0, 0, 0.0};
    return info;
}

/**
 * Returns the caller's rank, node and local rank, the numbers of ranks, nodes and local ranks, and
 * the timeout.
 *
 * @param info  [in,out] struct_size set by the caller, the rest filled.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_comm_get_info(const vescomm_comm_t *comm,
                                                   vescomm_comm_info_t *info);

/** Counters of a communicator on this rank, since its creation: they never decrease. Filled by
 *  vescomm_comm_get_counters(); append-only. */
typedef struct vescomm_comm_counters {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t operations; /**< operations started: requests, calls on arrays, barriers */
    uint64_t bytes_written; /**< bytes that this rank's copies and conversions have written */
    uint64_t bytes_reduced; /**< bytes that this rank's reductions have read */
    uint64_t bytes_sent; /**< bytes that this rank has sent to other nodes */
    uint64_t sleeps; /**< number of times that a waiting thread of this rank slept */
    double busy_seconds; /**< time in copies and reductions of 16 KiB and more */
    /** Time in waits that have ended, without the busy time in them. A wait that ends within its
     *  first polls is not timed. */
    double waiting_seconds;
    /** Bytes that this rank's copies and reductions have read in registered arrays of other ranks,
     *  instead of the staging buffer. */
    uint64_t bytes_registered;
} vescomm_comm_counters_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_comm_counters_t vescomm_comm_counters_init(void) {
    vescomm_comm_counters_t counters = {
        sizeof(vescomm_comm_counters_t), 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0};
    return counters;
}

/**
 * Returns the counters of a communicator on this rank.
 *
 * @param counters  [in,out] struct_size set by the caller, the rest filled.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_comm_get_counters(const vescomm_comm_t *comm,
                                                       vescomm_comm_counters_t *counters);

/**
 * Formats the counters of vescomm_comm_get_counters() and two gauges, vescomm_info and
 * vescomm_broken (1: the communicator is broken), as text in the Prometheus format (0.0.4). The
 * program serves the text over HTTP or writes it to a file for a collector. docs/observing.md lists
 * the metrics and their units.
 *
 * Samples have the labels rank and communicator; the latter is the number of the communicator in
 * this process, counted from 0. The texts of several communicators must not be joined into one,
 * because each text has the HELP and TYPE lines of all metrics.
 *
 * @param text      [out] the whole text with a terminating zero when @p capacity suffices,
 *                  otherwise unchanged. May be NULL when @p capacity is 0.
 * @param capacity  in bytes; 4096 are enough for this version.
 * @param size      [out] size of the whole text in bytes, including the terminating zero.
 * @return VESCOMM_OK, also when @p capacity does not suffice. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_comm_get_metrics(const vescomm_comm_t *comm, char *text,
                                                      size_t capacity, size_t *size);

/**
 * Makes progress on started requests without waiting. Call it regularly in long computations if the
 * communicator has no progress thread. By default it has one if there are other nodes; the variable
 * VESCOMM_PROGRESS changes that.
 *
 * @return VESCOMM_OK. The first error of a broken communicator.
 *
 * Collective: no.  Blocking: no, but it executes the copies and reductions that are ready.
 * Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_comm_progress(vescomm_comm_t *comm);

/**
 * Waits until every rank has called it.
 *
 * @return VESCOMM_OK. VESCOMM_ERROR_TIMEOUT, VESCOMM_ERROR_PEER_FAILED: the error text names the
 *         rank. VESCOMM_ERROR_MISMATCH: a rank waits in another call, or has finalized.
 *         VESCOMM_ERROR_UNSUPPORTED: after 2^32 - 1 calls; create another communicator.
 *
 * Collective: yes, same order.  Blocking: yes, at most the timeout.
 * Threads: one at a time per communicator.  Cost: one store, which all ranks of the node see, and
 * ceil(log2(nodes)) steps between nodes.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_barrier(vescomm_comm_t *comm);

/**
 * Breaks a communicator deliberately: waits of all ranks, but for what is complete, return
 * VESCOMM_ERROR_ABORTED and the reason. If it is broken already, its first error remains.
 *
 * After: @p comm must still be freed, and so must the objects created on it. vescomm_comm_free()
 * then is local and does not wait.
 *
 * @param reason  one sentence, which the error text of every other rank contains. NULL: none.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: until the reason is sent, at most 1 s.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_comm_abort(vescomm_comm_t *comm, const char *reason);

/**
 * Ends the use of a communicator on all ranks, before each rank frees it. Requests of this rank
 * that are running complete first. While the call waits for the other ranks, it makes progress, so
 * that they can complete their operations.
 *
 * After: nothing can be created or started on @p comm, and vescomm_comm_free() does not wait. If a
 * peer has called this function without making a call that another rank waits for or tests, that
 * rank gets VESCOMM_ERROR_MISMATCH after 0.25 seconds without progress; if the peer is on another
 * node, after the larger of two seconds and VESCOMM_SILENCE_SECONDS.
 *
 * @return VESCOMM_OK, also when an earlier call succeeded. The first error of a broken
 *         communicator. VESCOMM_ERROR_TIMEOUT: a rank has not called it; the error text names the
 *         rank. VESCOMM_ERROR_PEER_FAILED. After an error the communicator is broken. After a
 *         timeout it is broken on this rank alone: the others may go on without it.
 *
 * Collective: yes.  Blocking: until all ranks have called it, at most the timeout.
 * Threads: one at a time per communicator.  Source: ncclCommFinalize.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_comm_finalize(vescomm_comm_t *comm);

/**
 * Frees a communicator. If it is neither finalized nor broken, vescomm_comm_finalize() is called
 * first and its result is ignored.
 *
 * Memory, buffers and requests created on the communicator must still be freed, in any order. Their
 * pointers stay valid until then, but no request can be started. Connections close when the last
 * object is freed.
 *
 * @param comm  NULL: no effect. Must not be used afterwards, whatever the call returns.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: the handle was inherited by fork().
 *
 * Collective: no, once it is finalized or broken; otherwise as vescomm_comm_finalize().
 * Blocking: no, once it is finalized or broken.  Threads: one, the last to use the communicator.
 * Source: ncclCommDestroy.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_comm_free(vescomm_comm_t *comm);

/* -------------------------------------------------------------------------------- layout ---- */

/** Places of tensors and shards in a fused buffer. Immutable; the same on every rank. */
typedef struct vescomm_layout vescomm_layout_t;

/** One tensor of a layout. Append-only. */
typedef struct vescomm_tensor {
    uint32_t struct_size;
    /** Number of entries of shape; 0 is a scalar. */
    int32_t dimensions;
    /** Unique within the layout. As input borrowed for the call; as output owned by the layout. */
    const char *name;
    /** Row-major extents, each at least 0. As input borrowed for the call; as output owned by the
     *  layout. */
    const int64_t *shape;
    /** Offset of the first element in the buffer, in elements. */
    int64_t offset;
    /** Number of consecutive elements that must stay on one rank. Cuts lie on multiples of it
     *  within each sub-matrix. The last block of a sub-matrix may be short. 0 means 1. */
    int64_t block;
    /** Number of leading dimensions that index sub-matrices, such as 1 for the experts of
     *  [experts, rows, columns]. The grid of blocks restarts at each sub-matrix. */
    int32_t batch_dimensions;
    int32_t reserved;
} vescomm_tensor_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_tensor_t vescomm_tensor_init(void) {
    vescomm_tensor_t tensor = {sizeof(vescomm_tensor_t), 0, NULL, NULL, 0, 0, 0, 0};
    return tensor;
}

/**
 * Creates a layout from tensors at given offsets and given cuts, and checks it. The planner
 * computes both; a user may also write them by hand.
 *
 * @param tensors   @p count tensors, in order of offset, not overlapping. Borrowed for the call.
 * @param elements  size of the whole buffer.
 * @param cuts      @p ranks + 1 offsets in elements, not decreasing, from 0 to @p elements: rank k
 *                  owns [cuts[k], cuts[k + 1]). Borrowed for the call.
 * @param ranks     number of shards, at least 1.
 * @param layout    [out] owned by the caller; free with vescomm_layout_free().
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: the error text names the tensor or the cut.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: O(tensors log tensors + ranks).  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_layout_create(const vescomm_tensor_t *tensors, size_t count,
                                                   int64_t elements, const int64_t *cuts,
                                                   int32_t ranks, vescomm_layout_t **layout);

/**
 * Creates a layout of one vector, "data", of which rank k owns counts[k] elements.
 *
 * @param counts  @p ranks numbers of elements, each at least 0. Borrowed for the call.
 * @param ranks   number of shards, at least 1.
 * @param layout  [out] owned by the caller; free with vescomm_layout_free().
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_layout_create_from_counts(const int64_t *counts, int32_t ranks,
                                                               vescomm_layout_t **layout);

/**
 * Frees a layout. Buffers created from it keep their own copy.
 *
 * @param layout  NULL: no effect.
 * @return VESCOMM_OK.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_layout_free(vescomm_layout_t *layout);

/** The sizes of a layout. Filled by vescomm_layout_get_info(); append-only. */
typedef struct vescomm_layout_info {
    uint32_t struct_size;
    int32_t ranks; /**< number of shards */
    int64_t elements; /**< size of the whole buffer, including padding */
    int64_t padding; /**< number of elements that belong to no tensor */
    int64_t largest; /**< size of the largest shard, in elements */
    uint64_t tensors; /**< number of tensors */
    uint64_t hash; /**< XXH3-64 of the serialised layout, for comparing layouts; the same on every
                      platform, but a new version of the format changes it */
} vescomm_layout_info_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_layout_info_t vescomm_layout_info_init(void) {
    vescomm_layout_info_t info = {sizeof(vescomm_layout_info_t), 0, 0, 0, 0, 0, 0};
    return info;
}

/**
 * Returns the sizes and the hash of a layout.
 *
 * @param info  [in,out] struct_size set by the caller, the rest filled.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_layout_get_info(const vescomm_layout_t *layout,
                                                     vescomm_layout_info_t *info);

/**
 * Describes one tensor of a layout.
 *
 * @param index   from 0, in order of offset; less than the number of tensors of the layout.
 * @param tensor  [in,out] struct_size set by the caller; name and shape are owned by @p layout.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_layout_get_tensor(const vescomm_layout_t *layout, size_t index,
                                                       vescomm_tensor_t *tensor);

/**
 * Finds a tensor by name.
 *
 * @param index  [out] for vescomm_layout_get_tensor() and vescomm_buffer_get_tensor().
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: no tensor has this name.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_layout_find_tensor(const vescomm_layout_t *layout,
                                                        const char *name, size_t *index);

/**
 * Returns the shard of a rank: elements [begin, end) of the buffer.
 *
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_layout_get_shard(const vescomm_layout_t *layout, int32_t rank,
                                                      int64_t *begin, int64_t *end);

/** The part of one tensor that lies in one shard. */
typedef struct vescomm_piece {
    uint64_t tensor; /**< index in the layout */
    int64_t first; /**< first element, counted within the tensor */
    int64_t elements; /**< number of elements, at least 1 */
    int64_t offset; /**< position of the first element within the shard */
} vescomm_piece_t;

/**
 * Lists the pieces of tensors that a rank owns, in order of offset.
 *
 * @param pieces    [out] up to @p capacity pieces; may be NULL when @p capacity is 0.
 * @param count     [out] total number of pieces, which may exceed @p capacity.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: O(log tensors + pieces).  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_layout_get_pieces(const vescomm_layout_t *layout, int32_t rank,
                                                       vescomm_piece_t *pieces, size_t capacity,
                                                       size_t *count);

/**
 * Returns the part of one tensor that a rank owns.
 *
 * @param tensor  index in the layout, below vescomm_layout_info_t.tensors.
 * @param piece   [out] when the rank owns no element of the tensor, elements, first and offset
 *                are 0.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: O(1).  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_layout_get_piece(const vescomm_layout_t *layout, size_t tensor,
                                                      int32_t rank, vescomm_piece_t *piece);

/**
 * Describes consecutive elements of a tensor, such as a piece, as boxes, which slicing calls and
 * checkpoint formats use. The number of boxes is at most 2 * dimensions - 1,
 * and one for a scalar.
 *
 * @param tensor    index in the layout.
 * @param first     first element, counted within the tensor; row-major.
 * @param elements  number of elements; 0: no boxes.
 * @param boxes     [out] up to @p capacity boxes in the order of their elements. A box is
 *                  2 * dimensions numbers: its start in every dimension, then its extent in every
 *                  dimension. May be NULL when @p capacity is 0.
 * @param capacity  in boxes.
 * @param count     [out] total number of boxes, which may exceed @p capacity.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: O(dimensions^2).  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_layout_get_boxes(const vescomm_layout_t *layout, size_t tensor,
                                                      int64_t first, int64_t elements,
                                                      int64_t *boxes, size_t capacity,
                                                      size_t *count);

/**
 * Serialises a layout, to store it with a checkpoint or to send it. Equal layouts have equal bytes
 * on every platform; vescomm_layout_info_t.hash is their XXH3-64. The bytes begin with the version
 * of their format.
 *
 * @param bytes     [out] all bytes when @p capacity suffices, otherwise unchanged. May be NULL
 *                  when @p capacity is 0.
 * @param capacity  in bytes.
 * @param size      [out] total number of bytes.
 * @return VESCOMM_OK, also when @p capacity does not suffice. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: O(tensors + ranks).  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_layout_serialise(const vescomm_layout_t *layout, void *bytes,
                                                      size_t capacity, size_t *size);

/**
 * Creates a layout from the bytes that vescomm_layout_serialise() wrote. The bytes may come from an
 * untrusted source: any input takes memory in proportion to @p size.
 *
 * @param bytes   @p size bytes. Borrowed for the call.
 * @param layout  [out] owned by the caller; free with vescomm_layout_free().
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: these bytes are not a layout.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: O(size log size).  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_layout_parse(const void *bytes, size_t size,
                                                  vescomm_layout_t **layout);

/* ------------------------------------------------------------------------ memory, buffer ---- */

/** Type of the elements of a buffer or an array. f64, f32 and f16 are the types of IEEE 754. bf16
 *  is the upper half of an f32. The two f8 types are those of the OCP 8-bit floating point
 *  specification: e5m2 has infinities and NaN; e4m3 (called e4m3fn elsewhere) has no infinities,
 *  and a value too large for it becomes NaN. */
typedef int32_t vescomm_type_t;

/** In the options of a request: the type of the buffer. In the options of a buffer: f32. In a call
 *  on arrays: an error. */
#define VESCOMM_TYPE_DEFAULT ((vescomm_type_t)0)
#define VESCOMM_F32 ((vescomm_type_t)1)
#define VESCOMM_BF16 ((vescomm_type_t)2)
#define VESCOMM_F16 ((vescomm_type_t)3)
#define VESCOMM_F64 ((vescomm_type_t)4)
#define VESCOMM_F8E4M3 ((vescomm_type_t)5)
#define VESCOMM_F8E5M2 ((vescomm_type_t)6)
#define VESCOMM_I8 ((vescomm_type_t)7)
#define VESCOMM_U8 ((vescomm_type_t)8)
#define VESCOMM_I16 ((vescomm_type_t)9)
#define VESCOMM_U16 ((vescomm_type_t)10)
#define VESCOMM_I32 ((vescomm_type_t)11)
#define VESCOMM_U32 ((vescomm_type_t)12)
#define VESCOMM_I64 ((vescomm_type_t)13)
#define VESCOMM_U64 ((vescomm_type_t)14)
/** One byte. Every byte but 0 is true. Reductions write 1 and 0; other collectives copy the byte.
 */
#define VESCOMM_BOOL ((vescomm_type_t)15)
/** Complex: two f32, the real part first. Arrays are aligned to 4 bytes. */
#define VESCOMM_C64 ((vescomm_type_t)16)
/** Complex: two f64, the real part first. Arrays are aligned to 8 bytes. */
#define VESCOMM_C128 ((vescomm_type_t)17)

/** Size of one element in bytes; 0 for a value that is not a type. Since: 0.1 */
static inline size_t vescomm_type_get_bytes(vescomm_type_t type) {
    switch (type) {
        case VESCOMM_F8E4M3:
        case VESCOMM_F8E5M2:
        case VESCOMM_I8:
        case VESCOMM_U8:
        case VESCOMM_BOOL:
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
        case VESCOMM_C64:
            return 8;
        case VESCOMM_C128:
            return 16;
        default:
            return 0;
    }
}

/** Kind of memory. */
typedef int32_t vescomm_memory_kind_t;

/** Host memory, the only kind here; gpu.h is for device memory. */
#define VESCOMM_HOST ((vescomm_memory_kind_t)0)

/** Number of slabs of a memory: one for each rank, or one for each node. */
typedef int32_t vescomm_sharing_t;

/** The default: one slab for each rank. All ranks of the node map every slab, and collectives copy
 *  from slab to slab. */
#define VESCOMM_PER_RANK ((vescomm_sharing_t)0)
/** One slab for each node: its ranks see the same bytes, so gathered data exists once. For
 *  all_gather_v and broadcast. A reduction on it is VESCOMM_ERROR_INVALID_ARGUMENT, because each
 *  rank needs its own contribution. */
#define VESCOMM_PER_NODE ((vescomm_sharing_t)1)

/** Bytes at a fixed address, mapped by the ranks of the node and registered with the transports
 *  once. Several buffers may lie in one memory: side by side, or at the same place at different
 *  times (such as the layers of a model). */
typedef struct vescomm_memory vescomm_memory_t;

/** Options of a memory. Append-only. */
typedef struct vescomm_memory_options {
    uint32_t struct_size;
    vescomm_memory_kind_t kind;
    vescomm_sharing_t sharing;
    uint32_t reserved;
    /** Size of a slab in bytes; the same on every rank. */
    uint64_t bytes;
    /** Bytes of each rank to allocate now for partial sums of requests on this memory, from
     *  vescomm_reduce_scatter_v_get_partial_bytes(); the same on every rank. A request that needs
     *  more allocates it when it is created. */
    uint64_t partial_bytes;
} vescomm_memory_options_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_memory_options_t vescomm_memory_options_init(void) {
    vescomm_memory_options_t options = {sizeof(vescomm_memory_options_t), 0, 0, 0, 0, 0};
    return options;
}

/**
 * Allocates memory, maps it on every rank of each node, and registers it with the transports.
 *
 * After: every byte is zero. The memory has no name in a file system. The operating system frees it
 * when the last process that maps it ends, however it ends.
 *
 * With VESCOMM_PER_RANK the slabs are registered memory if all ranks of this node that are alive
 * belong to @p comm. Otherwise, or if VESCOMM_MALLOC_BYTES is too small, or the process has too
 * many mappings, arrays in the memory count as private.
 *
 * @param options  with the number of bytes; it may be 0. Borrowed for the call.
 * @param memory   [out] owned by the caller; free with vescomm_memory_free().
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: also for an unknown sharing.
 *         VESCOMM_ERROR_UNSUPPORTED: an unknown kind of memory. VESCOMM_ERROR_MISMATCH: the ranks
 *         passed different options; the error text names two ranks and the first difference.
 *         VESCOMM_ERROR_OUT_OF_MEMORY on every rank when one rank has too little.
 *         VESCOMM_ERROR_TIMEOUT, VESCOMM_ERROR_PEER_FAILED.
 *
 * Collective: yes, same order.  Blocking: yes.  Threads: one at a time per communicator.
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_memory_create(vescomm_comm_t *comm,
                                                   const vescomm_memory_options_t *options,
                                                   vescomm_memory_t **memory);

/**
 * Returns the address at which memory is mapped in this process.
 *
 * @param data   [out] the slab of this rank (VESCOMM_PER_RANK) or of its node (VESCOMM_PER_NODE),
 *               aligned to a page; the same address until vescomm_memory_free().
 * @param bytes  [out] size of the slab. May be NULL.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_memory_get_data(const vescomm_memory_t *memory, void **data,
                                                     uint64_t *bytes);

/**
 * Returns the bytes that this rank has for partial sums of requests on this memory, besides its
 * slab.
 *
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: one at a time per communicator.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_memory_get_partial_bytes(const vescomm_memory_t *memory,
                                                              uint64_t *bytes);

/**
 * Frees memory. Buffers in it keep it alive. Other ranks may continue to use their slabs.
 *
 * Before: no operation of this rank uses the memory any more.
 * After: the pages of registered memory are returned when all ranks of the node have freed it.
 *
 * @param memory  NULL: no effect.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: the handle was inherited by fork().
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_memory_free(vescomm_memory_t *memory);

/**
 * Allocates registered memory: arrays in it move within a node without a copy in between.
 *
 * After: every byte is zero. Calls on arrays recognise the memory by its address.
 * (vescomm_memory_create() makes registered memory too, collectively.) Each rank of a call may pass
 * registered or private arrays; results and errors are the same. A call with registered arrays
 * completes when the other ranks of the node have read them. The memory is private if on any rank
 * VESCOMM_MALLOC_BYTES is 0, file sizes are limited (ulimit -f), or the system refuses to map the
 * address space. After fork() the child shares the memory with its parent; it must not write there.
 *
 * @param comm     calls on this communicator, and on all that were split or duplicated from it or
 *                 that it came from, recognise the memory. All of them keep it alive.
 * @param bytes    rounded up to whole pages; 0: one page.
 * @param pointer  [out] aligned to a page; free with vescomm_mfree(). It is freed at the latest
 *                 with the last of these communicators.
 * @return VESCOMM_OK. VESCOMM_ERROR_OUT_OF_MEMORY: the machine, or the address space of this rank
 *         (VESCOMM_MALLOC_BYTES), has too little. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.
 * Cost: the pages are allocated now, as by writing each of them once.
 * Source: ncclMemAlloc, MPI_Alloc_mem.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_malloc(vescomm_comm_t *comm, uint64_t bytes, void **pointer);

/**
 * Frees memory of vescomm_malloc().
 *
 * Before: no operation of this rank uses the memory any more.
 *
 * @param comm     the communicator given to vescomm_malloc(), or one that shares its memory.
 * @param pointer  NULL: no effect.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: no such memory begins at @p pointer.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_mfree(vescomm_comm_t *comm, void *pointer);

/** Memory seen through a layout: tensors and shards at stable addresses. */
typedef struct vescomm_buffer vescomm_buffer_t;

/** Options of a buffer. Append-only. */
typedef struct vescomm_buffer_options {
    uint32_t struct_size;
    /** Type of the elements. 0, VESCOMM_TYPE_DEFAULT: f32. */
    vescomm_type_t type;
    /** Memory that holds the buffer; the buffer keeps it alive. NULL: new memory of the kind and
     *  sharing below, which are not used otherwise. */
    vescomm_memory_t *memory;
    /** First byte within the memory, a multiple of 64. Not used for new memory. */
    uint64_t offset_bytes;
    vescomm_memory_kind_t kind;
    vescomm_sharing_t sharing;
    /** Name in error messages and traces. NULL: "buffer". Borrowed for the call. */
    const char *name;
} vescomm_buffer_options_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_buffer_options_t vescomm_buffer_options_init(void) {
    vescomm_buffer_options_t options = {sizeof(vescomm_buffer_options_t), 0, NULL, 0, 0, 0, NULL};
    return options;
}

/**
 * Creates a buffer, and checks that all ranks pass the same layout and options.
 *
 * @param layout   must have the number of ranks of @p comm. Copied.
 * @param options  NULL: f32, one slab for each rank, new memory.
 * @param buffer   [out] owned by the caller; free with vescomm_buffer_free().
 * @return VESCOMM_OK. VESCOMM_ERROR_MISMATCH: the layouts or options differ; the error text names
 *         two ranks and the first difference. VESCOMM_ERROR_INVALID_ARGUMENT.
 *         VESCOMM_ERROR_UNSUPPORTED: an unknown kind of memory. VESCOMM_ERROR_OUT_OF_MEMORY.
 *         VESCOMM_ERROR_TIMEOUT, VESCOMM_ERROR_PEER_FAILED.
 *
 * Collective: yes, same order.  Blocking: yes.  Threads: one at a time per communicator.
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_buffer_create(vescomm_comm_t *comm,
                                                   const vescomm_layout_t *layout,
                                                   const vescomm_buffer_options_t *options,
                                                   vescomm_buffer_t **buffer);

/** Consecutive elements of a buffer. */
typedef struct vescomm_view {
    void *data; /**< first element; valid until the buffer is freed */
    int64_t elements; /**< number of elements at @p data */
} vescomm_view_t;

/**
 * Returns a view of the whole buffer.
 *
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_buffer_get_data(const vescomm_buffer_t *buffer,
                                                     vescomm_view_t *view);

/**
 * Returns a view of one tensor: a dense row-major array of its shape.
 *
 * @param index  as for vescomm_layout_get_tensor(); vescomm_layout_find_tensor() returns it for a
 *               name.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_buffer_get_tensor(const vescomm_buffer_t *buffer, size_t index,
                                                       vescomm_view_t *view);

/**
 * Returns a view of the calling rank's shard.
 *
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_buffer_get_shard(const vescomm_buffer_t *buffer,
                                                      vescomm_view_t *view);

/**
 * Declares that this rank no longer reads the gathered contents of a VESCOMM_PER_NODE buffer, so
 * that the next gather may overwrite them. This frees nothing. It applies to the memory of the
 * buffer, and so to all buffers in that memory. It increments a counter and is not a barrier.
 * Starting the next gather releases the buffer too; an earlier release lets faster peers proceed.
 *
 * @return VESCOMM_OK, also when there is nothing to release, as for VESCOMM_PER_RANK.
 *         VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: one at a time per communicator.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_buffer_release(vescomm_buffer_t *buffer);

/**
 * Waits until this rank may write its own shard of a VESCOMM_PER_NODE buffer: releases the buffer
 * on this rank, then waits until every rank of the node has released it. Needed only before writing
 * in place; a gather from a separate source does it. Returns immediately for VESCOMM_PER_RANK.
 *
 * @return VESCOMM_OK. VESCOMM_ERROR_TIMEOUT: the error text names the rank that still reads.
 *         VESCOMM_ERROR_MISMATCH: that rank has finalized the communicator.
 *         VESCOMM_ERROR_PEER_FAILED.
 *
 * Collective: no.  Blocking: yes, at most the timeout.  Threads: one at a time per communicator.
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_buffer_acquire(vescomm_buffer_t *buffer);

/**
 * Frees a buffer. Requests created on it keep it alive.
 *
 * @param buffer  NULL: no effect.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: the handle was inherited by fork().
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_buffer_free(vescomm_buffer_t *buffer);

/* ------------------------------------------------------------------------------- request ---- */

/** A collective, a message, or a group of calls, created once and started many times. */
typedef struct vescomm_request vescomm_request_t;

/** Operator of a reduction, applied element by element. Floats of 16 and 8 bits are accumulated in
 *  f32 and rounded once; other types are accumulated in the type of the elements. Integers wrap
 *  modulo 2^bits. On one node, and on a reproducible communicator, contributions are combined in
 *  the order of ranks. On several nodes of any other communicator the order depends on the
 *  algorithm.
 *
 *  Each type has these operators; VESCOMM_ERROR_INVALID_ARGUMENT for any other:
 *
 *      floats    sum, average, product, minimum, maximum, pre-multiplied sum
 *      integers  these, bitwise and logical
 *      bool      sum and maximum (both are "or"), product and minimum (both are "and"), bitwise and
 *                logical (of truth values, so both are the same)
 *      complex   sum, average, product, pre-multiplied sum (by a real factor) */
typedef int32_t vescomm_op_t;

#define VESCOMM_SUM ((vescomm_op_t)0)
/** The sum, multiplied by 1 / ranks; integers are divided, towards zero. */
#define VESCOMM_AVERAGE ((vescomm_op_t)1)
/** The product. For complex numbers it is computed as (ac - bd) + (ad + bc)i. Unlike `*` in C,
 *  infinities get no special treatment, and may give NaN. */
#define VESCOMM_PROD ((vescomm_op_t)2)
/** The minimum; NaN if any contribution is NaN. -0 is less than +0. */
#define VESCOMM_MIN ((vescomm_op_t)3)
/** The maximum; NaN if any contribution is NaN. -0 is less than +0. */
#define VESCOMM_MAX ((vescomm_op_t)4)
/** The sum of all contributions, each multiplied by a factor first. */
#define VESCOMM_PREMULTIPLIED_SUM ((vescomm_op_t)5)
/** A bit is 1 if it is 1 in all contributions. */
#define VESCOMM_BITWISE_AND ((vescomm_op_t)6)
/** A bit is 1 if it is 1 in any contribution. */
#define VESCOMM_BITWISE_OR ((vescomm_op_t)7)
/** A bit is 1 if it is 1 in an odd number of contributions. */
#define VESCOMM_BITWISE_XOR ((vescomm_op_t)8)
/** 1 if all ranks contribute an element other than 0, otherwise 0; a lone rank gets 0 or 1 too. */
#define VESCOMM_LOGICAL_AND ((vescomm_op_t)9)
/** 1 if any rank contributes an element other than 0, otherwise 0; a lone rank gets 0 or 1 too. */
#define VESCOMM_LOGICAL_OR ((vescomm_op_t)10)
/** 1 if an odd number of ranks contribute an element other than 0, otherwise 0; a lone rank gets 0
 *  or 1 too. */
#define VESCOMM_LOGICAL_XOR ((vescomm_op_t)11)

/** Details of a collective. Members that an operation does not use must be zero. Append-only. */
typedef struct vescomm_request_options {
    uint32_t struct_size;
    /** reduce_scatter_v, all_reduce, reduce: the operator. */
    vescomm_op_t op;
    /** broadcast: the rank whose buffer is copied. reduce: the rank that gets the result. */
    int32_t root;
    /** all_gather_v: type of @p source. reduce_scatter_v: type of @p output. Used only when that
     *  pointer is not NULL. 0, VESCOMM_TYPE_DEFAULT: the type of the buffer. */
    vescomm_type_t type;
    /** all_gather_v only: this rank's shard, converted to the type of the buffer. NULL, or the
     *  address of the shard in the buffer and the type of the buffer: in place, the shard is in the
     *  buffer already. Any other overlap with the buffer is an error. Aligned to its elements.
     *  Ranks may differ in source and type. Borrowed until the request is freed; must not change
     *  between start and completion. */
    const void *source;
    /** reduce_scatter_v only: receives this rank's shard of the result, in the type of the buffer
     *  or, for floats of 16 and 8 bits, in f32. NULL, or the address of the shard in the buffer
     *  and the type of the buffer: in place. Any other overlap with the buffer is an error. Aligned
     *  to its elements. Ranks may differ in output and type. Borrowed until the request is freed.
     */
    void *output;
    /** Name of the algorithm to use. NULL: the variable VESCOMM_ALGORITHM, or the library chooses;
     *  vescomm_request_explain() returns the choice. Borrowed for the call. */
    const char *algorithm;
    /** VESCOMM_PREMULTIPLIED_SUM: factor of every contribution, the same on every rank. Not 0; a
     * whole number for integers. */
    double factor;
} vescomm_request_options_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_request_options_t vescomm_request_options_init(void) {
    vescomm_request_options_t options = {
        sizeof(vescomm_request_options_t), 0, 0, 0, NULL, NULL, NULL, 0.0};
    return options;
}

/**
 * Creates an all_gather_v: gathers every rank's shard into the whole buffer.
 *
 * Before start: rank k holds elements [cuts[k], cuts[k + 1]), in the buffer or in its source; the
 * rest of the buffer is undefined. A rank calls vescomm_buffer_acquire() before it writes its shard
 * into a VESCOMM_PER_NODE buffer.
 * After completion: every rank (every node, for VESCOMM_PER_NODE) holds all elements.
 *
 * @param options  NULL: in place, the library chooses the algorithm. source, type and algorithm are
 *                 used.
 * @param request  [out] owned by the caller; free with vescomm_request_free().
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT. VESCOMM_ERROR_UNSUPPORTED: no conversion
 *         between these types; f32 and f64 convert to and from every float, other types only to
 *         themselves. VESCOMM_ERROR_MISMATCH: options differ between ranks; only source, output
 *         and type may. VESCOMM_ERROR_OUT_OF_MEMORY. VESCOMM_ERROR_TIMEOUT,
 *         VESCOMM_ERROR_PEER_FAILED.
 *
 * Collective: yes, same order.  Blocking: until all ranks agree.
 * Threads: one at a time per communicator.  Cost: on one node with VESCOMM_PER_NODE each rank
 * writes its own shard once. `vescomm-info --explain all_gather_v` predicts the times of other
 * cases; with `--per-node` it assumes VESCOMM_PER_NODE.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_all_gather_v_create(vescomm_comm_t *comm,
                                                         vescomm_buffer_t *buffer,
                                                         const vescomm_request_options_t *options,
                                                         vescomm_request_t **request);

/**
 * Creates a reduce_scatter_v: reduces the buffers of all ranks and leaves each rank its own shard
 * of the result.
 *
 * Before start: every rank holds all elements of its own buffer (VESCOMM_PER_RANK).
 * After completion: rank k holds the reduction of elements [cuts[k], cuts[k + 1]) of all ranks in
 * its output (accumulated as vescomm_op_t describes); the buffer may be written again. In place,
 * the rest of the buffer is unchanged.
 *
 * @param options  NULL: sum, in place, the library chooses the algorithm. op, factor, type, output
 *                 and algorithm are used.
 * @param request  [out] owned by the caller; free with vescomm_request_free().
 * @return as vescomm_all_gather_v_create(), but VESCOMM_ERROR_UNSUPPORTED means: the output has a
 *         type that the buffer cannot be reduced to.
 *
 * Collective: yes, same order.  Blocking: until all ranks agree.
 * Threads: one at a time per communicator.  Cost: on one node a single pass that reads each element
 * once per rank and writes it once.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_reduce_scatter_v_create(
    vescomm_comm_t *comm, vescomm_buffer_t *buffer, const vescomm_request_options_t *options,
    vescomm_request_t **request);

/**
 * Returns the memory for partial sums that reduce_scatter_v requests need besides their buffers.
 * Requests on one memory share it. On several nodes it is partial sums of other nodes; on one node,
 * and on a reproducible communicator, most requests need none. Nothing is allocated.
 *
 * The size depends on the algorithm, and that on the machine model. Without a communicator it is
 * the model of this process (VESCOMM_MACHINE), with a core for each rank; requests of ranks that
 * share cores may use another algorithm.
 *
 * @param comm     the communicator of the requests, or one that has their ranks. NULL: none yet.
 * @param members  with @p comm: for each rank of a layout its rank in @p comm, each once; with the
 *                 machine constants of rank 0 of @p comm. NULL: the same.
 * @param nodes    without @p comm: for each rank a number that identifies its node. NULL: all ranks
 *                 are on one node.
 * @param layouts  the layouts of the buffers, for the same number of ranks.
 * @param count    number of layouts; 0: the result is 0.
 * @param type     of the buffers. VESCOMM_TYPE_DEFAULT: f32.
 * @param options  as for vescomm_reduce_scatter_v_create(). output: any address that is not NULL if
 *                 any rank will give an output; it is not accessed.
 * @param bytes    [out] bytes of each rank.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: up to some milliseconds for each layout.
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_reduce_scatter_v_get_partial_bytes(
    const vescomm_comm_t *comm, const int32_t *members, const int32_t *nodes,
    const vescomm_layout_t *const *layouts, size_t count, vescomm_type_t type,
    const vescomm_request_options_t *options, uint64_t *bytes);

/**
 * Creates an all_reduce: reduces the buffers of all ranks in place and leaves every rank the
 * result.
 *
 * Before start: every rank holds all elements of its own buffer (VESCOMM_PER_RANK).
 * After completion: every rank holds the same result, bit for bit. The cuts of the layout are not
 * used: every rank reduces an equal part.
 *
 * @param options  NULL: sum, the library chooses the algorithm. op, factor and algorithm are used.
 * @param request  [out] owned by the caller; free with vescomm_request_free().
 * @return as vescomm_all_gather_v_create(), without VESCOMM_ERROR_UNSUPPORTED.
 *
 * Collective: yes, same order.  Blocking: until all ranks agree.
 * Threads: one at a time per communicator.  Cost: that of the algorithm, which
 * docs/algorithms.md lists; for large data about a reduce_scatter_v and an all_gather_v.
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_all_reduce_create(vescomm_comm_t *comm,
                                                       vescomm_buffer_t *buffer,
                                                       const vescomm_request_options_t *options,
                                                       vescomm_request_t **request);

/**
 * Creates a reduce: reduces the buffers of all ranks and leaves the root the result, in place.
 *
 * Before start: every rank holds all elements of its own buffer (VESCOMM_PER_RANK).
 * After completion: rank root holds the result; the buffers of the other ranks are unchanged.
 *
 * @param options  NULL: sum, to rank 0, the library chooses the algorithm. op, factor, root and
 *                 algorithm are used.
 * @param request  [out] owned by the caller; free with vescomm_request_free().
 * @return as vescomm_all_gather_v_create(), without VESCOMM_ERROR_UNSUPPORTED.
 *
 * Collective: yes, same order.  Blocking: until all ranks agree.
 * Threads: one at a time per communicator.  Cost: the root reads each element once per rank of its
 * node, in one pass.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_reduce_create(vescomm_comm_t *comm, vescomm_buffer_t *buffer,
                                                   const vescomm_request_options_t *options,
                                                   vescomm_request_t **request);

/**
 * Creates a broadcast: copies the root's buffer to the buffers of all ranks.
 *
 * Before start: rank root holds all elements.
 * After completion: every rank holds all elements.
 *
 * @param options  NULL: from rank 0, the library chooses the algorithm. root and algorithm are
 *                 used.
 * @param request  [out] owned by the caller; free with vescomm_request_free().
 * @return as vescomm_all_gather_v_create(), without VESCOMM_ERROR_UNSUPPORTED.
 *
 * Collective: yes, same order.  Blocking: until all ranks agree.
 * Threads: one at a time per communicator.  Cost: the buffer of each other rank is written
 * once; the steps between nodes depend on the algorithm, see docs/algorithms.md.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_broadcast_create(vescomm_comm_t *comm,
                                                      vescomm_buffer_t *buffer,
                                                      const vescomm_request_options_t *options,
                                                      vescomm_request_t **request);

/**
 * Creates a barrier: completes on each rank only after every rank has started it.
 *
 * @param options  NULL: the library chooses the algorithm. Only algorithm is used.
 * @param request  [out] owned by the caller; free with vescomm_request_free().
 * @return as vescomm_all_gather_v_create(), without VESCOMM_ERROR_UNSUPPORTED.
 *
 * Collective: yes, same order.  Blocking: until all ranks agree.
 * Threads: one at a time per communicator.  Cost: as vescomm_barrier().  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_barrier_create(vescomm_comm_t *comm,
                                                    const vescomm_request_options_t *options,
                                                    vescomm_request_t **request);

/**
 * Starts a request. Requests on one communicator may overlap in time; requests on one memory must
 * not, even on buffers that lie side by side in it.
 *
 * @param stream  must be NULL for host memory, the only kind here: the operation starts
 *                immediately. gpu.h has collectives on device memory, which take a stream.
 * @return VESCOMM_OK: started. VESCOMM_ERROR_INVALID_ARGUMENT: the request is running, the stream
 *         is not NULL, or another request on the same memory runs and both need the same temporary
 *         memory; the call had no effect. (Other requests that overlap on one memory are not
 *         detected.) VESCOMM_ERROR_UNSUPPORTED: the request or its communicator has reached its
 *         maximum number of operations; the call had no effect. The first error of a broken
 *         communicator.
 *
 * Collective: yes, same order.  Blocking: no; executes the steps that are ready.
 * Threads: one at a time per communicator.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_request_start(vescomm_request_t *request, void *stream);

/**
 * Makes progress on a request and tests whether it is complete. See vescomm_request_wait() for
 * several threads.
 *
 * @return VESCOMM_OK: complete, or never started. VESCOMM_IN_PROGRESS. The first error of a broken
 *         communicator: the contents of the buffer and of outputs are undefined. After this call
 *         nothing writes to the caller's arrays. Other ranks of this node may still write to the
 *         buffer until they observe the failure; this rank and other nodes do not.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_request_test(vescomm_request_t *request);

/**
 * Waits until a request is complete. Several threads may wait for one request, while another thread
 * makes calls on its communicator; no thread may start or free the request meanwhile. A wait that
 * vescomm_set_interrupt() ended may be repeated; all waits for one start share one timeout.
 *
 * @return VESCOMM_OK. VESCOMM_IN_PROGRESS: the function of vescomm_set_interrupt() ended the wait;
 *         without such a function never. VESCOMM_ERROR_TIMEOUT: the error text names the peer that
 *         did not respond. VESCOMM_ERROR_MISMATCH: the ranks made different calls on arrays, or the
 *         request waits for a rank that has finalized the communicator. VESCOMM_ERROR_PEER_FAILED,
 *         VESCOMM_ERROR_ABORTED: as vescomm_request_test().
 *
 * Collective: no.  Blocking: yes, at most the timeout.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_request_wait(vescomm_request_t *request);

/**
 * Waits until a request is complete, and makes progress on other communicators meanwhile.
 *
 * vescomm_request_wait() makes progress on the communicator of the request. If a rank waits on one
 * communicator and another rank waits on another one, each may need bytes that only the other can
 * move. Without a progress thread both then wait until the timeout; here they do not.
 *
 * @param comms  @p count communicators; that of the request may be among them. May be NULL if
 *               @p count is 0.
 * @return as vescomm_request_wait(). If a communicator of @p comms is broken: its first error, and
 *         the request goes on. VESCOMM_ERROR_INVALID_ARGUMENT: nothing happened.
 *
 * Collective: no.  Blocking: yes, at most the timeout of the communicator of the request.
 * Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_request_wait_with(vescomm_request_t *request,
                                                       vescomm_comm_t *const *comms, size_t count);

/**
 * Describes how a request will run: its algorithm, the reason for the choice, and its steps on this
 * rank.
 *
 * @param text  [out] owned by the request, valid until it is freed.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: one at a time per communicator.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_request_explain(vescomm_request_t *request, const char **text);

/**
 * Frees a request.
 *
 * @param request  NULL: no effect. Must not be running, unless its communicator is broken.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: it is running; the call had no effect.
 *
 * Collective: no.  Blocking: no.  Threads: one at a time per communicator.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_request_free(vescomm_request_t *request);

/** A message that a request has received. Filled by vescomm_request_get_message(); append-only. */
typedef struct vescomm_message_info {
    uint32_t struct_size;
    int32_t source; /**< rank of the sender */
    int32_t tag; /**< tag of the message */
    vescomm_type_t type; /**< type of its elements, as in the receive */
    int64_t count; /**< number of its elements, as in the receive */
} vescomm_message_info_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_message_info_t vescomm_message_info_init(void) {
    vescomm_message_info_t info = {sizeof(vescomm_message_info_t), 0, 0, 0, 0};
    return info;
}

/**
 * Returns the sender and the tag of a message that a request has received. A receive from
 * VESCOMM_ANY_SOURCE finds out here where its message came from.
 *
 * @param request  a request of vescomm_receive() or of a group, which is complete. If it was
 *                 started again, the message is that of its last run.
 * @param index    number of the receive in its group, from 0, in the order of the calls; 0 for a
 *                 single receive.
 * @param info     [in,out] struct_size set by the caller, the rest filled.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: the request is running, or has no such
 *         receive; nothing is written.
 *
 * Collective: no.  Blocking: no.  Threads: safe, unless one starts the request.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_request_get_message(vescomm_request_t *request, int32_t index,
                                                         vescomm_message_info_t *info);

/* ----------------------------------------------------------------- collectives on arrays ---- */

/**
 * @defgroup arrays Collectives on arrays
 *
 * Collectives on arrays of the caller, at any address. Data between ranks passes through a staging
 * buffer of the communicator, except that of arrays in registered memory within a node
 * (vescomm_malloc()). Requests on fused buffers usually avoid it; see docs/algorithms.md.
 *
 * A call starts its operation immediately. If @p request is NULL, the call returns when the
 * operation is complete on this rank. If not, it returns at once with a request, and the arrays are
 * borrowed until the request completes: the caller must not change sources or access outputs. The
 * request can be started again, on the same arrays. It is freed with vescomm_request_free().
 *
 * In a group (vescomm_group_begin()) a call returns immediately, and @p request must be NULL. The
 * operations start at vescomm_group_end(). The arrays are borrowed until the group is complete.
 *
 * VESCOMM_ERROR_INVALID_ARGUMENT, OUT_OF_MEMORY and UNSUPPORTED have no effect. After any other
 * error the contents of the outputs are undefined, unless a function says otherwise.
 *
 * Without a progress thread (by default on one node) operations make progress only within calls of
 * the library: call vescomm_comm_progress() in long computations.
 *
 * Counts and offsets are in elements, from 0 to 2^40, and borrowed for the call. An array may be
 * NULL where its count is 0. Arrays are aligned to their elements, complex ones to their parts. A
 * *block* is the elements that one rank gets from another. Output blocks must not overlap each
 * other or any source block, except in place:
 *
 *     all_reduce, reduce            the whole source and the whole output may coincide
 *     all_gather_v, gather_v        the source may be the calling rank's block of the output
 *     reduce_scatter_v, scatter_v   the output may be the calling rank's block of the source
 *     all_to_all_v                  the calling rank's blocks of source and output may coincide
 *
 * all_gather, reduce_scatter and all_to_all are all_gather_v, reduce_scatter_v and all_to_all_v
 * with equal counts and without offsets. They are the same operation: some ranks may call the one
 * function and some the other.
 *
 * Parameters that have one meaning in all functions:
 *
 * @param comm     the communicator.
 * @param type     type of the elements of all arrays; VESCOMM_TYPE_DEFAULT is an error.
 * @param options  NULL: defaults. Borrowed for the call.
 * @param stream   must be NULL for arrays in host memory, the only kind here; see
 *                 vescomm_request_start().
 * @param request  [out] as described above, or NULL.
 * @return for all of them: VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: the call had no effect on
 *         this rank; the error text names the argument. VESCOMM_ERROR_MISMATCH: ranks made
 *         different calls; the error text names two of them, and the communicator is broken. A rank
 *         that needs no data of another rank in this call may complete it, and get this error from
 *         a later call on arrays.
 *         VESCOMM_ERROR_OUT_OF_MEMORY: the call had no effect. VESCOMM_ERROR_UNSUPPORTED: the
 *         communicator has reached its maximum number of operations; create another one.
 *         VESCOMM_ERROR_TIMEOUT, VESCOMM_ERROR_PEER_FAILED.
 * Collective: yes, same order.  Blocking: without a request, at most the timeout.
 * Threads: one at a time per communicator.  Cost: as on a buffer, plus one copy of the data between
 * ranks unless the arrays are registered.  Since: 0.1
 *
 * @{
 */

/** Details of a collective on arrays, or of a message. Append-only. */
typedef struct vescomm_call_options {
    uint32_t struct_size;
    /** vescomm_send(), vescomm_receive(): tag of the message, from 0 to 2^31 - 1. Collectives: 0.
     */
    int32_t tag;
    /** VESCOMM_PREMULTIPLIED_SUM: factor of every contribution, the same on every rank. Not 0; a
     * whole number for integers. */
    double factor;
    /** Name of the algorithm to use. NULL: the variable VESCOMM_ALGORITHM, or the library chooses.
     *  Borrowed for the call. */
    const char *algorithm;
} vescomm_call_options_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_call_options_t vescomm_call_options_init(void) {
    vescomm_call_options_t options = {sizeof(vescomm_call_options_t), 0, 0.0, NULL};
    return options;
}

/**
 * Gathers the sources of all ranks on all ranks.
 * After completion: output holds the counts[k] elements of rank k at offsets[k], for every k.
 * @param source   counts[rank] elements, where rank is the calling one.
 * @param output   holds the elements of all ranks.
 * @param counts   number of elements of each rank; the same on every rank.
 * @param offsets  of the blocks in @p output. NULL: one after another.
 */
VESCOMM_API vescomm_status_t vescomm_all_gather_v(vescomm_comm_t *comm, const void *source,
                                                  void *output, const int64_t *counts,
                                                  const int64_t *offsets, vescomm_type_t type,
                                                  const vescomm_call_options_t *options,
                                                  void *stream, vescomm_request_t **request);

/**
 * Gathers sources of equal size on all ranks.
 * After completion: output holds the @p count elements of rank k at k * @p count, for every k.
 * @param source  @p count elements.
 * @param output  @p count elements for each rank.
 * @param count   number of elements of one rank; the same on every rank.
 */
VESCOMM_API vescomm_status_t vescomm_all_gather(vescomm_comm_t *comm, const void *source,
                                                void *output, int64_t count, vescomm_type_t type,
                                                const vescomm_call_options_t *options, void *stream,
                                                vescomm_request_t **request);

/**
 * Reduces the sources of all ranks and leaves each rank its own block of the result.
 * After completion: output of rank k holds the reduction of the counts[k] elements for rank k.
 * @param source  the elements for rank 0, then those for rank 1, and so on.
 * @param output  counts[rank] elements.
 * @param counts  number of elements for each rank; the same on every rank.
 * @param op      the operator; the same on every rank.
 */
VESCOMM_API vescomm_status_t vescomm_reduce_scatter_v(vescomm_comm_t *comm, const void *source,
                                                      void *output, const int64_t *counts,
                                                      vescomm_type_t type, vescomm_op_t op,
                                                      const vescomm_call_options_t *options,
                                                      void *stream, vescomm_request_t **request);

/**
 * Reduces the sources of all ranks and leaves each rank a block of the result, of equal size.
 * After completion: output of rank k holds the reduction of the @p count elements for rank k.
 * @param source  @p count elements for each rank: those for rank 0, then those for rank 1, and so
 *                on.
 * @param output  @p count elements.
 * @param count   number of elements for one rank; the same on every rank.
 * @param op      the operator; the same on every rank.
 */
VESCOMM_API vescomm_status_t vescomm_reduce_scatter(vescomm_comm_t *comm, const void *source,
                                                    void *output, int64_t count,
                                                    vescomm_type_t type, vescomm_op_t op,
                                                    const vescomm_call_options_t *options,
                                                    void *stream, vescomm_request_t **request);

/**
 * Reduces the sources of all ranks and leaves every rank the same result, bit for bit.
 * @param source  @p count elements.
 * @param output  @p count elements.
 * @param count   the same on every rank.
 * @param op      the operator; the same on every rank.
 */
VESCOMM_API vescomm_status_t vescomm_all_reduce(vescomm_comm_t *comm, const void *source,
                                                void *output, int64_t count, vescomm_type_t type,
                                                vescomm_op_t op,
                                                const vescomm_call_options_t *options, void *stream,
                                                vescomm_request_t **request);

/**
 * Reduces the sources of all ranks and leaves the root the result.
 * @param source  @p count elements.
 * @param output  @p count elements; used on rank @p root only.
 * @param count   the same on every rank.
 * @param op      the operator; the same on every rank.
 * @param root    rank that gets the result; the same on every rank.
 */
VESCOMM_API vescomm_status_t vescomm_reduce(vescomm_comm_t *comm, const void *source, void *output,
                                            int64_t count, vescomm_type_t type, vescomm_op_t op,
                                            int32_t root, const vescomm_call_options_t *options,
                                            void *stream, vescomm_request_t **request);

/**
 * Copies the data of the root to all ranks.
 * @param data   @p count elements: read on rank @p root, written on all others.
 * @param count  the same on every rank.
 * @param root   rank whose data is copied; the same on every rank.
 */
VESCOMM_API vescomm_status_t vescomm_broadcast(vescomm_comm_t *comm, void *data, int64_t count,
                                               vescomm_type_t type, int32_t root,
                                               const vescomm_call_options_t *options, void *stream,
                                               vescomm_request_t **request);

/**
 * Gathers the sources of all ranks on the root.
 * @param source   counts[rank] elements.
 * @param output   used on rank @p root only; gets counts[k] elements of rank k at offsets[k].
 * @param counts   number of elements of each rank; the same on every rank.
 * @param offsets  of the blocks in @p output; used on rank @p root only. NULL: one after another.
 * @param root     rank that gets all blocks; the same on every rank.
 */
VESCOMM_API vescomm_status_t vescomm_gather_v(vescomm_comm_t *comm, const void *source,
                                              void *output, const int64_t *counts,
                                              const int64_t *offsets, vescomm_type_t type,
                                              int32_t root, const vescomm_call_options_t *options,
                                              void *stream, vescomm_request_t **request);

/**
 * Scatters the source of the root: each rank gets its own block.
 * @param source   used on rank @p root only; holds counts[k] elements for rank k at offsets[k].
 * @param output   counts[rank] elements.
 * @param counts   number of elements for each rank; the same on every rank.
 * @param offsets  of the blocks in @p source; used on rank @p root only. NULL: one after another.
 * @param root     rank that has all blocks; the same on every rank.
 */
VESCOMM_API vescomm_status_t vescomm_scatter_v(vescomm_comm_t *comm, const void *source,
                                               void *output, const int64_t *counts,
                                               const int64_t *offsets, vescomm_type_t type,
                                               int32_t root, const vescomm_call_options_t *options,
                                               void *stream, vescomm_request_t **request);

/**
 * Sends one block from every rank to every rank.
 * @param source          source_counts[k] elements for rank k at source_offsets[k].
 * @param source_counts   number of elements for each rank. source_counts[j] on rank k must equal
 *                        output_counts[k] on rank j.
 * @param source_offsets  of the blocks in @p source. NULL: one after another.
 * @param output          gets output_counts[k] elements of rank k at output_offsets[k].
 * @param output_counts   number of elements of each rank.
 * @param output_offsets  of the blocks in @p output. NULL: one after another.
 */
VESCOMM_API vescomm_status_t vescomm_all_to_all_v(
    vescomm_comm_t *comm, const void *source, const int64_t *source_counts,
    const int64_t *source_offsets, void *output, const int64_t *output_counts,
    const int64_t *output_offsets, vescomm_type_t type, const vescomm_call_options_t *options,
    void *stream, vescomm_request_t **request);

/**
 * Sends one block of equal size from every rank to every rank.
 * After completion: output holds the @p count elements of rank k for this rank at k * @p count.
 * @param source  @p count elements for each rank, those for rank k at k * @p count.
 * @param output  @p count elements for each rank.
 * @param count   number of elements from one rank to one rank; the same on every rank.
 */
VESCOMM_API vescomm_status_t vescomm_all_to_all(vescomm_comm_t *comm, const void *source,
                                                void *output, int64_t count, vescomm_type_t type,
                                                const vescomm_call_options_t *options, void *stream,
                                                vescomm_request_t **request);

/** The peer of a vescomm_receive() that takes a message of any rank. */
#define VESCOMM_ANY_SOURCE (-2)

/**
 * Sends a message to one rank, which calls vescomm_receive(). No other rank takes part.
 * The peer may receive before or after this call. A receive matches a message by sender and tag
 * (vescomm_call_options_t.tag, 0 by default); count and type must then be equal. Messages of one
 * sender and tag are received in the order in which they are sent; messages with other tags may be
 * received before them.
 * After completion: source may be changed.
 *
 * A send may complete before the peer receives. The *limit* is 128 KiB in a communicator of up to 8
 * ranks, less in a larger one, and 2 KiB in one of 512 ranks and more. A message within the limit
 * completes immediately if at most three earlier messages to the same peer are unreceived. A larger
 * message completes when at most *limit* bytes of it have not been received yet. Programs must not
 * rely on this, as in MPI: two ranks that send to each other put their sends and receives in a
 * group.
 *
 * A sender has four slots for each peer. If a receive waits for a message behind them, the receiver
 * copies the earlier, unmatched messages into its memory, at most 256 MiB for a communicator; each
 * message counts about 100 bytes more than its data. At this maximum, the receive waits until some
 * of these messages are received.
 *
 * @param source  @p count elements.
 * @param count   number of elements; 0: a message without data.
 * @param peer    rank of the receiver; may be the calling rank.
 * @return as the collectives. VESCOMM_ERROR_INVALID_ARGUMENT: there is no such peer.
 *         VESCOMM_ERROR_MISMATCH: the peer received another count or type; the error text names
 *         both. VESCOMM_ERROR_TIMEOUT, VESCOMM_ERROR_PEER_FAILED: the error text names the peer.
 * Collective: no; matches one vescomm_receive() of the peer.  Blocking: as the collectives.
 * Threads: as the collectives.  Cost: two copies, which overlap.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_send(vescomm_comm_t *comm, const void *source, int64_t count,
                                          vescomm_type_t type, int32_t peer,
                                          const vescomm_call_options_t *options, void *stream,
                                          vescomm_request_t **request);

/**
 * Receives a message that a rank sends with vescomm_send(). No other rank takes part.
 * It takes the oldest message of the peer that has its tag (see @p options) and that no earlier
 * receive takes. From VESCOMM_ANY_SOURCE it takes the oldest such message of some rank, and serves
 * ranks round robin: many messages of one rank do not delay those of the others. The calling rank
 * is one of them, because another of its threads may send to it. A wait on VESCOMM_ANY_SOURCE
 * therefore lasts until the timeout if all other ranks have finalized the communicator.
 * After completion: output holds the message. vescomm_request_get_message() returns its sender.
 * @param output  @p count elements.
 * @param count   number of elements; with 0 the call completes when the peer has sent.
 * @param peer    rank of the sender, which may be the calling rank; or VESCOMM_ANY_SOURCE.
 * @return as vescomm_send(). After VESCOMM_ERROR_MISMATCH the output is unchanged.
 *         VESCOMM_ERROR_TIMEOUT: the error text names the peer, or the messages that this rank
 *         holds and nobody has received.
 * Collective: no; matches one vescomm_send() of the peer.  Blocking: as the collectives.
 * Threads: as the collectives.  Cost: as vescomm_send().  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_receive(vescomm_comm_t *comm, void *output, int64_t count,
                                             vescomm_type_t type, int32_t peer,
                                             const vescomm_call_options_t *options, void *stream,
                                             vescomm_request_t **request);

/**
 * Begins a group: the following calls on arrays are collected until vescomm_group_end(). Other
 * calls take effect immediately, as usual.
 *
 * Collectives that differ only in their arrays and counts become one operation, whatever their
 * number. Sends and receives remain separate operations and run concurrently, so ranks that send to
 * one another in a group do not deadlock. Messages between two ranks with one tag keep their order.
 * The other calls of a group have no order: no call may write elements that another one reads or
 * writes. This is not checked.
 *
 * A call that returns an error is not part of the group, and the group stays open. A group that has
 * not ended when its communicator is freed has no effect. Groups cannot be nested.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: a group has begun already.
 * Collective: no.  Blocking: no.  Threads: one at a time per communicator.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_group_begin(vescomm_comm_t *comm);

/**
 * Ends a group and starts all of its calls.
 * @param request  [out] one request for the whole group; free with vescomm_request_free(). NULL:
 *                 the call returns when all operations are complete on this rank.
 * @return as the collectives. VESCOMM_ERROR_INVALID_ARGUMENT: no group has begun, there is no such
 *         algorithm, or one operation has more than 2^40 elements; nothing has started, and the
 *         group has ended. VESCOMM_ERROR_OUT_OF_MEMORY: nothing has started. The group
 *         stays open, unless the communicator is broken and @p request is NULL.
 *         After other errors operations may have run.
 * Collective: yes, same order.  Blocking: without a request, at most the timeout.
 * Threads: one at a time per communicator.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_group_end(vescomm_comm_t *comm, vescomm_request_t **request);

/** @} */

/* --------------------------------------------------------------------------------- trace ---- */

/**
 * Starts recording spans (named intervals of time) on this rank: requests, waits, and spans of the
 * caller.
 *
 * @param spans  maximum number of spans to keep; later ones are counted and dropped. 0: 1,000,000.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: @p comm is NULL.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_trace_start(vescomm_comm_t *comm, uint64_t spans);

/**
 * Returns the time in seconds of the clock that spans use. All processes of a machine share it.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API double vescomm_trace_get_seconds(void);

/**
 * Records a span of the caller. Has no effect when no trace was started.
 *
 * @param name   name of the span, such as "forward block.3".
 * @param track  row of the timeline, such as "compute".
 * @param begin,end  times of vescomm_trace_get_seconds().
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_trace_add_span(vescomm_comm_t *comm, const char *name,
                                                    const char *track, double begin, double end);

/** A value that a span carries: a text, or a number if the text is NULL. */
typedef struct vescomm_trace_argument {
    const char *name; /**< such as "bytes"; unique in its span */
    const char *text; /**< NULL: the value is the number */
    double number; /**< not used with a text */
} vescomm_trace_argument_t;

/**
 * Records a span of the caller with values, such as the bytes that it has moved. They are the
 * "args" of its event in the file; Perfetto shows them when the span is selected, and sums them up
 * by query. Has no effect when no trace was started.
 *
 * @param name,track,begin,end  as vescomm_trace_add_span().
 * @param arguments  @p count values. Borrowed for the call. May be NULL if @p count is 0.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_trace_add_span_with(vescomm_comm_t *comm, const char *name,
                                                         const char *track, double begin,
                                                         double end,
                                                         const vescomm_trace_argument_t *arguments,
                                                         size_t count);

/**
 * Writes the spans of all ranks into one file in the Chrome trace event format, which Perfetto
 * opens. The limit is 512 MiB for all ranks together; each rank has an equal part of it. Spans
 * beyond a rank's part are dropped, and their number is shown as a label of the rank's process in
 * the timeline.
 *
 * @param path  path of the file, which rank 0 writes; an existing file is replaced. Other ranks may
 *              pass NULL.
 * @return VESCOMM_OK. VESCOMM_ERROR_SYSTEM on every rank: the file cannot be written.
 *         VESCOMM_ERROR_INVALID_ARGUMENT on every rank: the path names a device, a pipe or a
 *         socket. VESCOMM_ERROR_TIMEOUT, VESCOMM_ERROR_PEER_FAILED.
 *
 * Collective: yes, same order.  Blocking: yes.  Threads: one at a time per communicator.
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_trace_write(vescomm_comm_t *comm, const char *path);

/* ----------------------------------------------------------------------- flight recorder ---- */

/**
 * Writes the last operations of this rank into a file; an existing file is replaced. The file has
 * one line of JSON that identifies the rank, and one line for each operation with its number, its
 * description, its state and, except for most short operations, the time of its start. A
 * communicator always records its last 128 operations. If VESCOMM_FLIGHT_RECORDER names a file, the
 * communicator also writes that file when it breaks. `vescomm-info --flight FILES` compares the
 * files of several ranks and reports the rank that is behind.
 *
 * @param path  path of the file. In it %r stands for this rank, %c for the number of the
 *              communicator in this process, counted from 0, %p for the process id, and %% for a %.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: also for the path of a device, a pipe or a
 *         socket. VESCOMM_ERROR_SYSTEM: the file cannot be written. VESCOMM_ERROR_TIMEOUT: the file
 *         system does not respond; the file may be written later.
 *
 * Collective: no.  Blocking: while the file is written.  Threads: safe, also while another thread
 * waits.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_flight_recorder_write(const vescomm_comm_t *comm,
                                                           const char *path);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The FSDP engine: training with parameters, gradients and optimizer state in ragged shards. A unit
 * of the model is gathered only while it computes. Read this header from top to bottom:
 *
 *     specification   units, parameters, placements, optimizers: no communicator, no memory
 *     report          bytes of memory and bytes on the wire, before anything is allocated
 *     engine          events of the trainer, parameters, gradients, the step
 *
 *     master shard ──all_gather_v, cast──► unit slot, one for the node ──► the trainer computes
 *          ▲                                                                │
 *      optimizer ◄── gradient shard (f32) ◄──reduce_scatter_v── gradient slot, the trainer writes
 *
 * Terms. A *unit slot* is memory for one gathered unit at a time; several units use it in turn. A
 * *gradient slot* is the same for the gradients of a unit, before they are summed over ranks. A
 * *piece* is the part of one parameter that lies in one shard.
 *
 * The conventions of vescomm.h apply, those of fork() also to engines and jobs. One exception: some
 * functions that read or set a property have no get or set in their names, such as
 * vescomm_fsdp_parameter() and vescomm_fsdp_preset().
 *
 * Misuse. An event, vescomm_fsdp_parameter(), vescomm_fsdp_gradient(), vescomm_fsdp_push_gradient()
 * and vescomm_fsdp_step() fail when the order of events does not permit them. They also
 * fail when ranks announce different events or pass different options. The error text names the
 * event and the unit. Such an error ends the step on all ranks: the waits of the other ranks return
 * VESCOMM_ERROR_ABORTED or VESCOMM_ERROR_MISMATCH with this error text, and every later call
 * returns the first error, until all ranks call vescomm_fsdp_reset() or, after the death of a rank,
 * the survivors call vescomm_fsdp_recover(). The parameters and the state of the optimizer are
 * unchanged. A wrong pointer or struct_size has no such effect: nothing happens.
 *
 * "Threads: one" means: one thread at a time uses the engine and its communicator.
 */
#ifndef VESCOMM_FSDP_H
#define VESCOMM_FSDP_H

#include "vescomm/loss_scale.h"
#include "vescomm/optimizer.h"
#include "vescomm/planner.h"
#include "vescomm/vescomm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------- specification ---- */

/** A description of a model and its sharding. The same on every rank. */
typedef struct vescomm_fsdp_spec vescomm_fsdp_spec_t;

/** Source of the order in which units are prefetched. */
typedef int32_t vescomm_fsdp_order_t;

/** Units in the order in which they were added, and in the opposite order for backward. */
#define VESCOMM_FSDP_DECLARED ((vescomm_fsdp_order_t)0)
/** The order of the previous micro-batch. If a micro-batch uses units in another order, they are
 *  gathered on demand, the deviation is counted, and its order is recorded for the next one. */
#define VESCOMM_FSDP_RECORDED ((vescomm_fsdp_order_t)1)
/** No prefetch: the trainer calls vescomm_fsdp_unshard() itself. */
#define VESCOMM_FSDP_EXPLICIT ((vescomm_fsdp_order_t)2)

/** Memory that an engine uses. */
typedef int32_t vescomm_fsdp_memory_t;

/** All is in host memory. */
#define VESCOMM_FSDP_HOST ((vescomm_fsdp_memory_t)0)
/** Slots, gradients, masters and states are in the memory of a GPU. Experimental, like gpu.h. */
#define VESCOMM_FSDP_DEVICE ((vescomm_fsdp_memory_t)1)

/** How masters in bf16 or f16 are rounded after a step. */
typedef int32_t vescomm_fsdp_rounding_t;

/** To one of the two numbers beside the value, each with a probability that makes the expected
 * result the value itself, so that small changes count. The random bits of an element are a
 * function of the seed of the options, the names of unit and parameter, the number of the step and
 * the number of the element: they do not depend on ranks, presets or threads. With f16, what a
 * value has below 2^-40 is dropped. */
#define VESCOMM_FSDP_ROUND_STOCHASTIC ((vescomm_fsdp_rounding_t)0)
/** To the nearest number, ties to even, as PyTorch does with such parameters. A change of less than
 * half of the distance to the next one is lost. The distance is at most 1 / 128 of the value for
 * bf16, and 1 / 1024 for f16; for f16 below 2^-14 it is 2^-24. */
#define VESCOMM_FSDP_ROUND_NEAREST ((vescomm_fsdp_rounding_t)1)

/** Memory of the program for engines: huge pages, memory near a device, memory of a device from a
 *  caching allocator, or memory that it counts.
 *  Append-only. */
typedef struct vescomm_fsdp_allocator {
    uint32_t struct_size;
    uint32_t reserved;
    void *context; /**< passed to the functions; valid until all engines are freed */
    /** Returns @p bytes bytes, at least 1, at a multiple of @p alignment, which is 64, with any
     *  contents. NULL: there are no more, and the call of the engine fails with
     *  VESCOMM_ERROR_OUT_OF_MEMORY. Called by the thread that calls the engine; must not call
     *  functions of that engine, nor throw. */
    void *(*allocate)(void *context, uint64_t bytes, uint64_t alignment);
    /** Takes memory of allocate() back. As allocate(), and it must not fail. */
    void (*deallocate)(void *context, void *memory, uint64_t bytes);
} vescomm_fsdp_allocator_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_fsdp_allocator_t vescomm_fsdp_allocator_init(void) {
    vescomm_fsdp_allocator_t allocator = {sizeof(vescomm_fsdp_allocator_t), 0, NULL, NULL, NULL};
    return allocator;
}

/** Options of a specification. Append-only; a zero member means its default. */
typedef struct vescomm_fsdp_spec_options {
    uint32_t struct_size;
    /** Type of gathered parameters: f32, bf16, f16, f8e4m3 or f8e5m2. 0: f32. Masters have
     *  master_type. They are rounded to f8 without a scale; with gather_type each block has one. */
    vescomm_type_t compute_type;
    /** Type of the gradients that the trainer writes and that are sent: f32, bf16 or f16. Ranks are
     *  summed in f32, and so are micro-batches, unless whole gradients are kept (keep_gradients,
     *  zero1): those of several micro-batches are added in this type; choose f32 then. 0: the type
     *  of the parameter; bf16 if that is f8. */
    vescomm_type_t gradient_type;
    /** Number of unit slots: units gathered at the same time, prefetched ones included. 0: 2. Not
     *  used if parameters are kept gathered. */
    int32_t slots;
    /** Number of gradient slots: units whose gradients are written or in transfer at the same time.
     *  0: 2. Not used if whole gradients are kept. A unit to whose parameters another one is tied
     *  holds its slot from the first backward pass of these units to its own: give one more for
     *  each such unit that is not large. */
    int32_t gradient_slots;
    vescomm_fsdp_order_t order;
    /** Not 0: a gathered unit stays gathered until the next step; takes a unit slot for each unit.
     */
    int32_t keep_gathered;
    /** Not 0: keep whole gradients of all units on each rank, so that VESCOMM_FSDP_NO_SYNC is
     *  permitted and gradients are sent once a step. */
    int32_t keep_gradients;
    /** Not 0: gradients are averaged over ranks. 0: summed. */
    int32_t average;
    uint32_t reserved;
    /** Seed of the keys of vescomm_fsdp_initialise(), and of master_rounding. */
    uint64_t seed;
    /** Options of the planner. NULL: balanced over all units. Borrowed for the call. */
    const vescomm_planner_options_t *planner;
    /** Type in which parameters are sent: VESCOMM_I8 or VESCOMM_F8E4M3, with an f32 scale for each
     *  block. They are rounded to it on every rank, also on the one that owns them. Parameters in
     *  f8 keep their own type, and so do those with batch_dimensions whose sub-matrices are so
     *  small that codes and scales would not take fewer bytes, such as one value for each expert.
     *  0: their own type. */
    vescomm_type_t gather_type;
    /** Largest number of elements that share one scale. Such a scale block consists of whole blocks
     *  of a parameter, or is a part of one; it stays on one rank. 0: 128. */
    int32_t gather_block;
    /** Type in which gradients are sent: VESCOMM_I8 or VESCOMM_F8E4M3, with an f32 scale for each
     *  block of gather_block. A contribution is rounded once, also that of the rank that owns the
     *  shard, and contributions are summed in f32 in the order of ranks. If a gradient of a
     *  block is not finite, all sums of that block are NaN. A gradient keeps its own type if codes
     *  and scales would take no fewer bytes. So does a gradient of experts that one rank of the
     *  shard group alone holds. Sums over replicas are f32, so reduce_type is an error if no axis
     *  shards (ddp). 0: the type of the gradients. */
    vescomm_type_t reduce_type;
    /** Not 0: each rank holds a copy of another rank's masters and states in its memory, on another
     *  node if there is one, so that vescomm_fsdp_recover() needs no checkpoint after the death of
     *  one rank. No effect with replicas (ddp, hsdp, mics), which are such copies. Optimizers are
     *  called for the copy, too: all that they keep between steps must be in their states. */
    int32_t partner_copy;
    /** Folder of a local disk for masters and states of optimizers, instead of memory. Each rank
     *  has a file without a name there, which ends with the process. The step reads the values of a
     *  unit while it updates those of another one. Values have the same bits as in memory. On
     *  device memory an error without offload_to_host; gathers then copy masters to pinned memory.
     *  May differ between ranks. NULL: all in memory. */
    const char *offload_folder;
    /** Number of consecutive ranks that keep a secondary copy of the gathered parameters together,
     *  a divisor of the ranks that shard a unit. The first gather of a unit after a step fills the
     *  copy, in the type in which the unit is sent; each gather then stays within the ranks of one
     *  copy, so it is fast if these are a node. Values have the same bits. A gather that fills the
     *  copy has two phases; the second one begins in a later call of the engine on each rank of the
     *  group. An error if all units stay gathered until the step (keep_gathered, zero1, zero2,
     *  ddp); units with VESCOMM_FSDP_KEEP_GATHERED are permitted. No effect if there is a slot for
     *  each unit. 0: no copy. */
    int32_t reshard_ranks;
    uint32_t reserved2;
    /** A unit whose gathered parameters have more bytes is *large*. Large units have slots of their
     *  own, so that one of them, such as an embedding, does not decide the size of all slots. All
     *  large units share one unit slot and one gradient slot, so that one of them can be open at a
     *  time. Tied parameters can make one unit need several large units at once: the largest such
     *  number is the number of unit slots for large units. There are as many gradient slots for
     *  them, and one more for each large unit whose parameters other units use. A large unit that
     *  is alone in its slot stays gathered until the step. No effect if there is a slot for each
     *  unit. 0: no unit is large. */
    int64_t large_unit_bytes;
    /** Number of ranks among which the experts of units with VESCOMM_FSDP_EXPERTS are divided: a
     *  divisor of the number of experts of each of their parameters, and of the number of ranks
     *  that shard a unit. An error with secondary copies (reshard_ranks, hpz). 0: 1, so that each
     *  rank has all experts. */
    int32_t expert_ranks;
    /** Divisor of the gradients of experts, if expert_ranks is above 1 and gradients are averaged.
     *  They are summed over the ranks with the same experts and over replicas. 0: the number of all
     *  ranks, because each rank's tokens reach the experts of every rank. */
    int32_t expert_divisor;
    /** VESCOMM_FSDP_DEVICE: the engine is in the memory of the device that is current at its
     *  creation, which must be current in all calls on it: others are refused, and change nothing.
     *  All views have device addresses, and the trainer's work is on the stream of the events. Each
     *  rank has a GPU of its own.
     *  Optimizer: of vescomm, with device_step (optimizer.h), or any with offload_to_host.
     *  Gradients are summed in gradient_type by NCCL; with reduce_type, and on a communicator with
     *  reproducible sums, by kernels in f32. Copies of partner_copy are in host memory, and their
     *  optimizers run on the host. 0: VESCOMM_FSDP_HOST. */
    vescomm_fsdp_memory_t memory;
    /** Not 0, with VESCOMM_FSDP_DEVICE: masters, gradient shards and states of optimizers are in
     *  pinned host memory, which kernels read and write through PCIe, and optimizers run on the
     *  host. The memory of the device has no shards. Values have the same bits, and views of shards
     *  have addresses of the host. 0: all in the memory of the device. */
    int32_t offload_to_host;
    /** Number of threads of this rank that update its shards in vescomm_fsdp_step(), the caller's
     *  included, if shards are in host memory and the kind of the optimizer is `concurrent`. The
     *  others sleep outside of steps; they have the cores of the thread that created the engine.
     *  Values have the same bits. May differ between ranks. At most 1024. 0: the number of those
     *  cores, divided by the number of ranks of this node that have the same cores, at most 16. */
    int32_t update_threads;
    uint32_t reserved3;
    /** Type of masters: f32, or bf16 or f16 for a model without f32 copies of its parameters, in 2
     *  bytes an element. Optimizers compute in f32: they get an f32 copy of a part of the masters,
     *  which is rounded after the step, see master_rounding. Initial values, and values of a
     *  checkpoint in another type, are rounded to the nearest. With bf16 and f16 each parameter is
     *  gathered in f32 or the type of masters; other types are errors. f16 has no number beyond
     *  65504: larger values become infinite, from 65520 on in all cases. 0: f32. */
    vescomm_type_t master_type;
    /** With a master_type of bf16 or f16. 0: VESCOMM_FSDP_ROUND_STOCHASTIC. */
    vescomm_fsdp_rounding_t master_rounding;
    /** Allocates the memory of an engine that is of this rank alone: masters, gradient shards,
     *  states of optimizers, scratch, codes, secondary and partner copies. Slots are not among it,
     *  because ranks of a node share them, nor are partial sums, values in offload_folder and small
     *  tables. With VESCOMM_FSDP_DEVICE it returns memory of the device that is current, which work
     *  of any stream may use at once, such as that of cudaMalloc() or of a caching allocator; the
     *  work of the device is complete when it gets memory back. Memory of the host, such as that of
     *  partner copies, and memory that NCCL registers are not among it then. May differ between
     *  ranks. Copied by the call, but for its context. NULL: memory of the process, or of
     *  cudaMalloc(). */
    const vescomm_fsdp_allocator_t *allocator;
} vescomm_fsdp_spec_options_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_fsdp_spec_options_t vescomm_fsdp_spec_options_init(void) {
    vescomm_fsdp_spec_options_t options = {sizeof(vescomm_fsdp_spec_options_t),
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           NULL,
                                           0,
                                           0,
                                           0,
                                           0,
                                           NULL,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           NULL};
    return options;
}

/**
 * Creates an empty specification.
 *
 * @param options  NULL: defaults. Borrowed for the call.
 * @param spec     [out] owned by the caller; free with vescomm_fsdp_spec_free().
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: the error text names the option.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_spec_create(const vescomm_fsdp_spec_options_t *options,
                                                      vescomm_fsdp_spec_t **spec);

/**
 * Frees a specification. Engines created from it keep their own copy.
 *
 * @param spec  NULL: no effect.
 * @return VESCOMM_OK.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_spec_free(vescomm_fsdp_spec_t *spec);

/** Placement of values along an axis of ranks. */
typedef int32_t vescomm_fsdp_placement_t;

/** Each rank has its shard. */
#define VESCOMM_FSDP_SHARD ((vescomm_fsdp_placement_t)0)
/** Each rank has the same values. */
#define VESCOMM_FSDP_REPLICATE ((vescomm_fsdp_placement_t)1)
/** Gradients only: each rank keeps its own whole contribution until the last micro-batch. */
#define VESCOMM_FSDP_PARTIAL ((vescomm_fsdp_placement_t)2)

/**
 * Adds an axis to the mesh of ranks. The last axis has consecutive ranks. Without an axis the
 * preset is zero3.
 *
 * Each axis has the placements of one of these rows. Axes of the first row come first: the ranks
 * along these axes are replicas. The later axes share one of the other rows, and masters and states
 * of optimizers are sharded over the ranks along all later axes together. One mixture is permitted:
 * axes of zero2, then axes of zero3. Each group of ranks along the zero3 axes then keeps a
 * secondary copy of the parameters (hpz; see reshard_ranks of the options).
 *
 *     parameters  gradients  optimizer   as in
 *     replicate   replicate  replicate   ddp; hsdp and mics, before a row below; or partial
 *     replicate   partial    shard       zero1
 *     replicate   shard      shard       zero2
 *     shard       shard      shard       zero3; partial: with keep_gradients
 *
 * A program with a mesh of several dimensions, such as replicas, data and context, adds an axis for
 * each dimension whose ranks train the same parameters, as copies or as shards. Along other
 * dimensions, such as tensor and pipeline, ranks have different parameters: each group with the
 * same ones has a communicator of vescomm_comm_split(), and an engine on it.
 *
 * @param name  unique; used in error texts.
 * @param size  number of ranks along the axis. 0: all that the other axes leave; at most one axis
 *              has it.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT. VESCOMM_ERROR_UNSUPPORTED: other placements,
 *         or another order of them.
 *
 * Collective: no.  Blocking: no.  Threads: one.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_add_axis(vescomm_fsdp_spec_t *spec, const char *name,
                                                   int32_t size,
                                                   vescomm_fsdp_placement_t parameters,
                                                   vescomm_fsdp_placement_t gradients,
                                                   vescomm_fsdp_placement_t optimizer);

/**
 * Replaces the axes by those of a preset.
 *
 *              parameters     gradients            optimizer state
 *     ddp      replicated     replicated           replicated
 *     zero1    kept gathered  whole on each rank   sharded
 *     zero2    kept gathered  sharded              sharded
 *     zero3    sharded        sharded              sharded
 *     hsdp:K   as zero3 among K consecutive ranks; groups of K ranks are replicas
 *     mics:K   another name of hsdp:K
 *     hpz:K    as zero3, with a secondary copy of gathered parameters on each K consecutive ranks
 *
 * Kept gathered: masters are sharded, and a gathered copy of all parameters stays on every node, in
 * one unit slot for each unit. Whole on each rank: gradients are summed over the ranks once a step,
 * in the last micro-batch. With ddp, hsdp and mics they are summed over the replicas once a step,
 * in the last micro-batch. Secondary copy: see reshard_ranks of the options.
 *
 * @param preset  one of the names above.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: there is no such preset.
 *
 * Collective: no.  Blocking: no.  Threads: one.
 * Source: Rajbhandari et al., "ZeRO", 2020; Zhang et al., "MiCS", 2022; Wang et al., "ZeRO++",
 * 2023.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_preset(vescomm_fsdp_spec_t *spec, const char *preset);

/** The first dimension of each parameter of the unit counts experts, which are divided among
 *  expert_ranks consecutive ranks (vescomm_fsdp_spec_options_t). Rank r has the r % expert_ranks-th
 *  part of them. Its views of parameters and gradients have its experts only. The ranks with the
 *  same experts shard them, and sum their gradients. */
#define VESCOMM_FSDP_EXPERTS ((uint32_t)1)
/** The unit has a unit slot of its own, beside those of the options, so that it stays gathered
 *  until the step: for a unit whose backward pass follows its forward pass soon, or whose gather
 *  takes longer than the memory is worth. No effect if there is a slot for each unit. */
#define VESCOMM_FSDP_KEEP_GATHERED ((uint32_t)2)

/**
 * Adds a unit: parameters that are gathered together, usually a layer.
 *
 * A unit consists of experts, or of parameters that all ranks train. Units of experts have unit
 * slots and gradient slots of their own, as many as the others, and are never large.
 *
 * @param name   unique, not empty; UTF-8 without control characters.
 * @param flags  0, or a sum of VESCOMM_FSDP_EXPERTS and VESCOMM_FSDP_KEEP_GATHERED.
 * @param unit   [out] number of the unit, counted from 0.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: one.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_add_unit(vescomm_fsdp_spec_t *spec, const char *name,
                                                   uint32_t flags, uint64_t *unit);

/** The parameter has no gradient and no optimizer state. */
#define VESCOMM_FSDP_FROZEN ((uint32_t)1)
/** The engine does not manage the parameter: it has an id, but no memory. */
#define VESCOMM_FSDP_IGNORED ((uint32_t)2)
/** Each matrix of the parameter stays on one rank, as with block_rows -1: for an optimizer that
 *  works on whole matrices and does not say so in its needs, and for shards that a program reads.
 *  The flags of a parameter are in its pieces, so that an optimizer can treat matrices otherwise
 *  than vectors. */
#define VESCOMM_FSDP_MATRIX ((uint32_t)4)
/** The parameter lies whole on every rank, with its states: for small parameters, such as those of
 *  norms. It is not gathered. Its gradient is summed over all ranks, in f32, once a step, in
 *  vescomm_fsdp_finish_backward() of the last micro-batch; each rank applies the same update. It is
 *  neither in the shards nor in the pieces of its unit. Not in units of experts; gather_type and
 *  reduce_type do not apply. No effect if no axis shards (ddp). */
#define VESCOMM_FSDP_REPLICATED ((uint32_t)8)

/** Description of a parameter, for vescomm_fsdp_add_parameter(). (The function
 *  vescomm_fsdp_parameter() returns the gathered values of one.) Append-only; a zero member means
 *  its default. */
typedef struct vescomm_fsdp_parameter_t {
    uint32_t struct_size;
    /** Number of entries of shape, at most 64; 0 is a scalar. */
    int32_t dimensions;
    /** Unique within its unit. The name of the unit, a dot and this name are together unique in the
     *  model: at most 896 bytes of UTF-8, without control characters. Borrowed for the call. */
    const char *name;
    /** Row-major extents, each at least 0; of experts, those of all ranks together. Borrowed for
     *  the call. */
    const int64_t *shape;
    /** Type of the gathered parameter. 0: the compute type of the specification. */
    vescomm_type_t type;
    /** Leading dimensions that index sub-matrices. The grid of blocks restarts at each of them. At
     *  least 1 in a unit of experts, also if 0 is given. */
    int32_t batch_dimensions;
    /** Rows of a block, which stays on one rank, as in vescomm_planner_tensor_t. 0: 1. */
    int64_t block_rows;
    /** Consecutive elements of a block, instead of block_rows. 0: block_rows applies. */
    int64_t block_elements;
    /** 0, or a sum of VESCOMM_FSDP_FROZEN, VESCOMM_FSDP_IGNORED, VESCOMM_FSDP_MATRIX and
     *  VESCOMM_FSDP_REPLICATED. */
    uint32_t flags;
    uint32_t reserved;
    /** Id of an earlier parameter of the same shape whose values this one uses, also of another
     *  unit; -1: none. Its type, batch_dimensions, blocks and flags apply: give the same, or 0.
     *  Both units are gathered while this one is open. vescomm_fsdp_parameter_init() sets -1. */
    int64_t tied_to;
    /** Overrides gather_type of the specification for this parameter; its own type: not quantised.
     *  0: as the specification. A tied parameter has the value of the parameter that it shares. */
    vescomm_type_t gather_type;
    uint32_t reserved_2;
} vescomm_fsdp_parameter_t;

/** Returns the struct with struct_size set, tied_to -1, all other members zero. Since: 0.1 */
static inline vescomm_fsdp_parameter_t vescomm_fsdp_parameter_init(void) {
    vescomm_fsdp_parameter_t parameter = {
        sizeof(vescomm_fsdp_parameter_t), 0, NULL, NULL, 0, 0, 0, 0, 0, 0, -1, 0, 0};
    return parameter;
}

/**
 * Adds a parameter to a unit.
 *
 * @param unit  of vescomm_fsdp_add_unit().
 * @param id    [out] number of the parameter in the whole model, counted from 0.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: the error text names unit and parameter.
 *
 * Collective: no.  Blocking: no.  Threads: one.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_add_parameter(vescomm_fsdp_spec_t *spec, uint64_t unit,
                                                        const vescomm_fsdp_parameter_t *parameter,
                                                        uint64_t *id);

/**
 * Gives parameters an optimizer and its settings. A parameter is in at most one group. Parameters
 * in no group form one group with AdamW and its default settings.
 *
 * @param parameters  @p count ids; neither frozen nor ignored nor tied. Borrowed for the call.
 * @param kind        copied, also its default_settings. Its name, its context and its functions
 *                    must exist as long as the specification and its engines.
 * @param settings    settings->struct_size bytes are copied; members that they lack have the
 *                    defaults of the kind. NULL if the kind has no settings.
 * @param group       [out] number of the group, counted from 0. May be NULL.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: also when the kind rejects the settings.
 *
 * Collective: no.  Blocking: no.  Threads: one.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_add_group(vescomm_fsdp_spec_t *spec,
                                                    const uint64_t *parameters, size_t count,
                                                    const vescomm_optimizer_kind_t *kind,
                                                    const void *settings, uint64_t *group);

/* -------------------------------------------------------------------------------- report ---- */

/** Memory of one rank, and what it receives. Bytes unless a member says otherwise. Append-only. */
typedef struct vescomm_fsdp_report_t {
    uint32_t struct_size;
    /** [in] Rank to report on. vescomm_fsdp_report_init() sets -1: the rank with the largest
     *  peak_bytes. [out] the rank. */
    int32_t rank;
    /** [in] Micro-batches of a step. 0: 1. [out] the number. */
    int32_t micro_batches;
    int32_t shard_ranks; /**< ranks among which a unit is sharded, unless it has experts */
    int64_t parameters; /**< elements of all parameters, tied ones once */
    int64_t padding; /**< elements of all ranks of a shard group that belong to no parameter */
    /** Elements that this rank has, with padding and replicated parameters. */
    int64_t shard_elements;
    uint64_t master_bytes; /**< masters, in master_type */
    uint64_t gradient_bytes; /**< f32 gradient shards */
    uint64_t optimizer_bytes; /**< states of the optimizers */
    uint64_t persistent_bytes; /**< the three above together */
    /** Gathered parameters: one copy for the ranks of a node that are in one shard group, or in one
     *  group of reshard_ranks. Units of experts: one copy for those that hold the same experts. */
    uint64_t slot_bytes;
    uint64_t gradient_slot_bytes; /**< gradients before they are summed */
    /** Sums of a further micro-batch, before they are added. On device memory: sums that are
     *  multiplied by a factor (average, f16), and with offload_to_host sums over replicas and of
     *  replicated parameters. On device memory an engine whose communicator asks for reproducible
     *  sums has at most 32 MiB more for each of these two, which no member has. */
    uint64_t scratch_bytes;
    /** persistent_bytes, slot_bytes, gradient_slot_bytes, scratch_bytes, code_bytes, partner_bytes,
     *  secondary_bytes, converted_bytes, partial_sum_bytes, widened_bytes and staged_bytes, without
     *  file_bytes. Slots that ranks of a node share count on each of them. */
    uint64_t peak_bytes;
    uint64_t gathers_per_step; /**< gathers of units */
    /** Bytes of gathered parameters of other ranks that this rank needs in a step, as they are
     *  sent, with their scales. */
    uint64_t gather_bytes_per_step;
    /** Bytes of its gradients that this rank gives to other ranks of its shard group in a step, as
     *  they are sent, with their scales. */
    uint64_t reduce_bytes_per_step;
    /** Bytes of gradient shards that this rank contributes to the sum over replicas in a step, and
     *  of gradients of replicated parameters that it contributes to the sum over all ranks. */
    uint64_t replica_bytes_per_step;
    /** Bytes of one rank without sharding: master, gradient, states, and a gathered copy if the
     *  compute type is not that of the masters. */
    uint64_t replicated_bytes;
    /** Memory for values in 8 bits that are being sent, with their scales: parameters of all ranks
     *  (once for the ranks of a node in one shard group) and of this rank; gradients of this rank,
     *  and those received. Part of peak_bytes. */
    uint64_t code_bytes;
    /** Copies of another rank's masters, gradients and states, with partner_copy, and gradients of
     *  this rank's device that are sent. The other rank is on another node, if there is one; on one
     *  node it is the previous one. */
    uint64_t partner_bytes;
    /** Bytes of gradient shards that this rank gives to the holder of its copy in a step. */
    uint64_t partner_bytes_per_step;
    /** Masters and states in the file of offload_folder, including the partner copy. They are in
     *  the members above, but not in peak_bytes, because the system can reclaim the pages of the
     *  file. */
    uint64_t file_bytes;
    /** This rank's part of a secondary copy of all gathered parameters, with reshard_ranks, and
     *  memory for shards that are converted to fill copies. Part of peak_bytes. */
    uint64_t secondary_bytes;
    /** The part of gather_bytes_per_step that stays within a group of reshard_ranks. */
    uint64_t group_gather_bytes_per_step;
    /** Ranks that gather a unit together, and share slots if they are on one node: shard_ranks, or
     *  reshard_ranks. */
    int32_t gather_ranks;
    int32_t expert_shard_ranks; /**< ranks among which a unit of experts is sharded */
    /** The part of peak_bytes that holds values in forward: masters, states, slots, codes of
     *  parameters and secondary copies; with several micro-batches also sums or gradients of
     *  earlier ones. The rest is allocated in forward, too: an engine allocates when it is created
     *  (scratch_bytes at the first use). A slot or copy in use counts whole. */
    uint64_t forward_bytes;
    /** The same for backward, with finish_backward: all but gradients of a partner copy. Includes
     *  partial_sum_bytes. */
    uint64_t backward_bytes;
    /** The same for vescomm_fsdp_step(): masters, states, gradients, also of a partner copy,
     *  widened_bytes, and slots, codes and secondary copies for the first units of the next step.
     */
    uint64_t step_bytes;
    /** Copies of replicated parameters that the program reads instead of masters: of those whose
     *  type is not that of the masters; with offload_to_host of all. Part of peak_bytes. */
    uint64_t converted_bytes;
    /** [in] Consecutive ranks on each node; the last node may have fewer. 0: all ranks. */
    int32_t node_ranks;
    uint32_t reserved;
    /** [in] For each rank a number that identifies its node. NULL: node_ranks applies. Borrowed for
     *  the call. */
    const int32_t *nodes;
    /** [in] A communicator of the ranks, with @p nodes, if there is one: partial sums are those of
     *  its machine model, for ranks that share cores too. NULL: none. Borrowed for the call. */
    const vescomm_comm_t *comm;
    /** Partial sums of gradients: on several nodes, sums of other nodes that arrive, and sums for
     *  other nodes; on one node, those for other ranks, if shards of a unit are very unequal. As
     *  vescomm_reduce_scatter_v_get_partial_bytes() predicts them. Part of peak_bytes. 0 for device
     *  memory. */
    uint64_t partial_sum_bytes;
    /** With masters in bf16 or f16: the f32 copy of the largest run that an optimizer updates at
     * once, if its kind is not `concurrent`, has a function `matrix`, or needs blocks of more than
     * 256 elements; also that of a partner copy. Others get copies of 8192 elements at a time,
     * which do not count. Part of peak_bytes and step_bytes. */
    uint64_t widened_bytes;
    /** The part of peak_bytes that is memory of the device: slots, codes, secondary copies,
     *  converted_bytes and scratch, and without offload_to_host the shards. The rest is memory of
     *  the host, pinned but for partner copies. Device communicators and NCCL have memory of their
     *  own. 0 on host memory. */
    uint64_t device_bytes;
    /** With offload_folder on device memory: pinned memory of the host through which kernels read
     *  masters, twice those of the largest shard of a unit with the same types. Part of peak_bytes.
     */
    uint64_t staged_bytes;
} vescomm_fsdp_report_t;

/** Returns the struct with struct_size set, rank -1, all other members zero. Since: 0.1 */
static inline vescomm_fsdp_report_t vescomm_fsdp_report_init(void) {
    vescomm_fsdp_report_t report = {sizeof(vescomm_fsdp_report_t),
                                    -1,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    NULL,
                                    NULL,
                                    0,
                                    0,
                                    0,
                                    0};
    return report;
}

/**
 * Plans the model and reports its memory and traffic. Nothing is allocated.
 *
 * The traffic is that of steady steps in which every unit goes through forward and backward once in
 * each micro-batch, in the declared order.
 *
 * @param ranks   number of ranks, from 1 to 1,048,576.
 * @param report  [in,out] struct_size and members marked [in] set by the caller, the rest filled.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: also when no layout meets the options of the
 *         planner, or the axes do not divide the ranks. VESCOMM_ERROR_UNSUPPORTED: device memory
 *         does not support an option or an optimizer, as when an engine is created.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: as vescomm_plan_create(), and up to some
 * milliseconds for each unit on several nodes.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_report(const vescomm_fsdp_spec_t *spec, int32_t ranks,
                                                 vescomm_fsdp_report_t *report);

/** A preset that vescomm_fsdp_recommend() has chosen, and its costs on the rank with the largest
 *  peak_bytes. Append-only. */
typedef struct vescomm_fsdp_recommendation {
    uint32_t struct_size;
    int32_t candidates; /**< presets that the specification permits */
    int32_t fitting; /**< those of them that fit in memory */
    uint32_t reserved;
    char preset[32]; /**< for vescomm_fsdp_preset(), with a terminating zero */
    /** Bytes of parameters and gradients that all nodes together receive from other nodes in a
     *  step, if a node receives each shard once and sends one f32 sum of its ranks. */
    uint64_t node_bytes_per_step;
    /** gather_bytes_per_step, reduce_bytes_per_step and partner_bytes_per_step of the report. With
     *  n replicas also replica_bytes_per_step * 2 (n - 1) / n, the cost of an all_reduce as a
     *  reduce-scatter and an all-gather. */
    uint64_t wire_bytes_per_step;
    uint64_t peak_bytes; /**< of the report */
} vescomm_fsdp_recommendation_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_fsdp_recommendation_t vescomm_fsdp_recommendation_init(void) {
    vescomm_fsdp_recommendation_t recommendation = {
        sizeof(vescomm_fsdp_recommendation_t), 0, 0, 0, {0}, 0, 0, 0};
    return recommendation;
}

/**
 * Recommends a preset. Plans ddp, zero1, zero2, zero3, and hsdp:K and hpz:K for all K that divide
 * the ranks, as far as the options permit them. Of those whose peak_bytes, on device memory
 * device_bytes, are at most @p memory_bytes it returns the one with the least node_bytes_per_step,
 * then the least wire_bytes_per_step, then the least of these bytes, then the first in this order.
 * Nothing is allocated.
 *
 * The bytes are those of the report, not a prediction of time: computation that hides communication
 * and the speed of links do not count. As peak_bytes assumes, slots that ranks of a node share
 * count on each of them.
 *
 * @param spec            its axes are ignored, and not changed.
 * @param ranks           number of ranks, from 1 to 1,048,576.
 * @param node_ranks      number of consecutive ranks on each node, at least 1; the last node may
 *                        have fewer.
 * @param memory_bytes    for the engine, on each rank; of the device on device memory.
 * @param recommendation  [in,out] struct_size set by the caller, the rest filled.
 * @param report          [in,out] as vescomm_fsdp_report(): the report of the preset, with
 *                        @p node_ranks, without nodes and comm. Its micro_batches are those of the
 *                        steps that are compared. NULL: no report, and one micro-batch.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: no preset fits, and the error text names the
 *         one that needs least, and how much; also as vescomm_fsdp_report(), if that refuses all
 *         presets.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: of vescomm_fsdp_report() for each preset.
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_recommend(const vescomm_fsdp_spec_t *spec, int32_t ranks,
                                                    int32_t node_ranks, uint64_t memory_bytes,
                                                    vescomm_fsdp_recommendation_t *recommendation,
                                                    vescomm_fsdp_report_t *report);

/* -------------------------------------------------------------------------------- engine ---- */

/** Shards, slots and requests of one model. */
typedef struct vescomm_fsdp vescomm_fsdp_t;

/**
 * Creates an engine: plans the whole model, checks that all ranks have the same specification, and
 * allocates. Parameters start as zeros.
 *
 * @param spec        copied.
 * @param comms       the communicator of all ranks. The engine creates its own communicators from
 *                    it; it must exist as long as the engine, or until a
 *                    vescomm_fsdp_recover() succeeds. Its failure, and so vescomm_comm_abort() on
 *                    it, ends the waits of the engine, but for those of vescomm_fsdp_free().
 * @param comm_count  number of entries of @p comms; must be 1 in this version.
 * @param engine      [out] owned by the caller; free with vescomm_fsdp_free().
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: as vescomm_fsdp_report().
 *         VESCOMM_ERROR_MISMATCH: the specifications differ; the error text names a rank, and the
 *         first option, with its values, axis, group or unit that differs; of a unit also the
 *         parameter, and what differs in it, with its values.
 *         VESCOMM_ERROR_UNSUPPORTED: options that device memory does not have.
 *         VESCOMM_ERROR_OUT_OF_MEMORY. VESCOMM_ERROR_TIMEOUT, VESCOMM_ERROR_PEER_FAILED.
 *         VESCOMM_ERROR_ABORTED: another rank has one of these errors. After an error no rank has
 *         an engine.
 *
 * Collective: yes.  Blocking: yes.  Threads: one.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_create(const vescomm_fsdp_spec_t *spec,
                                                 vescomm_comm_t *const *comms, size_t comm_count,
                                                 vescomm_fsdp_t **engine);

/**
 * Frees an engine. Gathers that have been started, also by a step, are completed first. After an
 * error it does not wait for other ranks.
 *
 * Ranks compare the end as they compare events. If a rank frees its engine and another one
 * announces an event instead, that event fails there with VESCOMM_ERROR_MISMATCH or
 * VESCOMM_ERROR_ABORTED, and this function returns.
 *
 * @param engine  NULL: no effect.
 * @return VESCOMM_OK, also if ranks announced different events.
 *
 * Collective: yes, unless the engine has failed.  Blocking: until all ranks have called it, at most
 * the timeout.  Threads: one.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_free(vescomm_fsdp_t *engine);

/**
 * Sets consecutive elements of a parameter to their initial values.
 *
 * @param parameter  id.
 * @param first      first element, counted within the parameter with the experts of all ranks.
 * @param count      number of elements, at least 1.
 * @param values     [out] @p count elements.
 * @param key        of a random stream: a hash of the seed and of the names of unit and parameter.
 *                   Values that are a function of key and element do not depend on the number of
 *                   ranks.
 * @return 0, or another value to fail.
 */
typedef int (*vescomm_fsdp_fill_t)(void *context, uint64_t parameter, int64_t first, int64_t count,
                                   float *values, uint64_t key);

/**
 * Calls @p fill for every piece of a parameter that this rank owns, for one after the other of its
 * parts if masters are bf16 or f16, sets the states of optimizers to zero and the count of steps to
 * 0, as in a new engine, and drops all gradients. With partner_copy, ranks then send the values to
 * the holders of their copies. With replicas, such as those of ddp and hsdp, @p fill must write the
 * same values on each of them: they are not compared.
 *
 * @param fill     called from the calling thread, only during the call. It may call only functions
 *                 that read the engine, as an optimizer may.
 * @param context  passed to @p fill.
 * @return as the events. VESCOMM_ERROR_INVALID_ARGUMENT: @p fill failed, and masters are partly
 *         set; or a unit is open, or a micro-batch is in its backward pass.
 *
 * Collective: yes; all ranks call it between the same events.
 * Blocking: until gathers that read the masters are complete, such as prefetched ones, and with
 * partner_copy until the copies are, at most the timeout.  Threads: one.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_initialise(vescomm_fsdp_t *engine,
                                                     vescomm_fsdp_fill_t fill, void *context);

/** The last micro-batch of a step: gradients are complete after vescomm_fsdp_finish_backward(). */
#define VESCOMM_FSDP_LAST ((uint32_t)1)
/** Gradients stay on this rank; needs keep_gradients. */
#define VESCOMM_FSDP_NO_SYNC ((uint32_t)2)
/** No effect: gradients are summed over replicas (the outer axes) in the last micro-batch only. The
 *  flag exists so that a trainer can state this; it is an error with LAST and with EVAL. */
#define VESCOMM_FSDP_NO_OUTER ((uint32_t)4)
/** Forward only: no gradients. */
#define VESCOMM_FSDP_EVAL ((uint32_t)8)

/**
 * Begins a micro-batch.
 *
 * Before: no unit is open, and the previous micro-batch with backward is finished. If it was the
 * last one of a step, only an evaluation may come before vescomm_fsdp_step().
 *
 * @param flags  VESCOMM_FSDP_LAST, NO_SYNC, NO_OUTER, EVAL; the same on every rank.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: misuse.
 *
 * Collective: yes, same order.  Blocking: no.  Threads: one.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_begin(vescomm_fsdp_t *engine, uint32_t flags);

/**
 * @defgroup events Events
 *
 * The trainer announces each phase of a unit before or after it runs. Every rank announces the same
 * events in the same order.
 *
 *     pre_forward    gathers the unit and waits; prefetches the next units
 *     post_forward   releases the unit
 *     pre_backward   gathers the unit and waits; its gradients may be written
 *     post_backward  releases the unit, and starts to sum its gradients if no more are expected
 *     unshard        starts to gather the unit, and keeps it until reshard
 *     reshard        ends an unshard
 *
 * A unit may be opened again while it is open, and used several times in a micro-batch: every pre_
 * needs its post_. A pre_forward after the first pre_backward of a micro-batch recomputes. A unit
 * goes through backward at most as often as through forward.
 *
 * @param unit    of vescomm_fsdp_add_unit().
 * @param stream  cudaStream_t of the trainer's work before and after the call, on device memory;
 *                NULL is the legacy default stream. On host memory it must be NULL.
 * @return for all of them: VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: misuse.
 *         VESCOMM_ERROR_MISMATCH: ranks announced different events. VESCOMM_ERROR_ABORTED: another
 *         rank failed. VESCOMM_ERROR_TIMEOUT, VESCOMM_ERROR_PEER_FAILED.
 * Collective: yes, same order.  Blocking, at most the timeout: pre_ until the unit is gathered,
 * pre_backward also until the sum of an earlier unit leaves a gradient slot free (misuse if no sum
 * is running, because the units in the slots still expect backward passes), reshard until a running
 * gather of the unit ends, post_backward until all ranks have created the sums of the unit if they
 * are new, as in the first steps, until ranks that are 8 gathers and sums behind go on, and with
 * reduce_type until earlier sums leave the memory of their codes free: do not let a rank wait for
 * the end of another rank's post_backward before its own.
 * Threads: one.  Since: 0.1
 *
 * @{
 */

/** Opens a unit for forward. Gathers it, waits, and prefetches the next units. */
VESCOMM_API vescomm_status_t vescomm_fsdp_pre_forward(vescomm_fsdp_t *engine, uint64_t unit,
                                                      void *stream);
/** Closes a unit after forward. Its parameters must not be read any more. */
VESCOMM_API vescomm_status_t vescomm_fsdp_post_forward(vescomm_fsdp_t *engine, uint64_t unit,
                                                       void *stream);
/** Opens a unit for backward. Gathers it, waits, and gives its gradients memory. */
VESCOMM_API vescomm_status_t vescomm_fsdp_pre_backward(vescomm_fsdp_t *engine, uint64_t unit,
                                                       void *stream);
/** Closes a unit after backward. Starts to sum gradients that are complete. */
VESCOMM_API vescomm_status_t vescomm_fsdp_post_backward(vescomm_fsdp_t *engine, uint64_t unit,
                                                        void *stream);
/** Starts to gather a unit, and keeps it gathered. The unit counts as open until reshard. */
VESCOMM_API vescomm_status_t vescomm_fsdp_unshard(vescomm_fsdp_t *engine, uint64_t unit,
                                                  void *stream);
/** Ends an unshard. The unit is released if it is not open otherwise. */
VESCOMM_API vescomm_status_t vescomm_fsdp_reshard(vescomm_fsdp_t *engine, uint64_t unit,
                                                  void *stream);

/** @} */

/** A dense row-major array. Append-only. */
typedef struct vescomm_fsdp_view {
    uint32_t struct_size;
    vescomm_type_t type; /**< of the elements */
    void *data; /**< first element; may be NULL when there are no elements */
    int64_t elements; /**< number of elements */
    const int64_t *shape; /**< extents; owned by the engine. NULL for a scalar and for a shard */
    const int64_t *strides; /**< in elements; owned by the engine. NULL as shape */
    int32_t dimensions; /**< entries of shape and strides */
    uint32_t reserved;
    /** Changes with the parameters: number of steps that were not skipped, initialisations and
     *  loads so far. The same on every rank. */
    uint64_t generation;
} vescomm_fsdp_view_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_fsdp_view_t vescomm_fsdp_view_init(void) {
    vescomm_fsdp_view_t view = {sizeof(vescomm_fsdp_view_t), 0, NULL, 0, NULL, NULL, 0, 0, 0};
    return view;
}

/**
 * Returns the gathered values of a parameter, to be read only.
 *
 * Before: its unit is open. After: the view is valid until the unit is closed.
 * A unit of experts has those of this rank.
 *
 * @param id    of vescomm_fsdp_add_parameter(); a tied parameter is in the unit it was added to.
 * @param view  [in,out] struct_size set by the caller, the rest filled.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: misuse.
 *
 * Collective: no.  Blocking: after unshard until the unit is gathered.  Threads: one.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_parameter(vescomm_fsdp_t *engine, uint64_t id,
                                                    vescomm_fsdp_view_t *view);

/** How the trainer writes a gradient. */
typedef int32_t vescomm_fsdp_gradient_mode_t;

/** Overwrite every element. */
#define VESCOMM_FSDP_OVERWRITE ((vescomm_fsdp_gradient_mode_t)0)
/** Add to every element. It holds a part of the gradient: of an earlier micro-batch of the step,
 *  with keep_gradients or zero1; of an earlier use of the unit; or of a tied parameter of the unit,
 *  for which the engine has set it to zero. Overwriting loses that part, and nothing detects it. */
#define VESCOMM_FSDP_ADD ((vescomm_fsdp_gradient_mode_t)1)

/**
 * Returns the memory of a gradient, to be written: this rank's term of the sum. A gradient that is
 * neither asked for nor pushed is zero on this rank.
 *
 * Before: its unit is between pre_backward and post_backward.
 * After: the caller writes every element as @p mode says before post_backward. The gradients of one
 * unit may be asked for together, and written in any order. With VESCOMM_FSDP_OVERWRITE, write the
 * gradient before you push to it, and before you ask for the gradient of a parameter of another
 * unit that is tied to it.
 *
 * @param view  [in,out] struct_size set by the caller, the rest filled.
 * @param mode  [out] VESCOMM_FSDP_OVERWRITE or VESCOMM_FSDP_ADD.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: misuse, or the parameter is frozen.
 *
 * Collective: no.  Blocking: no.  Threads: one.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_gradient(vescomm_fsdp_t *engine, uint64_t id,
                                                   vescomm_fsdp_view_t *view,
                                                   vescomm_fsdp_gradient_mode_t *mode);

/**
 * Adds a gradient that the caller owns to this rank's term of the sum, converting its type.
 *
 * Before: its unit is between pre_backward and post_backward.
 *
 * @param data    all elements of the parameter, dense and row-major. Borrowed for the call, on
 *                device memory until the work of the stream is complete. NULL is an error without
 * an effect, unless there are no elements.
 * @param type    f32 or the type of the gradients.
 * @param stream  cudaStream_t of the trainer's work before and after the call, on device memory;
 *                NULL is the legacy default stream. On host memory it must be NULL.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: misuse, or the parameter is frozen.
 *         VESCOMM_ERROR_UNSUPPORTED: another type.
 *
 * Collective: no.  Blocking: no.  Threads: one.  Cost: one pass.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_push_gradient(vescomm_fsdp_t *engine, uint64_t id,
                                                        const void *data, vescomm_type_t type,
                                                        void *stream);

/**
 * Declares that the backward pass of the micro-batch begins. Each vescomm_fsdp_pre_forward() from
 * here on is a recomputation, which needs no backward pass of its own. The first
 * vescomm_fsdp_pre_backward() implies it, so only a trainer that recomputes a unit before that
 * needs it. A second call has no effect.
 *
 * After: vescomm_fsdp_finish_backward() ends the micro-batch, also without any backward pass.
 *
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: no micro-batch is running, or it was begun
 * with VESCOMM_FSDP_EVAL.
 *
 * Collective: yes, same order.  Blocking: no.  Threads: one.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_begin_backward(vescomm_fsdp_t *engine);

/**
 * Ends a micro-batch with backward: starts the sums that have not started, and waits for all sums.
 * In the last micro-batch it also computes this rank's part of the norm, one pass over its gradient
 * shards; for a unit whose sum was complete before, that pass has been made. On device memory a
 * stream of the engine waits, and not the host, but for the last micro-batch with replicas or
 * replicated parameters: the host waits until all ranks have called it.
 *
 * Before: no unit is open.
 *
 * @param stream  cudaStream_t of the trainer's work before and after the call, on device memory;
 *                NULL is the legacy default stream. On host memory it must be NULL.
 * @return as the events.
 *
 * Collective: yes, same order.  Blocking: at most the timeout.  Threads: one.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_finish_backward(vescomm_fsdp_t *engine, void *stream);

/**
 * Returns the norm of the gradients of the whole model, as scaled by vescomm_fsdp_scale().
 *
 * Before: the last micro-batch of the step is finished.
 *
 * @param norm    [out] square root of the sum of squares; the same on every rank. NaN or infinite
 *                if a gradient is. May be NULL.
 * @param finite  [out] 1: every gradient of every rank is finite; 0: not. May be NULL.
 * @return as the events.
 *
 * Collective: yes, same order.  Blocking: at most the timeout.  Threads: one.  Cost: 176 bytes to
 * every rank, once a step: vescomm_fsdp_finish_backward() has added up this rank's gradients.
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_norm(vescomm_fsdp_t *engine, double *norm,
                                               int32_t *finite);

/**
 * Multiplies all gradients of the step by a factor; factors of several calls multiply. The
 * optimizer applies them; there is no extra pass.
 *
 * Before: the last micro-batch of the step is finished.
 *
 * @param factor  finite; the same on every rank.
 * @return as the events.
 *
 * Collective: yes, same order.  Blocking: no.  Threads: one.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_scale(vescomm_fsdp_t *engine, double factor);

/** Arguments and results of a step. Append-only. */
typedef struct vescomm_fsdp_step_t {
    uint32_t struct_size;
    /** [out] 1: a gradient of any rank was not finite, or the norm after the multiplication by
     *  vescomm_fsdp_scale(), loss_scale and clipping would be above the largest f32, or f32 cannot
     *  hold the factor of clipping; nothing was updated on any rank. */
    int32_t skipped;
    /** [in] Factor of the learning rate of every group in this step. vescomm_fsdp_step_init() sets
     *  1. */
    double learning_rate_scale;
    /** [in] Largest norm: gradients are multiplied by min(1, max_norm / (norm + 1e-6)), as in
     *  PyTorch. 0 or INFINITY: no limit. */
    double max_norm;
    /** [in] Factor by which the trainer multiplied the loss; gradients are divided by it. 0: 1. The
     *  factor of vescomm_fsdp_scale() divided by it must be 0, or between 2^-126 and 2^127. */
    double loss_scale;
    double norm; /**< [out] norm of the gradients, scaled but not clipped */
    int64_t step; /**< [out] number of steps that were not skipped */
} vescomm_fsdp_step_t;

/** Returns the struct with struct_size set, learning_rate_scale 1, the others zero. Since: 0.1 */
static inline vescomm_fsdp_step_t vescomm_fsdp_step_init(void) {
    vescomm_fsdp_step_t step = {sizeof(vescomm_fsdp_step_t), 0, 1.0, 0.0, 0.0, 0.0, 0};
    return step;
}

/**
 * Clips the gradients, updates this rank's shards, and starts to gather the units that the next
 * forward opens first.
 *
 * Nothing is updated before it is known that the gradients of all ranks are finite. Then the units
 * that the next micro-batch of training opens first, as far as the order predicts and as many as
 * there are slots, are updated before the others, and the gather of each starts when its update is
 * complete. It runs during the other updates.
 *
 * Before: the last micro-batch of the step is finished. After: gradients are empty, and gathered
 * parameters that are not up to date are gathered again when they are needed.
 *
 * @param step    [in,out] struct_size and arguments set by the caller, the same on every rank;
 *                results filled.
 * @param stream  cudaStream_t of the trainer's work before and after the call, on device memory;
 *                NULL is the legacy default stream. On host memory it must be NULL.
 * @return as the events. VESCOMM_ERROR_MISMATCH: the arguments differ between ranks; nothing was
 *         updated. VESCOMM_ERROR_INVALID_ARGUMENT: also when `step` of an optimizer kind failed;
 *         this rank's shards are then partly updated. Other ranks succeed, or get an error; all get
 *         one before they complete another micro-batch, and none trains until the values are set
 *         again, see vescomm_fsdp_reset(). If a gather cannot be started, the step is complete
 *         nevertheless, and the next event returns the error.
 *
 * Collective: yes, same order.  Blocking: at most the timeout.  Threads: one.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_step(vescomm_fsdp_t *engine, vescomm_fsdp_step_t *step,
                                               void *stream);

/**
 * Replaces the settings of a group from the next step on. vescomm_fsdp_reset() undoes it unless a
 * step has used them.
 *
 * @param group     of vescomm_fsdp_add_group().
 * @param settings  as in vescomm_fsdp_add_group(); the kind must need the same states with them.
 *                  The same on every rank.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT, VESCOMM_ERROR_OUT_OF_MEMORY: nothing changed.
 *         After an earlier error, also that of vescomm_fsdp_reset() on another rank: that error.
 *
 * Collective: yes; all ranks call it between the same events.  Blocking: no.  Threads: one.
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_set_group(vescomm_fsdp_t *engine, uint64_t group,
                                                    const void *settings);

/**
 * Returns to the start of a step after an error or an exception in the trainer: closes all units
 * and drops all gradients.
 *
 * After: parameters, states of the optimizer and settings of groups are as after the last step, or
 * after vescomm_fsdp_create(). Views of parameters and gradients are invalid. If
 * vescomm_fsdp_step() succeeded on some ranks only, because another rank failed after its update,
 * reset completes the step on all ranks: the members `steps` and `skipped` of
 * vescomm_fsdp_counters_t say whether the step was made. There is one exception: if `step` of an
 * optimizer kind failed, the step counts as complete, and the shards of that rank stay partly
 * updated. The same holds for values that a failed vescomm_fsdp_initialise() or vescomm_fsdp_load()
 * has partly set, or has set on some ranks only. vescomm_fsdp_begin(), vescomm_fsdp_unshard(),
 * vescomm_fsdp_step(), vescomm_fsdp_save(), pre_forward and pre_backward then return
 * VESCOMM_ERROR_INVALID_ARGUMENT on all ranks, without another effect, until all ranks call
 * vescomm_fsdp_load() or vescomm_fsdp_initialise(). The error text names the rank.
 *
 * @return VESCOMM_OK. After any error the engine has failed on all ranks, and all ranks may call
 *         this function again: the first error of the communicator given to
 *         vescomm_fsdp_create(), if that one is broken; VESCOMM_ERROR_TIMEOUT: a rank has not
 * called it; VESCOMM_ERROR_OUT_OF_MEMORY.
 *
 * Collective: yes, all ranks.  Blocking: yes, at most the timeout.  Threads: one.
 * Cost: as the allocation of the slots in vescomm_fsdp_create().  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_reset(vescomm_fsdp_t *engine);

/**
 * Compares masters and states of optimizers between the ranks that hold the same shard: replicas
 * (ddp, hsdp, mics), and the holders of partner copies; and those of replicated parameters between
 * all ranks. Equal means equal in every bit.
 *
 * Nothing else in a step compares them: if the memory of a machine fails, or an optimizer is not
 * the same on all ranks, replicas drift apart silently. Programs call it now and then, such as
 * before a save.
 *
 * Before: no unit is open. After: nothing has changed, also after VESCOMM_ERROR_MISMATCH.
 *
 * @return VESCOMM_OK: no rank differs, also if no shard is on several ranks.
 *         VESCOMM_ERROR_MISMATCH, on all ranks: the error text names the unit, and the rank that
 *         differs from most of the others, or two ranks if there is no majority. Other errors as
 *         the events.
 *
 * Collective: yes, same order.  Blocking: at most the timeout.  Threads: one.
 * Cost: one read of masters and states, and a message of 8 bytes for each array of a unit.
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_check_replicas(vescomm_fsdp_t *engine);

/** Arguments and results of a recovery. Append-only. */
typedef struct vescomm_fsdp_recovery {
    uint32_t struct_size;
    int32_t from_checkpoint; /**< [out] 1: the values are those of the checkpoint */
    /** [in] Another specification of the same model, such as one with another preset. Its groups
     *  must have the same states as those of the engine. NULL: that of the engine, with the
     *  settings of the last step. Borrowed for the call. */
    const vescomm_fsdp_spec_t *spec;
    /** [in] Folder of checkpoints, to load if no survivor has some of the shards. NULL: none.
     *  Borrowed for the call. */
    const char *folder;
    int64_t steps; /**< [out] steps after which training goes on, as vescomm_fsdp_step_t.step */
    int64_t lost_steps; /**< [out] steps since the checkpoint that have to be repeated; else 0 */
} vescomm_fsdp_recovery_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_fsdp_recovery_t vescomm_fsdp_recovery_init(void) {
    vescomm_fsdp_recovery_t recovery = {sizeof(vescomm_fsdp_recovery_t), 0, NULL, NULL, 0, 0};
    return recovery;
}

/**
 * Lets the ranks that survive the death of others go on: plans the model for them, and moves the
 * masters and states that they have to the new owners.
 *
 *     vescomm_comm_shrink(comm, NULL, 0, &survivors);
 *     vescomm_fsdp_recover(engine, survivors, &recovery);
 *     vescomm_comm_free(comm);
 *     ...                          continue with step number recovery.steps, counted from 0
 *
 * The values are those after the last step that a survivor has completed; ranks that are behind
 * apply it. The shards of the failed ranks come from replicas, or from copies (partner_copy of the
 * options). If some are lost, all values are those of the latest checkpoint. Values of different
 * steps are never mixed. To find out whether the interrupted step is complete, compare
 * recovery.steps, and skipped of vescomm_fsdp_get_counters(), with their values before.
 *
 * Before: usually, an event has returned VESCOMM_ERROR_PEER_FAILED or VESCOMM_ERROR_ABORTED. Jobs
 * of vescomm_fsdp_save() have been freed. After: the engine is on @p survivors, at the start of a
 * step. Its old communicator may be freed. Views are invalid. After an error the engine can only be
 * freed, or recovered again: if more ranks have died, shrink @p survivors and pass the result.
 *
 * @param survivors  from vescomm_comm_shrink() of the communicator of the engine, or of the one
 *                   given to a call of this function that failed. It must exist as long as the
 *                   engine, or until a later call succeeds.
 * @param recovery   [in,out] struct_size, spec and folder set by the caller, the same on every
 *                   rank; the rest filled. NULL: all members zero.
 * @return VESCOMM_OK. VESCOMM_ERROR_PEER_FAILED: more ranks have died; or shards are lost and there
 *         is no folder, and the error text names a rank whose shard is lost.
 *         VESCOMM_ERROR_MISMATCH: folder is not the same on all ranks.
 *         VESCOMM_ERROR_INVALID_ARGUMENT: the axes do not divide the survivors; the model of spec
 *         differs; as vescomm_fsdp_load(). VESCOMM_ERROR_OUT_OF_MEMORY, VESCOMM_ERROR_TIMEOUT: also
 *         if earlier work of the device does not end. VESCOMM_ERROR_ABORTED: another rank has one
 *         of these errors.
 *
 * Collective: yes, all survivors.  Blocking: yes, at most the timeout, which includes the slowest
 * rank's reads of the folder; that rank returns when its disk responds.  Threads: one.
 * Cost: as vescomm_fsdp_create(), with the old shards in memory until it returns; each value that
 * changes its rank is sent once.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_recover(vescomm_fsdp_t *engine, vescomm_comm_t *survivors,
                                                  vescomm_fsdp_recovery_t *recovery);

/** Values of which a rank has a shard. */
typedef int32_t vescomm_fsdp_role_t;

/** The f32 values of the parameters. */
#define VESCOMM_FSDP_MASTER ((vescomm_fsdp_role_t)0)
/** Complete between finish_backward of the last micro-batch and step. */
#define VESCOMM_FSDP_GRADIENT ((vescomm_fsdp_role_t)1)
/** A state of the optimizer. */
#define VESCOMM_FSDP_STATE ((vescomm_fsdp_role_t)2)

/**
 * Returns this rank's shard of a unit. It must not be written: the engine may gather from the
 * masters, and compute the norm of the gradients, between two events. vescomm_fsdp_pieces() says
 * where parameters lie in it. In device memory it is valid in the order of the stream of the last
 * event; work of the program that reads masters there is complete before vescomm_fsdp_load() and
 * vescomm_fsdp_initialise().
 *
 * @param unit   of vescomm_fsdp_add_unit().
 * @param role   a frozen parameter has only a master; frozen parameters lie behind all others.
 * @param state  index in vescomm_optimizer_needs_t.states; 0 for other roles. A per_block state has
 *               an element for each block.
 * @param view   [in,out] struct_size set by the caller; dimensions is 0. Valid until the engine is
 *               freed or vescomm_fsdp_recover() is called; aligned to 64 bytes.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT. VESCOMM_ERROR_UNSUPPORTED: a state of a unit
 *         with trainable parameters of several types, whose states are not in one array. With
 *         offload_to_host also what vescomm_fsdp_wait_stream() returns.
 *
 * Collective: no.  Blocking: no; with offload_to_host and VESCOMM_FSDP_GRADIENT until the sums of
 * the device are complete, at most the timeout.  Threads: one.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_shard(vescomm_fsdp_t *engine, uint64_t unit,
                                                vescomm_fsdp_role_t role, uint32_t state,
                                                vescomm_fsdp_view_t *view);

/**
 * Lists the pieces of parameters in this rank's shard of a unit, in order of offset.
 *
 * @param pieces    [in,out] array of @p capacity pieces, all with the struct_size of the first,
 *                  which the caller sets; the rest filled. May be NULL when @p capacity is 0.
 * @param count     [out] total number of pieces, which may exceed @p capacity.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: one.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_pieces(const vescomm_fsdp_t *engine, uint64_t unit,
                                                 vescomm_optimizer_piece_t *pieces, size_t capacity,
                                                 size_t *count);

/** Counters of an engine on this rank, summed since its creation. Append-only. */
typedef struct vescomm_fsdp_counters {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t gathers; /**< gathers of units */
    uint64_t gather_bytes; /**< as vescomm_fsdp_report_t.gather_bytes_per_step */
    uint64_t reduce_bytes; /**< as vescomm_fsdp_report_t.reduce_bytes_per_step */
    uint64_t replica_bytes; /**< as vescomm_fsdp_report_t.replica_bytes_per_step */
    uint64_t deviations; /**< micro-batches that deviated from the declared or recorded order */
    uint64_t skipped; /**< steps that were skipped because a gradient was or became not finite */
    int64_t steps; /**< steps that were not skipped */
    /** peak_bytes of the report, as allocated now; also what scratch_bytes says of reproducible
     *  sums. */
    uint64_t allocated_bytes;
    double exposed_seconds; /**< time in functions of this header, without optimizer_seconds */
    double optimizer_seconds; /**< time in optimizers and in the computation of norms */
    uint64_t group_gather_bytes; /**< as vescomm_fsdp_report_t.group_gather_bytes_per_step */
} vescomm_fsdp_counters_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_fsdp_counters_t vescomm_fsdp_counters_init(void) {
    vescomm_fsdp_counters_t counters = {
        sizeof(vescomm_fsdp_counters_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0};
    return counters;
}

/**
 * Returns the counters of an engine on this rank.
 *
 * @param counters  [in,out] struct_size set by the caller, the rest filled.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: one.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_get_counters(const vescomm_fsdp_t *engine,
                                                       vescomm_fsdp_counters_t *counters);

/** Counters of one unit on this rank since the creation of the engine. Its waits for gathers are in
 *  forward_seconds and backward_seconds: a unit with much more than the others is gathered too
 *  late. Append-only. */
typedef struct vescomm_fsdp_unit_counters {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t gathers; /**< gathers of the unit */
    uint64_t gather_bytes; /**< its part of vescomm_fsdp_counters_t.gather_bytes */
    uint64_t reduce_bytes; /**< its part of vescomm_fsdp_counters_t.reduce_bytes */
    double forward_seconds; /**< time in pre_forward and post_forward, also of a recomputation */
    double backward_seconds; /**< time in pre_backward and post_backward */
    double explicit_seconds; /**< time in unshard and reshard */
    double update_seconds; /**< time in the optimizers of its parameters */
    /** Waits for other ranks in gathers of the unit that have ended, whichever event waited.
     *  Starts of gathers, and conversions, are not waits. On device memory: waits of the host. */
    double gather_wait_seconds;
    /** The same for sums of its gradients, without sums over replicas. */
    double reduce_wait_seconds;
} vescomm_fsdp_unit_counters_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_fsdp_unit_counters_t vescomm_fsdp_unit_counters_init(void) {
    vescomm_fsdp_unit_counters_t counters = {
        sizeof(vescomm_fsdp_unit_counters_t), 0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0};
    return counters;
}

/**
 * Returns the counters of a unit on this rank.
 *
 * @param counters  [in,out] struct_size set by the caller, the rest filled.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: there is no such unit.
 *
 * Collective: no.  Blocking: no.  Threads: one.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_get_unit_counters(const vescomm_fsdp_t *engine,
                                                            uint64_t unit,
                                                            vescomm_fsdp_unit_counters_t *counters);

/** Times and bytes of one training step on this rank, from the end of the vescomm_fsdp_step()
 *  before, or the creation of the engine, to the end of this one. Evaluations in between count too.
 *  Seconds are wall time of the calling thread. Append-only. */
typedef struct vescomm_fsdp_step_summary {
    uint32_t struct_size;
    int32_t skipped; /**< as vescomm_fsdp_step_t.skipped */
    int64_t step; /**< number of steps that were not skipped */
    double norm; /**< as vescomm_fsdp_step_t.norm */
    double seconds; /**< of the step, computation of the program included */
    double step_seconds; /**< in vescomm_fsdp_step() */
    double exposed_seconds; /**< in functions of this header, without norm and update_seconds */
    /** Part of exposed_seconds: waits for gathers of units, and their starts. */
    double gather_seconds;
    /** Part of exposed_seconds: waits for sums of gradients, and their starts. */
    double reduce_seconds;
    /** Part of exposed_seconds: waits until all ranks have agreed on the arguments of
     *  vescomm_fsdp_step() and on the norm; with partner_copy also for gradients. */
    double agree_seconds;
    double norm_seconds; /**< passes over this rank's gradients for the norm */
    double update_seconds; /**< in optimizers */
    uint64_t gathers; /**< gathers of units that were started */
    uint64_t early_gathers; /**< those of them that vescomm_fsdp_step() has started */
    uint64_t gather_bytes; /**< as vescomm_fsdp_report_t.gather_bytes_per_step */
    uint64_t reduce_bytes; /**< as vescomm_fsdp_report_t.reduce_bytes_per_step */
    uint64_t replica_bytes; /**< as vescomm_fsdp_report_t.replica_bytes_per_step */
    uint64_t deviations; /**< micro-batches that deviated from the declared or recorded order */
} vescomm_fsdp_step_summary_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_fsdp_step_summary_t vescomm_fsdp_step_summary_init(void) {
    vescomm_fsdp_step_summary_t summary = {sizeof(vescomm_fsdp_step_summary_t),
                                           0,
                                           0,
                                           0.0,
                                           0.0,
                                           0.0,
                                           0.0,
                                           0.0,
                                           0.0,
                                           0.0,
                                           0.0,
                                           0.0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0};
    return summary;
}

/**
 * Returns the summary of the last step that succeeded on this rank, also if it was skipped.
 *
 * @param summary  [in,out] struct_size set by the caller, the rest filled: zeros before the first
 *                 step.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: one.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_get_step_summary(const vescomm_fsdp_t *engine,
                                                           vescomm_fsdp_step_summary_t *summary);

/**
 * Formats the counters of an engine, the summary of its last step, and the counters of its units as
 * text in the Prometheus format (0.0.4). docs/observing.md lists the metrics and their units.
 *
 * Samples have the labels rank and engine; the latter is the number of the engine in this process,
 * counted from 0. The texts of several engines must not be joined into one, because each text has
 * the HELP and TYPE lines of all metrics. That of vescomm_comm_get_metrics() has others, and may be
 * joined with it.
 *
 * @param text      [out] the whole text with a terminating zero when @p capacity suffices,
 *                  otherwise unchanged. May be NULL when @p capacity is 0.
 * @param capacity  in bytes.
 * @param size      [out] size of the whole text in bytes, including the terminating zero.
 * @return VESCOMM_OK, also when @p capacity does not suffice, and for an engine that is broken.
 *         VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: one.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_get_metrics(const vescomm_fsdp_t *engine, char *text,
                                                      size_t capacity, size_t *size);

/**
 * Makes progress on gathers and sums without waiting. Call it regularly in long computations if
 * there is no progress thread. vescomm_comm_progress() on the caller's communicator has no effect
 * on them, because the engine has communicators of its own.
 *
 * @return as the events.
 *
 * Collective: no.  Blocking: no.  Threads: one.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_progress(vescomm_fsdp_t *engine);

/**
 * Waits on device memory until the work of a stream is complete, and returns early if a rank or
 * NCCL fails. Use it instead of cudaStreamSynchronize(), which reports no failure and may wait for
 * another rank for ever: streams of the trainer wait for gathers and sums. Makes progress
 * meanwhile. After an error the kernels of NCCL have ended.
 *
 * @param stream  a cudaStream_t of the device of the engine, not only that of an event; NULL is the
 *                legacy default stream. It must not be captured. On host memory it must be NULL,
 *                and there is nothing to wait for.
 * @return as the events. VESCOMM_ERROR_INVALID_ARGUMENT: the stream is captured, or another device
 *         is current; nothing happened. VESCOMM_ERROR_TIMEOUT: the work takes longer than the
 *         timeout.
 *
 * Collective: no.  Blocking: yes, at most the timeout.  Threads: one.  Source: vescomm_gpu_wait().
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_wait_stream(vescomm_fsdp_t *engine, void *stream);

/**
 * Returns the engine's own communicator of all ranks, to trace and to count its operations. It must
 * not be used for anything else. A trace of it has a span for each event, such as
 * "pre_forward block.0", and for each update of a unit, such as "update block.0", in the row
 * "fsdp"; and for each gather and each sum of gradients, such as "gather block.0", in a row for
 * each slot. Spans have units, bytes and waits, see docs/observing.md.
 *
 * With replicas or secondary copies, some gathers and sums run on other communicators. The spans
 * above are in this trace nevertheless; requests and counters of those communicators are not.
 *
 * @param comm  [out] owned by the engine; valid until vescomm_fsdp_reset(), vescomm_fsdp_recover()
 *              or vescomm_fsdp_free().
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT. The error of a failed vescomm_fsdp_reset().
 *
 * Collective: no.  Blocking: no.  Threads: one.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_get_comm(vescomm_fsdp_t *engine, vescomm_comm_t **comm);

/* --------------------------------------------------------------------------- checkpoints ---- */

/** Work in the background, such as a save. */
typedef struct vescomm_job vescomm_job_t;

/** Arguments of vescomm_fsdp_save() besides the folder: the number of saves that remain, and bytes
 *  that this rank of the program adds to the checkpoint. vescomm_fsdp_get_extra() returns the bytes
 *  after a load. Append-only; a zero member means its default. */
typedef struct vescomm_fsdp_extra {
    uint32_t struct_size;
    /** Saves that remain in the folder, the new one included. 0: 2. The same on every rank. */
    int32_t keep;
    /** The bytes, such as a random state or a learning-rate schedule. Copied by the call. A load
     *  reads those of all ranks on every rank: keep them small. */
    const void *data;
    size_t bytes; /**< of data; 0: none; at most 64 MiB, or else the save fails */
} vescomm_fsdp_extra_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_fsdp_extra_t vescomm_fsdp_extra_init(void) {
    vescomm_fsdp_extra_t extra = {sizeof(vescomm_fsdp_extra_t), 0, NULL, 0};
    return extra;
}

/**
 * Starts to save masters, states of optimizers, the number of steps and extra bytes of the caller.
 *
 * Before: no unit is open. After: a copy of the values at this time is being written, and the
 * trainer goes on. Once vescomm_job_wait() has returned VESCOMM_OK, the new save is the latest one
 * of @p folder. On any error, and if processes end at any moment, the latest save is a complete
 * one: the one before, or the new one.
 *
 * @param folder  of checkpoints; all nodes share it. Created if it does not exist. May be a
 *                symbolic link; links in it are not followed. One save at a time writes to a
 *                folder. Its own name must not be that of a save (save-0000000001). The same on
 *                every rank.
 * @param extra   NULL: no bytes, and two saves remain.
 * @param job     [out] owned by the caller; free with vescomm_job_free() before the communicator
 *                of the engine.
 * @return VESCOMM_OK: errors of files and of memory are those of vescomm_job_wait().
 *         VESCOMM_ERROR_INVALID_ARGUMENT: a unit is open. VESCOMM_ERROR_MISMATCH: another rank
 *         announced another event, folder or keep. After an earlier error: that error, until
 *         vescomm_fsdp_reset().
 *
 * Collective: yes, same order.  Blocking: for the copy, and until all ranks have called it.
 * Threads: one.  Cost: memory for a copy of this rank's shards until the job ends, also with
 * offload_folder; each rank writes its bytes once.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_save(vescomm_fsdp_t *engine, const char *folder,
                                               const vescomm_fsdp_extra_t *extra,
                                               vescomm_job_t **job);

/**
 * Tests whether a job has ended.
 *
 * @return VESCOMM_OK: complete. VESCOMM_IN_PROGRESS. Its error, as vescomm_job_wait().
 *
 * Collective: no.  Blocking: no.  Threads: one at a time per job.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_job_test(vescomm_job_t *job);

/**
 * Waits for the end of a job. May be called again, with the same result.
 *
 * @param timeout_seconds  at least 0.
 * @return VESCOMM_OK: complete. VESCOMM_ERROR_TIMEOUT: it has not ended, and goes on.
 *         VESCOMM_ERROR_SYSTEM: the error text names rank, file, system call and cause; the same on
 *         all ranks. VESCOMM_ERROR_INVALID_ARGUMENT: also what no save can have, such as a negative
 *         keep, an empty folder or too many bytes of a rank. VESCOMM_ERROR_OUT_OF_MEMORY.
 *         VESCOMM_ERROR_PEER_FAILED. VESCOMM_ERROR_ABORTED: a rank freed its job or communicator.
 *
 * Collective: no.  Blocking: yes, at most the timeout.  Threads: one at a time per job.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_job_wait(vescomm_job_t *job, double timeout_seconds);

/**
 * Frees a job. A save that has not ended is cancelled: it fails on all ranks, unless its commit had
 * begun.
 *
 * @param job  NULL: no effect.
 * @return VESCOMM_OK.
 *
 * Collective: no.  Blocking: until a running save has ended, at most 10 seconds.  Threads: one.
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_job_free(vescomm_job_t *job);

/**
 * Loads the latest save of a folder: masters, states of optimizers and the number of steps. Drops
 * all gradients. The number of ranks, the preset, expert_ranks, blocks and the planner's options
 * may differ from those of the save; names, shapes, frozen parameters and optimizers must not.
 *
 * @param folder  that of vescomm_fsdp_save(); or the path of an older save in it, such as
 *                "FOLDER/save-0000000011".
 * @return VESCOMM_OK. VESCOMM_ERROR_MISMATCH: another rank announced another event or folder.
 *         VESCOMM_ERROR_INVALID_ARGUMENT: a unit is open, or a micro-batch is in its
 *         backward pass; there is no complete save; a tensor is missing, is not in this model, or
 *         has another shape or type; a file is damaged. VESCOMM_ERROR_SYSTEM: a file cannot be
 *         read. The error text is the same on all ranks. Masters and states stay as they were,
 *         unless the save is one of this model and its data cannot be read. Then they are
 *         undefined, and vescomm_fsdp_begin() refuses to train: load another save, or initialise
 *         them.
 *
 * Collective: yes, same order.  Blocking: yes.  Threads: one.
 * Cost: each rank reads its bytes once, and the indexes of all ranks that saved. It also reads the
 * extra bytes that these ranks saved (vescomm_fsdp_extra_t), and keeps them until the next load.
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_load(vescomm_fsdp_t *engine, const char *folder);

/** Arguments and results of a partial load. Append-only. */
typedef struct vescomm_fsdp_partial_load {
    uint32_t struct_size;
    /** [in] Not 0: a selected tensor that is missing in the checkpoint, or unexpected, is an error.
     *  0: the others are loaded, as with strict=False in PyTorch. */
    int32_t strict;
    /** [in] Not 0: also states of optimizers, and the number of steps. 0: masters only. */
    int32_t states;
    uint32_t reserved; /**< must be 0 */
    /** [in] What is selected: names of parameters (UNIT.PARAMETER), or the parts of them before one
     *  of their dots, such as a unit. "block.1" selects "block.1.weight", and not
     *  "block.10.weight". The name of a tied parameter selects the one that it shares. Borrowed for
     *  the call. */
    const char *const *names;
    size_t name_count; /**< [in] entries of names. 0: all is selected */
    int64_t loaded; /**< [out] tensors that were loaded: a master or a state of a parameter each */
    int64_t missing; /**< [out] selected tensors of the engine that the checkpoint does not have */
    int64_t
        unexpected; /**< [out] selected tensors of the checkpoint that the engine does not have */
} vescomm_fsdp_partial_load_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_fsdp_partial_load_t vescomm_fsdp_partial_load_init(void) {
    vescomm_fsdp_partial_load_t load = {
        sizeof(vescomm_fsdp_partial_load_t), 0, 0, 0, NULL, 0, 0, 0, 0};
    return load;
}

/**
 * Loads some tensors of a save, such as those of a model that is tuned further with another head.
 * All other values stay. Drops all gradients.
 *
 * Before: vescomm_fsdp_initialise() or a load has set the values that stay.
 *
 * @param folder  as vescomm_fsdp_load().
 * @param load    [in,out] struct_size and arguments set by the caller, the same on every rank;
 *                results filled. vescomm_fsdp_get_load_report() has the names.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: a name selects nothing; nothing is to be
 *         loaded; a tensor has another shape or type; with strict, a tensor is missing or
 *         unexpected. The error text names the tensor, is the same on all ranks, and nothing has
 *         changed. Other errors as vescomm_fsdp_load().
 *
 * Collective: yes, same order.  Blocking: yes.  Threads: one.  Cost: as vescomm_fsdp_load(), for
 * the tensors that are loaded.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_load_partial(vescomm_fsdp_t *engine, const char *folder,
                                                       vescomm_fsdp_partial_load_t *load);

/**
 * Returns the names of tensors that the last vescomm_fsdp_load_partial() did not load, one line
 * each: "missing ROLE NAME" or "unexpected ROLE NAME", where ROLE is "master" or a state of an
 * optimizer, such as "state.first_moment", and NAME is UNIT.PARAMETER.
 *
 * @param text      [out] the whole text with a terminating zero when @p capacity suffices,
 *                  otherwise unchanged. May be NULL when @p capacity is 0.
 * @param capacity  in bytes.
 * @param size      [out] size of the whole text in bytes, including the terminating zero. 1:
 * nothing was missing or unexpected, or vescomm_fsdp_load() was called since.
 * @return VESCOMM_OK, also when @p capacity does not suffice. VESCOMM_ERROR_INVALID_ARGUMENT.
 *
 * Collective: no.  Blocking: no.  Threads: one.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_get_load_report(const vescomm_fsdp_t *engine, char *text,
                                                          size_t capacity, size_t *size);

/**
 * Returns extra bytes that a rank gave to vescomm_fsdp_save(), from the checkpoint loaded last.
 *
 * @param rank      the rank, in the job that saved, that gave the bytes.
 * @param data      [out] the first @p capacity bytes. May be NULL if @p capacity is 0.
 * @param bytes     [out] number of bytes in the checkpoint.
 * @return VESCOMM_OK, also when @p capacity does not suffice. VESCOMM_ERROR_INVALID_ARGUMENT: the
 *         job that saved had no such rank, or nothing was loaded.
 *
 * Collective: no.  Blocking: no.  Threads: one.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_get_extra(const vescomm_fsdp_t *engine, int32_t rank,
                                                    void *data, size_t capacity, size_t *bytes);

/**
 * Writes the whole masters of the latest save of a folder in the sharded format of Hugging Face:
 * model-00001-of-00002.safetensors, and so on, and model.safetensors.index.json.
 *
 * Before: @p output does not exist or is an empty folder. After: it is complete; on an error it is
 * as before. If the process is killed, a folder remains whose name is that of @p output,
 * ".incomplete-" and eight digits.
 *
 * @param folder          of checkpoints.
 * @param output          folder of the model.
 * @param max_file_bytes  data of one file; a larger tensor has a file of its own. 0: 5 * 10^9.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT, VESCOMM_ERROR_SYSTEM: as vescomm_fsdp_load().
 *
 * Collective: no; one rank calls it.  Blocking: yes.  Threads: safe.
 * Source: https://github.com/huggingface/safetensors.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_export(const char *folder, const char *output,
                                                 int64_t max_file_bytes);

#ifdef __cplusplus
}
#endif

#endif

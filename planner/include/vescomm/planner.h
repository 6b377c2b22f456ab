/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The planner. It takes a list of tensors, places each tensor in a fused buffer, cuts the buffer
 * into shards, and reports how good the layout is. It only computes: no communicator, device, file
 * or clock is involved, and the same input gives the same answer on every machine.
 *
 *     vescomm_planner_tensor_t tensors[count];   // of vescomm_planner_tensor_init(), then filled
 *     vescomm_layout_t *layout = NULL;
 *     vescomm_plan(tensors, count, ranks, NULL, &layout, NULL);
 *     if (layout == NULL) puts(vescomm_plan_explain());
 *
 * The conventions of vescomm.h apply, with one exception: the text of an error comes from
 * vescomm_plan_explain(), not from vescomm_get_last_error(). Sizes are in elements unless a name
 * says bytes.
 *
 * Names. Structs and constants of the input and of the results begin with vescomm_planner_. A
 * vescomm_plan_t is the plan of a whole model, and functions on it begin with vescomm_plan_. Two
 * functions have no plan: vescomm_plan() plans one buffer, and returns its layout;
 * vescomm_plan_explain() is about the last call of the thread.
 *
 * The defaults here are not those of the program vescomm-plan, which searches by default and knows
 * the ranks of a node:
 *
 *                         here            vescomm-plan
 *     search_steps        0: no search    20,000,000
 *     start_alignment     64 elements     elements of 128 bytes of the smallest type in the model
 *     cut_alignment       64 elements     elements of 128 bytes of the smallest type in the model
 *     bytes_per_second    50e9            300e9 for up to 8 ranks (one node), 50e9 for more
 */
#ifndef VESCOMM_PLANNER_H
#define VESCOMM_PLANNER_H

#include "vescomm/vescomm.h"

#ifdef __cplusplus
extern "C" {
#endif

/** One tensor to place. Append-only. */
typedef struct vescomm_planner_tensor {
    uint32_t struct_size;
    /** Number of entries of shape; 0 is a scalar. */
    int32_t dimensions;
    /** Unique name. Borrowed for the call. */
    const char *name;
    /** Row-major extents, each at least 0. Borrowed for the call. */
    const int64_t *shape;
    /** Rows of a block, which stays on one rank. 0 or 1: a cut may lie between any two rows (in a
     *  vector: any two elements). -1: the whole tensor is a block, or each sub-matrix if there are
     *  several. */
    int64_t block_rows;
    /** Number of leading dimensions that index sub-matrices, such as 1 for the experts of
     *  [experts, rows, columns]. The grid of blocks restarts at each sub-matrix. */
    int32_t batch_dimensions;
    int32_t reserved;
    /** The tensor starts at a multiple of this number of elements, in addition to start_alignment.
     *  0: only start_alignment applies. */
    int64_t alignment;
} vescomm_planner_tensor_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_planner_tensor_t vescomm_planner_tensor_init(void) {
    vescomm_planner_tensor_t tensor = {sizeof(vescomm_planner_tensor_t), 0, NULL, NULL, 0, 0, 0, 0};
    return tensor;
}

/** How shards relate to one another. */
typedef int32_t vescomm_planner_mode_t;

/** The largest shard is as small as possible. Padding only aligns starts. */
#define VESCOMM_PLANNER_RAGGED ((vescomm_planner_mode_t)0)
/** All shards are equal, padding included, so that any equal-count library can move them. */
#define VESCOMM_PLANNER_UNIFORM ((vescomm_planner_mode_t)1)
/** Unequal shards. All ranks own about the same number of bytes of all units together; the largest
 *  shard of one unit may therefore exceed its minimum (unit_imbalance). */
#define VESCOMM_PLANNER_BALANCED ((vescomm_planner_mode_t)2)
/** Every matrix is whole on one rank, for optimizers that need this. All ranks have about the same
 *  work of the optimizer. */
#define VESCOMM_PLANNER_OWNER ((vescomm_planner_mode_t)3)
/** Ragged or uniform, whichever has the smaller estimated communication time. vescomm-plan calls it
 *  auto. */
#define VESCOMM_PLANNER_AUTOMATIC ((vescomm_planner_mode_t)4)

/** The optimizer's work on a matrix, by which VESCOMM_PLANNER_OWNER balances. */
typedef int32_t vescomm_planner_work_t;

/** s * s * (2 * l + s), where s is the shorter and l the longer side; for a vector the number of
 *  its elements. */
#define VESCOMM_PLANNER_WORK_MUON ((vescomm_planner_work_t)0)
/** The number of elements. */
#define VESCOMM_PLANNER_WORK_ELEMENTS ((vescomm_planner_work_t)1)

/** Options of the planner. Append-only; a zero member means its default. */
typedef struct vescomm_planner_options {
    uint32_t struct_size;
    vescomm_planner_mode_t mode;
    /** Every tensor starts at a multiple of this, and a uniform shard is a multiple of it. 0: 64
     *  elements, which are 128 bytes of bf16. Matrix kernels require at least 16 bytes, and NCCL is
     *  several times slower with less. */
    int64_t start_alignment;
    /** Ragged cuts lie on multiples of this wherever blocks allow it, and shards are compared after
     *  rounding up to it. With weights, a cut is left unaligned if aligning it would enlarge a
     *  shard by more than a hundredth. 0: 64 elements. */
    int64_t cut_alignment;
    /** Maximum size of a shard. A layout with a larger shard is rejected. 0: no limit. */
    int64_t shard_limit;
    /** One weight for each rank: a rank with twice the weight of another takes twice the elements.
     *  An error with uniform and owner; automatic then means ragged. Borrowed for the call. NULL:
     *  all weights are equal. */
    const int64_t *weights;
    /** Maximum number of steps, of about 10 ns each, to search for a better order of the tensors,
     *  or for the proof that there is none. Used only if a layout does not meet the lower bound. 0:
     *  no search. */
    int64_t search_steps;
    /** Balanced: the fraction by which the largest shard of one unit may exceed its minimum. 0: a
     *  quarter. Negative: no excess. */
    double unit_imbalance;
    /** Owner: the work that is balanced. */
    vescomm_planner_work_t work;
    int32_t reserved;
    /** Cost model of VESCOMM_PLANNER_AUTOMATIC and of seconds_per_step: bytes per second that a
     *  rank receives. 0: 50e9. */
    double bytes_per_second;
    /** Cost model: fixed seconds of a collective. 0: 30e-6. Negative: no cost. */
    double seconds_per_collective;
    /** Cost model: additional seconds of a collective with unequal shards. 0: 15e-6. Negative: no
     *  cost. */
    double seconds_per_unequal;
} vescomm_planner_options_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_planner_options_t vescomm_planner_options_init(void) {
    vescomm_planner_options_t options = {
        sizeof(vescomm_planner_options_t), 0, 0, 0, 0, NULL, 0, 0.0, 0, 0, 0.0, 0.0, 0.0};
    return options;
}

/** Quality of the layout of one buffer. Append-only. */
typedef struct vescomm_planner_figures {
    uint32_t struct_size;
    /** 1: it is proved that no layout of this mode has a smaller largest shard (ragged: in
     *  multiples of cut_alignment; with weights: a smaller largest_over_share). 0: not proved. */
    int32_t optimal;
    int64_t elements; /**< of the whole buffer */
    int64_t padding; /**< elements of the buffer that belong to no tensor */
    int64_t largest_shard; /**< elements, padding included */
    int64_t lower_bound; /**< no layout of this mode has a smaller largest_shard */
    double mean_shard; /**< elements of tensors for each rank */
    const char *order; /**< name of the tensors' order, such as "default"; a constant string */
    /** The largest ratio of a shard to its rank's share. The share is the mean, or with weights the
     *  part that the rank's weight gives it. */
    double largest_over_share;
    int64_t steps; /**< search steps used, of search_steps */
    double lower_bound_over_share; /**< no layout of this mode has a smaller largest_over_share */
} vescomm_planner_figures_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_planner_figures_t vescomm_planner_figures_init(void) {
    vescomm_planner_figures_t figures = {
        sizeof(vescomm_planner_figures_t), 0, 0, 0, 0, 0, 0.0, NULL, 0.0, 0, 0.0};
    return figures;
}

/**
 * Plans one buffer: finds its layout. vescomm_plan_create() plans the buffers of a whole model
 * together. The modes balanced, owner and automatic plan the buffer as a model of one unit, with
 * elements of one byte, because the call has no type.
 *
 * @param tensors  @p count tensors. Borrowed for the call.
 * @param ranks    number of shards, 1 to 10,000,000.
 * @param options  NULL: defaults. Borrowed for the call.
 * @param layout   [out] owned by the caller; free with vescomm_layout_free(). Its tensors are in
 *                 order of offset, not in the order given: vescomm_layout_find_tensor() finds them.
 *                 NULL when no layout meets the options, which is not an error: the call returns
 *                 VESCOMM_OK, and vescomm_plan_explain() says why.
 * @param figures  [in,out] struct_size set by the caller, the rest filled; only lower_bound when
 *                 there is no layout. May be NULL.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: vescomm_plan_explain() names the tensor or
 *         the option. VESCOMM_ERROR_OUT_OF_MEMORY.
 *
 * Collective: no.  Blocking: no.  Threads: safe.
 * Cost: O(tensors + ranks) memory; milliseconds for 45,395 tensors or 100,000 ranks.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_plan(const vescomm_planner_tensor_t *tensors, size_t count,
                                          int32_t ranks, const vescomm_planner_options_t *options,
                                          vescomm_layout_t **layout,
                                          vescomm_planner_figures_t *figures);

/**
 * Returns one sentence about the calling thread's last call of a function of this header: the
 * quality of the layout, the reason why there is none, or the error. After
 * vescomm_plan_get_totals() it is about the whole plan, after vescomm_plan_get_figures() about one
 * unit of it. vescomm_get_last_error() does not return these sentences.
 *
 * @return never NULL, empty before the first call, truncated after 4,095 bytes; valid until this
 *         thread's next call of a function of this header.
 *
 * Collective: no.  Blocking: no.  Threads: safe (each thread has its own).  Since: 0.1
 */
VESCOMM_API const char *vescomm_plan_explain(void);

/** The tensors of one unit (usually a layer) that have one type, which share a fused buffer. A unit
 *  with several types is passed as several of these with the same name. Append-only. */
typedef struct vescomm_planner_unit {
    uint32_t struct_size;
    /** Type of the elements. vescomm_planner_unit_init() sets VESCOMM_BF16. VESCOMM_TYPE_DEFAULT
     *  (0) is an error. */
    vescomm_type_t type;
    /** Used in explanations and error texts only. Borrowed for the call. */
    const char *name;
    /** `count` tensors with unique names. Borrowed for the call. */
    const vescomm_planner_tensor_t *tensors;
    size_t count;
} vescomm_planner_unit_t;

/** Returns the struct with struct_size set, type VESCOMM_BF16, the others zero. Since: 0.1 */
static inline vescomm_planner_unit_t vescomm_planner_unit_init(void) {
    vescomm_planner_unit_t unit = {sizeof(vescomm_planner_unit_t), VESCOMM_BF16, NULL, NULL, 0};
    return unit;
}

/** Quality of the layouts of all units together. Append-only. */
typedef struct vescomm_planner_totals {
    uint32_t struct_size;
    int32_t feasible; /**< 1: every unit has a layout; 0: one has none, and all members below but
                         mode and lower_bound_bytes are 0 */
    vescomm_planner_mode_t mode; /**< of all units; never automatic */
    int32_t reserved;
    int64_t bytes; /**< of all buffers, padding included */
    int64_t padding_bytes; /**< part of `bytes` that belongs to no tensor */
    int64_t largest_rank_bytes; /**< the most that one rank owns of all units, padding included */
    int64_t lower_bound_bytes; /**< for any cuts, some rank owns at least this many bytes */
    double mean_rank_bytes; /**< without padding */
    /** The largest ratio of a rank's bytes to its share. The share is the mean, or with weights the
     *  part that the rank's weight gives it. */
    double largest_over_share;
    double largest_rank_cost_over_mean; /**< owner: work of the busiest rank over the mean */
    double lower_bound_cost_over_mean; /**< owner: no assignment of whole matrices has less */
    /** Bytes that a rank receives in a training step: two gathers and a reduction of every unit,
     *  each of largest shard * (ranks - 1). */
    double wire_bytes_per_step;
    double seconds_per_step; /**< estimated time of these collectives */
} vescomm_planner_totals_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_planner_totals_t vescomm_planner_totals_init(void) {
    vescomm_planner_totals_t totals = {
        sizeof(vescomm_planner_totals_t), 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0};
    return totals;
}

/** The plan of a model: the layouts of all its units, planned together. Only vescomm_plan_create()
 *  makes one. Immutable. */
typedef struct vescomm_model_plan vescomm_plan_t;

/**
 * Finds layouts for all units of a model.
 *
 *     vescomm_plan_t *plan = NULL;
 *     vescomm_plan_create(units, count, 1024, &options, &plan);
 *     vescomm_plan_create_layout(plan, 0, &layout);   ... of the first unit, and so on
 *     vescomm_plan_free(plan);                        ... layouts remain
 *
 * @param units    @p count units. Borrowed for the call.
 * @param ranks    1 to 10,000,000.
 * @param options  NULL: defaults. Borrowed for the call.
 * @param plan     [out] owned by the caller; free with vescomm_plan_free(). If no layout of some
 *                 unit meets the options, the call still creates a plan and returns VESCOMM_OK:
 *                 vescomm_planner_totals_t.feasible is 0, and vescomm_plan_explain() says why.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: vescomm_plan_explain() names the unit, the
 *         tensor or the option. VESCOMM_ERROR_OUT_OF_MEMORY.
 *
 * Collective: no.  Blocking: no.  Threads: safe.
 * Cost: O(tensors + ranks * units that differ) memory (owner: ranks * units); under 50 ms for the
 * 45,395 tensors of DeepSeek-V3 and 100,000 ranks, without search_steps.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_plan_create(const vescomm_planner_unit_t *units, size_t count,
                                                 int32_t ranks,
                                                 const vescomm_planner_options_t *options,
                                                 vescomm_plan_t **plan);

/**
 * Frees a plan. Layouts created from it remain.
 *
 * @param plan  NULL: no effect.
 * @return VESCOMM_OK.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_plan_free(vescomm_plan_t *plan);

/**
 * Returns the number of units of a plan. vescomm_plan_create_layout() returns the layout of each.
 *
 * @param count  [out] as given to vescomm_plan_create().
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: an argument is NULL.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_plan_get_units(const vescomm_plan_t *plan, size_t *count);

/**
 * Creates the layout of one unit. Its tensors are in order of offset; vescomm_layout_find_tensor()
 * finds them.
 *
 * @param unit    index as given to vescomm_plan_create().
 * @param layout  [out] owned by the caller; free with vescomm_layout_free(). NULL for
 *                every unit if vescomm_planner_totals_t.feasible is 0.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: there is no such unit, or two of its tensors
 *         have one name. VESCOMM_ERROR_OUT_OF_MEMORY.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: O(tensors log tensors + ranks).  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_plan_create_layout(const vescomm_plan_t *plan, size_t unit,
                                                        vescomm_layout_t **layout);

/**
 * Returns the quality of the layout of one unit; vescomm_plan_explain() then explains it.
 *
 * @param unit     index as given to vescomm_plan_create().
 * @param figures  [in,out] struct_size set by the caller, the rest filled; 0 for every unit
 *                 if vescomm_planner_totals_t.feasible is 0.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: there is no such unit.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_plan_get_figures(const vescomm_plan_t *plan, size_t unit,
                                                      vescomm_planner_figures_t *figures);

/**
 * Returns the quality of all layouts together; vescomm_plan_explain() then explains it.
 *
 * @param totals  [in,out] struct_size set by the caller, the rest filled.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: an argument is NULL.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_plan_get_totals(const vescomm_plan_t *plan,
                                                     vescomm_planner_totals_t *totals);

#ifdef __cplusplus
}
#endif

#endif

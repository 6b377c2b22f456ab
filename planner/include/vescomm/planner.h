/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The planner. It takes a list of tensors, places each tensor in a fused buffer, cuts the buffer
 * into shards, and reports how good the layout is. It only computes: no communicator, device, file
 * or clock is involved, and the same input gives the same answer on every machine.
 *
 *     vescomm_planner_tensor_t tensor = vescomm_planner_tensor_init();   ... fill, one for each
 *     vescomm_layout_t *layout = NULL;
 *     vescomm_plan(tensors, count, ranks, NULL, &layout, NULL);
 *     if (layout == NULL) puts(vescomm_plan_explain());
 *
 * The conventions of vescomm.h apply. Sizes are in elements.
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
    /** Rows of a block, which stays on one rank. 0 or 1: any row may be cut off (in a vector: any
     * element). -1: the whole tensor is a block, or each sub-matrix if there are several. */
    int64_t block_rows;
    /** Leading dimensions whose sub-matrices restart the grid of blocks. */
    int32_t batch_dimensions;
    int32_t reserved;
    /** The tensor starts at a multiple of this many elements, in addition to start_alignment.
     * 0: only start_alignment applies. */
    int64_t alignment;
} vescomm_planner_tensor_t;

static inline vescomm_planner_tensor_t vescomm_planner_tensor_init(void) {
    vescomm_planner_tensor_t tensor = {sizeof(vescomm_planner_tensor_t), 0, NULL, NULL, 0, 0, 0, 0};
    return tensor;
}

/** How shards relate to one another. */
typedef int32_t vescomm_planner_mode_t;

/** The largest shard is as small as possible. Padding serves only to align starts. */
#define VESCOMM_PLANNER_RAGGED ((vescomm_planner_mode_t)0)
/** All shards are equal, padding included, so that any equal-count library can move them. */
#define VESCOMM_PLANNER_UNIFORM ((vescomm_planner_mode_t)1)
/** Ragged, with the bytes of all units of a model together even over the ranks. */
#define VESCOMM_PLANNER_BALANCED ((vescomm_planner_mode_t)2)
/** Every matrix is whole on one rank, for optimizers that need this. The ranks' work is even. */
#define VESCOMM_PLANNER_OWNER ((vescomm_planner_mode_t)3)
/** Ragged or uniform, whichever has the smaller estimated communication time. */
#define VESCOMM_PLANNER_AUTOMATIC ((vescomm_planner_mode_t)4)

/** The optimizer's work on a matrix, by which VESCOMM_PLANNER_OWNER balances. */
typedef int32_t vescomm_planner_work_t;

/** s * s * (2 * l + s), where s is the shorter and l the longer side. For a vector: its elements.
 */
#define VESCOMM_PLANNER_WORK_MUON ((vescomm_planner_work_t)0)
/** The number of elements. */
#define VESCOMM_PLANNER_WORK_ELEMENTS ((vescomm_planner_work_t)1)

/** Options of the planner. Append-only; a zero member means its default. */
typedef struct vescomm_planner_options {
    uint32_t struct_size;
    vescomm_planner_mode_t mode;
    /** Every tensor starts at a multiple of this, and a uniform shard is a multiple of it. 0: 64,
     *  which is 128 bytes of bf16. Matrix kernels and NCCL want at least 16 bytes. */
    int64_t start_alignment;
    /** Ragged cuts lie on multiples of this wherever blocks allow it, and shards are compared after
     *  rounding up to it. With weights, a cut is left unaligned if aligning it would enlarge a
     * shard by more than a hundredth. 0: 64. */
    int64_t cut_alignment;
    /** Upper limit of a shard. Layouts with a larger shard are rejected. 0: no limit. */
    int64_t shard_limit;
    /** One weight for each rank: a rank with twice the weight of another takes twice the elements.
     *  Ragged and balanced only. Borrowed for the call. NULL: all weights are equal. */
    const int64_t *weights;
    /** Limit of the steps, of about 10 ns each, to search for a better order of the tensors, or for
     *  the proof that there is none. Used only when the bound is not met. 0: no search. */
    int64_t search_steps;
    /** Balanced: the fraction by which the largest shard of one unit may exceed its minimum.
     *  0: a quarter. Negative: not at all. */
    double unit_imbalance;
    /** Owner: the work that is balanced. */
    vescomm_planner_work_t work;
    int32_t reserved;
    /** Cost model of automatic and of vescomm_planner_totals. Bytes per second that a rank
     * receives. 0: 50e9. */
    double bytes_per_second;
    /** Fixed cost of a collective. 0: 30e-6. Negative: nothing. */
    double seconds_per_collective;
    /** Additional cost of a collective with unequal shards. 0: 15e-6. Negative: nothing. */
    double seconds_per_unequal;
} vescomm_planner_options_t;

static inline vescomm_planner_options_t vescomm_planner_options_init(void) {
    vescomm_planner_options_t options = {
        sizeof(vescomm_planner_options_t), 0, 0, 0, 0, NULL, 0, 0.0, 0, 0, 0.0, 0.0, 0.0};
    return options;
}

/** Quality of the layout of one buffer. Append-only. */
typedef struct vescomm_planner_figures {
    uint32_t struct_size;
    /** 1: it is proved that no layout of this mode has a smaller largest shard (ragged: in
     * multiples of cut_alignment; with weights: a smaller largest_over_share). 0: not proved. */
    int32_t optimal;
    int64_t elements; /**< of the whole buffer */
    int64_t padding; /**< elements of the buffer that belong to no tensor */
    int64_t largest_shard; /**< elements, padding included */
    int64_t lower_bound; /**< no layout of this mode has a smaller largest_shard */
    double mean_shard; /**< elements of tensors for each rank */
    const char *order; /**< name of the tensors' order, such as "default"; a constant */
    /** The largest ratio of a shard to its rank's share. A share is the mean, or follows the rank's
     * weight. */
    double largest_over_share;
    int64_t steps; /**< search steps used, of search_steps */
    double lower_bound_over_share; /**< no layout of this mode has a smaller largest_over_share */
} vescomm_planner_figures_t;

static inline vescomm_planner_figures_t vescomm_planner_figures_init(void) {
    vescomm_planner_figures_t figures = {
        sizeof(vescomm_planner_figures_t), 0, 0, 0, 0, 0, 0.0, NULL, 0.0, 0, 0.0};
    return figures;
}

/**
 * Finds a layout of one buffer. In the modes that concern models, the buffer is the only unit of a
 * model.
 *
 * @param tensors  @p count tensors. Borrowed for the call.
 * @param ranks    at least 1.
 * @param options  NULL: defaults. Borrowed for the call.
 * @param layout   [out] owned by the caller; release with vescomm_layout_free(). NULL when no
 *                 layout meets the options, which is an answer and not an error:
 *                 vescomm_plan_explain() says why. Its tensors are in order of offset, not in the
 *                 order given: vescomm_layout_find_tensor() finds them.
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
 * Explains the calling thread's last call of a vescomm_plan function in one sentence: the quality
 * of the layout, the reason why there is none, or the error in the arguments.
 *
 * @return never NULL, empty before the first plan; valid until this thread's next call of a
 *         vescomm_plan function.
 *
 * Collective: no.  Blocking: no.  Threads: safe (each thread has its own).  Since: 0.1
 */
VESCOMM_API const char *vescomm_plan_explain(void);

/** One fused buffer: tensors of one type that are gathered together. A unit of several types is
 *  represented by several of these with one name. Append-only. */
typedef struct vescomm_planner_unit {
    uint32_t struct_size;
    vescomm_type_t type;
    /** Used in messages only. Borrowed for the call. */
    const char *name;
    /** `count` tensors with unique names. Borrowed for the call. */
    const vescomm_planner_tensor_t *tensors;
    size_t count;
} vescomm_planner_unit_t;

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
    int64_t lower_bound_bytes; /**< no choice of cuts has a smaller largest rank */
    double mean_rank_bytes; /**< without padding */
    /** The largest ratio of a rank's bytes to its share. A share is the mean, or follows the rank's
     * weight. */
    double largest_over_share;
    double largest_rank_cost_over_mean; /**< owner: work of the busiest rank over the mean */
    double lower_bound_cost_over_mean; /**< owner: no assignment of whole matrices has less */
    /** Bytes received for two gathers and a reduction of every unit: largest shard * (ranks - 1)
     * for each. */
    double wire_bytes_per_step;
    double seconds_per_step; /**< estimated time of these collectives */
} vescomm_planner_totals_t;

static inline vescomm_planner_totals_t vescomm_planner_totals_init(void) {
    vescomm_planner_totals_t totals = {
        sizeof(vescomm_planner_totals_t), 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0};
    return totals;
}

/** The layouts of all units of a model, planned together. Immutable. */
typedef struct vescomm_model_plan vescomm_plan_t;

/**
 * Finds layouts for all units of a model.
 *
 *     vescomm_plan_t *plan = NULL;
 *     vescomm_plan_create(units, count, 1024, &options, &plan);
 *     vescomm_plan_create_layout(plan, 0, &layout);   ... of the first unit, and so on
 *     vescomm_plan_free(plan);                 ... layouts remain
 *
 * @param units    @p count units. Borrowed for the call.
 * @param ranks    at least 1.
 * @param options  NULL: defaults. Borrowed for the call.
 * @param plan     [out] owned by the caller; release with vescomm_plan_free(). A plan is also made
 *                 when no layout of some unit meets the options: vescomm_planner_totals::feasible
 * is then 0, and vescomm_plan_explain() says why.
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
 * Releases a plan. Layouts made from it remain.
 *
 * @param plan  NULL: nothing happens.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_plan_free(vescomm_plan_t *plan);

/**
 * Returns the number of units of a plan.
 *
 * @param count  [out] as given to vescomm_plan_create().
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: an argument is NULL.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_plan_get_units(const vescomm_plan_t *plan, size_t *count);

/**
 * Makes the layout of one unit. Its tensors are in order of offset; vescomm_layout_find_tensor()
 * finds them.
 *
 * @param unit    index as given to vescomm_plan_create().
 * @param layout  [out] owned by the caller; release with vescomm_layout_free(). NULL when there is
 *                no layout for some unit of the plan.
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
 * @param figures  [in,out] struct_size set by the caller, the rest filled; 0 when there is no
 *                 layout for some unit of the plan.
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

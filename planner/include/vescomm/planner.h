/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The planner: tensors in, layout out. It decides where each tensor of a fused buffer lies and
 * where the buffer is cut into shards, and says how good the answer is. Numbers only: no
 * communicator, no device, no files, no clock; the same input gives the same answer on every
 * machine.
 *
 *     vescomm_planner_tensor_t tensor = vescomm_planner_tensor();   ... fill, one for each
 *     vescomm_layout_t *layout = NULL;
 *     vescomm_plan(tensors, count, ranks, NULL, &layout, NULL);
 *     if (layout == NULL) puts(vescomm_plan_explain());
 *
 * Conventions are those of vescomm.h. Sizes are in elements.
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
    /** Unique. Borrowed for the call. */
    const char *name;
    /** Row-major extents, each at least 0. Borrowed likewise. */
    const int64_t *shape;
    /** Rows that stay on one rank. 0 or 1: any row (of a vector: any element). -1: the whole
     * tensor, or each whole sub-matrix where there are several. */
    int64_t block_rows;
    /** Leading dimensions whose sub-matrices restart the grid of blocks. */
    int32_t batch_dimensions;
    int32_t reserved;
    /** Starts at a multiple of this many elements, besides that of all tensors. 0: of any. */
    int64_t alignment;
} vescomm_planner_tensor_t;

static inline vescomm_planner_tensor_t vescomm_planner_tensor(void) {
    vescomm_planner_tensor_t tensor = {sizeof(vescomm_planner_tensor_t), 0, NULL, NULL, 0, 0, 0, 0};
    return tensor;
}

/** How shards relate to one another. */
typedef int32_t vescomm_planner_mode_t;

/** The largest shard as small as possible; padding only where starts are aligned. */
#define VESCOMM_PLANNER_RAGGED ((vescomm_planner_mode_t)0)
/** All shards equal, padding included, so that any equal-count library can move them. */
#define VESCOMM_PLANNER_UNIFORM ((vescomm_planner_mode_t)1)
/** Ragged, and all units of a model together leave every rank with the same. */
#define VESCOMM_PLANNER_BALANCED ((vescomm_planner_mode_t)2)
/** Whole matrices on one rank, for optimizers that need them; the ranks' work is even. */
#define VESCOMM_PLANNER_OWNER ((vescomm_planner_mode_t)3)
/** Ragged or uniform, whichever moves its bytes sooner. */
#define VESCOMM_PLANNER_AUTOMATIC ((vescomm_planner_mode_t)4)

/** What an optimizer does with a matrix, to balance VESCOMM_PLANNER_OWNER by. */
typedef int32_t vescomm_planner_work_t;

/** s * s * (2 * l + s), s the shorter side and l the longer; a vector: its elements. */
#define VESCOMM_PLANNER_WORK_MUON ((vescomm_planner_work_t)0)
#define VESCOMM_PLANNER_WORK_ELEMENTS ((vescomm_planner_work_t)1)

/** What kind of layout is wanted. Append-only; a zero member means its default. */
typedef struct vescomm_planner_options {
    uint32_t struct_size;
    vescomm_planner_mode_t mode;
    /** Every tensor starts at a multiple of this, and a uniform shard is one. 0: 64, which is 128
     *  bytes of bf16. Matrix kernels and NCCL want at least 16 bytes. */
    int64_t start_alignment;
    /** Ragged cuts lie on multiples of this wherever blocks allow it; shards are compared after
     *  rounding up to it, or with weights left unaligned where that rounds one up by more than a
     *  hundredth. 0: 64. */
    int64_t cut_alignment;
    /** A layout with a larger shard is no answer. 0: no limit. */
    int64_t shard_limit;
    /** One for each rank: a rank with twice the weight of another takes twice as much. Ragged and
     *  balanced only. Borrowed for the call. NULL: all the same. */
    const int64_t *weights;
    /** Where the bound is not met: how many steps of about 10 ns to search for a better order of
     *  the tensors, or for the proof that there is none. 0: none. */
    int64_t search_steps;
    /** Balanced: how much larger than it must be the largest shard of one unit may get, as a
     *  fraction. 0: a quarter. Negative: not at all. */
    double unit_imbalance;
    /** Owner. */
    vescomm_planner_work_t work;
    int32_t reserved;
    /** What moving bytes costs, for automatic and for vescomm_planner_totals. Bytes a second that a
     *  rank receives; 0: 50e9. */
    double bytes_per_second;
    /** Of any collective. 0: 30e-6. Negative: nothing. */
    double seconds_per_collective;
    /** What unequal shards add to that. 0: 15e-6. Negative: nothing. */
    double seconds_per_unequal;
} vescomm_planner_options_t;

static inline vescomm_planner_options_t vescomm_planner_options(void) {
    vescomm_planner_options_t options = {
        sizeof(vescomm_planner_options_t), 0, 0, 0, 0, NULL, 0, 0.0, 0, 0, 0.0, 0.0, 0.0};
    return options;
}

/** How good the layout of one buffer is. Append-only. */
typedef struct vescomm_planner_figures {
    uint32_t struct_size;
    /** 1: proved that no layout of this mode has a smaller largest shard, ragged ones in multiples
     * of cut_alignment; with weights, a smaller largest_over_share. 0: not proved. */
    int32_t optimal;
    int64_t elements; /**< of the whole buffer */
    int64_t padding; /**< elements of the buffer that belong to no tensor */
    int64_t largest_shard; /**< elements, padding included */
    int64_t lower_bound; /**< no layout of this mode has a smaller largest_shard */
    double mean_shard; /**< elements of tensors for each rank */
    const char *order; /**< of the tensors in the buffer, such as "default"; a constant */
    /** The largest ratio of a shard to its rank's share: the mean, or what its weight gives it. */
    double largest_over_share;
    int64_t steps; /**< taken of search_steps */
    double lower_bound_over_share; /**< no layout of this mode has a smaller largest_over_share */
} vescomm_planner_figures_t;

static inline vescomm_planner_figures_t vescomm_planner_figures(void) {
    vescomm_planner_figures_t figures = {
        sizeof(vescomm_planner_figures_t), 0, 0, 0, 0, 0, 0.0, NULL, 0.0, 0, 0.0};
    return figures;
}

/**
 * Finds a layout for tensors and ranks. In the modes that are about models, for the only buffer of
 * one.
 *
 * @param tensors  @p count tensors. Borrowed for the call.
 * @param ranks    at least 1.
 * @param options  NULL: defaults. Borrowed for the call.
 * @param layout   [out] owned by the caller; release with vescomm_layout_free(). NULL when there is
 *                 no layout as wanted, which is an answer and not an error: vescomm_plan_explain()
 *                 says why. Its tensors are in order of offset, not in the order given:
 *                 vescomm_layout_find() finds them.
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
 * Explains the calling thread's last call of a vescomm_plan function in one sentence: how good its
 * layout is, why there is none, or what was wrong with the arguments.
 *
 * @return never NULL, empty before the first plan; valid until this thread's next such call.
 *
 * Collective: no.  Blocking: no.  Threads: safe (each thread has its own).  Since: 0.1
 */
VESCOMM_API const char *vescomm_plan_explain(void);

/** Tensors of one type that are gathered together: one fused buffer. A unit of a model that mixes
 *  types is several of these under one name. Append-only. */
typedef struct vescomm_planner_unit {
    uint32_t struct_size;
    vescomm_type_t type;
    /** For sentences only. Borrowed for the call. */
    const char *name;
    /** `count` tensors with names of their own. Borrowed likewise. */
    const vescomm_planner_tensor_t *tensors;
    size_t count;
} vescomm_planner_unit_t;

static inline vescomm_planner_unit_t vescomm_planner_unit(void) {
    vescomm_planner_unit_t unit = {sizeof(vescomm_planner_unit_t), VESCOMM_BF16, NULL, NULL, 0};
    return unit;
}

/** How good the layouts of all units are together. Append-only. */
typedef struct vescomm_planner_totals {
    uint32_t struct_size;
    int32_t feasible; /**< 1: every unit has a layout; 0: one has none, and all below is 0 */
    vescomm_planner_mode_t mode; /**< of all units; never automatic */
    int32_t reserved;
    int64_t bytes; /**< of all buffers */
    int64_t padding_bytes; /**< of these, of no tensor */
    int64_t largest_rank_bytes; /**< the most that one rank owns of all units, padding included */
    int64_t lower_bound_bytes; /**< no choice of cuts has a smaller largest rank */
    double mean_rank_bytes; /**< without padding */
    double largest_over_share; /**< a rank's bytes over the mean, or what its weight gives it */
    double largest_rank_cost_over_mean; /**< owner: of the rank that has most to do */
    double lower_bound_cost_over_mean; /**< no assignment of whole matrices has less */
    /** Two gathers and a reduction of every unit: largest shard * (ranks - 1) of each. */
    double wire_bytes_per_step;
    double seconds_per_step; /**< that these take */
} vescomm_planner_totals_t;

static inline vescomm_planner_totals_t vescomm_planner_totals(void) {
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
 *     vescomm_plan_layout(plan, 0, &layout);   ... of the first unit, and so on
 *     vescomm_plan_free(plan);                 ... layouts remain
 *
 * @param units    @p count units. Borrowed for the call.
 * @param ranks    at least 1.
 * @param options  NULL: defaults. Borrowed for the call.
 * @param plan     [out] owned by the caller; release with vescomm_plan_free(). There is one also
 * when a unit has no layout as wanted: its totals say so, and vescomm_plan_explain() why.
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
 * Says how many units were planned.
 *
 * @param count  [out] as given to vescomm_plan_create().
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: an argument is NULL.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_plan_units(const vescomm_plan_t *plan, size_t *count);

/**
 * Makes the layout of one unit. Its tensors are in order of offset: vescomm_layout_find() finds
 * them.
 *
 * @param unit    index as given to vescomm_plan_create().
 * @param layout  [out] owned by the caller; release with vescomm_layout_free(). NULL when there is
 *                no layout for some unit of the plan.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: there is no such unit, or two of its tensors
 *         have one name. VESCOMM_ERROR_OUT_OF_MEMORY.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: O(tensors log tensors + ranks).  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_plan_layout(const vescomm_plan_t *plan, size_t unit,
                                                 vescomm_layout_t **layout);

/**
 * Says how good the layout of one unit is; vescomm_plan_explain() then explains it.
 *
 * @param unit     index as given to vescomm_plan_create().
 * @param figures  [in,out] struct_size set by the caller, the rest filled; 0 when there is no
 * layout for some unit of the plan.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: there is no such unit.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_plan_figures(const vescomm_plan_t *plan, size_t unit,
                                                  vescomm_planner_figures_t *figures);

/**
 * Says how good all layouts are together; vescomm_plan_explain() then explains it.
 *
 * @param totals  [in,out] struct_size set by the caller, the rest filled.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: an argument is NULL.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_plan_totals(const vescomm_plan_t *plan,
                                                 vescomm_planner_totals_t *totals);

#ifdef __cplusplus
}
#endif

#endif

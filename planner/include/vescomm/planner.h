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
} vescomm_planner_tensor_t;

static inline vescomm_planner_tensor_t vescomm_planner_tensor(void) {
    vescomm_planner_tensor_t tensor = {sizeof(vescomm_planner_tensor_t), 0, NULL, NULL, 0, 0, 0};
    return tensor;
}

/** How shards relate to one another. */
typedef int32_t vescomm_planner_mode_t;

/** The largest shard as small as possible; padding only where starts are aligned. */
#define VESCOMM_PLANNER_RAGGED ((vescomm_planner_mode_t)0)
/** All shards equal, padding included, so that any equal-count library can move them. */
#define VESCOMM_PLANNER_UNIFORM ((vescomm_planner_mode_t)1)

/** What kind of layout is wanted. Append-only; a zero member means its default. */
typedef struct vescomm_planner_options {
    uint32_t struct_size;
    vescomm_planner_mode_t mode;
    /** Every tensor starts at a multiple of this, and a uniform shard is one. 0: 64, which is 128
     *  bytes of bf16. Matrix kernels and NCCL want at least 16 bytes. */
    int64_t start_alignment;
    /** Ragged cuts lie on multiples of this wherever blocks allow it; shards are compared after
     *  rounding up to it. 0: 64. */
    int64_t cut_alignment;
    /** A layout with a larger shard is no answer. 0: no limit. */
    int64_t shard_limit;
} vescomm_planner_options_t;

static inline vescomm_planner_options_t vescomm_planner_options(void) {
    vescomm_planner_options_t options = {sizeof(vescomm_planner_options_t), 0, 0, 0, 0};
    return options;
}

/** How good an answer is. Filled by vescomm_plan(); append-only. */
typedef struct vescomm_planner_figures {
    uint32_t struct_size;
    int32_t optimal; /**< 1: proved that no layout has a smaller largest shard; 0: not proved */
    int64_t elements; /**< of the whole buffer */
    int64_t padding; /**< elements of the buffer that belong to no tensor */
    int64_t largest_shard; /**< elements, padding included */
    int64_t lower_bound; /**< of the largest shard, whatever the order of the tensors */
    double mean_shard; /**< elements of tensors for each rank */
    const char *order; /**< of the tensors in the buffer, such as "default"; a constant */
} vescomm_planner_figures_t;

static inline vescomm_planner_figures_t vescomm_planner_figures(void) {
    vescomm_planner_figures_t figures = {
        sizeof(vescomm_planner_figures_t), 0, 0, 0, 0, 0, 0.0, NULL};
    return figures;
}

/**
 * Finds a layout for tensors and ranks.
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
 * Explains the calling thread's last vescomm_plan() in one sentence: how good its layout is, why
 * there is none, or what was wrong with the arguments.
 *
 * @return never NULL, empty before the first plan; valid until this thread's next vescomm_plan().
 *
 * Collective: no.  Blocking: no.  Threads: safe (each thread has its own).  Since: 0.1
 */
VESCOMM_API const char *vescomm_plan_explain(void);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Dynamic loss scaling, for gradients in f16: f16 loses gradients below 2^-25, and gradients from
 * 65520 on are infinite. The loss is multiplied by a scale that is as large as possible:
 *
 *     arguments.loss_scale = scale.scale;      the factor by which the trainer multiplied its loss
 *     vescomm_fsdp_step(engine, &arguments, NULL);
 *     vescomm_fsdp_update_loss_scale(&scale, arguments.skipped);
 *
 * A step is skipped on all ranks or on none, so the scale is the same on every rank. All its state
 * is in the struct: save the struct with a checkpoint.
 */
#ifndef VESCOMM_LOSS_SCALE_H
#define VESCOMM_LOSS_SCALE_H

#include "vescomm/vescomm.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A loss scale, and how it changes. Append-only. */
typedef struct vescomm_fsdp_loss_scale {
    uint32_t struct_size;
    /** The scale grows after this number of steps without a skipped one. 0: it never grows. */
    int32_t growth_interval;
    double scale; /**< of the next step */
    double growth_factor; /**< at least 1 */
    double backoff_factor; /**< of the scale after a skipped step; above 0 and at most 1 */
    double min_scale; /**< at least 2^-126; the scale does not become smaller */
    double max_scale; /**< at most 2^126; the scale does not become larger */
    int64_t good_steps; /**< steps since the scale changed or a step was skipped */
} vescomm_fsdp_loss_scale_t;

/** Returns the struct with struct_size set, scale 65536, growth by 2 after 2000 steps, backoff by
 *  0.5, and limits of 1 and 2^24. Since: 0.1 */
static inline vescomm_fsdp_loss_scale_t vescomm_fsdp_loss_scale_init(void) {
    vescomm_fsdp_loss_scale_t scale = {
        sizeof(vescomm_fsdp_loss_scale_t), 2000, 65536.0, 2.0, 0.5, 1.0, 16777216.0, 0};
    return scale;
}

/**
 * Computes the loss scale of the next step. After a skipped step the scale is multiplied by the
 * backoff factor; after growth_interval steps in a row that were not skipped, by the growth factor.
 *
 * @param scale    [in,out] scale and good_steps change.
 * @param skipped  vescomm_fsdp_step_t.skipped of the last step.
 * @return VESCOMM_OK. VESCOMM_ERROR_INVALID_ARGUMENT: a member is out of range; nothing changed.
 *
 * Collective: no.  Blocking: no.  Threads: safe.
 * Source: Micikevicius et al., "Mixed Precision Training", 2018, section 3.2.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_fsdp_update_loss_scale(vescomm_fsdp_loss_scale_t *scale,
                                                            int32_t skipped);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers of the FSDP engine. An optimizer is a table of functions, a *kind*, with settings. The
 * engine asks a kind for its needs before it plans the layout, and then calls it once a step for
 * each run of consecutive pieces that share the settings. The conventions of vescomm.h apply.
 *
 *     needs   states and their types                      no communicator, no memory
 *     step    updates masters and states of one run       this rank's shard only
 *
 * A kind works on elements: the result of an element depends on its master, gradient and states
 * only. The parameters then do not depend on the cuts between ranks.
 */
#ifndef VESCOMM_OPTIMIZER_H
#define VESCOMM_OPTIMIZER_H

#include "vescomm/vescomm.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Maximum number of states of a kind. */
#define VESCOMM_OPTIMIZER_MAX_STATES 4

/** The needs of a kind with given settings. Filled by vescomm_optimizer_kind::needs; append-only.
 */
typedef struct vescomm_optimizer_needs {
    uint32_t struct_size;
    /** Number of states, at most VESCOMM_OPTIMIZER_MAX_STATES. A state has one element for each
     *  element of the parameter, and is zero before the first step. */
    uint32_t states;
    /** Type of each state. */
    vescomm_type_t types[VESCOMM_OPTIMIZER_MAX_STATES];
    /** Name of each state, such as "first moment"; a constant string. Checkpoints use it. */
    const char *names[VESCOMM_OPTIMIZER_MAX_STATES];
} vescomm_optimizer_needs_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_optimizer_needs_t vescomm_optimizer_needs_init(void) {
    vescomm_optimizer_needs_t needs = {
        sizeof(vescomm_optimizer_needs_t), 0, {0, 0, 0, 0}, {NULL, NULL, NULL, NULL}};
    return needs;
}

/** A part of one parameter in a run. */
typedef struct vescomm_optimizer_piece {
    uint64_t parameter; /**< id in the specification of the engine */
    int64_t first; /**< first element, counted within the parameter */
    int64_t elements; /**< number of elements, at least 1 */
    int64_t offset; /**< position of the first element in the arrays of the run */
} vescomm_optimizer_piece_t;

/** One call of vescomm_optimizer_kind::step: consecutive elements of this rank's shards. All
 * members are valid during the call. Append-only. */
typedef struct vescomm_optimizer_run {
    uint32_t struct_size;
    uint32_t states; /**< entries of @p state */
    int64_t elements; /**< of every array; padding between pieces is part of them, and is zero */
    const vescomm_optimizer_piece_t *pieces; /**< in order of offset */
    size_t piece_count;
    float *master; /**< in: the values before the step; out: after it */
    const float *gradient; /**< summed over ranks, not yet multiplied by gradient_scale */
    void *const *state; /**< one array for each state */
    int64_t step; /**< number of this step, counted from 1; a skipped step does not count */
    double learning_rate_scale; /**< factor of the learning rate of the settings in this step */
    /** Factor of every gradient: clipping, loss scale and vescomm_fsdp_scale() together. */
    float gradient_scale;
    uint32_t reserved;
} vescomm_optimizer_run_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_optimizer_run_t vescomm_optimizer_run_init(void) {
    vescomm_optimizer_run_t run = {
        sizeof(vescomm_optimizer_run_t), 0, 0, NULL, 0, NULL, NULL, NULL, 0, 0.0, 0.0f, 0};
    return run;
}

/** An optimizer as a table of functions. Append-only. */
typedef struct vescomm_optimizer_kind {
    uint32_t struct_size;
    /** Size of the settings in bytes. The engine keeps a copy of them, and compares it between
     *  ranks: they contain no pointers. */
    uint32_t settings_bytes;
    /** Name in messages and checkpoints; ranks compare it. */
    const char *name;
    /** Passed to the functions. */
    void *context;
    /** Checks the settings and fills @p needs. Returns 0, or another value when the settings are
     *  wrong; *reason is then a constant string. Called from any thread. */
    int (*needs)(void *context, const void *settings, vescomm_optimizer_needs_t *needs,
                 const char **reason);
    /** Updates one run. Returns 0, or another value to fail the step on this rank. */
    int (*step)(void *context, const void *settings, const vescomm_optimizer_run_t *run);
} vescomm_optimizer_kind_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_optimizer_kind_t vescomm_optimizer_kind_init(void) {
    vescomm_optimizer_kind_t kind = {sizeof(vescomm_optimizer_kind_t), 0, NULL, NULL, NULL, NULL};
    return kind;
}

/** Settings of vescomm_optimizer_get_adamw(). Append-only. */
typedef struct vescomm_adamw_settings {
    uint32_t struct_size;
    uint32_t reserved;
    double learning_rate; /**< at least 0; vescomm_fsdp_step() may scale it for a step */
    double beta1; /**< in [0, 1) */
    double beta2; /**< in [0, 1) */
    double epsilon; /**< at least 0 */
    double weight_decay; /**< decoupled: p *= 1 - learning_rate * weight_decay */
} vescomm_adamw_settings_t;

/** Returns learning rate 1e-3, betas 0.9 and 0.999, epsilon 1e-8, weight decay 0.01, the defaults
 * of PyTorch. Since: 0.1 */
static inline vescomm_adamw_settings_t vescomm_adamw_settings_init(void) {
    vescomm_adamw_settings_t settings = {
        sizeof(vescomm_adamw_settings_t), 0, 1e-3, 0.9, 0.999, 1e-8, 0.01};
    return settings;
}

/** Settings of vescomm_optimizer_get_sgd(). Append-only. */
typedef struct vescomm_sgd_settings {
    uint32_t struct_size;
    int32_t nesterov; /**< not 0: Nesterov momentum, which needs a momentum and no dampening */
    double learning_rate; /**< at least 0; vescomm_fsdp_step() may scale it for a step */
    double momentum; /**< at least 0; 0: none, and no state */
    double dampening; /**< the momentum takes 1 - dampening of a gradient, but all of the first */
    double weight_decay; /**< at least 0; added to the gradient: g += weight_decay * p */
    /** Not 0: weight_decay is decoupled, p *= 1 - learning_rate * weight_decay. */
    int32_t decoupled;
    int32_t reserved;
} vescomm_sgd_settings_t;

/** Returns learning rate 1e-3, the others zero, the defaults of PyTorch. Since: 0.1 */
static inline vescomm_sgd_settings_t vescomm_sgd_settings_init(void) {
    vescomm_sgd_settings_t settings = {
        sizeof(vescomm_sgd_settings_t), 0, 1e-3, 0.0, 0.0, 0.0, 0, 0};
    return settings;
}

/**
 * Returns AdamW: two f32 states, the order of operations of PyTorch's fused AdamW.
 *
 * @return a constant, never NULL. Its settings are a vescomm_adamw_settings_t.
 *
 * Collective: no.  Blocking: no.  Threads: safe.
 * Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019.  Since: 0.1
 */
VESCOMM_API const vescomm_optimizer_kind_t *vescomm_optimizer_get_adamw(void);

/**
 * Returns stochastic gradient descent with optional momentum: one f32 state if there is a momentum.
 *
 * @return a constant, never NULL. Its settings are a vescomm_sgd_settings_t.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Source: torch.optim.SGD.  Since: 0.1
 */
VESCOMM_API const vescomm_optimizer_kind_t *vescomm_optimizer_get_sgd(void);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers of the FSDP engine. An optimizer is a table of functions, a *kind*, with settings. The
 * engine asks a kind for its needs before it plans the layout, and then calls it once a step for
 * each *run*, a group of consecutive pieces that share the settings (vescomm_optimizer_run_t). The
 * conventions of vescomm.h apply.
 *
 *     needs   states, their types, blocks                 no communicator, no memory
 *     step    updates masters and states of one run       this rank's shard only
 *
 * A kind works on elements: the result of an element depends on its master, gradient and states
 * only. Or it works on blocks, or on whole matrices, that it declares in its needs: the engine then
 * plans shards so that none of them is cut. So the updated parameters do not depend on the cuts.
 */
#ifndef VESCOMM_OPTIMIZER_H
#define VESCOMM_OPTIMIZER_H

#include "vescomm/vescomm.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A state of an optimizer: one element for each element of the parameter or for each block, zero
 *  before the first step. Append-only. */
typedef struct vescomm_optimizer_state {
    uint32_t struct_size;
    vescomm_type_t type; /**< of the elements; any but c128 */
    /** Such as "first moment". Checkpoints use its first 58 bytes, with every byte that is not an
     *  ASCII letter, a digit or '-' replaced by '_'. The result must be unique within the kind. */
    const char *name;
    /** Not 0: one element for each block of vescomm_optimizer_needs_t.block_elements elements, such
     *  as a scale, or for each matrix if block_elements is -1. vescomm_optimizer_piece_t.block
     * finds it. Checkpoints use the first 34 bytes of the name, and add block_elements to them. 0:
     * one element for each element of the parameter. */
    int32_t per_block;
    uint32_t reserved; /**< must be 0 */
} vescomm_optimizer_state_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_optimizer_state_t vescomm_optimizer_state_init(void) {
    vescomm_optimizer_state_t state = {sizeof(vescomm_optimizer_state_t), 0, NULL, 0, 0};
    return state;
}

/** The needs of a kind with given settings. Filled by vescomm_optimizer_kind_t.needs; append-only.
 */
typedef struct vescomm_optimizer_needs {
    uint32_t struct_size;
    uint32_t state_count; /**< entries of states, at most 64; 0: none */
    /** The array and the names in it are constants that must exist as long as the kind. */
    const vescomm_optimizer_state_t *states;
    /** Number of consecutive elements of a matrix that `step` needs together, a *block*; the last
     *  block of a matrix may be shorter. Each index of the batch dimensions of a parameter selects
     *  one matrix. The engine cuts parameters between blocks only, in addition to the blocks
     *  of the parameter itself. -1: whole matrices. 0: `step` works on single elements, and there
     *  are no per_block states. */
    int64_t block_elements;
} vescomm_optimizer_needs_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_optimizer_needs_t vescomm_optimizer_needs_init(void) {
    vescomm_optimizer_needs_t needs = {sizeof(vescomm_optimizer_needs_t), 0, NULL, 0};
    return needs;
}

/** A part of one parameter in a run, or in the shard of a unit. Append-only. In an array of these,
 *  an entry begins struct_size bytes after the one before. */
typedef struct vescomm_optimizer_piece {
    uint32_t struct_size;
    uint32_t flags; /**< of the parameter, such as VESCOMM_FSDP_MATRIX */
    uint64_t parameter; /**< id in the specification of the engine */
    int64_t first; /**< first element, counted within the parameter with all its experts */
    int64_t elements; /**< number of elements, at least 1 */
    int64_t offset; /**< position of the first element in the arrays of the run, or in the shard */
    int64_t rows; /**< of each matrix: the first extent after the batch dimensions; 1 if none */
    int64_t columns; /**< of each matrix, row-major: the product of all further extents */
    /** Position of the first block of the piece in the arrays of per_block states of the run, or of
     *  the shard. A piece begins with a block, and its blocks follow one another; a new block
     * begins with each matrix. 0 if the optimizer has no blocks. */
    int64_t block;
} vescomm_optimizer_piece_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_optimizer_piece_t vescomm_optimizer_piece_init(void) {
    vescomm_optimizer_piece_t piece = {sizeof(vescomm_optimizer_piece_t), 0, 0, 0, 0, 0, 0, 0, 0};
    return piece;
}

/** Returns an entry of an array of pieces, which may have members that this header does not know.
 *  Since: 0.1 */
static inline const vescomm_optimizer_piece_t *vescomm_optimizer_piece_at(
    const vescomm_optimizer_piece_t *pieces, size_t index) {
    return (const vescomm_optimizer_piece_t *)(const void *)((const char *)pieces +
                                                             index * pieces->struct_size);
}

/** One call of vescomm_optimizer_kind_t.step: consecutive elements of this rank's shards. All
 *  members are valid during the call. Append-only. */
typedef struct vescomm_optimizer_run {
    uint32_t struct_size;
    uint32_t states; /**< number of entries of @p state */
    /** Of every array but those of per_block states; padding between pieces is part of them, and is
     *  zero. */
    int64_t elements;
    /** In order of offset, see vescomm_optimizer_piece_at(). */
    const vescomm_optimizer_piece_t *pieces;
    size_t piece_count;
    /** In: the values before the step; out: after it. f32 also if the masters of the engine are
     *  bf16 or f16 (vescomm_fsdp_spec_options_t.master_type): then these are copies, which the
     * engine rounds after the call. If it returns an error, these masters do not change. */
    float *master;
    const float *gradient; /**< summed over ranks, not yet multiplied by gradient_scale */
    /** One array for each state. Those of per_block states have the blocks of all pieces, one
     *  behind the other. */
    void *const *state;
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
    /** Size of the settings in bytes, at most 4096; 0: there are none. Settings begin with a
     *  uint32_t struct_size. The engine keeps a copy of them, and compares its bytes between ranks:
     *  they have no pointers, and no padding. */
    uint32_t settings_bytes;
    /** Name in error texts; must be the same on every rank. */
    const char *name;
    /** Passed to the functions. */
    void *context;
    /** Checks the settings and fills @p needs. Returns 0, or another value when the settings are
     *  wrong; *reason is then a string that stays until the next call in this thread. Called from
     *  any thread. */
    int (*needs)(void *context, const void *settings, vescomm_optimizer_needs_t *needs,
                 const char **reason);
    /** Updates one run. Returns 0, or another value to fail the step on this rank. Without
     *  `concurrent` it may call functions that read the engine, such as
     *  vescomm_fsdp_get_counters(), and vescomm_fsdp_progress(); all others return
     *  VESCOMM_ERROR_INVALID_ARGUMENT. With `concurrent` it calls no function of the engine. */
    int (*step)(void *context, const void *settings, const vescomm_optimizer_run_t *run);
    /** Settings with the default of each member, settings_bytes bytes. Members that the settings of
     *  a program do not have, because it knows an older struct, have these values in `needs` and
     *  `step`. NULL: zeros. Borrowed for the call of vescomm_fsdp_add_group(). */
    const void *default_settings;
    /** Not 0: the engine may divide runs, between blocks, and call `step` for several of them at
     * once in threads of its own (vescomm_fsdp_spec_options_t.update_threads). `step` then throws
     * no C++ exception.
     */
    int32_t concurrent;
    uint32_t reserved; /**< must be 0 */
    /** Updates one whole matrix: a run with one piece. Called instead of `step` for each matrix of
     *  the parameters with VESCOMM_FSDP_MATRIX, on the rank whose shard has it. Returns what `step`
     *  returns; `concurrent` applies to it, too. NULL: `step` gets the matrices. */
    int (*matrix)(void *context, const void *settings, const vescomm_optimizer_run_t *run);
    /** As `step`, for shards in device memory (VESCOMM_FSDP_DEVICE without offload_to_host):
     * master, gradient and the arrays of states have device addresses. It puts its work on @p
     * stream, a cudaStream_t of the current device, and does not wait for it. The arrays stay until
     * that work is complete, @p run and its pieces until the call returns. Not called from several
     * threads. Copies of a partner (vescomm_fsdp_spec_options_t.partner_copy) are updated by
     * `step`, so both have the same results then, to the bit; without such copies `step` may just
     * return an error. Not with masters in bf16 or f16. NULL: the kernels of this library, if
     * `step` is that of a kind of this library, and `matrix` is NULL or device_matrix is not;
     * otherwise an engine whose shards are in device memory is not created. */
    int (*device_step)(void *context, const void *settings, const vescomm_optimizer_run_t *run,
                       void *stream);
    /** As `matrix`, for shards in device memory: called instead of device_step. With copies of a
     *  partner both are given, or none. NULL: device_step gets the matrices. */
    int (*device_matrix)(void *context, const void *settings, const vescomm_optimizer_run_t *run,
                         void *stream);
} vescomm_optimizer_kind_t;

/** Returns the struct with struct_size set and all other members zero. Since: 0.1 */
static inline vescomm_optimizer_kind_t vescomm_optimizer_kind_init(void) {
    vescomm_optimizer_kind_t kind = {
        sizeof(vescomm_optimizer_kind_t), 0, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, NULL};
    return kind;
}

/** Settings of vescomm_optimizer_get_adamw(). Append-only. */
typedef struct vescomm_adamw_settings {
    uint32_t struct_size;
    uint32_t reserved; /**< must be 0 */
    double learning_rate; /**< at least 0; vescomm_fsdp_step() may scale it for a step */
    double beta1; /**< in [0, 1) */
    double beta2; /**< in [0, 1) */
    double epsilon; /**< at least 0 */
    double weight_decay; /**< decoupled: p *= 1 - learning_rate * weight_decay */
} vescomm_adamw_settings_t;

/** Returns learning rate 1e-3, betas 0.9 and 0.999, epsilon 1e-8, weight decay 0.01, the defaults
 *  of PyTorch. Since: 0.1 */
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
    int32_t reserved; /**< must be 0 */
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

/**
 * Returns AdamW with moments in 8 bits: a code of one byte for each element, and an f32 scale for
 * each block of 256 elements of a matrix. The states take 2.03 bytes an element, instead of the 8
 * of AdamW. A block with a gradient that is not finite becomes NaN; vescomm_fsdp_step() skips such
 * a step.
 *
 * @return a constant, never NULL. Its settings are a vescomm_adamw_settings_t.
 *
 * Collective: no.  Blocking: no.  Threads: safe.
 * Source: Dettmers et al., "8-bit Optimizers via Block-wise Quantization", 2022.  Since: 0.1
 */
VESCOMM_API const vescomm_optimizer_kind_t *vescomm_optimizer_get_adam8bit(void);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of vescomm on device memory: operations on pieces of slabs, exact norms and clipping,
 * quantisation in blocks, and optimizers. Results are bit-identical to the same operations of
 * vescomm and its FSDP engine on host memory.
 *
 * This interface is experimental and may change. The kernels have been tested on an H100 and
 * an H200, but for SGD, 8-bit AdamW, AdamW on bf16 and f16, and vescomm_gpu_sum_quantised().
 *
 * A library that was built where nvcc was found has the kernels. Otherwise VESCOMM_GPU_KERNELS
 * names a file with kernels that was built elsewhere; without one, the calls return
 * VESCOMM_ERROR_UNSUPPORTED. The CUDA runtime is found at run time, as for gpu.h. NCCL and a
 * communicator are not needed.
 *
 * The calls put work on a CUDA stream of the current device of the calling thread, and return
 * before it is complete. They allocate nothing, never wait for the device, and may be captured into
 * a CUDA graph. `stream` is a cudaStream_t; NULL is the legacy default stream. Addresses are
 * device addresses unless stated otherwise, and are not checked. They must be aligned to their
 * elements; alignment to 16 bytes is fastest. Memory must stay valid until the work is complete.
 *
 * A call after a failed launch may return an error of earlier work, as CUDA does.
 */
#ifndef VESCOMM_GPU_KERNELS_H
#define VESCOMM_GPU_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "vescomm/vescomm.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Tests whether the kernels can run on the current device, and loads them there: the first call of
 * a kernel otherwise loads it. Call it before the first capture of a graph.
 *
 * @return VESCOMM_OK. VESCOMM_ERROR_UNSUPPORTED: the error text states what is missing.
 *         VESCOMM_ERROR_SYSTEM: CUDA failed.
 *
 * Collective: no.  Blocking: while the driver loads kernels.  Threads: safe.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_check_kernels(void);

/** Consecutive elements of slabs. The pieces of a call are in ascending order of `target`, and do
 *  not overlap there. */
typedef struct vescomm_gpu_piece {
    int64_t target; /**< first element in the target, 0 or more */
    int64_t source; /**< first element in the source, 0 or more; not used without a source */
    int64_t count; /**< elements, 0 or more; at most 2^40 in all pieces */
} vescomm_gpu_piece_t;

/**
 * Sets the elements of pieces to zero. One launch for up to 128 pieces, as in all functions on
 * pieces.
 *
 * @param target  device address of element 0 of the slab.
 * @param type    any type.
 * @param pieces  host memory, borrowed for the call.
 * @return VESCOMM_OK: it is on the stream. VESCOMM_ERROR_INVALID_ARGUMENT: nothing happened.
 *         VESCOMM_ERROR_UNSUPPORTED: as vescomm_gpu_check_kernels(); nothing happened.
 *         VESCOMM_ERROR_SYSTEM: CUDA failed, and some pieces may have been changed.
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: one pass over the pieces.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_zero(void *target, vescomm_type_t type,
                                              const vescomm_gpu_piece_t *pieces,
                                              int64_t piece_count, void *stream);

/**
 * Copies the elements of pieces, and changes their type: as vescomm's conversions on host memory,
 * rounded to nearest once, ties to even.
 *
 * @param target_type  the type of the target. The types are equal, which moves bits; or both are
 *                     floats, and one of them is f32 or f64.
 * @param source       does not overlap the target.
 * @return as vescomm_gpu_zero().
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: one pass over the pieces.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_copy(void *target, vescomm_type_t target_type,
                                              const void *source, vescomm_type_t source_type,
                                              const vescomm_gpu_piece_t *pieces,
                                              int64_t piece_count, void *stream);

/**
 * Adds the elements of the source to those of the target, for gradients of several micro-batches.
 *
 * @param target_type  a float. The types are equal, or one of them is f32. The sum is computed in
 *                     f32 (f64 if one of them is f64), and rounded once.
 * @param source       does not overlap the target, or is equal to it.
 * @return as vescomm_gpu_zero().
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: one pass over the pieces.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_add(void *target, vescomm_type_t target_type,
                                             const void *source, vescomm_type_t source_type,
                                             const vescomm_gpu_piece_t *pieces, int64_t piece_count,
                                             void *stream);

/**
 * Multiplies the elements of pieces by a factor.
 *
 * @param type    a float.
 * @param factor  rounded to f32 (f64 for f64); each product is rounded to the type.
 * @return as vescomm_gpu_zero().
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: one pass over the pieces.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_scale(void *target, vescomm_type_t type, double factor,
                                               const vescomm_gpu_piece_t *pieces,
                                               int64_t piece_count, void *stream);

/**
 * Multiplies the elements of pieces by a factor, and reports products that are infinite or NaN: for
 * gradients of a loss that was scaled.
 *
 * @param overflow  [in,out] device address of one i32: becomes 1 if a product is not finite, and
 *                  otherwise keeps its value.
 * @return as vescomm_gpu_scale().
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: one pass over the pieces.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_unscale(void *target, vescomm_type_t type, double factor,
                                                 int32_t *overflow,
                                                 const vescomm_gpu_piece_t *pieces,
                                                 int64_t piece_count, void *stream);

/** Number of i64 of an exact sum of squares. */
#define VESCOMM_GPU_SUM_WORDS 22

/**
 * Adds the squares of the elements of pieces to an exact sum: no addition rounds, so its value does
 * not depend on the order of elements, on the pieces, or on the cuts between ranks. The sums of
 * ranks are added by an all_reduce of VESCOMM_GPU_SUM_WORDS i64.
 *
 * @param words   [in,out] device address of the words of the sum, zero before the first call, as
 *                vescomm_gpu_zero() makes them. A sum of up to 2^42 elements and 2^29 pieces of all
 *                ranks together cannot overflow.
 * @param source  device address of the slab. Elements [target, target + count) of each piece are
 *                read; the member source of the pieces is not used.
 * @param type    f32, bf16 or f16.
 * @return as vescomm_gpu_zero().
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: one pass over the pieces.
 * Source: R. Neal, "Fast exact summation using small and large superaccumulators", 2015.
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_add_squares(int64_t *words, const void *source,
                                                     vescomm_type_t type,
                                                     const vescomm_gpu_piece_t *pieces,
                                                     int64_t piece_count, void *stream);

/** How a step changes gradients. In device memory, written by vescomm_gpu_clip_factor(). */
typedef struct vescomm_gpu_clip {
    double norm; /**< of all gradients multiplied by `scale` of the call */
    float factor; /**< multiplies the gradients */
    int32_t skip; /**< 1: the norm, the factor or a product is not finite; 0 otherwise */
} vescomm_gpu_clip_t;

/**
 * Computes the norm of gradients and the factor that clips it, without a wait of the host, by the
 * formulas of vescomm_fsdp_step().
 *
 * @param words     [in,out] device address of the sum of all ranks. Afterwards carries have moved
 *                  between the words; the sum is the same.
 * @param scale     by which the gradients are multiplied before they are clipped; finite, such as
 *                  1 / loss scale.
 * @param max_norm  finite. 0 or less: no clipping.
 * @param result    [out] device address.
 * @return as vescomm_gpu_zero().
 *
 * Collective: no.  Blocking: no.  Threads: safe.
 * Source: torch.nn.utils.clip_grad_norm_.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_clip_factor(int64_t *words, double scale, double max_norm,
                                                     vescomm_gpu_clip_t *result, void *stream);

/**
 * Writes a code of one byte for each element, and an f32 scale for each block of elements, as the
 * FSDP engine does for quantised gathers.
 *
 * @param codes      [out] @p count bytes.
 * @param scales     [out] one for each block; the last block may be shorter.
 * @param code_type  VESCOMM_I8: scale = largest magnitude / 127. VESCOMM_F8E4M3: / 448.
 * @param source     @p count elements. A block with an infinity or a NaN has the scale NaN.
 * @param type       f32, bf16 or f16.
 * @param count      from 0 to 2^40.
 * @param block      elements of a block, at least 1.
 * @return as vescomm_gpu_zero().
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: two passes over the source, the second one
 * from the cache, and one over the codes.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_quantise(void *codes, float *scales,
                                                  vescomm_type_t code_type, const void *source,
                                                  vescomm_type_t type, int64_t count, int64_t block,
                                                  void *stream);

/**
 * Writes code * scale for each element. Any bytes are valid codes and scales.
 *
 * @param target     [out] @p count elements.
 * @param type       f32, bf16 or f16.
 * @param codes      @p count bytes, as vescomm_gpu_quantise() writes them.
 * @param scales     one for each block.
 * @param code_type  VESCOMM_I8 or VESCOMM_F8E4M3.
 * @param count      from 0 to 2^40.
 * @param block      elements of a block, at least 1.
 * @return as vescomm_gpu_zero().
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: one pass.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_dequantise(void *target, vescomm_type_t type,
                                                    const void *codes, const float *scales,
                                                    vescomm_type_t code_type, int64_t count,
                                                    int64_t block, void *stream);

/**
 * Sums quantised contributions in their order, in f32, as the FSDP engine does for gradients that
 * travel in 8 bits: target[i] = factor * ((codes_0[i] * scale_0 + codes_1[i] * scale_1) + ...),
 * where a scale is that of the block of i. Any bytes are valid codes and scales. NaNs become the
 * positive quiet NaN.
 *
 * @param target        [out] @p count elements in f32; must not overlap the codes and scales.
 * @param add           0: the sum replaces the target. 1: it is added to the target.
 * @param codes         @p count bytes of source 0, as vescomm_gpu_quantise() writes them.
 * @param code_stride   codes from those of a source to those of the next one, from 0 to 2^40.
 * @param scales        of source 0, one for each block.
 * @param scale_stride  scales from those of a source to those of the next one, from 0 to 2^40.
 * @param sources       their number, at least 1.
 * @param code_type     VESCOMM_I8 or VESCOMM_F8E4M3.
 * @param count         elements of one source, from 0 to 2^40.
 * @param block         elements of a block, at least 1.
 * @param factor        finite.
 * @return as vescomm_gpu_zero().
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: one pass over each source and the target.
 * Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_sum_quantised(float *target, int32_t add,
                                                       const void *codes, int64_t code_stride,
                                                       const float *scales, int64_t scale_stride,
                                                       int32_t sources, vescomm_type_t code_type,
                                                       int64_t count, int64_t block, float factor,
                                                       void *stream);

/** Settings of an AdamW step. Append-only. */
typedef struct vescomm_gpu_adamw_options {
    uint32_t struct_size;
    float gradient_scale; /**< multiplies every gradient first, if the call has no `clip` */
    double learning_rate; /**< finite, 0 or more */
    double beta1; /**< 0 or more, below 1 */
    double beta2; /**< 0 or more, below 1 */
    double epsilon; /**< finite, 0 or more */
    double weight_decay; /**< finite, 0 or more */
    int64_t step; /**< counted from 1 */
    vescomm_type_t parameter_type; /**< f32, bf16 or f16. 0: f32 */
    /** With parameters in bf16 or f16. Not 0: they are rounded stochastically, as masters of the
     *  FSDP engine are, by 16 random bits for each element, which are a function of the next two
     *  members; with f32 it is an error. 0: to the nearest, ties to even. */
    int32_t stochastic;
    uint64_t random_stream; /**< another one for each step, such as seed + step */
    uint64_t random_first; /**< number in the stream of element 0 of the parameters, modulo 2^64 */
} vescomm_gpu_adamw_options_t;

/** Returns the struct with struct_size set, no scaling, learning rate 1e-3, betas 0.9 and 0.999,
 *  epsilon 1e-8, weight decay 1e-2, step 1, and parameters in f32. Since: 0.1 */
static inline vescomm_gpu_adamw_options_t vescomm_gpu_adamw_options_init(void) {
    vescomm_gpu_adamw_options_t options = {
        sizeof(vescomm_gpu_adamw_options_t), 1.0f, 1e-3, 0.9, 0.999, 1e-8, 1e-2, 1, 0, 0, 0, 0};
    return options;
}

/**
 * Makes one AdamW step on the elements of pieces, in f32: the order of operations of PyTorch's
 * fused AdamW and of vescomm's FSDP engine. Parameters in bf16 or f16 are widened before and
 * rounded afterwards. The result of an element depends on that element alone, and with stochastic
 * rounding on its number in the stream. A captured graph keeps the settings, also the number of the
 * step and the stream.
 *
 * @param parameters  [in,out] the target of the pieces, in parameter_type.
 * @param gradients   the source of the pieces, f32; unchanged.
 * @param m, v        [in,out] the moments, f32, at the target of the pieces.
 * @param options     host memory, borrowed for the call.
 * @param clip        device address of a result of vescomm_gpu_clip_factor(): its factor replaces
 *                    gradient_scale, and with its `skip` nothing changes. NULL: none.
 * @return as vescomm_gpu_zero().
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: one pass over the four arrays.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_adamw(void *parameters, const float *gradients, float *m,
                                               float *v, const vescomm_gpu_adamw_options_t *options,
                                               const vescomm_gpu_clip_t *clip,
                                               const vescomm_gpu_piece_t *pieces,
                                               int64_t piece_count, void *stream);

/** Elements of a block of moments of vescomm_gpu_adam8bit(). */
#define VESCOMM_GPU_MOMENT_BLOCK 256

/**
 * Makes one AdamW step with moments in 8 bits on the elements of pieces, as the kind
 * vescomm_optimizer_get_adam8bit() of the FSDP engine does: with the formulas of
 * vescomm_gpu_adamw(), and moments that are decoded before and encoded afterwards. A moment is the
 * value of its code times the scale of its block, which is the largest magnitude there. A block has
 * VESCOMM_GPU_MOMENT_BLOCK elements of a piece, counted from its first element; the last one of a
 * piece may be shorter. So the same pieces are updated together in all steps.
 *
 * @param parameters  [in,out] the target of the pieces, in parameter_type.
 * @param gradients   the source of the pieces, f32; unchanged. A block with a gradient or a moment
 *                    that is not finite gets NaN as its scales, and the next step makes all its
 *                    parameters NaN.
 * @param m, v        [in,out] one code of one byte for each element, at the target of the pieces.
 *                    Codes and scales are zero before the first step.
 * @param m_scales    [in,out] one f32 for each block: the blocks of the first piece, behind them
 *                    those of the second one, and so on.
 * @param v_scales    [in,out] as m_scales.
 * @param options     as of vescomm_gpu_adamw(); host memory, borrowed for the call.
 * @param clip        as of vescomm_gpu_adamw().
 * @param pieces      at most 2^38 elements in all of them.
 * @return as vescomm_gpu_zero().
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: one pass over the arrays.
 * Source: Dettmers et al., "8-bit Optimizers via Block-wise Quantization", 2022.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_adam8bit(
    void *parameters, const float *gradients, uint8_t *m, uint8_t *v, float *m_scales,
    float *v_scales, const vescomm_gpu_adamw_options_t *options, const vescomm_gpu_clip_t *clip,
    const vescomm_gpu_piece_t *pieces, int64_t piece_count, void *stream);

/** Settings of a step of stochastic gradient descent. Append-only. */
typedef struct vescomm_gpu_sgd_options {
    uint32_t struct_size;
    float gradient_scale; /**< multiplies every gradient first, if the call has no `clip` */
    double learning_rate; /**< finite, 0 or more */
    double momentum; /**< finite, 0 or more; 0: none */
    double dampening; /**< the momentum takes 1 - dampening of a gradient, but all of the first */
    double weight_decay; /**< finite, 0 or more; added to the gradient: g += weight_decay * p */
    int64_t step; /**< counted from 1 */
    int32_t nesterov; /**< not 0: Nesterov momentum, which needs a momentum and no dampening */
    /** Not 0: weight_decay is decoupled, p *= 1 - learning_rate * weight_decay. */
    int32_t decoupled;
    vescomm_type_t parameter_type; /**< f32, bf16 or f16. 0: f32 */
    int32_t stochastic; /**< this and the next two: as in vescomm_gpu_adamw_options_t */
    uint64_t random_stream;
    uint64_t random_first;
} vescomm_gpu_sgd_options_t;

/** Returns the struct with struct_size set, no scaling, learning rate 1e-3, step 1, parameters in
 *  f32, and all other members zero. Since: 0.1 */
static inline vescomm_gpu_sgd_options_t vescomm_gpu_sgd_options_init(void) {
    vescomm_gpu_sgd_options_t options = {
        sizeof(vescomm_gpu_sgd_options_t), 1.0f, 1e-3, 0.0, 0.0, 0.0, 1, 0, 0, 0, 0, 0, 0};
    return options;
}

/**
 * Makes one step of stochastic gradient descent on the elements of pieces, in f32: the order of
 * operations of torch.optim.SGD and of vescomm's FSDP engine. Parameters in bf16 or f16 are widened
 * before and rounded afterwards, as by vescomm_gpu_adamw().
 *
 * @param parameters  [in,out] the target of the pieces, in parameter_type.
 * @param gradients   the source of the pieces, f32; unchanged.
 * @param momentum    [in,out] f32, at the target of the pieces; zero before the first step. Not
 *                    used, and may be NULL, if the momentum of the options is 0.
 * @param options     host memory, borrowed for the call.
 * @param clip        as of vescomm_gpu_adamw().
 * @return as vescomm_gpu_zero().
 *
 * Collective: no.  Blocking: no.  Threads: safe.  Cost: one pass over the arrays.
 * Source: torch.optim.SGD.  Since: 0.1
 */
VESCOMM_API vescomm_status_t vescomm_gpu_sgd(void *parameters, const float *gradients,
                                             float *momentum,
                                             const vescomm_gpu_sgd_options_t *options,
                                             const vescomm_gpu_clip_t *clip,
                                             const vescomm_gpu_piece_t *pieces, int64_t piece_count,
                                             void *stream);

#ifdef __cplusplus
}
#endif

#endif /* VESCOMM_GPU_KERNELS_H */

/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Freezes the layout of every public struct and the value of every public constant, on which
 * compiled programs rely. Add lines for new members; never change a line. C99, as the header.
 */
#include <stdio.h>

#include "vescomm/gpu.h"
#include "vescomm/gpu_kernels.h"
#include "vescomm/vescomm.h"

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define FREEZE(condition) typedef char PASTE(frozen_, __LINE__)[(condition) ? 1 : -1]
#define MEMBER(type, member, offset) FREEZE(offsetof(type, member) == (offset))

FREEZE(sizeof(vescomm_status_t) == 4);
FREEZE(VESCOMM_OK == 0 && VESCOMM_IN_PROGRESS == 1);
FREEZE(VESCOMM_ERROR_INVALID_ARGUMENT == -1 && VESCOMM_ERROR_OUT_OF_MEMORY == -2);
FREEZE(VESCOMM_ERROR_TIMEOUT == -3 && VESCOMM_ERROR_PEER_FAILED == -4);
FREEZE(VESCOMM_ERROR_MISMATCH == -5 && VESCOMM_ERROR_UNSUPPORTED == -6);
FREEZE(VESCOMM_ERROR_SYSTEM == -7 && VESCOMM_ERROR_ABORTED == -8 && VESCOMM_ERROR_INTERNAL == -9);
FREEZE(VESCOMM_TYPE_DEFAULT == 0);
FREEZE(VESCOMM_F32 == 1 && VESCOMM_BF16 == 2 && VESCOMM_F16 == 3 && VESCOMM_F64 == 4);
FREEZE(VESCOMM_F8E4M3 == 5 && VESCOMM_F8E5M2 == 6 && VESCOMM_I8 == 7 && VESCOMM_U8 == 8);
FREEZE(VESCOMM_I16 == 9 && VESCOMM_U16 == 10 && VESCOMM_I32 == 11 && VESCOMM_U32 == 12);
FREEZE(VESCOMM_I64 == 13 && VESCOMM_U64 == 14);
FREEZE(VESCOMM_BOOL == 15 && VESCOMM_C64 == 16 && VESCOMM_C128 == 17);
FREEZE(VESCOMM_HOST == 0 && VESCOMM_PER_RANK == 0 && VESCOMM_PER_NODE == 1);
FREEZE(VESCOMM_SUM == 0 && VESCOMM_AVERAGE == 1);
FREEZE(VESCOMM_PROD == 2 && VESCOMM_MIN == 3 && VESCOMM_MAX == 4);
FREEZE(VESCOMM_PREMULTIPLIED_SUM == 5);
FREEZE(VESCOMM_BITWISE_AND == 6 && VESCOMM_BITWISE_OR == 7 && VESCOMM_BITWISE_XOR == 8);
FREEZE(VESCOMM_LOGICAL_AND == 9 && VESCOMM_LOGICAL_OR == 10 && VESCOMM_LOGICAL_XOR == 11);

FREEZE(sizeof(void *) == 8); /* the offsets below are those of 64-bit machines */

MEMBER(vescomm_comm_options_t, struct_size, 0);
MEMBER(vescomm_comm_options_t, timeout_seconds, 8);
MEMBER(vescomm_comm_options_t, node, 16);
MEMBER(vescomm_comm_options_t, reproducible, 24);
MEMBER(vescomm_comm_options_t, tag, 32);
FREEZE(sizeof(vescomm_comm_options_t) == 40);

MEMBER(vescomm_comm_info_t, rank, 4);
MEMBER(vescomm_comm_info_t, ranks, 8);
MEMBER(vescomm_comm_info_t, node, 12);
MEMBER(vescomm_comm_info_t, nodes, 16);
MEMBER(vescomm_comm_info_t, local_rank, 20);
MEMBER(vescomm_comm_info_t, local_ranks, 24);
MEMBER(vescomm_comm_info_t, timeout_seconds, 32);
FREEZE(sizeof(vescomm_comm_info_t) == 40);

MEMBER(vescomm_comm_counters_t, operations, 8);
MEMBER(vescomm_comm_counters_t, bytes_written, 16);
MEMBER(vescomm_comm_counters_t, bytes_reduced, 24);
MEMBER(vescomm_comm_counters_t, bytes_sent, 32);
MEMBER(vescomm_comm_counters_t, sleeps, 40);
MEMBER(vescomm_comm_counters_t, busy_seconds, 48);
MEMBER(vescomm_comm_counters_t, waiting_seconds, 56);
MEMBER(vescomm_comm_counters_t, bytes_registered, 64);
FREEZE(sizeof(vescomm_comm_counters_t) == 72);

MEMBER(vescomm_tensor_t, dimensions, 4);
MEMBER(vescomm_tensor_t, name, 8);
MEMBER(vescomm_tensor_t, shape, 16);
MEMBER(vescomm_tensor_t, offset, 24);
MEMBER(vescomm_tensor_t, block, 32);
MEMBER(vescomm_tensor_t, batch_dimensions, 40);
FREEZE(sizeof(vescomm_tensor_t) == 48);

MEMBER(vescomm_layout_info_t, ranks, 4);
MEMBER(vescomm_layout_info_t, elements, 8);
MEMBER(vescomm_layout_info_t, padding, 16);
MEMBER(vescomm_layout_info_t, largest, 24);
MEMBER(vescomm_layout_info_t, tensors, 32);
MEMBER(vescomm_layout_info_t, hash, 40);
FREEZE(sizeof(vescomm_layout_info_t) == 48);

MEMBER(vescomm_piece_t, tensor, 0);
MEMBER(vescomm_piece_t, first, 8);
MEMBER(vescomm_piece_t, elements, 16);
MEMBER(vescomm_piece_t, offset, 24);
FREEZE(sizeof(vescomm_piece_t) == 32);

MEMBER(vescomm_memory_options_t, kind, 4);
MEMBER(vescomm_memory_options_t, sharing, 8);
MEMBER(vescomm_memory_options_t, bytes, 16);
MEMBER(vescomm_memory_options_t, partial_bytes, 24);
FREEZE(sizeof(vescomm_memory_options_t) == 32);

MEMBER(vescomm_buffer_options_t, type, 4);
MEMBER(vescomm_buffer_options_t, memory, 8);
MEMBER(vescomm_buffer_options_t, offset_bytes, 16);
MEMBER(vescomm_buffer_options_t, kind, 24);
MEMBER(vescomm_buffer_options_t, sharing, 28);
MEMBER(vescomm_buffer_options_t, name, 32);
FREEZE(sizeof(vescomm_buffer_options_t) == 40);

MEMBER(vescomm_view_t, data, 0);
MEMBER(vescomm_view_t, elements, 8);
FREEZE(sizeof(vescomm_view_t) == 16);

MEMBER(vescomm_request_options_t, op, 4);
MEMBER(vescomm_request_options_t, root, 8);
MEMBER(vescomm_request_options_t, type, 12);
MEMBER(vescomm_request_options_t, source, 16);
MEMBER(vescomm_request_options_t, output, 24);
MEMBER(vescomm_request_options_t, algorithm, 32);
MEMBER(vescomm_request_options_t, factor, 40);
FREEZE(sizeof(vescomm_request_options_t) == 48);

MEMBER(vescomm_call_options_t, tag, 4);
MEMBER(vescomm_call_options_t, factor, 8);
MEMBER(vescomm_call_options_t, algorithm, 16);
FREEZE(sizeof(vescomm_call_options_t) == 24);

MEMBER(vescomm_message_info_t, source, 4);
MEMBER(vescomm_message_info_t, tag, 8);
MEMBER(vescomm_message_info_t, type, 12);
MEMBER(vescomm_message_info_t, count, 16);
FREEZE(sizeof(vescomm_message_info_t) == 24);
FREEZE(VESCOMM_ANY_SOURCE == -2);

MEMBER(vescomm_gpu_comm_options_t, min_ctas, 4);
MEMBER(vescomm_gpu_comm_options_t, max_ctas, 8);
MEMBER(vescomm_gpu_comm_options_t, shrinkable, 12);
MEMBER(vescomm_gpu_comm_options_t, workspace_bytes, 16);
MEMBER(vescomm_gpu_comm_options_t, method, 24);
MEMBER(vescomm_gpu_comm_options_t, nccl_comm, 32);
MEMBER(vescomm_gpu_comm_options_t, nccl_config, 40);
FREEZE(sizeof(vescomm_gpu_comm_options_t) == 48);
MEMBER(vescomm_gpu_comm_info_t, device, 4);
MEMBER(vescomm_gpu_comm_info_t, nccl_version, 8);
MEMBER(vescomm_gpu_comm_info_t, derived, 12);
FREEZE(sizeof(vescomm_gpu_comm_info_t) == 16);

MEMBER(vescomm_gpu_buffer_options_t, struct_size, 0);
MEMBER(vescomm_gpu_buffer_options_t, type, 4);
MEMBER(vescomm_gpu_buffer_options_t, memory, 8);
MEMBER(vescomm_gpu_buffer_options_t, offset_bytes, 16);
MEMBER(vescomm_gpu_buffer_options_t, placement, 24);
MEMBER(vescomm_gpu_buffer_options_t, any_cuts, 28);
MEMBER(vescomm_gpu_buffer_options_t, name, 32);
FREEZE(sizeof(vescomm_gpu_buffer_options_t) == 40);
FREEZE(VESCOMM_GPU_PACKED == 0 && VESCOMM_GPU_STRIDED == 1);

MEMBER(vescomm_trace_argument_t, name, 0);
MEMBER(vescomm_trace_argument_t, text, 8);
MEMBER(vescomm_trace_argument_t, number, 16);
FREEZE(sizeof(vescomm_trace_argument_t) == 24);

MEMBER(vescomm_gpu_piece_t, target, 0);
MEMBER(vescomm_gpu_piece_t, source, 8);
MEMBER(vescomm_gpu_piece_t, count, 16);
FREEZE(sizeof(vescomm_gpu_piece_t) == 24);

MEMBER(vescomm_gpu_clip_t, norm, 0);
MEMBER(vescomm_gpu_clip_t, factor, 8);
MEMBER(vescomm_gpu_clip_t, skip, 12);
FREEZE(sizeof(vescomm_gpu_clip_t) == 16);

MEMBER(vescomm_gpu_adamw_options_t, gradient_scale, 4);
MEMBER(vescomm_gpu_adamw_options_t, learning_rate, 8);
MEMBER(vescomm_gpu_adamw_options_t, beta1, 16);
MEMBER(vescomm_gpu_adamw_options_t, beta2, 24);
MEMBER(vescomm_gpu_adamw_options_t, epsilon, 32);
MEMBER(vescomm_gpu_adamw_options_t, weight_decay, 40);
MEMBER(vescomm_gpu_adamw_options_t, step, 48);
MEMBER(vescomm_gpu_adamw_options_t, parameter_type, 56);
MEMBER(vescomm_gpu_adamw_options_t, stochastic, 60);
MEMBER(vescomm_gpu_adamw_options_t, random_stream, 64);
MEMBER(vescomm_gpu_adamw_options_t, random_first, 72);
FREEZE(sizeof(vescomm_gpu_adamw_options_t) == 80);

MEMBER(vescomm_gpu_sgd_options_t, gradient_scale, 4);
MEMBER(vescomm_gpu_sgd_options_t, learning_rate, 8);
MEMBER(vescomm_gpu_sgd_options_t, momentum, 16);
MEMBER(vescomm_gpu_sgd_options_t, dampening, 24);
MEMBER(vescomm_gpu_sgd_options_t, weight_decay, 32);
MEMBER(vescomm_gpu_sgd_options_t, step, 40);
MEMBER(vescomm_gpu_sgd_options_t, nesterov, 48);
MEMBER(vescomm_gpu_sgd_options_t, decoupled, 52);
MEMBER(vescomm_gpu_sgd_options_t, parameter_type, 56);
MEMBER(vescomm_gpu_sgd_options_t, stochastic, 60);
MEMBER(vescomm_gpu_sgd_options_t, random_stream, 64);
MEMBER(vescomm_gpu_sgd_options_t, random_first, 72);
FREEZE(sizeof(vescomm_gpu_sgd_options_t) == 80);
FREEZE(VESCOMM_GPU_SUM_WORDS == 22);
FREEZE(VESCOMM_GPU_MOMENT_BLOCK == 256);

/* Functions that no other test calls from C. */
typedef vescomm_status_t (*metrics_function)(const vescomm_comm_t *, char *, size_t, size_t *);
typedef vescomm_status_t (*flight_function)(const vescomm_comm_t *, const char *);
static const metrics_function metrics = vescomm_comm_get_metrics;
static const flight_function flight = vescomm_flight_recorder_write;

int main(void) {
    if (metrics(NULL, NULL, 0, NULL) != VESCOMM_ERROR_INVALID_ARGUMENT) return 1;
    if (flight(NULL, "x") != VESCOMM_ERROR_INVALID_ARGUMENT) return 1;
    const vescomm_request_options_t options = vescomm_request_options_init();
    if (options.struct_size != sizeof options || options.source != NULL) return 1;
    if (vescomm_get_version()[0] != '0' + VESCOMM_VERSION_MAJOR) return 1;
    puts("the ABI is unchanged");
    return 0;
}

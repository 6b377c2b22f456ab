/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Freezes the layout of every public struct of fsdp.h and optimizer.h and the value of every
 * constant, on which compiled programs rely. Add lines for new members; never change a line. C99,
 * as the headers. */
#include <stdio.h>
#include <string.h>

#include "vescomm/fsdp.h"

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define FREEZE(condition) typedef char PASTE(frozen_, __LINE__)[(condition) ? 1 : -1]
#define MEMBER(type, member, offset) FREEZE(offsetof(type, member) == (offset))

FREEZE(sizeof(void *) == 8); /* the offsets below are those of 64-bit machines */

FREEZE(VESCOMM_FSDP_DECLARED == 0);
FREEZE(VESCOMM_FSDP_RECORDED == 1);
FREEZE(VESCOMM_FSDP_EXPLICIT == 2);
FREEZE(VESCOMM_FSDP_SHARD == 0);
FREEZE(VESCOMM_FSDP_REPLICATE == 1);
FREEZE(VESCOMM_FSDP_PARTIAL == 2);
FREEZE(VESCOMM_FSDP_EXPERTS == 1);
FREEZE(VESCOMM_FSDP_KEEP_GATHERED == 2);
FREEZE(VESCOMM_FSDP_FROZEN == 1);
FREEZE(VESCOMM_FSDP_IGNORED == 2);
FREEZE(VESCOMM_FSDP_MATRIX == 4);
FREEZE(VESCOMM_FSDP_REPLICATED == 8);
FREEZE(VESCOMM_FSDP_LAST == 1);
FREEZE(VESCOMM_FSDP_NO_SYNC == 2);
FREEZE(VESCOMM_FSDP_NO_OUTER == 4);
FREEZE(VESCOMM_FSDP_EVAL == 8);
FREEZE(VESCOMM_FSDP_OVERWRITE == 0);
FREEZE(VESCOMM_FSDP_ADD == 1);
FREEZE(VESCOMM_FSDP_MASTER == 0);
FREEZE(VESCOMM_FSDP_GRADIENT == 1);
FREEZE(VESCOMM_FSDP_STATE == 2);
MEMBER(vescomm_optimizer_state_t, struct_size, 0);
MEMBER(vescomm_optimizer_state_t, type, 4);
MEMBER(vescomm_optimizer_state_t, name, 8);
MEMBER(vescomm_optimizer_state_t, per_block, 16);
FREEZE(sizeof(vescomm_optimizer_state_t) == 24);

MEMBER(vescomm_optimizer_needs_t, struct_size, 0);
MEMBER(vescomm_optimizer_needs_t, state_count, 4);
MEMBER(vescomm_optimizer_needs_t, states, 8);
MEMBER(vescomm_optimizer_needs_t, block_elements, 16);
FREEZE(sizeof(vescomm_optimizer_needs_t) == 24);

MEMBER(vescomm_optimizer_piece_t, struct_size, 0);
MEMBER(vescomm_optimizer_piece_t, flags, 4);
MEMBER(vescomm_optimizer_piece_t, parameter, 8);
MEMBER(vescomm_optimizer_piece_t, first, 16);
MEMBER(vescomm_optimizer_piece_t, elements, 24);
MEMBER(vescomm_optimizer_piece_t, offset, 32);
MEMBER(vescomm_optimizer_piece_t, rows, 40);
MEMBER(vescomm_optimizer_piece_t, columns, 48);
MEMBER(vescomm_optimizer_piece_t, block, 56);
FREEZE(sizeof(vescomm_optimizer_piece_t) == 64);

MEMBER(vescomm_optimizer_run_t, struct_size, 0);
MEMBER(vescomm_optimizer_run_t, states, 4);
MEMBER(vescomm_optimizer_run_t, elements, 8);
MEMBER(vescomm_optimizer_run_t, pieces, 16);
MEMBER(vescomm_optimizer_run_t, piece_count, 24);
MEMBER(vescomm_optimizer_run_t, master, 32);
MEMBER(vescomm_optimizer_run_t, gradient, 40);
MEMBER(vescomm_optimizer_run_t, state, 48);
MEMBER(vescomm_optimizer_run_t, step, 56);
MEMBER(vescomm_optimizer_run_t, learning_rate_scale, 64);
MEMBER(vescomm_optimizer_run_t, gradient_scale, 72);
FREEZE(sizeof(vescomm_optimizer_run_t) == 80);

MEMBER(vescomm_optimizer_kind_t, struct_size, 0);
MEMBER(vescomm_optimizer_kind_t, settings_bytes, 4);
MEMBER(vescomm_optimizer_kind_t, name, 8);
MEMBER(vescomm_optimizer_kind_t, context, 16);
MEMBER(vescomm_optimizer_kind_t, needs, 24);
MEMBER(vescomm_optimizer_kind_t, step, 32);
MEMBER(vescomm_optimizer_kind_t, default_settings, 40);
MEMBER(vescomm_optimizer_kind_t, concurrent, 48);
MEMBER(vescomm_optimizer_kind_t, matrix, 56);
MEMBER(vescomm_optimizer_kind_t, device_step, 64);
MEMBER(vescomm_optimizer_kind_t, device_matrix, 72);
FREEZE(sizeof(vescomm_optimizer_kind_t) == 80);

MEMBER(vescomm_adamw_settings_t, struct_size, 0);
MEMBER(vescomm_adamw_settings_t, learning_rate, 8);
MEMBER(vescomm_adamw_settings_t, beta1, 16);
MEMBER(vescomm_adamw_settings_t, beta2, 24);
MEMBER(vescomm_adamw_settings_t, epsilon, 32);
MEMBER(vescomm_adamw_settings_t, weight_decay, 40);
FREEZE(sizeof(vescomm_adamw_settings_t) == 48);

MEMBER(vescomm_sgd_settings_t, struct_size, 0);
MEMBER(vescomm_sgd_settings_t, nesterov, 4);
MEMBER(vescomm_sgd_settings_t, learning_rate, 8);
MEMBER(vescomm_sgd_settings_t, momentum, 16);
MEMBER(vescomm_sgd_settings_t, dampening, 24);
MEMBER(vescomm_sgd_settings_t, weight_decay, 32);
MEMBER(vescomm_sgd_settings_t, decoupled, 40);
FREEZE(sizeof(vescomm_sgd_settings_t) == 48);

MEMBER(vescomm_fsdp_spec_options_t, struct_size, 0);
MEMBER(vescomm_fsdp_spec_options_t, compute_type, 4);
MEMBER(vescomm_fsdp_spec_options_t, gradient_type, 8);
MEMBER(vescomm_fsdp_spec_options_t, slots, 12);
MEMBER(vescomm_fsdp_spec_options_t, gradient_slots, 16);
MEMBER(vescomm_fsdp_spec_options_t, order, 20);
MEMBER(vescomm_fsdp_spec_options_t, keep_gathered, 24);
MEMBER(vescomm_fsdp_spec_options_t, keep_gradients, 28);
MEMBER(vescomm_fsdp_spec_options_t, average, 32);
MEMBER(vescomm_fsdp_spec_options_t, seed, 40);
MEMBER(vescomm_fsdp_spec_options_t, planner, 48);
MEMBER(vescomm_fsdp_spec_options_t, gather_type, 56);
MEMBER(vescomm_fsdp_spec_options_t, gather_block, 60);
MEMBER(vescomm_fsdp_spec_options_t, reduce_type, 64);
MEMBER(vescomm_fsdp_spec_options_t, partner_copy, 68);
MEMBER(vescomm_fsdp_spec_options_t, offload_folder, 72);
MEMBER(vescomm_fsdp_spec_options_t, reshard_ranks, 80);
MEMBER(vescomm_fsdp_spec_options_t, large_unit_bytes, 88);
MEMBER(vescomm_fsdp_spec_options_t, expert_ranks, 96);
MEMBER(vescomm_fsdp_spec_options_t, expert_divisor, 100);
MEMBER(vescomm_fsdp_spec_options_t, memory, 104);
MEMBER(vescomm_fsdp_spec_options_t, offload_to_host, 108);
MEMBER(vescomm_fsdp_spec_options_t, update_threads, 112);
MEMBER(vescomm_fsdp_spec_options_t, master_type, 120);
MEMBER(vescomm_fsdp_spec_options_t, master_rounding, 124);
MEMBER(vescomm_fsdp_spec_options_t, allocator, 128);
FREEZE(sizeof(vescomm_fsdp_spec_options_t) == 136);

MEMBER(vescomm_fsdp_allocator_t, struct_size, 0);
MEMBER(vescomm_fsdp_allocator_t, reserved, 4);
MEMBER(vescomm_fsdp_allocator_t, context, 8);
MEMBER(vescomm_fsdp_allocator_t, allocate, 16);
MEMBER(vescomm_fsdp_allocator_t, deallocate, 24);
FREEZE(sizeof(vescomm_fsdp_allocator_t) == 32);

FREEZE(VESCOMM_FSDP_ROUND_STOCHASTIC == 0 && VESCOMM_FSDP_ROUND_NEAREST == 1);

MEMBER(vescomm_fsdp_parameter_t, struct_size, 0);
MEMBER(vescomm_fsdp_parameter_t, dimensions, 4);
MEMBER(vescomm_fsdp_parameter_t, name, 8);
MEMBER(vescomm_fsdp_parameter_t, shape, 16);
MEMBER(vescomm_fsdp_parameter_t, type, 24);
MEMBER(vescomm_fsdp_parameter_t, batch_dimensions, 28);
MEMBER(vescomm_fsdp_parameter_t, block_rows, 32);
MEMBER(vescomm_fsdp_parameter_t, block_elements, 40);
MEMBER(vescomm_fsdp_parameter_t, flags, 48);
MEMBER(vescomm_fsdp_parameter_t, tied_to, 56);
MEMBER(vescomm_fsdp_parameter_t, gather_type, 64);
FREEZE(sizeof(vescomm_fsdp_parameter_t) == 72);

MEMBER(vescomm_fsdp_report_t, struct_size, 0);
MEMBER(vescomm_fsdp_report_t, rank, 4);
MEMBER(vescomm_fsdp_report_t, micro_batches, 8);
MEMBER(vescomm_fsdp_report_t, shard_ranks, 12);
MEMBER(vescomm_fsdp_report_t, parameters, 16);
MEMBER(vescomm_fsdp_report_t, padding, 24);
MEMBER(vescomm_fsdp_report_t, shard_elements, 32);
MEMBER(vescomm_fsdp_report_t, master_bytes, 40);
MEMBER(vescomm_fsdp_report_t, gradient_bytes, 48);
MEMBER(vescomm_fsdp_report_t, optimizer_bytes, 56);
MEMBER(vescomm_fsdp_report_t, persistent_bytes, 64);
MEMBER(vescomm_fsdp_report_t, slot_bytes, 72);
MEMBER(vescomm_fsdp_report_t, gradient_slot_bytes, 80);
MEMBER(vescomm_fsdp_report_t, scratch_bytes, 88);
MEMBER(vescomm_fsdp_report_t, peak_bytes, 96);
MEMBER(vescomm_fsdp_report_t, gathers_per_step, 104);
MEMBER(vescomm_fsdp_report_t, gather_bytes_per_step, 112);
MEMBER(vescomm_fsdp_report_t, reduce_bytes_per_step, 120);
MEMBER(vescomm_fsdp_report_t, replica_bytes_per_step, 128);
MEMBER(vescomm_fsdp_report_t, replicated_bytes, 136);
MEMBER(vescomm_fsdp_report_t, code_bytes, 144);
MEMBER(vescomm_fsdp_report_t, partner_bytes, 152);
MEMBER(vescomm_fsdp_report_t, partner_bytes_per_step, 160);
MEMBER(vescomm_fsdp_report_t, file_bytes, 168);
MEMBER(vescomm_fsdp_report_t, secondary_bytes, 176);
MEMBER(vescomm_fsdp_report_t, group_gather_bytes_per_step, 184);
MEMBER(vescomm_fsdp_report_t, gather_ranks, 192);
MEMBER(vescomm_fsdp_report_t, expert_shard_ranks, 196);
MEMBER(vescomm_fsdp_report_t, forward_bytes, 200);
MEMBER(vescomm_fsdp_report_t, backward_bytes, 208);
MEMBER(vescomm_fsdp_report_t, step_bytes, 216);
MEMBER(vescomm_fsdp_report_t, converted_bytes, 224);
MEMBER(vescomm_fsdp_report_t, node_ranks, 232);
MEMBER(vescomm_fsdp_report_t, nodes, 240);
MEMBER(vescomm_fsdp_report_t, comm, 248);
MEMBER(vescomm_fsdp_report_t, partial_sum_bytes, 256);
MEMBER(vescomm_fsdp_report_t, widened_bytes, 264);
MEMBER(vescomm_fsdp_report_t, device_bytes, 272);
MEMBER(vescomm_fsdp_report_t, staged_bytes, 280);
FREEZE(sizeof(vescomm_fsdp_report_t) == 288);

MEMBER(vescomm_fsdp_recommendation_t, struct_size, 0);
MEMBER(vescomm_fsdp_recommendation_t, candidates, 4);
MEMBER(vescomm_fsdp_recommendation_t, fitting, 8);
MEMBER(vescomm_fsdp_recommendation_t, preset, 16);
MEMBER(vescomm_fsdp_recommendation_t, node_bytes_per_step, 48);
MEMBER(vescomm_fsdp_recommendation_t, wire_bytes_per_step, 56);
MEMBER(vescomm_fsdp_recommendation_t, peak_bytes, 64);
FREEZE(sizeof(vescomm_fsdp_recommendation_t) == 72);

MEMBER(vescomm_fsdp_view_t, struct_size, 0);
MEMBER(vescomm_fsdp_view_t, type, 4);
MEMBER(vescomm_fsdp_view_t, data, 8);
MEMBER(vescomm_fsdp_view_t, elements, 16);
MEMBER(vescomm_fsdp_view_t, shape, 24);
MEMBER(vescomm_fsdp_view_t, strides, 32);
MEMBER(vescomm_fsdp_view_t, dimensions, 40);
MEMBER(vescomm_fsdp_view_t, generation, 48);
FREEZE(sizeof(vescomm_fsdp_view_t) == 56);

MEMBER(vescomm_fsdp_step_t, struct_size, 0);
MEMBER(vescomm_fsdp_step_t, skipped, 4);
MEMBER(vescomm_fsdp_step_t, learning_rate_scale, 8);
MEMBER(vescomm_fsdp_step_t, max_norm, 16);
MEMBER(vescomm_fsdp_step_t, loss_scale, 24);
MEMBER(vescomm_fsdp_step_t, norm, 32);
MEMBER(vescomm_fsdp_step_t, step, 40);
FREEZE(sizeof(vescomm_fsdp_step_t) == 48);

MEMBER(vescomm_fsdp_counters_t, struct_size, 0);
MEMBER(vescomm_fsdp_counters_t, gathers, 8);
MEMBER(vescomm_fsdp_counters_t, gather_bytes, 16);
MEMBER(vescomm_fsdp_counters_t, reduce_bytes, 24);
MEMBER(vescomm_fsdp_counters_t, replica_bytes, 32);
MEMBER(vescomm_fsdp_counters_t, deviations, 40);
MEMBER(vescomm_fsdp_counters_t, skipped, 48);
MEMBER(vescomm_fsdp_counters_t, steps, 56);
MEMBER(vescomm_fsdp_counters_t, allocated_bytes, 64);
MEMBER(vescomm_fsdp_counters_t, exposed_seconds, 72);
MEMBER(vescomm_fsdp_counters_t, optimizer_seconds, 80);
MEMBER(vescomm_fsdp_counters_t, group_gather_bytes, 88);
FREEZE(sizeof(vescomm_fsdp_counters_t) == 96);
MEMBER(vescomm_fsdp_unit_counters_t, struct_size, 0);
MEMBER(vescomm_fsdp_unit_counters_t, gathers, 8);
MEMBER(vescomm_fsdp_unit_counters_t, gather_bytes, 16);
MEMBER(vescomm_fsdp_unit_counters_t, reduce_bytes, 24);
MEMBER(vescomm_fsdp_unit_counters_t, forward_seconds, 32);
MEMBER(vescomm_fsdp_unit_counters_t, backward_seconds, 40);
MEMBER(vescomm_fsdp_unit_counters_t, explicit_seconds, 48);
MEMBER(vescomm_fsdp_unit_counters_t, update_seconds, 56);
MEMBER(vescomm_fsdp_unit_counters_t, gather_wait_seconds, 64);
MEMBER(vescomm_fsdp_unit_counters_t, reduce_wait_seconds, 72);
FREEZE(sizeof(vescomm_fsdp_unit_counters_t) == 80);
MEMBER(vescomm_fsdp_step_summary_t, struct_size, 0);
MEMBER(vescomm_fsdp_step_summary_t, skipped, 4);
MEMBER(vescomm_fsdp_step_summary_t, step, 8);
MEMBER(vescomm_fsdp_step_summary_t, norm, 16);
MEMBER(vescomm_fsdp_step_summary_t, seconds, 24);
MEMBER(vescomm_fsdp_step_summary_t, step_seconds, 32);
MEMBER(vescomm_fsdp_step_summary_t, exposed_seconds, 40);
MEMBER(vescomm_fsdp_step_summary_t, gather_seconds, 48);
MEMBER(vescomm_fsdp_step_summary_t, reduce_seconds, 56);
MEMBER(vescomm_fsdp_step_summary_t, agree_seconds, 64);
MEMBER(vescomm_fsdp_step_summary_t, norm_seconds, 72);
MEMBER(vescomm_fsdp_step_summary_t, update_seconds, 80);
MEMBER(vescomm_fsdp_step_summary_t, gathers, 88);
MEMBER(vescomm_fsdp_step_summary_t, early_gathers, 96);
MEMBER(vescomm_fsdp_step_summary_t, gather_bytes, 104);
MEMBER(vescomm_fsdp_step_summary_t, reduce_bytes, 112);
MEMBER(vescomm_fsdp_step_summary_t, replica_bytes, 120);
MEMBER(vescomm_fsdp_step_summary_t, deviations, 128);
FREEZE(sizeof(vescomm_fsdp_step_summary_t) == 136);

MEMBER(vescomm_fsdp_extra_t, struct_size, 0);
MEMBER(vescomm_fsdp_extra_t, keep, 4);
MEMBER(vescomm_fsdp_extra_t, data, 8);
MEMBER(vescomm_fsdp_extra_t, bytes, 16);
FREEZE(sizeof(vescomm_fsdp_extra_t) == 24);

MEMBER(vescomm_fsdp_partial_load_t, struct_size, 0);
MEMBER(vescomm_fsdp_partial_load_t, strict, 4);
MEMBER(vescomm_fsdp_partial_load_t, states, 8);
MEMBER(vescomm_fsdp_partial_load_t, names, 16);
MEMBER(vescomm_fsdp_partial_load_t, name_count, 24);
MEMBER(vescomm_fsdp_partial_load_t, loaded, 32);
MEMBER(vescomm_fsdp_partial_load_t, missing, 40);
MEMBER(vescomm_fsdp_partial_load_t, unexpected, 48);
FREEZE(sizeof(vescomm_fsdp_partial_load_t) == 56);

MEMBER(vescomm_fsdp_loss_scale_t, struct_size, 0);
MEMBER(vescomm_fsdp_loss_scale_t, growth_interval, 4);
MEMBER(vescomm_fsdp_loss_scale_t, scale, 8);
MEMBER(vescomm_fsdp_loss_scale_t, growth_factor, 16);
MEMBER(vescomm_fsdp_loss_scale_t, backoff_factor, 24);
MEMBER(vescomm_fsdp_loss_scale_t, min_scale, 32);
MEMBER(vescomm_fsdp_loss_scale_t, max_scale, 40);
MEMBER(vescomm_fsdp_loss_scale_t, good_steps, 48);
FREEZE(sizeof(vescomm_fsdp_loss_scale_t) == 56);
MEMBER(vescomm_fsdp_recovery_t, struct_size, 0);
MEMBER(vescomm_fsdp_recovery_t, from_checkpoint, 4);
MEMBER(vescomm_fsdp_recovery_t, spec, 8);
MEMBER(vescomm_fsdp_recovery_t, folder, 16);
MEMBER(vescomm_fsdp_recovery_t, steps, 24);
MEMBER(vescomm_fsdp_recovery_t, lost_steps, 32);
FREEZE(sizeof(vescomm_fsdp_recovery_t) == 40);

/* Structs of older headers are shorter; members that they lack have their defaults. */
static int require(int holds, const char *what) {
    if (!holds) printf("FAILED: %s: %s\n", what, vescomm_get_last_error());
    return holds ? 0 : 1;
}

int main(void) {
    int failures = 0;
    vescomm_fsdp_spec_t *spec = NULL;
    vescomm_fsdp_report_t report = vescomm_fsdp_report_init();
    vescomm_fsdp_recommendation_t recommendation = vescomm_fsdp_recommendation_init();
    vescomm_fsdp_parameter_t parameter = vescomm_fsdp_parameter_init();
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    const int64_t shape[] = {30, 4};
    uint64_t unit = 7, id = 7;
    failures += require(vescomm_fsdp_step_init().learning_rate_scale == 1, "step_init");
    failures +=
        require(vescomm_fsdp_view_init().struct_size == sizeof(vescomm_fsdp_view_t), "view");
    failures += require(vescomm_fsdp_counters_init().struct_size == sizeof(vescomm_fsdp_counters_t),
                        "counters");
    failures += require(
        vescomm_fsdp_step_summary_init().struct_size == sizeof(vescomm_fsdp_step_summary_t) &&
            vescomm_fsdp_step_summary_init().deviations == 0,
        "step_summary");
    options.struct_size = offsetof(vescomm_fsdp_spec_options_t, slots);
    options.slots = -1; /* not read */
    failures += require(vescomm_fsdp_spec_create(&options, &spec) == VESCOMM_OK, "short options");
    failures += require(vescomm_fsdp_add_unit(spec, "unit", 0, &unit) == VESCOMM_OK && unit == 0,
                        "add_unit");
    parameter.name = "weight";
    parameter.shape = shape;
    parameter.dimensions = 2;
    parameter.struct_size = offsetof(vescomm_fsdp_parameter_t, tied_to);
    parameter.tied_to = 5; /* not read: not tied */
    failures +=
        require(vescomm_fsdp_add_parameter(spec, unit, &parameter, &id) == VESCOMM_OK && id == 0,
                "short parameter");
    report.struct_size = offsetof(vescomm_fsdp_report_t, gradient_bytes);
    failures += require(vescomm_fsdp_report(spec, 3, &report) == VESCOMM_OK, "short report");
    failures += require(
        report.parameters == 120 && report.master_bytes >= 160 && report.gradient_bytes == 0,
        "a short report is filled to its end");
    recommendation.struct_size = offsetof(vescomm_fsdp_recommendation_t, node_bytes_per_step);
    failures +=
        require(vescomm_fsdp_recommend(spec, 1, 1, 1u << 20, &recommendation, NULL) == VESCOMM_OK &&
                    strcmp(recommendation.preset, "ddp") == 0 && recommendation.peak_bytes == 0,
                "a short recommendation is filled to its end");
    report.struct_size = 0;
    failures += require(vescomm_fsdp_report(spec, 3, &report) == VESCOMM_ERROR_INVALID_ARGUMENT &&
                            strstr(vescomm_get_last_error(), "struct_size") != NULL,
                        "struct_size 0");
    failures +=
        require(vescomm_fsdp_add_unit(spec, "unit", 0, &unit) == VESCOMM_ERROR_INVALID_ARGUMENT &&
                    strstr(vescomm_get_last_error(), "vescomm_fsdp_add_unit: there is a") != NULL,
                "the sentence of an error");
    failures += require(vescomm_fsdp_spec_free(spec) == VESCOMM_OK, "spec_free");
    failures += require(vescomm_fsdp_free(NULL) == VESCOMM_OK, "free of NULL");
    failures +=
        require(vescomm_fsdp_partial_load_init().struct_size == sizeof(vescomm_fsdp_partial_load_t),
                "vescomm_fsdp_partial_load_init()");
    failures += require(vescomm_fsdp_extra_init().struct_size == sizeof(vescomm_fsdp_extra_t) &&
                            vescomm_fsdp_extra_init().bytes == 0,
                        "extra");
    failures += require(vescomm_job_free(NULL) == VESCOMM_OK, "free of NULL");
    failures += require(vescomm_job_test(NULL) == VESCOMM_ERROR_INVALID_ARGUMENT &&
                            strstr(vescomm_get_last_error(), "job is NULL") != NULL,
                        "test of NULL");
    failures += require(vescomm_job_wait(NULL, 1) == VESCOMM_ERROR_INVALID_ARGUMENT, "wait");
    failures += require(vescomm_fsdp_load(NULL, "x") == VESCOMM_ERROR_INVALID_ARGUMENT, "load");
    failures += require(vescomm_fsdp_recovery_init().struct_size == sizeof(vescomm_fsdp_recovery_t),
                        "recovery");
    failures += require(vescomm_fsdp_recover(NULL, NULL, NULL) == VESCOMM_ERROR_INVALID_ARGUMENT &&
                            strstr(vescomm_get_last_error(), "survivors is NULL") != NULL,
                        "recover");
    failures +=
        require(vescomm_fsdp_export(NULL, "x", 0) == VESCOMM_ERROR_INVALID_ARGUMENT, "export");
    vescomm_fsdp_loss_scale_t scale = vescomm_fsdp_loss_scale_init();
    failures += require(vescomm_fsdp_update_loss_scale(&scale, 1) == VESCOMM_OK &&
                            scale.scale == 32768 && scale.good_steps == 0,
                        "backoff");
    scale.max_scale = 0;
    failures +=
        require(vescomm_fsdp_update_loss_scale(&scale, 0) == VESCOMM_ERROR_INVALID_ARGUMENT &&
                    strstr(vescomm_get_last_error(), "max_scale is 0") != NULL,
                "a maximum below the minimum");
    return failures == 0 ? 0 : 1;
}

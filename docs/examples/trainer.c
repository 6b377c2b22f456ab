/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A sharded data-parallel trainer. Each rank owns a ragged shard of the parameters and of the
 * optimizer's state, and computes the gradients of its part of the batch.
 *
 *     cc trainer.c $(pkg-config --cflags --libs vescomm-planner) -lm -o trainer
 *     vescomm-run -n 3 ./trainer
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vescomm/planner.h>
#include "trainer_model.h"

static vescomm_comm_t *comm;

/* Ends this rank. The other ranks get the reason from their next call. */
static void fail(const char *reason) {
    fprintf(stderr, "%s\n", reason);
    if (comm != NULL) vescomm_comm_abort(comm, reason);
    exit(1);
}

static void check(vescomm_status_t status) {
    if (status < 0) fail(vescomm_get_last_error());
}

static vescomm_layout_t *plan(int ranks) {
    vescomm_planner_tensor_t tensors[TENSORS];
    for (int t = 0; t < TENSORS; ++t) {
        tensors[t] = vescomm_planner_tensor_init();
        tensors[t].name = names[t];
        tensors[t].shape = shapes[t];
        tensors[t].dimensions = dimensions[t];
        tensors[t].block_rows = block_rows[t];
    }
    vescomm_layout_t *layout = NULL;
    vescomm_plan(tensors, TENSORS, ranks, NULL, &layout, NULL);
    if (layout == NULL) fail(vescomm_plan_explain());
    return layout;
}

/* Finds the tensors in a buffer, where they are in the planner's order. */
static void find(vescomm_layout_t *layout, vescomm_buffer_t *buffer, float *tensors[]) {
    for (int t = 0; t < TENSORS; ++t) {
        size_t index;
        vescomm_view_t view;
        check(vescomm_layout_find_tensor(layout, names[t], &index));
        check(vescomm_buffer_get_tensor(buffer, index, &view));
        tensors[t] = view.data;
    }
}

/* Sets the initial values of a rank's shard. */
static void initialise(vescomm_layout_t *layout, int rank, float *shard) {
    vescomm_piece_t pieces[TENSORS];
    size_t count;
    check(vescomm_layout_get_pieces(layout, rank, pieces, TENSORS, &count));
    for (size_t k = 0; k < count; ++k) {
        vescomm_tensor_t tensor = vescomm_tensor_init();
        check(vescomm_layout_get_tensor(layout, pieces[k].tensor, &tensor));
        for (int64_t i = 0; i < pieces[k].elements; ++i)
            shard[pieces[k].offset + i] = 0.3f * noise(tensor.name, pieces[k].first + i);
    }
}

int main(int count, char **arguments) {
    const int steps = count > 1 ? atoi(arguments[1]) : 200;
    check(vescomm_comm_create_from_environment(NULL, &comm));
    vescomm_comm_info_t me = vescomm_comm_info_init();
    check(vescomm_comm_get_info(comm, &me));
    vescomm_layout_t *layout = plan(me.ranks);

    /* One copy of the parameters for the node; gradients for each rank. */
    vescomm_buffer_t *parameters, *gradients;
    vescomm_buffer_options_t shared = vescomm_buffer_options_init();
    shared.sharing = VESCOMM_PER_NODE;
    shared.name = "parameters";
    check(vescomm_buffer_create(comm, layout, &shared, &parameters));
    check(vescomm_buffer_create(comm, layout, NULL, &gradients));
    float *p[TENSORS], *g[TENSORS];
    find(layout, parameters, p);
    find(layout, gradients, g);
    vescomm_view_t all, shard;
    check(vescomm_buffer_get_data(gradients, &all));
    check(vescomm_buffer_get_shard(gradients, &shard));

    /* This rank's master parameters, and the momentum of SGD. A shard may be empty. */
    float *master = calloc((size_t)shard.elements + 1, sizeof(float));
    float *momentum = calloc((size_t)shard.elements + 1, sizeof(float));
    if (master == NULL || momentum == NULL) fail("there is too little memory for the shard");
    initialise(layout, me.rank, master);

    vescomm_request_t *gather, *reduce;
    vescomm_request_options_t options = vescomm_request_options_init();
    options.source = master;
    check(vescomm_all_gather_v_create(comm, parameters, &options, &gather));
    check(vescomm_reduce_scatter_v_create(comm, gradients, NULL, &reduce));

    for (int step = 0; step <= steps; ++step) {
        check(vescomm_request_start(gather, NULL));
        check(vescomm_request_wait(gather));
        memset(all.data, 0, (size_t)all.elements * sizeof(float));
        double loss = 0;
        for (int64_t sample = me.rank; sample < BATCH; sample += me.ranks)
            loss += backward(p, g, sample);
        check(vescomm_request_start(reduce, NULL)); /* runs while the losses are summed */
        check(
            vescomm_all_reduce(comm, &loss, &loss, 1, VESCOMM_F64, VESCOMM_SUM, NULL, NULL, NULL));
        check(vescomm_request_wait(reduce));
        if (!isfinite(loss)) fail("the loss is not finite");
        if (me.rank == 0 && step % 50 == 0) printf("step %d loss %.5f\n", step, loss);
        for (int64_t i = 0; i < shard.elements; ++i) {
            momentum[i] = 0.9f * momentum[i] + ((float *)shard.data)[i];
            master[i] -= 0.1f * momentum[i];
        }
    }

    vescomm_request_free(gather);
    vescomm_request_free(reduce);
    vescomm_buffer_free(parameters);
    vescomm_buffer_free(gradients);
    vescomm_layout_free(layout);
    free(master);
    free(momentum);
    check(vescomm_comm_finalize(comm));
    check(vescomm_comm_free(comm));
    return 0;
}

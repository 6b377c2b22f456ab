/* Gathers ragged shards and sums ragged shards: vescomm-run -n 3 ./gather_reduce */
#include <stdio.h>
#include <stdlib.h>
#include <vescomm/vescomm.h>

static void check(vescomm_status_t status) {
    if (status < 0) exit((fprintf(stderr, "%s\n", vescomm_get_last_error()), 1));
}

int main(void) {
    vescomm_comm_t *comm;
    check(vescomm_comm_create_from_environment(NULL, &comm));
    vescomm_comm_info_t me = vescomm_comm_info_init();
    check(vescomm_comm_get_info(comm, &me));

    int64_t counts[64]; /* rank k owns k + 1 elements, all of them k */
    if (me.ranks > 64) return fprintf(stderr, "at most 64 ranks\n"), 1;
    for (int k = 0; k < me.ranks; ++k) counts[k] = k + 1;
    vescomm_layout_t *layout;
    check(vescomm_layout_create_from_counts(counts, me.ranks, &layout));
    vescomm_buffer_t *buffer;
    check(vescomm_buffer_create(comm, layout, NULL, &buffer));
    vescomm_view_t shard, all;
    check(vescomm_buffer_get_shard(buffer, &shard));
    check(vescomm_buffer_get_data(buffer, &all));

    vescomm_request_t *gather, *reduce;
    check(vescomm_all_gather_v_create(comm, buffer, NULL, &gather));
    check(vescomm_reduce_scatter_v_create(comm, buffer, NULL, &reduce));
    for (int64_t i = 0; i < shard.elements; ++i) ((float *)shard.data)[i] = (float)me.rank;
    check(vescomm_request_start(gather, NULL));
    check(vescomm_request_wait(gather));
    for (int64_t i = 0; i < all.elements; ++i) printf("%g ", ((float *)all.data)[i]);
    check(vescomm_request_start(reduce, NULL));
    check(vescomm_request_wait(reduce));
    printf("| rank %d: %g\n", me.rank, shard.elements > 0 ? *(float *)shard.data : 0.0f);

    vescomm_request_free(gather);
    vescomm_request_free(reduce);
    vescomm_buffer_free(buffer);
    vescomm_layout_free(layout);
    check(vescomm_comm_finalize(comm));
    check(vescomm_comm_free(comm));
    return 0;
}

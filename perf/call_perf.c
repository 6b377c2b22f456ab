/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The time of blocking calls on 64 bytes, for the comparison with Python: call_perf.py.
 *
 *     vescomm-run -n 2 call_perf
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "vescomm/vescomm.h"

enum { calls = 5000, repetitions = 40, count = 16 };

static float data[count];
static float *registered;

static void check(vescomm_status_t status) {
    if (status >= 0) return;
    fprintf(stderr, "%s\n", vescomm_get_last_error());
    exit(1);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void reduce_private(vescomm_comm_t *comm) {
    check(vescomm_all_reduce(comm, data, data, count, VESCOMM_F32, VESCOMM_MAX, NULL, NULL, NULL));
}

static void reduce_registered(vescomm_comm_t *comm) {
    check(vescomm_all_reduce(comm, registered, registered, count, VESCOMM_F32, VESCOMM_MAX, NULL,
                             NULL, NULL));
}

static void barrier(vescomm_comm_t *comm) {
    check(vescomm_barrier(comm));
}

/* The shortest mean time of `calls` calls. */
static void measure(vescomm_comm_t *comm, const char *name, void (*call)(vescomm_comm_t *)) {
    vescomm_comm_info_t info = vescomm_comm_info_init();
    double shortest = 1e9;
    check(vescomm_comm_get_info(comm, &info));
    for (int i = 0; i < repetitions; ++i) {
        check(vescomm_barrier(comm));
        const double begin = seconds();
        for (int k = 0; k < calls; ++k) call(comm);
        const double took = (seconds() - begin) / calls;
        if (took < shortest) shortest = took;
    }
    if (info.rank == 0) printf("%-34s %7.0f ns\n", name, shortest * 1e9);
}

int main(void) {
    vescomm_comm_t *comm = NULL;
    void *memory = NULL;
    check(vescomm_comm_create_from_environment(NULL, &comm));
    check(vescomm_malloc(comm, sizeof data, &memory));
    registered = memory;
    measure(comm, "C: all_reduce of 64 bytes", reduce_private);
    measure(comm, "C: all_reduce, registered", reduce_registered);
    measure(comm, "C: barrier", barrier);
    check(vescomm_comm_finalize(comm));
    check(vescomm_comm_free(comm));
    return 0;
}

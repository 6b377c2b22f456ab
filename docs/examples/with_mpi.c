/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A program of MPI that uses vescomm too: MPI carries the address and the secret of rank 0.
 *
 *     mpicc with_mpi.c $(pkg-config --cflags --libs vescomm) -o with_mpi
 *     mpirun -n 3 ./with_mpi
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <vescomm/vescomm.h>

static void check(vescomm_status_t status) {
    if (status >= 0) return;
    fprintf(stderr, "%s\n", vescomm_get_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* A vescomm_all_gather_function_t. */
static int all_gather(void *context, const void *mine, size_t bytes, void *all) {
    return MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                         *(MPI_Comm *)context) != MPI_SUCCESS;
}

int main(int count, char **arguments) {
    int rank, ranks;
    MPI_Comm world = MPI_COMM_WORLD;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &ranks);
    vescomm_comm_t *comm;
    check(vescomm_comm_create_from_all_gather(rank, ranks, all_gather, &world, NULL, &comm));

    double mine = rank + 1, sum = 0, same = 0;
    check(vescomm_all_reduce(comm, &mine, &sum, 1, VESCOMM_F64, VESCOMM_SUM, NULL, NULL, NULL));
    MPI_Allreduce(&mine, &same, 1, MPI_DOUBLE, MPI_SUM, world);
    printf("rank %d of %d: %g and %g\n", rank, ranks, sum, same);

    check(vescomm_comm_finalize(comm));
    check(vescomm_comm_free(comm));
    MPI_Finalize();
    return 0;
}

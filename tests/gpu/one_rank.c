/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A program of one rank that uses gpu.h and finds CUDA and NCCL as users' programs do: by the
 * loader's path. With the argument "none" it expects that they are not usable. With "one_without"
 * it is one of several ranks, of which rank 1 has no GPU. Exits with 0 if all is right. */
#define _POSIX_C_SOURCE 200112L /* setenv() */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vescomm/gpu.h"

static int check(vescomm_status_t status, vescomm_status_t expected, const char *call) {
    if (status == expected) return 0;
    fprintf(stderr, "%s: %s: %s\n", call, vescomm_status_get_name(status),
            vescomm_get_last_error());
    return 1;
}
#define CHECK(call) \
    if (check(call, VESCOMM_OK, #call)) return 1

/* All ranks learn which rank has no GPU, and keep their communicator. */
static int one_without(void) {
    vescomm_comm_t *comm = NULL;
    vescomm_gpu_comm_t *gpu = NULL;
    vescomm_comm_info_t info = vescomm_comm_info_init();
    CHECK(vescomm_comm_create_from_environment(NULL, &comm));
    CHECK(vescomm_comm_get_info(comm, &info));
    if (info.rank == 1) setenv("GPU_DOUBLE_DEVICES", "0", 1);
    if (check(vescomm_gpu_comm_create(comm, NULL, &gpu), VESCOMM_ERROR_UNSUPPORTED, "create"))
        return 1;
    if (strstr(vescomm_get_last_error(), "failed on rank 1: ") == NULL) {
        fprintf(stderr, "%s\n", vescomm_get_last_error());
        return 1;
    }
    CHECK(vescomm_barrier(comm));
    CHECK(vescomm_comm_free(comm));
    return 0;
}

typedef int (*memcpy_function)(void *, const void *, size_t, int);

int main(int argc, char **argv) {
    vescomm_comm_t *comm = NULL;
    vescomm_gpu_comm_t *gpu = NULL;
    vescomm_layout_t *layout = NULL;
    void *memory = NULL, *library;
    memcpy_function copy;
    const int64_t counts[1] = {3};
    const float values[3] = {1, 2, 3};
    float read[3] = {0, 0, 0};
    int32_t version = 0;

    if (argc > 1 && strcmp(argv[1], "one_without") == 0) return one_without();
    CHECK(vescomm_comm_create(0, 1, NULL, NULL, NULL, &comm));
    if (argc > 1 && strcmp(argv[1], "none") == 0) {
        if (check(vescomm_gpu_check_support(&version), VESCOMM_ERROR_UNSUPPORTED, "support"))
            return 1;
        if (check(vescomm_gpu_comm_create(comm, NULL, &gpu), VESCOMM_ERROR_UNSUPPORTED, "create"))
            return 1;
        printf("%s\n", vescomm_get_last_error());
        CHECK(vescomm_barrier(comm)); /* the communicator works */
        CHECK(vescomm_comm_free(comm));
        return 0;
    }
    CHECK(vescomm_gpu_check_support(&version));
    CHECK(vescomm_gpu_comm_create(comm, NULL, &gpu));
    CHECK(vescomm_layout_create_from_counts(counts, 1, &layout));
    CHECK(vescomm_gpu_malloc(gpu, sizeof values, &memory));
    library = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
    if (library == NULL) return 1;
    *(void **)&copy = dlsym(library, "cudaMemcpy");
    if (copy == NULL || copy(memory, values, sizeof values, 1) != 0) return 1;
    CHECK(vescomm_gpu_all_gather_v(gpu, layout, VESCOMM_F32, NULL, memory, NULL));
    CHECK(vescomm_gpu_reduce_scatter_v(gpu, layout, VESCOMM_F32, VESCOMM_SUM, memory, NULL, NULL));
    CHECK(vescomm_gpu_wait(gpu, NULL));
    CHECK(vescomm_gpu_comm_check(gpu));
    if (copy(read, memory, sizeof read, 2) != 0 || memcmp(read, values, sizeof read) != 0) return 1;
    CHECK(vescomm_gpu_mfree(gpu, memory));
    CHECK(vescomm_gpu_comm_free(gpu));
    CHECK(vescomm_layout_free(layout));
    CHECK(vescomm_comm_free(comm));
    printf("NCCL %d\n", (int)version);
    return 0;
}

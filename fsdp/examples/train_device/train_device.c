/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Trains a model with the same engine on host memory, on a GPU, and on a GPU with masters and
 * states in host memory, prints the time of a step, and compares the parameters. The loss is half
 * the sum of the squares of all parameters, so the gradient of a parameter is the parameter, and
 * the "kernels" of the trainer are copies.
 *
 *     vescomm-run -n 2 train_device [UNITS [ELEMENTS [STEPS [f32|bf16 [THREADS]]]]]
 *
 * Several ranks on one GPU need NCCL_MULTI_RANK_GPU_ENABLE=1. Without a GPU it says so, and ends
 * with success.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vescomm/fsdp.h"
#include "vescomm/gpu.h"
#include "vescomm/gpu_kernels.h"

static int units = 8, steps = 10;
static int64_t elements = 1 << 20;
static vescomm_type_t type = VESCOMM_F32;
static int threads = 0; /* that update shards in host memory; 0: all cores of a rank */

static void check(vescomm_status_t status) {
    if (status == VESCOMM_OK) return;
    fprintf(stderr, "train_device: %s\n", vescomm_get_last_error());
    exit(1);
}

/* The functions of the CUDA runtime that vescomm has loaded. */
static int (*cuda_get_device_count)(int *);
static int (*cuda_set_device)(int);
static int (*cuda_memcpy)(void *, const void *, size_t, int);

static void load_cuda(void) {
    void *library = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
    if (library == NULL) library = dlopen("libcudart.so.12", RTLD_NOW | RTLD_NOLOAD);
    if (library == NULL) {
        fprintf(stderr, "train_device: the CUDA runtime cannot be opened again\n");
        exit(1);
    }
    *(void **)&cuda_get_device_count = dlsym(library, "cudaGetDeviceCount");
    *(void **)&cuda_set_device = dlsym(library, "cudaSetDevice");
    *(void **)&cuda_memcpy = dlsym(library, "cudaMemcpy");
}

static void copy_to_host(void *target, const void *source, size_t bytes) {
    const int device_to_host = 2;
    if (cuda_memcpy(target, source, bytes, device_to_host) == 0) return;
    fprintf(stderr, "train_device: cudaMemcpy() failed\n");
    exit(1);
}

static int fill(void *context, uint64_t parameter, int64_t first, int64_t count, float *values,
                uint64_t key) {
    (void)context;
    (void)key;
    for (int64_t i = 0; i < count; ++i)
        values[i] = (float)((first + i + (int64_t)parameter * 7) % 101 - 50) / 64.0f;
    return 0;
}

enum { on_host, on_device, offloaded, places };

/* True if the trainer's views have device addresses. */
static int is_device(int place) {
    return place != on_host;
}

static vescomm_fsdp_t *create(vescomm_comm_t *comm, int place) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.compute_type = type;
    options.memory = is_device(place) ? VESCOMM_FSDP_DEVICE : VESCOMM_FSDP_HOST;
    options.offload_to_host = place == offloaded;
    options.average = 1;
    options.update_threads = threads;
    vescomm_fsdp_spec_t *spec = NULL;
    vescomm_fsdp_t *engine = NULL;
    check(vescomm_fsdp_spec_create(&options, &spec));
    for (int i = 0; i < units; ++i) {
        char name[32];
        uint64_t unit = 0, id = 0;
        snprintf(name, sizeof name, "unit%d", i);
        check(vescomm_fsdp_add_unit(spec, name, 0, &unit));
        vescomm_fsdp_parameter_t parameter = vescomm_fsdp_parameter_init();
        const int64_t shape[] = {elements};
        parameter.name = "weight";
        parameter.shape = shape;
        parameter.dimensions = 1;
        /* Cuts at multiples of 16 bytes, also in bf16. */
        parameter.block_elements = 8;
        check(vescomm_fsdp_add_parameter(spec, unit, &parameter, &id));
    }
    check(vescomm_fsdp_create(spec, &comm, 1, &engine));
    check(vescomm_fsdp_spec_free(spec));
    check(vescomm_fsdp_initialise(engine, fill, NULL));
    return engine;
}

/* The gradient is the parameter. */
static void backward(vescomm_fsdp_t *engine, uint64_t id, int place) {
    vescomm_fsdp_view_t parameter = vescomm_fsdp_view_init(), gradient = vescomm_fsdp_view_init();
    vescomm_fsdp_gradient_mode_t mode = VESCOMM_FSDP_OVERWRITE;
    check(vescomm_fsdp_parameter(engine, id, &parameter));
    check(vescomm_fsdp_gradient(engine, id, &gradient, &mode));
    if (is_device(place)) {
        const vescomm_gpu_piece_t all = {0, 0, gradient.elements};
        check(vescomm_gpu_copy(gradient.data, gradient.type, parameter.data, parameter.type, &all,
                               1, NULL));
    } else {
        memcpy(gradient.data, parameter.data,
               (size_t)gradient.elements * vescomm_type_get_bytes(gradient.type));
    }
}

/* Trains, and returns the best time of a step. `norm`: of the last step. */
static double train(vescomm_fsdp_t *engine, int place, double *norm) {
    double best = HUGE_VAL;
    for (int step = 0; step < steps; ++step) {
        const double begin = vescomm_trace_get_seconds();
        check(vescomm_fsdp_begin(engine, VESCOMM_FSDP_LAST));
        for (int unit = 0; unit < units; ++unit) {
            check(vescomm_fsdp_pre_forward(engine, (uint64_t)unit, NULL));
            check(vescomm_fsdp_post_forward(engine, (uint64_t)unit, NULL));
        }
        for (int unit = units - 1; unit >= 0; --unit) {
            check(vescomm_fsdp_pre_backward(engine, (uint64_t)unit, NULL));
            backward(engine, (uint64_t)unit, place);
            check(vescomm_fsdp_post_backward(engine, (uint64_t)unit, NULL));
        }
        check(vescomm_fsdp_finish_backward(engine, NULL));
        vescomm_fsdp_step_t arguments = vescomm_fsdp_step_init();
        arguments.max_norm = 1;
        check(vescomm_fsdp_step(engine, &arguments, NULL));
        *norm = arguments.norm;
        const double seconds = vescomm_trace_get_seconds() - begin;
        if (seconds < best) best = seconds;
    }
    /* Not cudaStreamSynchronize(), which would wait for a dead rank for ever. */
    check(vescomm_fsdp_wait_stream(engine, NULL));
    return best;
}

/* Copies the masters of this rank to host memory, unit after unit. Returns their number. */
static int64_t read_masters(vescomm_fsdp_t *engine, int place, float *to) {
    int64_t count = 0;
    for (int unit = 0; unit < units; ++unit) {
        vescomm_fsdp_view_t view = vescomm_fsdp_view_init();
        check(vescomm_fsdp_shard(engine, (uint64_t)unit, VESCOMM_FSDP_MASTER, 0, &view));
        const size_t bytes = (size_t)view.elements * sizeof(float);
        if (bytes > 0 && place == on_device) copy_to_host(to + count, view.data, bytes);
        else if (bytes > 0) memcpy(to + count, view.data, bytes);
        count += view.elements;
    }
    return count;
}

int main(int argc, char **argv) {
    if (argc > 1) units = atoi(argv[1]);
    if (argc > 2) elements = atoll(argv[2]);
    if (argc > 3) steps = atoi(argv[3]);
    if (argc > 4 && strcmp(argv[4], "bf16") == 0) type = VESCOMM_BF16;
    if (argc > 5) threads = atoi(argv[5]);
    if (units < 1 || elements < 1 || steps < 1) {
        fprintf(stderr, "usage: train_device [UNITS [ELEMENTS [STEPS [f32|bf16 [THREADS]]]]]\n");
        return 2;
    }
    if (vescomm_gpu_check_support(NULL) != VESCOMM_OK ||
        vescomm_gpu_check_kernels() != VESCOMM_OK) {
        printf("train_device: nothing to do: %s\n", vescomm_get_last_error());
        return 0;
    }
    load_cuda();
    vescomm_comm_t *comm = NULL;
    check(vescomm_comm_create_from_environment(NULL, &comm));
    vescomm_comm_info_t info = vescomm_comm_info_init();
    check(vescomm_comm_get_info(comm, &info));
    int devices = 1;
    if (cuda_get_device_count(&devices) != 0 || cuda_set_device(info.rank % devices) != 0) {
        fprintf(stderr, "train_device: the device cannot be set\n");
        return 1;
    }
    float *values[places];
    double seconds[places], norms[places], worst = 0;
    int64_t count = 0;
    for (int place = 0; place < places; ++place) {
        vescomm_fsdp_t *engine = create(comm, place);
        seconds[place] = train(engine, place, &norms[place]);
        values[place] = malloc((size_t)units * (size_t)(elements + 16) * sizeof(float));
        if (values[place] == NULL) return 1;
        count = read_masters(engine, place, values[place]);
        check(vescomm_fsdp_free(engine));
        for (int64_t i = 0; i < count; ++i)
            worst = fmax(worst, fabs((double)values[0][i] - (double)values[place][i]));
    }
    /* AdamW moves a parameter by up to the learning rate, whatever the size of the gradient. */
    const double allowed = 1e-3 * steps;
    int equal = worst <= allowed;
    /* NCCL rounds each addition to the type of gradients. */
    const double precision = type == VESCOMM_BF16 ? info.ranks / 512.0 : 1e-3;
    for (int place = 1; place < places; ++place)
        equal = equal && fabs(norms[0] - norms[place]) <= precision * norms[0];
    printf(
        "rank %d of %d: %d units of %lld, step %.3f ms on host memory, %.3f ms on the device, "
        "%.3f ms with masters and states in host memory; norms %.9g, %.9g and %.9g; largest "
        "difference of masters %.3g\n",
        info.rank, info.ranks, units, (long long)elements, seconds[on_host] * 1e3,
        seconds[on_device] * 1e3, seconds[offloaded] * 1e3, norms[on_host], norms[on_device],
        norms[offloaded], worst);
    for (int place = 0; place < places; ++place) free(values[place]);
    check(vescomm_comm_free(comm));
    return equal ? 0 : 1;
}

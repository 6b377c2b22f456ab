// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Takes the place of the test double in tests of kernels that run on a GPU: the functions of CUDA
// that they call are those of the real runtime, and nothing is checked for violations.
#include "gpu/loaded_cuda.h"

#include "gpu/double/gpu_double.h"
#include "vescomm/gpu_kernels.h"

using vescomm::internal::testing_support::loaded_cuda;

namespace gpu_double {

std::string take_violations() {
    return "";
}
// A GPU runs blocks and threads in any order.
void reverse_kernels(bool) {}

}  // namespace gpu_double

extern "C" {
int cudaSetDevice(int number) {
    return loaded_cuda().cudaSetDevice(number);
}
int cudaStreamCreateWithFlags(CUstream_st **stream, unsigned flags) {
    return loaded_cuda().cudaStreamCreateWithFlags(stream, flags);
}
int cudaStreamDestroy(CUstream_st *stream) {
    return loaded_cuda().cudaStreamDestroy(stream);
}
int cudaStreamSynchronize(CUstream_st *stream) {
    return loaded_cuda().cudaStreamSynchronize(stream);
}
int cudaMalloc(void **pointer, std::size_t bytes) {
    return loaded_cuda().cudaMalloc(pointer, bytes);
}
int cudaFree(void *pointer) {
    return loaded_cuda().cudaFree(pointer);
}
int cudaMemcpyAsync(void *target, const void *source, std::size_t bytes, int kind,
                    CUstream_st *stream) {
    return loaded_cuda().cudaMemcpyAsync(target, source, bytes, kind, stream);
}
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    if (vescomm_gpu_check_kernels() != VESCOMM_OK) {
        std::printf("skipped: %s\n", vescomm_get_last_error());
        return 77;
    }
    return RUN_ALL_TESTS();
}

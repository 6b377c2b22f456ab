// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A device with a stream and arrays, for tests on whatever CUDA runtime the process finds: that of
// a GPU, or the test double. The functions come from the library that vescomm has loaded.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "gpu/cuda_functions.h"
#include "gpu/gpu_libraries.h"

struct CUgraph_st;
struct CUgraphExec_st;

namespace vescomm::internal::testing_support {

// The functions of the CUDA runtime that tests on a GPU call: symbol and parameters.
#define VESCOMM_TEST_CUDA_FUNCTIONS(X)                                                      \
    X(cudaGetDeviceCount, (int *))                                                          \
    X(cudaSetDevice, (int))                                                                 \
    X(cudaMalloc, (void **, std::size_t))                                                   \
    X(cudaFree, (void *))                                                                   \
    X(cudaMemcpyAsync, (void *, const void *, std::size_t, int, CUstream_st *))             \
    X(cudaStreamCreateWithFlags, (CUstream_st **, unsigned))                                \
    X(cudaStreamDestroy, (CUstream_st *))                                                   \
    X(cudaStreamSynchronize, (CUstream_st *))                                               \
    X(cudaStreamWaitEvent, (CUstream_st *, CUevent_st *, unsigned))                         \
    X(cudaEventCreateWithFlags, (CUevent_st **, unsigned))                                  \
    X(cudaEventRecord, (CUevent_st *, CUstream_st *))                                       \
    X(cudaEventDestroy, (CUevent_st *))                                                     \
    X(cudaStreamBeginCapture, (CUstream_st *, int))                                         \
    X(cudaStreamEndCapture, (CUstream_st *, CUgraph_st **))                                 \
    X(cudaGraphInstantiateWithFlags, (CUgraphExec_st **, CUgraph_st *, unsigned long long)) \
    X(cudaGraphLaunch, (CUgraphExec_st *, CUstream_st *))                                   \
    X(cudaGraphExecDestroy, (CUgraphExec_st *))                                             \
    X(cudaGraphDestroy, (CUgraph_st *))

struct LoadedCuda {
#define VESCOMM_MEMBER(symbol, parameters) int(*symbol) parameters = nullptr;
    VESCOMM_TEST_CUDA_FUNCTIONS(VESCOMM_MEMBER)
#undef VESCOMM_MEMBER
};

// The functions of the runtime that vescomm has loaded.
inline const LoadedCuda &loaded_cuda() {
    static const LoadedCuda functions = [] {
        LoadedCuda found;
        for (const std::string &name : GpuLibraryNames().cuda) {
            void *library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
            if (library == nullptr) continue;
#define VESCOMM_FIND(symbol, parameters) \
    found.symbol = reinterpret_cast<decltype(found.symbol)>(dlsym(library, #symbol));
            VESCOMM_TEST_CUDA_FUNCTIONS(VESCOMM_FIND)
#undef VESCOMM_FIND
            break;
        }
        return found;
    }();
    return functions;
}

// The current device of the calling thread, with a stream that does not block. Frees its arrays.
class LoadedDevice {
public:
    explicit LoadedDevice(int number) {
        EXPECT_EQ(cuda_.cudaSetDevice(number), 0);
        EXPECT_EQ(cuda_.cudaStreamCreateWithFlags(&stream, 1), 0);
    }
    ~LoadedDevice() {
        free_arrays();
        cuda_.cudaStreamDestroy(stream);
    }
    LoadedDevice(const LoadedDevice &) = delete;
    LoadedDevice &operator=(const LoadedDevice &) = delete;

    template <typename T>
    T *array(std::size_t count) {
        void *memory = nullptr;
        EXPECT_EQ(cuda_.cudaMalloc(&memory, (count + 1) * sizeof(T)), 0);
        arrays_.push_back(memory);
        return static_cast<T *>(memory);
    }
    template <typename T>
    void write(T *to, const std::vector<T> &values) {
        copy(to, values.data(), values.size() * sizeof(T), cuda::copy_host_to_device);
    }
    template <typename T>
    T *upload(const std::vector<T> &values) {
        T *to = array<T>(values.size());
        write(to, values);
        return to;
    }
    template <typename T>
    std::vector<T> read(const T *from, std::size_t count) {
        std::vector<T> values(count);
        copy(values.data(), from, count * sizeof(T), cuda::copy_device_to_host);
        return values;
    }
    void free_arrays() {
        for (void *array : arrays_) cuda_.cudaFree(array);
        arrays_.clear();
    }

    cuda::Stream stream = nullptr;

private:
    void copy(void *to, const void *from, std::size_t bytes, int kind) {
        EXPECT_EQ(cuda_.cudaMemcpyAsync(to, from, bytes, kind, stream), 0);
        EXPECT_EQ(cuda_.cudaStreamSynchronize(stream), 0);
    }

    const LoadedCuda &cuda_ = loaded_cuda();
    std::vector<void *> arrays_;
};

}  // namespace vescomm::internal::testing_support

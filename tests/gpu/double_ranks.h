// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Devices of the test double, and ranks of its NCCL as threads.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/thread_sanitizer.h"
#include "gpu/double/gpu_double.h"

namespace gpu_double {

// Expects a violation that matches the regular expression, and forgets all violations.
void expect_violation(const std::string &expression, const char *file, int line);
#define EXPECT_THAT_VIOLATION(expression) \
    ::gpu_double::expect_violation(expression, __FILE__, __LINE__)

// Ends a test of the double that makes a race on purpose: ThreadSanitizer would report it, too.
#if VESCOMM_THREAD_SANITIZER
#define SKIP_RACE_WITH_THREAD_SANITIZER() GTEST_SKIP() << "ThreadSanitizer reports its race"
#else
#define SKIP_RACE_WITH_THREAD_SANITIZER() static_assert(true)
#endif

// A device, which is that of the calling thread, with a stream that does not block. It frees its
// arrays.
struct Device {
    explicit Device(int number) {
        EXPECT_EQ(cudaSetDevice(number), 0);
        EXPECT_EQ(cudaStreamCreateWithFlags(&stream, 1), 0);
    }
    ~Device() {
        for (void *array : arrays_) cudaFree(array);
        cudaStreamDestroy(stream);
    }
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    template <typename T>
    T *array(std::size_t count) {
        void *memory = nullptr;
        EXPECT_EQ(cudaMalloc(&memory, count * sizeof(T)), 0);
        arrays_.push_back(memory);
        return static_cast<T *>(memory);
    }
    template <typename T>
    void write(T *to, const std::vector<T> &values) {
        EXPECT_EQ(cudaMemcpyAsync(to, values.data(), values.size() * sizeof(T),
                                  cuda::copy_host_to_device, stream),
                  0);
        EXPECT_EQ(cudaStreamSynchronize(stream), 0);
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
        EXPECT_EQ(cudaMemcpyAsync(values.data(), from, count * sizeof(T), cuda::copy_device_to_host,
                                  stream),
                  0);
        EXPECT_EQ(cudaStreamSynchronize(stream), 0);
        return values;
    }

    cuda::Stream stream = nullptr;

private:
    std::vector<void *> arrays_;
};

// A rank of an NCCL communicator, with a device of its own.
struct Rank : Device {
    Rank(int number, int ranks, const nccl::UniqueId &id) : Device(number), number(number) {
        nccl::Config config;
        config.blocking = 1;
        EXPECT_EQ(ncclCommInitRankConfig(&comm, ranks, id, number, &config), 0);
    }
    ~Rank() {
        if (comm != nullptr) ncclCommDestroy(comm);
    }

    int number;
    nccl::Comm comm = nullptr;
};

// Memory of a rank that is registered as a window, and the address of that of the other one of two
// ranks. The ranks meet.
struct SharedMemory {
    SharedMemory(Rank &rank, std::barrier<> &all) {
        EXPECT_EQ(ncclMemAlloc(&memory, 4096), 0);
        EXPECT_EQ(ncclCommWindowRegister(rank.comm, memory, 4096, &window, 0), 0);
        all.arrive_and_wait();
        EXPECT_EQ(ncclGetPeerDevicePointer(window, 0, 1 - rank.number, &peer), 0);
    }

    void *memory = nullptr, *peer = nullptr;
    nccl::Window window = nullptr;
};

void run_nccl_ranks(int ranks, const std::function<void(Rank &)> &body);

}  // namespace gpu_double

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The functions of CUDA that load and launch kernels. A kernel is found by its symbol, and runs on
// the host from the source that nvcc compiles for GPUs: phase by phase, so that a barrier between
// the threads of a block has its meaning.
//
// An image of kernels begins as one of nvcc does, or with "vescomm gpu double".
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu/double/kernel_accesses.h"
#include "gpu/double/streams.h"
#include "gpu/kernels/bodies.h"

struct CUlib_st {
    int unused;
};

struct CUkern_st {
    const char *symbol;
    // Puts a launch with these parameters on a stream.
    int (*launch)(unsigned blocks, unsigned threads, const void *parameters,
                  vescomm::internal::cuda::Stream stream, const char *symbol);
    std::size_t parameter_bytes;
};

namespace gpu_double {
namespace {

using namespace vescomm::internal;
using namespace vescomm::internal::VESCOMM_ISA;

constexpr cuda::Error invalid_image = 200, symbol_not_found = 500, invalid_configuration = 9;

std::atomic<bool> reversed{false};

template <typename Body>
constexpr bool meets = requires(typename Body::Parameters p) {
    p.barrier;
};

// A meeting is two phases: threads raise the flags of this rank at all others, and wait for theirs.
// One phase precedes each meeting. Called before the first of them, and after the second one. All
// blocks meet alike, so block 0 stands for them.
template <typename Body>
void order_meeting(int phase, const typename Body::Parameters &p,
                   const typename Body::Shared &shared) {
    const gpu_kernel::PeerBarrier &barrier = p.barrier;
    const std::uint32_t epoch = shared.epoch + static_cast<std::uint32_t>(phase / 3) + 1;
    const bool raises = phase % 3 == 1;
    std::vector<const void *> flags;
    for (int peer = 0; peer < barrier.ranks; ++peer)
        if (peer != barrier.rank)
            flags.push_back(raises ? Meeting::flag(barrier, peer, barrier.rank, 0)
                                   : Meeting::flag(barrier, barrier.rank, peer, 0));
    if (raises) raise_flags(flags, epoch);
    else see_flags(flags, epoch);
}

// `between`: the bytes of other ranks that it reads after its first meeting.
template <typename Body>
void run_on_host(unsigned blocks, const typename Body::Parameters &parameters,
                 const Accesses &between) {
    const bool backwards = reversed;
    const auto shared = std::make_unique<typename Body::Shared>();
    for (unsigned b = 0; b < blocks; ++b) {
        const unsigned block = backwards ? blocks - 1 - b : b;
        // Shared memory begins with bytes of earlier blocks on a GPU.
        std::memset(static_cast<void *>(shared.get()), 0xa5, sizeof *shared);
        for (int phase = 0; phase < Body::phases; ++phase) {
            if constexpr (meets<Body>)
                if (block == 0 && phase % 3 == 1) order_meeting<Body>(phase, parameters, *shared);
            for (unsigned t = 0; t < gpu_kernel::threads; ++t)
                Body::run(phase, parameters, *shared, block,
                          backwards ? gpu_kernel::threads - 1 - t : t);
            if constexpr (meets<Body>) {
                if (block == 0 && phase % 3 == 2) order_meeting<Body>(phase, parameters, *shared);
                if (block == 0 && phase == 2 && shared->ended == 0) add_accesses(between);
            }
        }
    }
}

// The kernels that meet those of other ranks at present, with their processes.
struct Meetings {
    std::mutex mutex;
    std::multimap<int, gpu_kernel::PeerBarrier> running;  // by process
};
Meetings &meetings() {
    static Meetings *const all = new Meetings;
    return *all;
}

// The program ends the waits of a kernel by this number.
void end_waits(const gpu_kernel::PeerBarrier &barrier) {
    std::atomic_ref<std::uint32_t>(*const_cast<std::uint32_t *>(barrier.end)) = 1;
}

class KernelMeeting {
public:
    KernelMeeting(int process, const gpu_kernel::PeerBarrier &barrier) {
        const std::lock_guard<std::mutex> lock(meetings().mutex);
        place_ = meetings().running.emplace(process, barrier);
        if (has_ended(process)) end_waits(barrier);
    }
    ~KernelMeeting() {
        const std::lock_guard<std::mutex> lock(meetings().mutex);
        meetings().running.erase(place_);
    }
    KernelMeeting(const KernelMeeting &) = delete;
    KernelMeeting &operator=(const KernelMeeting &) = delete;

private:
    std::multimap<int, gpu_kernel::PeerBarrier>::iterator place_;
};

template <typename Body>
int launch_body(unsigned blocks, unsigned threads, const void *from, cuda::Stream stream,
                const char *symbol) {
    if (blocks == 0 || blocks > 0x7fffffff || threads != gpu_kernel::threads)
        return noted(invalid_configuration);
    // CUDA copies parameters during the launch.
    typename Body::Parameters parameters;
    std::memcpy(static_cast<void *>(&parameters), from, sizeof parameters);
    const auto work = [=, process = current_process()] {
        typename Body::Parameters here = parameters;
        move_to_host(here);
        if constexpr (meets<Body>) {
            const KernelMeeting meeting(process, here.barrier);
            run_on_host<Body>(blocks, here, accesses_between(parameters));
        } else run_on_host<Body>(blocks, here, {});
    };
    return enqueue(
        stream, symbol, accesses_of(parameters), [=] { return work; }, current_device());
}

#define GPU_DOUBLE_TEXT_(symbol) #symbol
#define GPU_DOUBLE_TEXT(symbol) GPU_DOUBLE_TEXT_(symbol)
#define GPU_DOUBLE_KERNEL(name, Body) \
    {GPU_DOUBLE_TEXT(VESCOMM_GPU_KERNEL(name)), launch_body<Body>, sizeof(Body::Parameters)},
CUkern_st table[] = {VESCOMM_GPU_KERNELS(GPU_DOUBLE_KERNEL)};

// The loaded libraries. Never destroyed, as the queues of streams.
struct Libraries {
    std::mutex mutex;
    std::vector<std::unique_ptr<CUlib_st>> loaded;

    // The caller holds the mutex.
    auto find(const CUlib_st *library) const {
        return std::find_if(loaded.begin(), loaded.end(),
                            [&](const auto &one) { return one.get() == library; });
    }
};
Libraries &libraries() {
    static Libraries *const all = new Libraries;
    return *all;
}

bool is_kernel(const void *kernel) {
    return kernel >= std::begin(table) && kernel < std::end(table);
}

}  // namespace

void reverse_kernels(bool backwards) {
    reversed = backwards;
}

void end_meetings(int process) {
    const std::lock_guard<std::mutex> lock(meetings().mutex);
    const auto [first, last] = meetings().running.equal_range(process);
    for (auto at = first; at != last; ++at) end_waits(at->second);
}

std::size_t kernel_parameter_bytes(const void *kernel) {
    return is_kernel(kernel) ? static_cast<const CUkern_st *>(kernel)->parameter_bytes : 0;
}

int loaded_libraries() {
    const std::lock_guard<std::mutex> lock(libraries().mutex);
    return static_cast<int>(libraries().loaded.size());
}

}  // namespace gpu_double

using namespace gpu_double;

extern "C" {

int cudaLibraryLoadData(CUlib_st **library, const void *code, int *, void **, unsigned, int *,
                        void **, unsigned) {
    if (const int result = injected_result("cudaLibraryLoadData")) return noted(result);
    if (const cuda::Error error = check_capture("cudaLibraryLoadData()")) return noted(error);
    if (std::memcmp(code, "\x50\xed\x55\xba", 4) != 0 &&
        std::memcmp(code, "vescomm gpu double", 4) != 0)
        return noted(invalid_image);
    const std::lock_guard<std::mutex> lock(libraries().mutex);
    *library = libraries().loaded.emplace_back(std::make_unique<CUlib_st>()).get();
    return cuda::success;
}

int cudaLibraryUnload(CUlib_st *library) {
    if (const int result = injected_result("cudaLibraryUnload")) return noted(result);
    if (const cuda::Error error = check_capture("cudaLibraryUnload()")) return noted(error);
    const std::lock_guard<std::mutex> lock(libraries().mutex);
    const auto found = libraries().find(library);
    if (found == libraries().loaded.end()) {
        violation("cudaLibraryUnload() of a library that is not loaded");
        return noted(invalid_handle);
    }
    libraries().loaded.erase(found);
    return cuda::success;
}

int cudaLibraryGetKernel(CUkern_st **kernel, CUlib_st *library, const char *name) {
    if (const int result = injected_result("cudaLibraryGetKernel")) return noted(result);
    {
        const std::lock_guard<std::mutex> lock(libraries().mutex);
        if (libraries().find(library) == libraries().loaded.end()) {
            violation("cudaLibraryGetKernel() of a library that is not loaded");
            return noted(invalid_handle);
        }
    }
    for (CUkern_st &entry : table) {
        if (std::strcmp(entry.symbol, name) != 0) continue;
        *kernel = &entry;
        return cuda::success;
    }
    return noted(symbol_not_found);
}

int cudaFuncGetAttributes(cudaFuncAttributes *, const void *kernel) {
    if (const int result = injected_result("cudaFuncGetAttributes")) return noted(result);
    if (const cuda::Error error = check_capture("cudaFuncGetAttributes()")) return noted(error);
    return is_kernel(kernel) ? cuda::success : noted(cuda::invalid_value);
}

int cudaLaunchKernel(const void *kernel, cuda::Dim3 grid, cuda::Dim3 block, void **parameters,
                     std::size_t, CUstream_st *stream) {
    if (const int result = injected_result("cudaLaunchKernel"))
        return result == no_effect ? cuda::success : noted(result);
    if (!is_kernel(kernel)) return noted(cuda::invalid_value);
    const auto *found = static_cast<const CUkern_st *>(kernel);
    return found->launch(grid.x, block.x, parameters[0], stream, found->symbol);
}

}  // extern "C"

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "perf/implementations/device_functions.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <stdexcept>

#include "gpu/gpu_libraries.h"
#include "vescomm/gpu.h"

namespace vescomm::perf {
namespace {

// NCCL_MULTI_RANK_GPU_ENABLE permits several ranks on one GPU, in separate processes.
constexpr int version_with_shared_gpus = 23003;

// Opens a library that vescomm has loaded.
void *open_loaded(const std::vector<std::string> &names) {
    for (const std::string &name : names)
        if (void *library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD))
            return library;
    throw std::runtime_error(names.front() + " was loaded, and cannot be opened again");
}

template <typename Function>
void find(void *library, const char *symbol, Function *&function) {
    function = reinterpret_cast<Function *>(dlsym(library, symbol));
    if (function == nullptr)
        throw std::runtime_error(std::string(symbol) + "() is missing: the library is too old");
}

DeviceFunctions load() {
    std::int32_t version = 0;
    if (vescomm_gpu_check_support(&version) != VESCOMM_OK)
        throw std::runtime_error(vescomm_get_last_error());
    DeviceFunctions functions{};
    functions.nccl_version = version;
    const internal::GpuLibraryNames names;
    void *runtime = open_loaded(names.cuda), *nccl = open_loaded(names.nccl);
    find(runtime, "cudaGetDeviceCount", functions.get_device_count);
    find(runtime, "cudaSetDevice", functions.set_device);
    find(runtime, "cudaStreamCreateWithFlags", functions.stream_create);
    find(runtime, "cudaStreamDestroy", functions.stream_destroy);
    find(runtime, "cudaStreamSynchronize", functions.stream_synchronize);
    find(runtime, "cudaMemcpyAsync", functions.memcpy_async);
    find(runtime, "cudaGetErrorString", functions.get_error_string);
#define VESCOMM_FIND(symbol, member, parameters) find(nccl, #symbol, functions.nccl.member);
    VESCOMM_NCCL_FUNCTIONS(VESCOMM_FIND)
#undef VESCOMM_FIND
    find(nccl, "ncclGetErrorString", functions.nccl.get_error_string);
    find(nccl, "ncclGetLastError", functions.nccl.get_last_error);
    return functions;
}

}  // namespace

void DeviceFunctions::require(cuda::Error error, const char *call) const {
    if (error != cuda::success)
        throw std::runtime_error(fmt::format("{} failed: {}", call, get_error_string(error)));
}

void DeviceFunctions::require_nccl(nccl::Result result, const char *call) const {
    if (result != internal::nccl::success)
        throw std::runtime_error(fmt::format("{} failed: {} ({})", call,
                                             nccl.get_error_string(result),
                                             nccl.get_last_error(nullptr)));
}

const DeviceFunctions &device_functions() {
    static const DeviceFunctions functions = load();
    return functions;
}

int count_devices() {
    int devices = 0;
    const DeviceFunctions &functions = device_functions();
    functions.require(functions.get_device_count(&devices), "cudaGetDeviceCount()");
    return devices;
}

std::string why_no_devices(int ranks, int threads) {
    try {
        const int devices = count_devices();
        if (ranks <= devices) return "";
        const DeviceFunctions &functions = device_functions();
        if (functions.nccl_version < version_with_shared_gpus)
            return fmt::format(
                "{} ranks need as many GPUs, and there are {}: NCCL {} permits one rank on each; "
                "2.30.3 and later permit several",
                ranks, devices, nccl_version_text(functions.nccl_version));
        if (threads > 1)
            return fmt::format(
                "{} ranks share {} GPUs, which NCCL permits to processes only: leave out "
                "--nthreads",
                ranks, devices);
        return "";
    } catch (const std::exception &error) {
        return error.what();
    }
}

std::string device_name(int device) {
    char name[256] = {};
    int (*get)(int *, int) = nullptr;
    int (*get_name)(char *, int, int) = nullptr;
    int number = 0;
    // The runtime has loaded the driver.
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (driver == nullptr) return "GPU";
    get = reinterpret_cast<decltype(get)>(dlsym(driver, "cuDeviceGet"));
    get_name = reinterpret_cast<decltype(get_name)>(dlsym(driver, "cuDeviceGetName"));
    if (get == nullptr || get_name == nullptr || get(&number, device) != 0 ||
        get_name(name, sizeof name, number) != 0)
        return "GPU";
    return name;
}

std::string nccl_version_text(int version) {
    return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

}  // namespace vescomm::perf

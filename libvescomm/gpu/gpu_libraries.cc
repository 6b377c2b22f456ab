// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/gpu_libraries.h"

#include <dlfcn.h>

#include "base/error.h"
#include "gpu/kernel_image.h"

namespace vescomm::internal {
namespace {

constexpr const char *cuda_advice = "install the runtime of CUDA 12 or 13, or set LD_LIBRARY_PATH";
constexpr const char *nccl_advice = "install NCCL 2.28 or later, or set LD_LIBRARY_PATH to it";

// An opened library.
struct Opened {
    void *handle = nullptr;
    std::string why;  // the loader's reasons, if handle is nullptr
};

// The library that the process has already comes first: a second NCCL beside that of the program
// would have communicators and buffers of its own.
Opened open_library(const std::vector<std::string> &names) {
    for (const std::string &name : names)
        if (void *handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD))
            return {handle, {}};
    Opened opened;
    for (const std::string &name : names) {
        opened.handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (opened.handle != nullptr) return opened;
        opened.why += (opened.why.empty() ? "" : "; ") + std::string(dlerror());
    }
    return opened;
}

template <typename Function>
void find(void *library, const char *symbol, Function *&function, std::string &missing) {
    function = reinterpret_cast<Function *>(dlsym(library, symbol));
    if (function == nullptr && missing.empty()) missing = symbol;
}

// Each returns the name of the first function that is missing, or nothing.

std::string find_functions(void *library, cuda::Runtime &runtime) {
    std::string missing;
#define VESCOMM_FIND(symbol, member, parameters) find(library, #symbol, runtime.member, missing);
    VESCOMM_CUDA_FUNCTIONS(VESCOMM_FIND)
#undef VESCOMM_FIND
    find(library, "cudaGetErrorString", runtime.get_error_string, missing);
    return missing;
}

std::string find_functions(void *library, cuda::KernelFunctions &functions) {
    std::string missing;
#define VESCOMM_FIND(symbol, member, parameters) find(library, #symbol, functions.member, missing);
    VESCOMM_CUDA_KERNEL_FUNCTIONS(VESCOMM_FIND)
#undef VESCOMM_FIND
    return missing;
}

std::string find_functions(void *library, nccl::Library &functions) {
    std::string missing;
#define VESCOMM_FIND(symbol, member, parameters) find(library, #symbol, functions.member, missing);
    VESCOMM_NCCL_FUNCTIONS(VESCOMM_FIND)
#undef VESCOMM_FIND
    std::string optional;
#define VESCOMM_FIND(symbol, member, parameters) find(library, #symbol, functions.member, optional);
    VESCOMM_NCCL_OPTIONAL_FUNCTIONS(VESCOMM_FIND)
#undef VESCOMM_FIND
    find(library, "ncclGetErrorString", functions.get_error_string, missing);
    find(library, "ncclGetLastError", functions.get_last_error, missing);
    return missing;
}

// The file from which a function was loaded.
template <typename Function>
std::string file_of(Function *function) {
    Dl_info info{};
    if (dladdr(reinterpret_cast<const void *>(function), &info) == 0 || info.dli_fname == nullptr)
        return "an unknown file";
    return info.dli_fname;
}

std::string cuda_version_text(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Clears an error that the text of a part reports: the program does not find it later.
cuda::Error cleared(const cuda::Runtime &runtime, cuda::Error error) {
    if (error != cuda::success) runtime.get_last_error();
    return error;
}

GpuPart load_cuda(const std::vector<std::string> &names, cuda::Runtime &runtime, Opened &opened) {
    opened = open_library(names);
    if (opened.handle == nullptr)
        return {false,
                "the CUDA runtime cannot be loaded: " + opened.why + "; " + cuda_advice + " to it"};
    if (const std::string missing = find_functions(opened.handle, runtime); !missing.empty())
        return {false, "the CUDA runtime lacks " + missing + "(): it is too old; " + cuda_advice +
                           " to it"};
    int version = 0;
    if (const auto error = cleared(runtime, runtime.runtime_get_version(&version));
        error != cuda::success)
        return {false,
                std::string("cudaRuntimeGetVersion() failed: ") + runtime.get_error_string(error)};
    return {true, cuda_version_text(version) + ", " + file_of(runtime.runtime_get_version)};
}

GpuPart count_devices(const cuda::Runtime &runtime) {
    int driver = 0, devices = 0;
    if (cleared(runtime, runtime.driver_get_version(&driver)) != cuda::success) driver = 0;
    const cuda::Error error = cleared(runtime, runtime.get_device_count(&devices));
    if (driver == 0 && error != cuda::success)
        return {false, std::string("there is no NVIDIA driver (") +
                           runtime.get_error_string(error) +
                           "); on a machine with a GPU install the driver, in a container start it "
                           "with access to the GPUs"};
    if (error == cuda::insufficient_driver)
        return {false, "the NVIDIA driver supports CUDA " + cuda_version_text(driver) +
                           ", which is older than the CUDA runtime; update the driver, or install "
                           "an older CUDA runtime"};
    if (error == cuda::no_device || (error == cuda::success && devices == 0))
        return {false,
                "the NVIDIA driver shows no GPU to this process; check nvidia-smi and "
                "CUDA_VISIBLE_DEVICES"};
    if (error != cuda::success)
        return {false,
                std::string("cudaGetDeviceCount() failed: ") + runtime.get_error_string(error)};
    return {true, std::to_string(devices) + ", driver for CUDA " + cuda_version_text(driver)};
}

GpuPart examine_kernels(void *library, cuda::KernelFunctions &functions) {
    if (library == nullptr) return {false, "unknown without the CUDA runtime"};
    if (const std::string missing = find_functions(library, functions); !missing.empty())
        return {false, "the CUDA runtime lacks " + missing +
                           "(), which kernels need: it is too old; install CUDA 13, or the last "
                           "release of 12"};
    try {
        return {true, find_kernel_image().from};
    } catch (const Error &error) {
        return {false, error.what()};
    }
}

GpuPart load_nccl(const std::vector<std::string> &names, nccl::Library &functions, int &version) {
    const Opened opened = open_library(names);
    if (opened.handle == nullptr)
        return {false, "NCCL cannot be loaded: " + opened.why + "; " + nccl_advice};
    const std::string missing = find_functions(opened.handle, functions);
    // An old NCCL also lacks functions. Its version is the cause, so that is reported.
    if (functions.get_version == nullptr || functions.get_version(&version) != nccl::success)
        return {false,
                std::string("the library of NCCL does not state its version; ") + nccl_advice};
    if (version < nccl::oldest_version)
        return {false, "NCCL " + nccl_version_text(version) + " (" +
                           file_of(functions.get_version) +
                           ") is too old: vescomm needs 2.28 or later; " + nccl_advice};
    if (!missing.empty())
        return {false, "NCCL " + nccl_version_text(version) + " (" +
                           file_of(functions.get_version) + ") lacks " + missing + "(); " +
                           nccl_advice};
    return {true, nccl_version_text(version) + ", " + file_of(functions.get_version)};
}

}  // namespace

std::string nccl_version_text(int version) {
    // Up to 2.8 the factor of the major version was 1000.
    if (version < 10000)
        return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 100) + "." +
               std::to_string(version % 100);
    return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
           std::to_string(version % 100);
}

std::string other_nccl(const nccl::Library &ours) {
    void *program = dlsym(RTLD_DEFAULT, "ncclCommCuDevice");
    if (program == nullptr || program == reinterpret_cast<void *>(ours.comm_cu_device)) return {};
    return file_of(program);
}

namespace {

const std::string &first_obstacle(std::initializer_list<const GpuPart *> parts) {
    static const auto &none = *new std::string;  // never destroyed, as kernel_library()
    for (const GpuPart *part : parts)
        if (!part->usable) return part->text;
    return none;
}

}  // namespace

const std::string &GpuSupport::obstacle() const {
    return first_obstacle({&cuda, &devices, &nccl});
}

const std::string &GpuSupport::kernel_obstacle() const {
    return first_obstacle({&cuda, &devices, &kernels});
}

GpuSupport examine_gpu_support(const GpuLibraryNames &names) {
    GpuSupport support;
    GpuLibraries libraries{};
    Opened cuda;
    support.cuda = load_cuda(names.cuda, libraries.cuda, cuda);
    if (support.cuda.usable) support.devices = count_devices(libraries.cuda);
    else support.devices.text = "unknown without the CUDA runtime";
    support.kernels = examine_kernels(cuda.handle, support.kernel_functions);
    if (support.cuda.usable && support.devices.usable) support.runtime = libraries.cuda;
    support.nccl = load_nccl(names.nccl, libraries.nccl, libraries.nccl_version);
    if (support.cuda.usable && support.devices.usable && support.nccl.usable)
        support.libraries = libraries;
    return support;
}

const GpuLibraries &gpu_libraries() {
    static const GpuLibraries libraries = [] {
        const GpuSupport support = examine_gpu_support();
        if (!support.libraries)
            throw Error(VESCOMM_ERROR_UNSUPPORTED,
                        "collectives on device memory are not available: " + support.obstacle());
        return *support.libraries;
    }();
    return libraries;
}

}  // namespace vescomm::internal

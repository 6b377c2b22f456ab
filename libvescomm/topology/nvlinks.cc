// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/nvlinks.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "topology/nvml_functions.h"

namespace vescomm::internal {
namespace {

// More than any GPU has; NVML reports the end of the links as an invalid argument.
constexpr unsigned max_links = 64;

struct Close {
    void operator()(void *library) const { dlclose(library); }
};
using Handle = std::unique_ptr<void, Close>;

// Returns the name of the first function that is missing, or nothing.
std::string find_functions(void *library, nvml::Library &functions) {
    std::string missing;
    const auto find = [&](const char *symbol, auto *&function) {
        function =
            reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
        if (function == nullptr && missing.empty()) missing = symbol;
    };
#define VESCOMM_FIND(symbol, member, parameters) find(#symbol, functions.member);
    VESCOMM_NVML_FUNCTIONS(VESCOMM_FIND)
#undef VESCOMM_FIND
    find("nvmlErrorString", functions.error_string);
    return missing;
}

PciAddress address_of(const nvml::PciInfo &info) {
    return {info.domain, info.bus, info.device};
}

// The number of active links of a GPU to each device.
std::map<PciAddress, int> read_links(const nvml::Library &functions, nvml::Device device) {
    std::map<PciAddress, int> links;
    for (unsigned link = 0; link < max_links; ++link) {
        int state = 0;
        if (functions.get_nvlink_state(device, link, &state) != nvml::success) break;
        nvml::PciInfo remote{};
        if (state == nvml::enabled &&
            functions.get_nvlink_remote(device, link, &remote) == nvml::success)
            ++links[address_of(remote)];
    }
    return links;
}

// Links to devices that are no GPUs are links to switches.
void divide_links(std::vector<NvlinkGpu> &gpus) {
    for (NvlinkGpu &gpu : gpus)
        std::erase_if(gpu.gpu_links, [&](const auto &link) {
            const bool to_gpu =
                std::ranges::find(gpus, link.first, &NvlinkGpu::address) != gpus.end();
            if (!to_gpu) gpu.switch_links += link.second;
            return !to_gpu;
        });
}

// Throws the result of the call that failed.
std::vector<NvlinkGpu> read_gpus(const nvml::Library &functions) {
    const auto require = [](nvml::Result result) {
        if (result != nvml::success) throw result;
    };
    unsigned count = 0;
    require(functions.get_count(&count));
    std::vector<NvlinkGpu> gpus;
    for (unsigned index = 0; index < count; ++index) {
        nvml::Device device = nullptr;
        nvml::PciInfo info{};
        char name[96] = {};
        require(functions.get_device(index, &device));
        require(functions.get_pci_info(device, &info));
        if (functions.get_name(device, name, sizeof name) != nvml::success) name[0] = 0;
        gpus.push_back({name, address_of(info), 0, read_links(functions, device)});
    }
    divide_links(gpus);
    return gpus;
}

}  // namespace

std::string to_string(const PciAddress &address) {
    char text[32];
    std::snprintf(text, sizeof text, "%04x:%02x:%02x.0", address.domain, address.bus,
                  address.device);
    return text;
}

int links_between(const NvlinkGpu &a, const NvlinkGpu &b) {
    const auto direct = a.gpu_links.find(b.address);
    if (direct != a.gpu_links.end()) return direct->second;
    return std::min(a.switch_links, b.switch_links);
}

Nvlinks read_nvlinks(const std::string &library) {
    const Handle handle(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
    if (!handle) return {{}, "NVML cannot be loaded: " + std::string(dlerror())};
    nvml::Library functions{};
    if (const std::string missing = find_functions(handle.get(), functions); !missing.empty())
        return {{}, "NVML lacks " + missing + "(): the driver is too old"};
    if (const nvml::Result result = functions.init(); result != nvml::success)
        return {{}, std::string("NVML does not start: ") + functions.error_string(result)};
    Nvlinks nvlinks;
    try {
        nvlinks.gpus = read_gpus(functions);
    } catch (nvml::Result result) {
        nvlinks.missing = std::string("NVML fails: ") + functions.error_string(result);
    }
    functions.shutdown();
    return nvlinks;
}

}  // namespace vescomm::internal

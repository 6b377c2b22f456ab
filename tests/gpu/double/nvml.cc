// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The test double of NVML: the GPUs of tests/topology/eight_gpus.xml.
//
//     GPU_DOUBLE_NVML     result of nvmlInit_v2() (0)
//     GPU_DOUBLE_NVLINK   switch: 18 links of each GPU to switches (default); pairs: 4 links
//     between
//                         GPUs 2k and 2k + 1, and one that is not active; none: not supported
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "topology/nvml_functions.h"

namespace {

namespace nvml = vescomm::internal::nvml;

constexpr unsigned gpus = 8;

std::string setting(const char *name, const char *otherwise) {
    const char *value = std::getenv(name);
    return value == nullptr ? otherwise : value;
}

unsigned index_of(nvml::Device device) {
    return static_cast<unsigned>(reinterpret_cast<unsigned long>(device)) - 1;
}

unsigned bus_of(unsigned gpu) {
    return 0x10 * (gpu / 2 + 1) + 2 + 4 * (gpu % 2);
}

void fill(nvml::PciInfo *info, unsigned bus) {
    *info = {};
    info->bus = bus;
    std::snprintf(info->id, sizeof info->id, "%08X:%02X:00.0", 0U, bus);
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
    return std::stoi(setting("GPU_DOUBLE_NVML", "0"));
}

int nvmlShutdown() {
    return nvml::success;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = gpus;
    return nvml::success;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml::Device *device) {
    if (index >= gpus) return nvml::invalid_argument;
    *device = reinterpret_cast<nvml::Device>(static_cast<unsigned long>(index) + 1);
    return nvml::success;
}

int nvmlDeviceGetName(nvml::Device, char *name, unsigned bytes) {
    std::snprintf(name, bytes, "a double");
    return nvml::success;
}

int nvmlDeviceGetPciInfo_v3(nvml::Device device, nvml::PciInfo *info) {
    fill(info, bus_of(index_of(device)));
    return nvml::success;
}

int nvmlDeviceGetNvLinkState(nvml::Device, unsigned link, int *state) {
    const std::string kind = setting("GPU_DOUBLE_NVLINK", "switch");
    if (kind == "none") return nvml::not_supported;
    if (link >= (kind == "pairs" ? 5U : 18U)) return nvml::invalid_argument;
    *state = kind == "pairs" && link == 2 ? 0 : nvml::enabled;
    return nvml::success;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml::Device device, unsigned link, nvml::PciInfo *info) {
    if (setting("GPU_DOUBLE_NVLINK", "switch") == "pairs") fill(info, bus_of(index_of(device) ^ 1));
    else fill(info, 0xc0 + link % 4);
    return nvml::success;
}

const char *nvmlErrorString(int result) {
    return result == nvml::driver_not_loaded ? "Driver Not Loaded" : "Unknown Error";
}

}  // extern "C"

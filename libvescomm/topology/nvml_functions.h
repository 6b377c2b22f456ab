// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The types, constants and functions of NVML, the management library of NVIDIA's driver, that
// vescomm uses, in declarations of its own. The binary interface is that of the drivers since 460.
#pragma once

struct nvmlDevice_st;

namespace vescomm::internal::nvml {

using Result = int;  // nvmlReturn_t
using Device = nvmlDevice_st *;  // nvmlDevice_t

inline constexpr Result success = 0;
inline constexpr Result invalid_argument = 2;
inline constexpr Result not_supported = 3;
inline constexpr Result driver_not_loaded = 9;

inline constexpr int enabled = 1;  // NVML_FEATURE_ENABLED

// nvmlPciInfo_t
struct PciInfo {
    char legacy_id[16];
    unsigned domain, bus, device;
    unsigned ids, subsystem_ids;
    char id[32];
};

// The functions that vescomm calls: symbol, member of Library, parameters.
#define VESCOMM_NVML_FUNCTIONS(X)                                                             \
    X(nvmlInit_v2, init, ())                                                                  \
    X(nvmlShutdown, shutdown, ())                                                             \
    X(nvmlDeviceGetCount_v2, get_count, (unsigned *count))                                    \
    X(nvmlDeviceGetHandleByIndex_v2, get_device, (unsigned index, Device *device))            \
    X(nvmlDeviceGetName, get_name, (Device device, char *name, unsigned bytes))               \
    X(nvmlDeviceGetPciInfo_v3, get_pci_info, (Device device, PciInfo * info))                 \
    X(nvmlDeviceGetNvLinkState, get_nvlink_state, (Device device, unsigned link, int *state)) \
    X(nvmlDeviceGetNvLinkRemotePciInfo_v2, get_nvlink_remote,                                 \
      (Device device, unsigned link, PciInfo *info))

// Loaded functions. All of them return nvmlReturn_t, except error_string().
struct Library {
#define VESCOMM_MEMBER(symbol, member, parameters) Result(*member) parameters;
    VESCOMM_NVML_FUNCTIONS(VESCOMM_MEMBER)
#undef VESCOMM_MEMBER
    const char *(*error_string)(Result result);  // nvmlErrorString
};

}  // namespace vescomm::internal::nvml

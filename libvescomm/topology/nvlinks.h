// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <map>
#include <string>
#include <vector>

namespace vescomm::internal {

// Address of a device on PCI, function 0.
struct PciAddress {
    unsigned domain = 0, bus = 0, device = 0;

    auto operator<=>(const PciAddress &) const = default;
};

// "0000:1b:00.0"
std::string to_string(const PciAddress &address);

// A GPU and its NVLinks.
struct NvlinkGpu {
    std::string name;  // such as "NVIDIA H100 80GB HBM3"
    PciAddress address;
    int switch_links = 0;  // links to NVSwitches
    std::map<PciAddress, int> gpu_links;  // links to other GPUs, by their address
};

struct Nvlinks {
    std::vector<NvlinkGpu> gpus;  // in the order of nvidia-smi
    std::string missing;  // the reason why NVML is not usable; empty: it is
};

// Number of NVLinks over which two GPUs reach each other: direct ones, or those to NVSwitches,
// which join all GPUs of a node.
int links_between(const NvlinkGpu &a, const NvlinkGpu &b);

// Reads the GPUs and their NVLinks from NVML, which is loaded, and unloaded afterwards. Throws
// nothing but std::bad_alloc.
Nvlinks read_nvlinks(const std::string &library = "libnvidia-ml.so.1");

}  // namespace vescomm::internal

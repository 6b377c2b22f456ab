// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "topology/nvlinks.h"

namespace vescomm::internal {

// The part of a machine that lies between two devices, the nearest first.
enum class PciPath {
    same,  // one device
    pci_switch,  // a PCIe switch
    host_bridge,  // a PCIe host bridge, without a common switch
    numa_node,  // several host bridges of a NUMA node
    machine,  // the connections between NUMA nodes
    unknown,  // the operating system does not show one of the devices
};

// The GPUs and network cards of a machine, and the paths between them. A plain value, to be
// printed.
struct GpuTopology {
    struct Device {
        std::string name;  // of a card: that of its RDMA device, or of its network interface
        PciAddress address;
    };
    std::vector<Device> gpus, nics;
    std::vector<std::vector<int>> nvlinks;  // between two GPUs
    std::vector<std::vector<PciPath>> gpu_paths;  // between two GPUs
    std::vector<std::vector<PciPath>> nic_paths;  // between a GPU and a card
    std::string nvml;  // the reason why NVLinks are not known; empty: they are
};

// Reads PCI with hwloc: of this machine, or of a file that lstopo has written. GPUs are those of
// NVML, or NVIDIA's on PCI if NVML is not usable. Throws Error(SYSTEM).
GpuTopology read_gpu_topology(const Nvlinks &nvlinks, const std::string &xml_file = {});

// A table: a row for each GPU, a column for each GPU and each card. Empty if there is no GPU.
std::string describe(const GpuTopology &topology);

}  // namespace vescomm::internal

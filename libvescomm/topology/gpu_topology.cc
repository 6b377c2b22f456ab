// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/gpu_topology.h"

#include <hwloc.h>

#include <algorithm>
#include <memory>
#include <type_traits>

#include "base/error.h"

namespace vescomm::internal {
namespace {

constexpr unsigned nvidia = 0x10de;  // vendor on PCI
constexpr unsigned class_display = 0x03, class_network = 0x02;  // upper byte of a class on PCI

using Topology =
    std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, decltype(&hwloc_topology_destroy)>;

Topology load(const std::string &xml_file) {
    const auto require = [](int result, const std::string &what) {
        if (result != 0) throw Error(VESCOMM_ERROR_SYSTEM, "hwloc " + what);
    };
    hwloc_topology_t raw = nullptr;
    require(hwloc_topology_init(&raw), "does not start");
    Topology topology(raw, hwloc_topology_destroy);
    if (!xml_file.empty())
        require(hwloc_topology_set_xml(raw, xml_file.c_str()),
                "cannot read the topology in " + xml_file);
    require(hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT),
            "knows no devices");
    require(hwloc_topology_load(raw), "cannot read the hardware of this machine");
    return topology;
}

PciAddress address_of(hwloc_obj_t device) {
    const auto &pci = device->attr->pcidev;
    return {static_cast<unsigned>(pci.domain), pci.bus, pci.dev};
}

PciPath path_between(hwloc_obj_t a, hwloc_obj_t b) {
    if (a == nullptr || b == nullptr) return PciPath::unknown;
    if (a == b) return PciPath::same;
    for (hwloc_obj_t above = a->parent; above != nullptr; above = above->parent) {
        hwloc_obj_t other = b->parent;
        while (other != nullptr && other != above) other = other->parent;
        if (other == nullptr) continue;
        if (above->type == HWLOC_OBJ_BRIDGE)
            return above->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI ? PciPath::pci_switch
                                                                             : PciPath::host_bridge;
        return above->nodeset != nullptr && hwloc_bitmap_weight(above->nodeset) == 1
                   ? PciPath::numa_node
                   : PciPath::machine;
    }
    return PciPath::machine;
}

// Name of the RDMA device of a card, or of its network interface; empty if there is none.
std::string interface_of(hwloc_obj_t card) {
    std::string network;
    for (hwloc_obj_t child = card->io_first_child; child != nullptr; child = child->next_sibling) {
        if (child->type != HWLOC_OBJ_OS_DEVICE || child->name == nullptr) continue;
        if (child->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS) return child->name;
        if (child->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK && network.empty())
            network = child->name;
    }
    return network;
}

std::string text_of(PciPath path) {
    static const char *const texts[] = {"-", "switch", "bridge", "node", "system", "?"};
    return texts[static_cast<int>(path)];
}

// Left-aligned cells, at least 8 wide.
std::string row(const std::vector<std::string> &cells) {
    std::string text;
    for (const std::string &cell : cells) {
        text += cell;
        text.append(cell.size() < 8 ? 8 - cell.size() : 1, ' ');
    }
    return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
}

}  // namespace

GpuTopology read_gpu_topology(const Nvlinks &nvlinks, const std::string &xml_file) {
    const Topology loaded = load(xml_file);
    GpuTopology topology;
    topology.nvml = nvlinks.missing;
    std::vector<hwloc_obj_t> gpus, nics;
    for (const NvlinkGpu &gpu : nvlinks.gpus) {
        topology.gpus.push_back({gpu.name, gpu.address});
        gpus.push_back(hwloc_get_pcidev_by_busid(loaded.get(), gpu.address.domain, gpu.address.bus,
                                                 gpu.address.device, 0));
    }
    for (hwloc_obj_t device = hwloc_get_next_pcidev(loaded.get(), nullptr); device != nullptr;
         device = hwloc_get_next_pcidev(loaded.get(), device)) {
        const auto &pci = device->attr->pcidev;
        const unsigned kind = pci.class_id >> 8;
        if (kind == class_display && pci.vendor_id == nvidia && !nvlinks.missing.empty()) {
            topology.gpus.push_back({"GPU", address_of(device)});
            gpus.push_back(device);
        }
        const std::string name = kind == class_network ? interface_of(device) : "";
        if (name.empty()) continue;
        topology.nics.push_back({name, address_of(device)});
        nics.push_back(device);
    }
    for (std::size_t i = 0; i < gpus.size(); ++i) {
        auto &links = topology.nvlinks.emplace_back();
        auto &paths = topology.gpu_paths.emplace_back();
        for (std::size_t k = 0; k < gpus.size(); ++k) {
            const bool known = nvlinks.missing.empty() && i != k;
            links.push_back(known ? links_between(nvlinks.gpus[i], nvlinks.gpus[k]) : 0);
            paths.push_back(i == k ? PciPath::same : path_between(gpus[i], gpus[k]));
        }
        auto &to_nics = topology.nic_paths.emplace_back();
        for (const hwloc_obj_t nic : nics) to_nics.push_back(path_between(gpus[i], nic));
    }
    return topology;
}

std::string describe(const GpuTopology &topology) {
    if (topology.gpus.empty()) return "";
    std::string text;
    std::vector<std::string> heads = {""};
    for (std::size_t i = 0; i < topology.gpus.size(); ++i) {
        heads.push_back("GPU" + std::to_string(i));
        text += heads.back() + ": " + topology.gpus[i].name + ", " +
                to_string(topology.gpus[i].address) + "\n";
    }
    for (const GpuTopology::Device &nic : topology.nics) heads.push_back(nic.name);
    text += row(heads);
    for (std::size_t i = 0; i < topology.gpus.size(); ++i) {
        std::vector<std::string> cells = {heads[i + 1]};
        for (std::size_t k = 0; k < topology.gpus.size(); ++k)
            cells.push_back(topology.nvlinks[i][k] > 0
                                ? "NV" + std::to_string(topology.nvlinks[i][k])
                                : text_of(topology.gpu_paths[i][k]));
        for (const PciPath path : topology.nic_paths[i]) cells.push_back(text_of(path));
        text += row(cells);
    }
    text +=
        "NVn: n NVLinks. On PCIe: switch: through a switch; bridge: through a host bridge; node:\n"
        "within a NUMA node; system: between NUMA nodes.\n";
    if (!topology.nvml.empty()) text += "NVLinks are not known: " + topology.nvml + "\n";
    return text;
}

}  // namespace vescomm::internal

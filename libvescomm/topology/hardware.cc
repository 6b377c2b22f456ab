// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/hardware.h"

#include <hwloc.h>

#include <algorithm>
#include <memory>
#include <type_traits>

#include "base/error.h"

namespace vescomm::internal {

namespace {

using Topology =
    std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, decltype(&hwloc_topology_destroy)>;

Topology load(const std::string &synthetic) {
    const auto require = [](int result, const std::string &what) {
        if (result != 0) throw Error(VESCOMM_ERROR_SYSTEM, "hwloc " + what);
    };
    hwloc_topology_t raw = nullptr;
    require(hwloc_topology_init(&raw), "does not start");
    Topology topology(raw, hwloc_topology_destroy);
    if (!synthetic.empty())
        require(hwloc_topology_set_synthetic(raw, synthetic.c_str()),
                "does not understand \"" + synthetic + "\"");
    else
        require(hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM |
                                                  HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING),
                "cannot keep to the cores of this process");
    require(hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT),
            "knows no devices");
    require(hwloc_topology_load(raw), "cannot read the hardware of this machine");
    return topology;
}

int count(hwloc_topology_t topology, hwloc_obj_type_t type) {
    return std::max(0, hwloc_get_nbobjs_by_type(topology, type));
}

std::string plural(int count, const std::string &what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string size_text(std::uint64_t bytes) {
    return bytes >= 1 << 20 ? std::to_string(bytes >> 20) + " MiB"
                            : std::to_string(bytes >> 10) + " KiB";
}

}  // namespace

Hardware read_hardware(const std::string &synthetic) {
    const Topology topology = load(synthetic);
    Hardware hardware;
    hardware.threads = count(topology.get(), HWLOC_OBJ_PU);
    // Without core objects, each hardware thread counts as a core.
    hardware.cores = count(topology.get(), HWLOC_OBJ_CORE);
    const hwloc_obj_type_t core = hardware.cores > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    if (hardware.cores == 0) hardware.cores = hardware.threads;
    hardware.numa_nodes = count(topology.get(), HWLOC_OBJ_NUMANODE);
    for (const auto &[level, type] :
         {std::pair{2, HWLOC_OBJ_L2CACHE}, std::pair{3, HWLOC_OBJ_L3CACHE}})
        for (int i = 0; i < count(topology.get(), type); ++i) {
            const hwloc_obj_t object =
                hwloc_get_obj_by_type(topology.get(), type, static_cast<unsigned>(i));
            const Hardware::Caches one{
                level, object->attr->cache.size, 1,
                hwloc_get_nbobjs_inside_cpuset_by_type(topology.get(), object->cpuset, core)};
            const auto same =
                std::ranges::find_if(hardware.caches, [&](const Hardware::Caches &other) {
                    return other.level == one.level && other.bytes == one.bytes &&
                           other.cores == one.cores;
                });
            if (same == hardware.caches.end()) hardware.caches.push_back(one);
            else ++same->count;
        }
    for (hwloc_obj_t device = hwloc_get_next_osdev(topology.get(), nullptr); device != nullptr;
         device = hwloc_get_next_osdev(topology.get(), device))
        if (device->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK ||
            device->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS)
            hardware.networks.emplace_back(device->name);
    return hardware;
}

std::string describe(const Hardware &hardware) {
    std::string text = plural(hardware.cores, "core") + " with " +
                       plural(hardware.threads, "thread") + ", " +
                       plural(hardware.numa_nodes, "NUMA node") + "\n";
    for (const Hardware::Caches &caches : hardware.caches)
        text += "L" + std::to_string(caches.level) + ": " + std::to_string(caches.count) + " of " +
                size_text(caches.bytes) + ", each for " + plural(caches.cores, "core") + "\n";
    if (!hardware.networks.empty()) {
        text += "networks:";
        for (const std::string &name : hardware.networks) text += " " + name;
        text += "\n";
    }
    return text;
}

}  // namespace vescomm::internal

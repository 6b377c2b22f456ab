// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/run_cores.h"

#include <hwloc.h>
#include <hwloc/glibc-sched.h>

#include <memory>
#include <type_traits>

#include "base/error.h"

namespace vescomm::internal {

std::vector<cpu_set_t> split_cores(int ranks) {
    const Error error(VESCOMM_ERROR_SYSTEM,
                      "hwloc cannot find the cores of this machine; use --bind none");
    hwloc_topology_t raw = nullptr;
    if (hwloc_topology_init(&raw) != 0) throw error;
    const std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>,
                          decltype(&hwloc_topology_destroy)>
        topology(raw, hwloc_topology_destroy);
    if (hwloc_topology_load(raw) != 0) throw error;

    hwloc_obj_t root = hwloc_get_root_obj(raw);
    std::vector<hwloc_cpuset_t> sets(static_cast<std::size_t>(ranks), nullptr);
    const int core_depth = hwloc_get_type_or_below_depth(raw, HWLOC_OBJ_CORE);
    if (hwloc_distrib(raw, &root, 1, sets.data(), static_cast<unsigned>(ranks), core_depth, 0) != 0)
        throw error;
    std::vector<cpu_set_t> result(sets.size());
    bool good = true;
    for (std::size_t i = 0; i < sets.size(); ++i) {
        good = good && hwloc_cpuset_to_glibc_sched_affinity(raw, sets[i], &result[i],
                                                            sizeof result[i]) == 0;
        hwloc_bitmap_free(sets[i]);
    }
    if (!good) throw error;
    return result;
}

}  // namespace vescomm::internal

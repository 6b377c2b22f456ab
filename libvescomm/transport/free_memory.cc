// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/free_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>

namespace vescomm::internal {

namespace {

constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

// File names of one version of control groups.
struct GroupFiles {
    const char *limit;
    const char *used;
    // Keys in memory.stat for the page cache, including that of child groups.
    const char *inactive_cache;
    const char *active_cache;
};
constexpr GroupFiles version_1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file", "total_active_file"};
constexpr GroupFiles version_2{"memory.max", "memory.current", "inactive_file", "active_file"};

// Memory that /proc/meminfo reports as available, plus free swap.
std::uint64_t free_on_machine(const std::string &root) {
    std::ifstream file(root + "/proc/meminfo");
    std::string key, unit;
    std::uint64_t kilobytes = 0, free = 0;
    bool known = false;
    while (file >> key >> kilobytes) {
        std::getline(file, unit);
        if (key == "MemAvailable:") known = true;
        if (key == "MemAvailable:" || key == "SwapFree:") free += kilobytes * 1024;
    }
    return known ? free : unlimited;
}

// In version 2 a group without a limit contains "max", which does not parse as a number.
std::uint64_t free_in_group(const std::string &folder, const GroupFiles &names) {
    std::uint64_t limit = 0, used = 0;
    if (!(std::ifstream(folder + "/" + names.limit) >> limit) ||
        !(std::ifstream(folder + "/" + names.used) >> used))
        return unlimited;
    std::ifstream statistics(folder + "/memory.stat");
    std::string key;
    std::uint64_t value = 0;
    while (statistics >> key >> value)
        if (key == names.inactive_cache || key == names.active_cache) used -= std::min(used, value);
    return limit > used ? limit - used : 0;
}

// The minimum over a group and all its ancestors. In a container the path may be that of the host,
// which is not visible there; then the mount itself is the group of the container.
std::uint64_t free_along(const std::string &mount, std::string group, const GroupFiles &names) {
    std::uint64_t free = free_in_group(mount, names);
    for (; group.size() > 1; group.erase(group.rfind('/')))
        free = std::min(free, free_in_group(mount + group, names));
    return free;
}

// True if a comma-separated list contains the name.
bool lists(const std::string &list, const std::string &name) {
    return ("," + list + ",").find("," + name + ",") != std::string::npos;
}

// A line of /proc/self/cgroup is ID:CONTROLLERS:PATH; version 2 lists no controllers.
std::uint64_t free_in_groups(const std::string &root) {
    const std::string mount = root + "/sys/fs/cgroup";
    std::ifstream groups(root + "/proc/self/cgroup");
    std::uint64_t free = unlimited;
    for (std::string line; std::getline(groups, line);) {
        const std::size_t first = line.find(':');
        const std::size_t second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const std::string group = line.substr(second + 1);
        if (!group.starts_with('/')) continue;
        if (controllers.empty()) free = std::min(free, free_along(mount, group, version_2));
        if (lists(controllers, "memory"))
            free = std::min(free, free_along(mount + "/memory", group, version_1));
    }
    return free;
}

}  // namespace

std::uint64_t free_memory(const std::string &root) {
    return std::min(free_on_machine(root), free_in_groups(root));
}

}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/node_name.h"

#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace vescomm::internal {

std::string system_host_name() {
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    if (boot.empty()) {
        // Without /proc, use the host name.
        char host[256] = {};
        gethostname(host, sizeof host - 1);
        boot = host;
    }
    return boot;
}

std::string system_node_name() {
    std::string name = system_host_name();
    struct stat network {};
    if (stat("/proc/self/ns/net", &network) == 0)
        name += " " + std::to_string(network.st_dev) + ":" + std::to_string(network.st_ino);
    return name;
}

std::string processor_name() {
    // Read the first core only: reading the whole file is slow on machines with many cores.
    std::ifstream file("/proc/cpuinfo");
    constexpr int max_lines = 40;
    std::string line;
    for (int i = 0; i < max_lines && std::getline(file, line); ++i) {
        const std::size_t value = line.find(": ");
        if (line.starts_with("model name") && value != std::string::npos)
            return line.substr(value + 2);
    }
    utsname machine{};
    return uname(&machine) == 0 ? machine.machine : "unknown";
}

int processor_cores() {
    return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_CONF)));
}

}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/node_name.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace vescomm {

std::string system_node_name() {
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    if (boot.empty()) {
        // No /proc: the host's name must do.
        char host[256] = {};
        gethostname(host, sizeof host - 1);
        boot = host;
    }
    struct stat network {};
    if (stat("/proc/self/ns/net", &network) == 0)
        boot += " " + std::to_string(network.st_dev) + ":" + std::to_string(network.st_ino);
    return boot;
}

}  // namespace vescomm

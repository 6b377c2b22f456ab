// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace vescomm {

// A name that processes share when they can map one another's memory: the boot of the machine and
// its network namespace, in which the sockets live that descriptors are passed over. Containers
// with networks of their own are nodes of their own.
std::string system_node_name();

// A name that everything has in common that runs on the same cores: the boot of the machine.
std::string system_host_name();

// What the processors of this machine are called, and how many cores it has, whoever may use them.
std::string processor_name();
int processor_cores();

}  // namespace vescomm

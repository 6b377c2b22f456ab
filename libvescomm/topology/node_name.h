// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace vescomm::internal {

// Name of the node of this process. Processes with the same name can map one another's memory. The
// name is the boot ID of the machine and its network namespace: descriptors are passed over
// abstract Unix sockets, which belong to a network namespace. A container with its own network
// namespace is a separate node.
std::string system_node_name();

// Name of the host: the boot ID of the machine. Processes with the same name share cores.
std::string system_host_name();

// Model name of the processor.
std::string processor_name();
// Number of configured processors, including those that this process may not use.
int processor_cores();

}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "vescomm/vescomm.h"

namespace vescomm::internal {

// Formats the counters of vescomm_comm_get_counters() as Prometheus text. The library opens no port
// and starts no thread for metrics; the program decides where the text goes.
std::string metrics_text(const vescomm_comm_info_t &info, const vescomm_comm_counters_t &counters,
                         int communicator, bool broken);

}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "vescomm/vescomm.h"

namespace vescomm {

// What vescomm_comm_count() counts, as text for Prometheus. A library opens no port and needs no
// thread for that: the program decides where it goes.
std::string metrics_text(const vescomm_comm_info_t &info, const vescomm_comm_counters_t &counters,
                         int communicator, bool broken);

}  // namespace vescomm

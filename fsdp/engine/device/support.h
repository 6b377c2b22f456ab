// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fsdp/spec/spec.h"

namespace vescomm::fsdp::device {

// Throws Failure, with what to do, if an engine on device memory cannot have the specification, or
// this process has no GPU, kernels or libraries. No effect for host memory.
void require_support(const Spec &spec);
// Throws Failure, with what to do, if no engine on device memory can have the specification.
void require_options(const Spec &spec);

}  // namespace vescomm::fsdp::device

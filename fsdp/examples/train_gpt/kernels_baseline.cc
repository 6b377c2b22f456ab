// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The kernels for the compiler's default instruction set: SSE2 on x86-64, NEON on aarch64.
#include <cstddef>
#include <cstdint>

#include "fsdp/examples/train_gpt/kernels.h"

#define TRAIN_GPT_KERNELS baseline
#define TRAIN_GPT_LANES 4
#include "kernels.inl"

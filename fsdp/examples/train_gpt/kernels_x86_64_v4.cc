// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The kernels for x86-64-v4, that is AVX-512.
#include <cstddef>
#include <cstdint>

#include "fsdp/examples/train_gpt/kernels.h"

#if defined(__x86_64__)

// Enabled until the end of the file, because templates are compiled there.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("arch=x86-64-v4"))), apply_to = function)
#else
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#endif

#define TRAIN_GPT_KERNELS x86_64_v4
#define TRAIN_GPT_LANES 16
#include "kernels.inl"

#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif

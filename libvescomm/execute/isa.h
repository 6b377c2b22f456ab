// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vescomm::internal {

// The instruction sets for which kernels are compiled, slowest first. Each contains those before
// it, so one number describes a machine. The names are those of the x86-64 psABI.
#if defined(__x86_64__)
inline constexpr const char *isa_names[] = {"baseline", "x86-64-v3", "x86-64-v4"};
#else
inline constexpr const char *isa_names[] = {"baseline"};
#endif

// Number of isa_names that this machine can run, from the first on; at least 1.
inline int supported_isas() noexcept {
#if defined(__x86_64__)
    // Clang 14 does not know the levels by name, so features are tested one by one. It does not
    // know F16C, LZCNT and MOVBE either, but every processor with the other features has them.
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2")) {
        return 1;
    }
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512cd") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512vl")) {
        return 2;
    }
    return 3;
#else
    return 1;
#endif
}

}  // namespace vescomm::internal

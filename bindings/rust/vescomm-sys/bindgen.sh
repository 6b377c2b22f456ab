#!/usr/bin/env bash
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
#
# Writes src/bindings.rs from the C headers of this repository. Needs bindgen (Debian: bindgen, libclang-dev).
# Run it after a change of vescomm.h, gpu.h, gpu_kernels.h or planner.h; the tests of the crate report a
# difference.
set -euo pipefail
cd "$(dirname "$0")"
repository=../../..
headers=(libvescomm/include/vescomm/{vescomm,gpu,gpu_kernels}.h planner/include/vescomm/planner.h)

wrapper=$(mktemp --suffix=.h)
trap 'rm -f "$wrapper"' EXIT
for header in "${headers[@]}"; do echo "#include \"vescomm/${header##*/}\""; done >"$wrapper"
# bindgen ignores macros with casts. A constant variable has the type of the cast, and clang computes its
# value.
(cd "$repository" && cat "${headers[@]}") |
    sed -n 's/^#define \(VESCOMM_[A-Z0-9_]*\) ((\(vescomm_[a-z_]*_t\))-\{0,1\}[0-9]*)$/static const \2 constant_\1 = \1;/p' \
        >>"$wrapper"

{
    echo "// SPDX-FileCopyrightText: The vescomm authors"
    echo "// SPDX-License-Identifier: Apache-2.0"
    echo "//"
    echo "// Written by bindgen.sh: run it instead of editing this file."
    echo
    bindgen "$wrapper" --allowlist-function 'vescomm_.*' --allowlist-type 'vescomm_.*' \
        --allowlist-var '(constant_)?VESCOMM_.*' --size_t-is-usize \
        --no-doc-comments --no-layout-tests --rust-target 1.47 \
        --ctypes-prefix '::std::os::raw' \
        -- -I"$repository/libvescomm/include" -I"$repository/planner/include" |
        sed 's/constant_VESCOMM/VESCOMM/'
} >src/bindings.rs

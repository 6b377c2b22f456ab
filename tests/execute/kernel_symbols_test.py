#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Checks that the linker cannot keep code of one instruction set for all machines: the libraries of
loops define no symbol that other objects may share, and none outside their own namespace. Also
checks that no instruction multiplies and adds with one rounding, which would change bits.
kernel_symbols_test.py LIBRARY..."""

import re
import subprocess
import sys

# Symbols of sanitizers, also those without code: UBSan of clang adds the types of functions.
OF_SANITIZERS = ("__asan", "__ubsan", "__odr_asan", "__tsan", "typeinfo ")
SHARED = "WVui"  # weak, unique and indirect symbols, in the letters of nm
problems = []
for library in sys.argv[1:]:
    fsdp, isa = re.search(r"vescomm_(fsdp_)?kernels_(\w+)\.a$", library).groups()
    space = f"vescomm::{'fsdp' if fsdp else 'internal'}::{isa}::"
    known = space + ("add_exact_squares" if fsdp else "find_fold")
    listing = subprocess.run(["nm", "-C", "--defined-only", library], check=True,
                             capture_output=True, text=True).stdout
    for line in listing.splitlines():
        symbol = re.match(r"[0-9a-f]+ (\w) (.*)", line)
        if not symbol or symbol[2].startswith(OF_SANITIZERS):
            continue
        if symbol[1] in SHARED:
            problems.append(f"{library}: the linker may keep this {symbol[2]} for all machines")
        elif symbol[1].isupper() and not symbol[2].startswith(space):
            problems.append(f"{library}: {symbol[2]} is visible outside")
    if known not in listing:
        problems.append(f"{library}: there is no {known}; did nm work?")
    code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", library], check=True,
                          capture_output=True, text=True).stdout
    fused = sorted(set(re.findall(r"\s(vfn?m(?:add|sub)\w+|fn?m(?:add|sub|la|ls)\b)", code)))
    if fused:
        problems.append(f"{library}: {', '.join(fused)} round once instead of twice")
print("\n".join(problems) or f"{len(sys.argv) - 1} libraries define no shared symbol")
sys.exit(bool(problems))

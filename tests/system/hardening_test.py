#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Checks with readelf that the libraries are built with protections against memory errors.
hardening_test.py fortified|plain LIBRARY..."""

import re
import subprocess
import sys

FORTIFIED = sys.argv[1] == "fortified"
problems = []


def readelf(option, name):
    return subprocess.run(["readelf", "-W", option, name], check=True, capture_output=True,
                          text=True).stdout


def require(condition, text):
    if not condition:
        problems.append(text)


for library in sys.argv[2:]:
    dynamic = readelf("--dynamic", library)
    segments = readelf("--segments", library)
    symbols = readelf("--dyn-syms", library)
    require("SONAME" in dynamic and "LOAD" in segments, f"{library}: readelf prints nothing of it")
    require(re.search(r"BIND_NOW|\bNOW\b", dynamic),
            f"{library}: addresses are looked up while the program runs, in a table it can write")
    require("TEXTREL" not in dynamic, f"{library}: its code is written to when it is loaded")
    require("GNU_RELRO" in segments, f"{library}: tables of addresses stay writable")
    stack = re.search(r"GNU_STACK.*?\s([RWE ]+)\s+0x\w+$", segments, re.MULTILINE)
    require(stack and "E" not in stack[1], f"{library}: its stack can be run")
    for flags in re.findall(r"LOAD.*?\s([RWE ]{3})\s+0x\w+$", segments, re.MULTILINE):
        require(not ("W" in flags and "E" in flags), f"{library}: memory that is written can be run")
    require("__stack_chk_fail" in symbols, f"{library}: nothing guards the stack")
    require(not FORTIFIED or re.search(r"__\w+_chk\b", symbols.replace("__stack_chk_fail", "")),
            f"{library}: no call of the C library is fortified")
print("\n".join(problems) or f"{len(sys.argv) - 2} libraries are hardened")
sys.exit(bool(problems))

#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the code of the kernels that nvcc has left in a folder: all of the table, for sm_80, sm_90 and
sm_100, and no instruction that multiplies and adds with one rounding, which would change bits.
kernel_code_test.py FOLDER TABLE.H"""

import re
import sys
from pathlib import Path

if len(sys.argv) != 3:
    print("skipped: there is no nvcc that compiles for sm_80, sm_90 and sm_100")
    sys.exit(77)
folder = Path(sys.argv[1])
table = Path(sys.argv[2]).read_text(encoding="utf-8")
names = {f"vescomm_gpu_kernel_2_{name}" for name in re.findall(r"X\((\w+), \w+\)", table)}
problems = [] if names else ["the table of kernels was not understood"]
for architecture in ("compute_80", "compute_90", "compute_100"):
    file = folder / f"kernels.{architecture}.ptx"
    if not file.exists():
        problems.append(f"nvcc has not kept {file.name}: remove vescomm_gpu_kernels.fatbin, and build again")
        continue
    text = file.read_text(encoding="utf-8")
    missing = names - set(re.findall(r"\.entry (\w+)", text))
    if missing:
        problems.append(f"{architecture} lacks {', '.join(sorted(missing))}")
    # Integers have mad.lo; floats have fma, and div and sqrt with .rn round as on the host.
    fused = set(re.findall(r"\b(?:fma|mad)\.(?:rn|rz|rm|rp)[\w.]*", text))
    inexact = set(re.findall(r"\b(?:div|sqrt)\.(?:approx|full)[\w.]*|\w+\.ftz[\w.]*", text))
    if fused | inexact:
        problems.append(f"{architecture} has {', '.join(sorted(fused | inexact))}")
print("\n".join(problems) or f"{len(names)} kernels for three architectures")
sys.exit(bool(problems))

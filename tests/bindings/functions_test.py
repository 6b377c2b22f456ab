#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Checks that the C++ headers, the Python package and the Rust crate call every function of the C
headers. Exceptions are listed here, with a reason. functions_test.py SOURCE_ROOT"""

import re
import sys
import unittest
from pathlib import Path

ROOT = Path(sys.argv[1]).resolve()

VESCOMM = "libvescomm/include/vescomm/vescomm.h"
PLANNER = "planner/include/vescomm/planner.h"
GPU = "libvescomm/include/vescomm/gpu.h"
KERNELS = "libvescomm/include/vescomm/gpu_kernels.h"

PROCESS = "has no object; a program calls the C function"
ERRORS = "an error is an exception of a class for each status"
SIGNALS = "for programs with waits of their own; the package's waits handle signals themselves"
PLANNING = "for planning memory before there is a communicator, as the FSDP engine does; a program calls the C function"


def code_of(text):
    """The text without comments, of C, C++ or Rust."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)


def functions_of(header):
    text = code_of((ROOT / header).read_text(encoding="utf-8"))
    return set(re.findall(r"^VESCOMM_API [^;]*?\b(vescomm_\w+)\(", text, re.MULTILINE | re.DOTALL))


# Each binding: its files, the headers whose functions it calls, and the functions that it does not call.
BINDINGS = {
    "vescomm.hpp": (["libvescomm/include/vescomm/vescomm.hpp"], [VESCOMM], {
        "vescomm_comm_create_from_all_gather": "takes a C function; Communicator(handle) owns the result",
        "vescomm_get_version": PROCESS,
        "vescomm_is_interrupted": PROCESS,
        "vescomm_reduce_scatter_v_get_partial_bytes": PLANNING,
        "vescomm_set_interrupt": PROCESS,
        "vescomm_set_log": PROCESS,
        "vescomm_status_get_name": PROCESS,
        "vescomm_trace_add_span": "a program calls it with Communicator::get()",
        "vescomm_trace_add_span_with": "a program calls it with Communicator::get()",
        "vescomm_trace_get_seconds": PROCESS,
    }),
    # The C++ of planner.h is planner.hpp, which has its own functions.
    "gpu.hpp": (["libvescomm/include/vescomm/gpu.hpp"], [GPU], {}),
    "gpu_kernels.hpp": (["libvescomm/include/vescomm/gpu_kernels.hpp"], [KERNELS], {}),
    "Python": (["bindings/python/core/*.cc", "bindings/python/core/*.h"], [VESCOMM, PLANNER, GPU, KERNELS], {
        "vescomm_is_interrupted": SIGNALS,
        "vescomm_memory_get_partial_bytes": PLANNING,
        "vescomm_plan_get_units": "plan_model() knows its units, and returns a layout for each",
        "vescomm_reduce_scatter_v_get_partial_bytes": PLANNING,
        "vescomm_status_get_name": ERRORS,
        "vescomm_trace_add_span": "add_span() takes values too",
    }),
    "Rust": (["bindings/rust/vescomm/src/**/*.rs"], [VESCOMM, PLANNER, GPU, KERNELS], {
        "vescomm_is_interrupted": PROCESS + " of vescomm-sys",
        "vescomm_memory_get_data": "a program sees a memory through its parts",
        "vescomm_memory_get_partial_bytes": PLANNING,
        "vescomm_reduce_scatter_v_get_partial_bytes": PLANNING,
        "vescomm_set_interrupt": PROCESS + " of vescomm-sys",
        "vescomm_trace_add_span_with": "not wrapped yet; vescomm-sys has it",
    }),
}


class Bindings(unittest.TestCase):
    def test_headers_declare_functions(self):
        self.assertGreaterEqual(len(functions_of(VESCOMM)), 77)
        self.assertGreaterEqual(len(functions_of(PLANNER)), 8)
        self.assertGreaterEqual(len(functions_of(GPU)), 23)
        self.assertGreaterEqual(len(functions_of(KERNELS)), 14)

    def test_comments_are_not_calls(self):
        text = "a(); // vescomm_b()\n/* vescomm_c();\nvescomm_d() */ vescomm_e();"
        self.assertEqual(re.findall(r"vescomm_\w+", code_of(text)), ["vescomm_e"])

    def test_bindings_call_every_function(self):
        for name, (patterns, headers, exceptions) in BINDINGS.items():
            with self.subTest(name):
                files = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
                self.assertTrue(files, f"there are no files {patterns}")
                text = "\n".join(code_of(path.read_text(encoding="utf-8")) for path in files)
                called = set(re.findall(r"\bvescomm_\w+", text))
                # Kernels have C++ functions of the same names, which Python calls.
                called |= {f"vescomm_gpu_{call}" for call in re.findall(r"\bgpu::(\w+)", text)}
                declared = set().union(*(functions_of(header) for header in headers))
                missing = declared - called
                self.assertEqual(
                    sorted(missing - set(exceptions)), [],
                    f"{name} calls none of these; wrap them, or list them with a reason in {Path(__file__).name}")
                self.assertEqual(
                    sorted(set(exceptions) - missing), [],
                    f"{name} calls these, or the header lacks them; remove them from {Path(__file__).name}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])

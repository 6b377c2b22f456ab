#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Checks that every --gtest_filter of the build selects a test: GoogleTest reports success when none
is selected, so a renamed test would never run again. filters_test.py BUILD_ROOT"""

import json
import subprocess
import sys
from pathlib import Path


def selected(command):
    """Names of the tests that a command would run."""
    output = subprocess.run(
        [*command, "--gtest_list_tests"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    return [line.strip() for line in output.splitlines() if line.startswith("  ")]


def main():
    tests = json.loads((Path(sys.argv[1]) / "meson-info/intro-tests.json").read_text())
    filtered = [t for t in tests if any(a.startswith("--gtest_filter") for a in t["cmd"])]
    built = [t for t in filtered if Path(t["cmd"][0]).exists()]
    empty = [t["name"] for t in built if not selected(t["cmd"])]
    for name in empty:
        print(f"the filter of test {name} selects nothing", file=sys.stderr)
    print(f"{len(built)} of {len(filtered)} filters checked, {len(empty)} problems")
    return 1 if empty or not filtered else 0


if __name__ == "__main__":
    sys.exit(main())

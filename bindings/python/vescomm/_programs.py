# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""The programs of vescomm that the package brings along: they replace the process of Python."""

import os
import sys


def _run(name: str) -> None:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)
    if not os.access(path, os.X_OK):
        sys.exit(f"{name}: this package has no programs; a wheel made by pip has them")
    sys.stdout.flush()
    os.execv(path, [path, *sys.argv[1:]])


def run() -> None:
    """Runs vescomm-run."""
    _run("vescomm-run")


def info() -> None:
    """Runs vescomm-info."""
    _run("vescomm-info")


def plan() -> None:
    """Runs vescomm-plan."""
    _run("vescomm-plan")


def perf() -> None:
    """Runs vescomm_perf."""
    _run("vescomm_perf")

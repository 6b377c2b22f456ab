# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""The end of with blocks and of the process: the other ranks do not wait for a program that failed."""

from __future__ import annotations

import atexit
import contextlib
import sys
from typing import Optional

from . import _core
from .errors import Error


def is_failure(error: Optional[BaseException]) -> bool:
    """Returns whether an exception, with which a with block ends, is a failure of the program: sys.exit()
    with code 0 or None is not.
    """
    if isinstance(error, SystemExit):
        return error.code is not None and error.code != 0
    return error is not None


def reason_of(error: BaseException) -> str:
    """Describes an exception in one line, for the other ranks."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # of the program's own __str__()
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _end() -> None:
    # The interpreter sets these when it prints an exception that nothing caught.
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    interactive = hasattr(sys, "ps1") or sys.flags.interactive
    ended_by = None if error is None or interactive else f"its program ended with {reason_of(error)}"
    with contextlib.suppress(Error):
        _core.end_all(ended_by)


atexit.register(_end)

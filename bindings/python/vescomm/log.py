# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""The log of vescomm as one of Python's logging."""

from __future__ import annotations

import atexit
import logging
import threading
from typing import Optional

from . import _core

__all__ = ["use_logging"]

_levels = {0: logging.ERROR, 1: logging.WARNING, 2: logging.INFO, 3: logging.DEBUG}
_thread: Optional[threading.Thread] = None


def _forward(logger: logging.Logger) -> None:
    while True:
        line = _core.take_log_line()
        if line is None:
            return
        level, text = line
        logger.log(_levels.get(level, logging.DEBUG), "%s", text)


def _stop() -> None:
    global _thread
    if _thread is not None:
        _core.redirect_log(False)
        _thread.join()
        _thread = None


def use_logging(logger: Optional[logging.Logger] = None) -> None:
    """Redirects the log of this process to a logger. A thread of Python calls the logger.

    The variable VESCOMM_LOG selects the lines: "info" also gives the launcher, nodes, transports and why
    a communicator broke, "debug" also the algorithms.

    Args:
        logger: None: logging.getLogger("vescomm").

    Collective: no.  Blocking: no.  Threads: one at a time.  Since: 0.1
    """
    global _thread
    if logger is not None and not callable(getattr(logger, "log", None)):
        raise TypeError(
            f"logger is of type {type(logger).__name__}; give a logging.Logger, such as "
            "logging.getLogger(name) returns"
        )
    _stop()
    _core.redirect_log(True)
    _thread = threading.Thread(
        target=_forward, args=(logger or logging.getLogger("vescomm"),), name="vescomm-log", daemon=True
    )
    _thread.start()


def use_standard_error() -> None:
    """Directs the log back to standard error; lines so far reach the logger first. Since: 0.1"""
    _stop()


atexit.register(_stop)

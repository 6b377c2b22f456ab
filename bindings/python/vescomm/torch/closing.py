# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""The end of groups and of the process: no rank waits for a process that has ended, and a process
that ends waits for no other one for long.
"""

import atexit
import contextlib
import multiprocessing.util
import os
import sys
import threading
import time

# Seconds that a process waits at its end for the other ranks to end their use of the groups.
PATIENCE = 10.0

_registered_in = None  # process
_ending = False  # the process ends


def process_ends():
    return _ending


def start(link):
    """Finalizes the communicator of a link in a thread, which it returns. The process ends after it."""
    thread = threading.Thread(target=_close, args=(link,), name=f"vescomm {link.name} close")
    try:
        thread.start()
    except RuntimeError:
        # There are no threads left, or it is the end of a process of Python 3.12.0 or 3.12.1, which
        # starts none then. The timeout of the group limits this wait.
        link.finalize()
        return None
    return thread


def _close(link):
    # It waits in the library, so that the end of the process can be noticed here.
    waiting = threading.Thread(target=link.finalize, daemon=True)
    waiting.start()
    end = None
    while waiting.is_alive():
        waiting.join(0.05)
        if end is None and (_ending or not threading.main_thread().is_alive()):
            end = time.monotonic() + PATIENCE
        if end is not None and time.monotonic() > end:
            link.abort(f"the process of rank {link.rank} ended, and did not wait longer")
            waiting.join(1.0)
            return


def register():
    """Has this process close its groups when it ends."""
    global _registered_in
    if _registered_in == os.getpid():
        return
    _registered_in = os.getpid()
    # Before the end of the package, because later functions run first.
    atexit.register(_end)
    # A process that multiprocessing has forked runs no functions of atexit.
    multiprocessing.util.Finalize(None, _end, exitpriority=100)


def _end():
    global _ending
    from .link import open_links

    _ending = True
    error = sys.exc_info()[1] or getattr(sys, "last_exc", getattr(sys, "last_value", None))
    if isinstance(error, SystemExit) and not error.code:
        error = None
    links = list(open_links.values())
    for link in links:
        if error is not None:
            link.abort(f"the process of rank {link.rank} ended with {describe(error)}")
        link.close()
    for link in links:
        link.join()


def describe(error):
    text = name = type(error).__name__
    with contextlib.suppress(Exception):  # of the program's own __str__()
        text = f"{name}: {error}" if str(error) else name
    return text if len(text) < 500 else text[:497] + "..."

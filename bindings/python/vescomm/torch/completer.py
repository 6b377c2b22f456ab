# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""The threads that complete operations for which nobody waits."""

import contextlib
import queue
import threading

_this = threading.local()  # completer: that this thread serves, and not in callbacks


class Completer:
    """Completes the operations that it is given. Its thread starts with the first of them.

    A thread that runs the callbacks of a future may wait there for another operation, so another
    thread takes over meanwhile.
    """

    def __init__(self, name):
        self._name = name
        self._queue = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._serving = 0  # threads that are not in callbacks; guarded by the lock
        self._ended = False

    def give(self, operation):
        self._queue.put(operation)
        if self._serving == 0:
            with self._lock:
                self._serve()

    def end(self):
        """Ends the threads after the operations that they have."""
        self._ended = True
        self._queue.put(None)

    @staticmethod
    @contextlib.contextmanager
    def callbacks():
        """Around callbacks of futures."""
        completer = getattr(_this, "completer", None)
        if completer is None:
            yield  # a thread of the program
            return
        _this.completer = None
        with completer._lock:
            completer._serving -= 1
            if completer._has_more():
                completer._serve()
        try:
            yield
        finally:
            _this.completer = completer
            with completer._lock:
                completer._serving += 1

    def _serve(self):
        if self._serving == 0:
            self._serving = 1
            threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def _run(self):
        _this.completer = self
        while True:
            more = self._step()
            with self._lock:
                # After callbacks another thread may have taken over.
                if not more or self._serving > 1:
                    self._serving -= 1
                    return

    def _has_more(self):
        return not self._queue.empty()


class InOrder(Completer):
    """For collectives, which complete in the order of their starts."""

    def _step(self):
        operation = self._queue.get()
        if operation is not None:
            operation.complete()
        return not self._ended or not self._queue.empty()


class InAnyOrder(Completer):
    """For messages."""

    _shortest, _longest = 50e-6, 2e-3  # seconds between two tests

    def __init__(self, name):
        super().__init__(name)
        self._running = []
        self._pause = None

    def _step(self):
        try:
            operation = self._queue.get(timeout=self._pause)
            if operation is not None:
                self._running.append(operation)
                self._pause = self._shortest
        except queue.Empty:
            self._pause = min(2 * self._pause, self._longest)
        for operation in list(self._running):
            # Removed before: its callbacks may take long, and another thread takes over.
            if operation.request_is_complete():
                self._running.remove(operation)
                operation.complete()
                self._pause = self._shortest
                break
        if not self._running:
            self._pause = None
        return not self._ended or bool(self._running) or not self._queue.empty()

    def _has_more(self):
        return bool(self._running) or super()._has_more()

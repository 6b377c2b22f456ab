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
        # Garbage that is collected in a thread that holds it may give another operation.
        self._lock = threading.RLock()
        self._serving = 0  # threads that are not in callbacks; guarded by the lock
        self._ended = False

    def give(self, operation):
        self._queue.put(operation)
        self.start()

    def start(self):
        """Starts the thread, if operations need one. Raises RuntimeError if no thread can start;
        the operations are kept until another call starts it.
        """
        # After end() a thread may be about to return.
        if self._serving == 0 or self._ended:
            with self._lock:
                if self._has_more():
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
                # Without another thread this one goes on after the callbacks.
                with contextlib.suppress(RuntimeError):
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
            try:
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
            except Exception:
                self._serving = 0
                raise

    def _run(self):
        _this.completer = self
        while True:
            self._step()
            with self._lock:
                # After callbacks another thread may have taken over.
                if self._serving > 1 or (self._ended and not self._has_more()):
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


class InAnyOrder(Completer):
    """For messages."""

    _shortest, _longest = 50e-6, 2e-3  # seconds between two tests

    def __init__(self, name):
        super().__init__(name)
        self._running = []
        self._pause = self._shortest

    # A thread that returns from callbacks may be here at the same time as the one that serves.
    def _step(self):
        pause = self._pause
        try:
            operation = self._queue.get(timeout=pause if self._running else None)
            if operation is not None:
                self._running.append(operation)
                self._pause = self._shortest
        except queue.Empty:
            self._pause = min(2 * pause, self._longest)
        for operation in list(self._running):
            # Removed before: its callbacks may take long, and another thread takes over.
            if operation.request_is_complete():
                self._running.remove(operation)
                self._pause = self._shortest
                operation.complete()
                break

    def _has_more(self):
        return bool(self._running) or super()._has_more()

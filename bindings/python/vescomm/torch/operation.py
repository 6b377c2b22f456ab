# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Operations that are under way.

A request of the library makes progress in the waits of its communicator. Three kinds of operations
need a thread that waits for them: those with a future, those whose Work was dropped without a wait,
and large ones, which are to overlap with what the program computes. Small operations are complete
soon after their start, and a wait in the caller's thread costs less than waking another one.
"""

import threading

from .callbacks import CallbackFuture
from .completer import Completer
from .errors import timeout_of

# Bytes from which on an operation gets a thread at once.
LARGE = 32 * 1024


class OperationFuture(CallbackFuture):
    """The future of an operation. A wait in Python needs no other thread."""

    def wait(self):
        try:
            self.operation.wait()
        except Exception:
            pass  # the future raises it
        return super().wait()


class Operation:
    """A request that has started, the tensors that it uses, and what follows its completion."""

    is_message = False

    def __init__(self, link, request, what, tensors, result, then=None, limit=None):
        self.link = link
        self.request = request
        self.what = what
        self.limit = limit  # seconds, after which it breaks the communicator
        self.result = result
        self.error = None
        self.done = False
        self.given = False  # to a thread
        self._tensors = tensors
        self._then = then
        # Garbage that is collected in a thread that holds it may test the operation.
        self._lock = threading.RLock()
        self._future = None
        self._before_done = None

    def wait(self, seconds=None):
        """Returns when the operation is complete. Raises its failure, or a timeout after `seconds`."""
        if not self.done:
            self._finish(self._wait(seconds))
        if self.error is not None:
            raise self.error

    def test(self):
        if not self.done:
            try:
                complete = self.request.test()
                error = None
            except Exception as raised:
                complete, error = True, self.link.failed(raised, self.what)
            if complete:
                self._finish(error)
        return self.done

    def complete(self):
        """Ends the operation in a thread that nobody waits for; raises nothing."""
        try:
            self.wait()
        except Exception:
            pass  # the Work and the future have it

    def request_is_complete(self):
        try:
            return self.done or self.request.test()
        except Exception:
            return True

    def source(self):
        raise RuntimeError(f"vescomm: {self.what} has no source rank; only a receive has one")

    def future(self):
        with self._lock:
            done, future = self.done, self._future
            if future is None:
                future = OperationFuture()
                future.operation = self
                # Messages may complete in any order.
                future.in_order = not self.is_message
                if not done:
                    self._future = future
        if done:
            self._settle(future)
        else:
            self.link.complete_in_thread(self)
        return future

    def before_done(self, call):
        """Calls a function when the operation ends, before any wait returns. At once if it has ended."""
        with self._lock:
            if not self.done:
                self._before_done = call
                return
        call()

    def _wait(self, seconds):
        """The failure of the operation, or None. Raises a timeout after `seconds`."""
        try:
            complete = self.link.wait(self.request, self.what, self.limit, seconds)
        except Exception as error:
            return self.link.failed(error, self.what)
        if not complete:
            raise timeout_of(self.what, seconds)
        return None

    def _finish(self, error):
        """Ends the operation. Of several threads that see its end, one has an effect."""
        with self._lock:
            if self.done:
                return
            if error is None and self._then is not None:
                try:
                    self._then()
                except Exception as raised:
                    error = raised
            self.error = error
            self._tensors = self._then = None
            if self._before_done is not None:
                self._before_done()
                self._before_done = None
            self.done = True
            future, self._future = self._future, None
        if future is not None:
            self._settle(future)

    def _settle(self, future):
        future.operation = _DONE
        # Callbacks that torch runs, here, may wait for other operations.
        with Completer.callbacks():
            future.settle(self.result, self.error)


class _Done:
    def wait(self):
        pass


_DONE = _Done()

# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Callbacks of the futures of collectives, such as those of hooks of DDP.

A callback may start collectives, which must start in the same order on every rank. But when a
collective is complete, the program has come further on one rank than on another. So callbacks run one
after another, in the order in which the program gave them to then(), and what a callback gives to
then() runs right after it. The collectives that they start have a communicator of their own, whose
order the program does not disturb.
"""

import collections
import contextlib
import threading

import torch

from . import closing


class _This(threading.local):
    callbacks = None  # that this thread runs


_this = _This()


def running():
    """The Callbacks that this thread runs; None: it is another thread."""
    return _this.callbacks


class _Failure:
    """The value of a future that failed. C++ code, such as the reducer of DDP, takes a value as an
    object of Python and looks for tensors by pickling it: it gets the exception there, and would
    access memory that does not exist if it found none.
    """

    def __init__(self, error):
        self.error = error

    def __reduce_ex__(self, protocol):
        raise self.error

    # The reducer says that it is "unable to cast" this "to Tensor".
    def __repr__(self):
        return f"the failure of a callback ({closing.describe(self.error)})"


def _raise(failure):
    raise failure.error


class CallbackFuture(torch.futures.Future):
    """A future whose callbacks run in order: that of a collective, or of a callback."""

    callbacks = None  # the Callbacks that run those of this future; None: torch runs them at once

    def wait(self):
        if _this.callbacks is not None and not self.done():
            _this.callbacks.run_first(self)
        return super().wait()

    def then(self, callback):
        callbacks = self.callbacks and (_this.callbacks or self.callbacks)
        if callbacks is None:
            return super().then(callback)
        result = CallbackFuture()
        result.callbacks = self.callbacks
        callbacks.add(self, callback, result)
        return result

    def add_done_callback(self, callback):
        self.then(callback)

    def settle(self, value, error):
        """Sets the value, or the exception that a wait raises."""
        if error is None:
            self.set_result(value)
        else:
            self._set_unwrap_func(_raise)
            self.set_result(_Failure(error))


class Callbacks:
    """Runs the callbacks of the collectives of one group, in a thread that the first of them starts."""

    def __init__(self, name):
        self._name = name
        # Each entry is a future, a callback, and the future of its result.
        self._waiting = collections.deque()  # guarded by the condition
        self._added = []  # by the callback that runs
        self._changed = threading.Condition()
        self._runs = False  # the thread; guarded by the condition
        self._ended = False

    def add(self, future, callback, result):
        entry = (future, callback, result)
        if _this.callbacks is self:
            self._added.append(entry)
            return
        with self._changed:
            if not self._runs:
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
                self._runs = True
            self._waiting.append(entry)
            self._changed.notify()

    def run_first(self, result):
        """Runs the callback of a result now, if it has not run: the callback that runs waits for it."""
        with self._changed:
            for entries in (self._added, self._waiting):
                entry = next((each for each in entries if each[2] is result), None)
                if entry is not None:
                    entries.remove(entry)
                    break
        if entry is not None:
            self._call(*entry)

    def end(self):
        """Ends the thread after the callbacks that it has."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def _run(self):
        _this.callbacks = self
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ended)
                if not self._waiting:
                    self._runs = False
                    return
                entry = self._waiting.popleft()
            self._call(*entry)
            del entry  # and its tensors
            added, self._added = self._added, []
            with self._changed:
                self._waiting.extendleft(reversed(added))

    def _call(self, future, callback, result):
        if not future.done():
            self.run_first(future)
        with contextlib.suppress(Exception):  # the callback gets it from the future
            torch.futures.Future.wait(future)
        value = error = None
        try:
            value = callback(future)
        except BaseException as raised:
            error = raised
        result.settle(value, error)

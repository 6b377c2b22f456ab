# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Callbacks of the futures of collectives, such as those of hooks of DDP.

A callback may start collectives, which must start in the same order on every rank. But when a
collective is complete, the program has come further on one rank than on another. So the callbacks that
a thread of the program gives to then() run one after another, in the order in which it gives them, and
what a callback gives to then() runs right after it. The collectives that they start have a communicator
of their own, whose order the program does not disturb.
"""

import collections
import contextlib
import copy
import threading
import traceback

import torch

from . import closing

# Seconds after which a thread without callbacks ends.
_IDLE = 5


class _This(threading.local):
    callbacks = None  # that this thread runs
    given = None  # the Callbacks of this thread of the program


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
        places = traceback.extract_tb(self.error.__traceback__)
        where = f" at {places[-1].filename}:{places[-1].lineno}" if places else ""
        return f"the failure of a callback ({closing.describe(self.error)}{where})"


def _raise(failure):
    error = failure.error
    # Each wait adds its function to what it raises. A copy, because the garbage collector does not find
    # the tensors of a cycle through a future of C++.
    with contextlib.suppress(Exception):
        error = copy.copy(error).with_traceback(error.__traceback__)
    raise error


class CallbackFuture(torch.futures.Future):
    """A future whose callbacks run in order: that of a collective, or of a callback."""

    in_order = True  # False: torch runs the callbacks, at once

    def wait(self):
        if _this.callbacks is not None and not self.done():
            _this.callbacks.run_first(self)
        return super().wait()

    def then(self, callback):
        if not self.in_order:
            return super().then(callback)
        result = CallbackFuture()
        callbacks = _this.callbacks or _this.given
        if callbacks is None:
            callbacks = _this.given = Callbacks(threading.current_thread().name)
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
    """Runs the callbacks that one thread of the program gives, in a thread."""

    def __init__(self, name):
        self._name = f"vescomm callbacks of {name}"
        # Each entry is a future, a callback, and the future of its result.
        self._waiting = collections.deque()  # guarded by the condition
        self._added = []  # by the callback that runs
        self._changed = threading.Condition()
        self._runs = False  # the thread; guarded by the condition

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

    def _run(self):
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting, timeout=_IDLE)
                if not self._waiting:
                    self._runs = False
                    return
                entry = self._waiting.popleft()
            self._call(*entry)
            _this.callbacks = None
            del entry  # and its tensors
            added, self._added = self._added, []
            with self._changed:
                self._waiting.extendleft(reversed(added))

    def _call(self, future, callback, result):
        _this.callbacks = self
        if not future.done():
            self.run_first(future)
        with contextlib.suppress(Exception):  # the callback gets it from the future
            torch.futures.Future.wait(future)
        value = error = None
        try:
            value = callback(future)
        except BaseException as raised:
            # Without this function, which knows the result: see _raise().
            error = raised.with_traceback(raised.__traceback__.tb_next)
        # Torch's own callbacks, such as those of collect_all(), run where it happens to call them.
        _this.callbacks = None
        try:
            result.settle(value, error)
        finally:
            _this.callbacks = self

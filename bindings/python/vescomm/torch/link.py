# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""The communicator of one group: its calls, its waits, and its end."""

import contextlib
import datetime
import os
import threading
import warnings

import torch

from .. import _core, errors
from . import bootstrap, closing
from .completer import InAnyOrder, InOrder
from .errors import failure_of, timeout_of

# Links whose communicator is not finalized.
open_links: dict = {}


class Link:
    """Starts calls of one group on its communicator, and waits for them.

    Threads: safe. Calls start one at a time, in the order in which threads take the lock; waits hold
    no lock. The library permits no call beside finalize(): its beginning is the end of calls.
    """

    def __init__(self, store, rank, size, timeout, name, tag=None, watch=None):
        self.store = store
        self.rank = rank
        self.size = size
        self.name = name
        self.seconds = timeout.total_seconds()
        self._process = os.getpid()
        self._limit = None  # seconds; shorter than those of the communicator
        self._parent = None  # of a Link for callbacks
        self._lock = threading.Lock()
        self._collectives = InOrder(f"vescomm {name} collectives")
        self._messages = InAnyOrder(f"vescomm {name} messages")
        self._of_callbacks = None  # the Link for calls of callbacks
        self._of_callbacks_failure = None  # why there is none
        self._of_callbacks_lock = threading.Lock()
        self._closing = None
        self._closed = False  # close() has begun
        self._finalizing = False  # finalize() has begun; guarded by the lock
        self.failure = None
        self.calls = 0  # started so far, without messages
        self.monitored = 0  # calls of monitored_barrier() so far
        # `identity`: a text that the ranks of no other communicator have.
        created, self.identity = bootstrap.create(
            store, rank, size, self.seconds, name, tag, watch
        )
        self.comm = _core.Communicator(created)
        self.has_free_cores = _cores_of_a_rank(self.comm) >= torch.get_num_threads() + 1
        open_links[id(self)] = self
        closing.register()

    def start(self, kept, call, *arguments, is_message=False):
        """Starts a call of the communicator, and returns its request. The request keeps an object,
        the owner of the memory of the arguments, until it is complete: also if nobody keeps the
        request, as after an exception of a signal handler.

        Args:
            is_message: True: not all ranks of the group take part, so it is not counted.
        """
        try:
            with self._lock:
                if self._finalizing:
                    self._refuse()
                request = call(self.comm, *arguments, kept)
                if not is_message:
                    self.calls += 1
                return request
        except Exception as error:
            raise self.failed(error, f"starting a call on rank {self.rank}") from None

    def of_callbacks(self):
        """The Link for collectives that callbacks start on this group (callbacks.py). The first one
        that a callback starts creates it, so this is collective. Raises the failure of that, or of
        this Link meanwhile.
        """
        with self._of_callbacks_lock:
            if self._of_callbacks_failure is not None:
                raise self._of_callbacks_failure
            if self._of_callbacks is None:
                try:
                    self._of_callbacks = self._make_of_callbacks()
                except Exception as error:
                    why = self.failed(error, "creating a communicator for callbacks")
                    self._of_callbacks_failure = why
                    raise why from None
            return self._of_callbacks

    def _make_of_callbacks(self):
        tag = f"callbacks/{self.identity}"
        store = torch.distributed.PrefixStore(tag, self.store)
        timeout = datetime.timedelta(seconds=self.seconds)
        name = f"{self.name} callbacks"
        made = Link(store, self.rank, self.size, timeout, name, tag, self.comm.progress)
        made._limit, made._parent = self._limit, self
        if self._closed:
            made.close()
        return made

    def start_group(self, calls, kept=None):
        """Starts calls, given as tuples of a call and its arguments, as one request."""
        try:
            with self._lock:
                if self._finalizing:
                    self._refuse()
                self.calls += 1
                try:
                    self.comm.group_begin()
                    for call, *arguments in calls:
                        call(self.comm, *arguments)
                    return self.comm.start_group_end(kept)
                except BaseException as error:
                    # The group cannot be left half-made: the other ranks make all of its calls.
                    self._end_open_group(error)
                    raise
        except Exception as error:
            raise self.failed(error, f"starting calls on rank {self.rank}") from None

    def _refuse(self):
        """Raises the failure of the communicator, or that its use has ended."""
        self.comm.progress()
        raise errors.InvalidArgumentError(
            f"vescomm: rank {self.rank} started a call on group {self.name} after the end of the "
            "group; make all calls before destroy_process_group(), and before the process ends"
        )

    def _end_open_group(self, error):
        """Breaks the communicator, and ends its group, if it has an open one."""
        if self.comm._in_group:
            self.comm.abort(f"a call of a group failed: {closing.describe(error)}")
            with contextlib.suppress(Exception):
                self.comm.start_group_end()

    def wait(self, request, what, limit=None, seconds=None):
        """Returns False if the request is not complete after `seconds`. Raises the failure of the
        communicator. After `limit` seconds, by default those of set_timeout(), or after the timeout
        with which the group was created, the communicator breaks.
        """
        if limit is None:
            limit = self._limit
        if limit is None or (seconds is not None and seconds < limit):
            if seconds is None:
                request.wait()
                return True
            return request.wait(seconds)
        if request.wait(limit):
            return True
        error = timeout_of(what, limit, "the group is unusable")
        self.abort(str(error))
        # After it nothing writes into the tensors of the operation, which the caller may free.
        with contextlib.suppress(Exception):
            request.wait()
        raise error

    def sender(self, request):
        """The rank whose message a request, which is complete, has received."""
        return request.message().source

    def failed(self, error, what):
        """The exception to raise for one that an operation raised; noted as the failure of the link."""
        raised = failure_of(error, what)
        if not isinstance(raised, ValueError):
            self.failure = raised
            if self._parent is not None:
                self._parent.failure = raised
        return raised

    def set_timeout(self, seconds):
        if seconds > self.seconds:
            warnings.warn(
                f"vescomm: the timeout of group {self.name} stays {self.seconds:g} s, and does not "
                f"become {seconds:g} s: a timeout cannot grow; create the group with the longer one",
                stacklevel=3,
            )
        self._limit = seconds if seconds < self.seconds else None
        if self._of_callbacks is not None:
            self._of_callbacks._limit = self._limit

    def complete_in_thread(self, operation):
        """Has a thread complete an operation that the caller may not wait for."""
        if operation.done or not self.usable():
            return
        if self._closed and (operation.test() or closing.process_ends()):
            return  # a process that ends starts no threads
        thread = self._messages if operation.is_message else self._collectives
        if operation.given:
            thread.start()  # again, if it could not be started before
            return
        operation.given = True
        thread.give(operation)

    def abort(self, reason):
        """Breaks the communicator: the operations of all ranks fail with the reason."""
        if self._parent is not None:
            self._parent.abort(reason)
        elif self.usable():
            self.comm.abort(reason)
            if self._of_callbacks is not None:
                self._of_callbacks.comm.abort(reason)

    def close(self):
        """Ends the use of the communicator. Other ranks may do so later, so a thread waits for them."""
        if not self.usable() or self._closed:
            return
        self._closed = True
        self._collectives.end()
        self._messages.end()
        self._closing = closing.start(self)
        if self._of_callbacks is not None:
            self._of_callbacks.close()

    def join(self):
        """Returns after the end of close(), which does not take long when the process ends."""
        if self._closing is not None:
            self._closing.join()

    def finalize(self):
        """Returns when all ranks have called it, or the communicator is broken. Other threads may wait
        meanwhile; calls that they start are refused.
        """
        with self._lock:  # no call is starting
            self._finalizing = True
        try:
            self.comm.finalize()
        except Exception:
            pass  # every operation has got the reason
        open_links.pop(id(self), None)

    def usable(self):
        return self._process == os.getpid()


def _cores_of_a_rank(comm):
    return len(os.sched_getaffinity(0)) / comm._info()["local_ranks"]

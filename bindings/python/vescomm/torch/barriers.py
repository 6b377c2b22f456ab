# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""barrier and monitored_barrier."""

import array
import time
from datetime import timedelta

from .. import _core
from .bootstrap import clone, wait_watched
from .calls import Calls, options, seconds_of
from .dtypes import BITWISE_XOR, U8
from .errors import BackendError

_all_reduce = _core.Communicator.start_all_reduce_at


class Barriers(Calls):
    _store = None

    # A reduction of one byte: unlike a barrier of the library, it is a request that a thread can
    # wait for beside other calls.
    def barrier(self, opts=None, *more, **named):
        opts = options(opts, more, named)
        # Not a tensor, which would follow torch's default device and its modes.
        byte = array.array("B", (0,))
        address = byte.buffer_info()[0]
        request = self._link.start(byte, _all_reduce, address, address, 1, U8, BITWISE_XOR)
        return self._end(request, opts, "barrier", byte, [], 1)

    # Over the store, because a rank that does not come must not break the communicator. The texts
    # are those of torch's gloo backend.
    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        timeout = getattr(timeout, "timeout", timeout)  # a Backend is given options
        if isinstance(timeout, (int, float)):
            timeout = timedelta(seconds=timeout)
        seconds = seconds_of(timeout)
        if seconds is None:
            seconds = self._link.seconds
        if self._store is None:
            self._store = clone(self._link.store)
        number = self._link.monitored
        self._link.monitored += 1
        if self._link.rank == 0:
            self._lead_barrier(number, seconds, wait_all_ranks)
        else:
            self._join_barrier(number, seconds)

    def _lead_barrier(self, number, seconds, wait_all_ranks):
        end = time.monotonic() + seconds
        milliseconds = round(seconds * 1000)
        missing = []
        for rank in range(1, self._link.size):
            left = end - time.monotonic()
            if left <= 0 and not missing:
                self._fail_barrier(
                    number, f"Rank 0 timed out in monitoredBarrier after {milliseconds} ms."
                )
            if not self._reached(self._key(number, rank), left):
                missing.append(rank)
                if not wait_all_ranks:
                    break
        if missing:
            ranks = ", ".join(map(str, missing))
            self._fail_barrier(
                number,
                f"Rank{'s' if len(missing) > 1 or wait_all_ranks else ''} {ranks} failed to pass "
                f"monitoredBarrier in {milliseconds} ms",
            )
        self._store.set(self._key(number, "passed"), b"")
        self._forget(number - 1)

    def _fail_barrier(self, number, why):
        self._store.set(self._key(number, "passed"), why)
        raise RuntimeError(why)

    def _join_barrier(self, number, seconds):
        rank = self._link.rank
        self._store.set(self._key(number, rank), b"")
        why = "it did not answer"
        if self._reached(self._key(number, "passed"), seconds):
            why = self._store.get(self._key(number, "passed")).decode()
            if not why:
                return
        raise RuntimeError(
            f"Rank {rank} successfully reached monitoredBarrier, but received errors while waiting "
            f"for send/recv from rank 0. Please check rank 0 logs for faulty rank. Original "
            f"exception: {why}"
        )

    def _reached(self, key, seconds):
        """False: the key is not there after these seconds. Raises the failure of the group."""
        try:
            end = time.monotonic() + seconds
            return wait_watched(self._store, [key], end, self._watch) is None
        except BackendError:
            raise
        except BaseException:  # of a signal handler, which has left the wait of this store
            self._store = None
            raise

    def _watch(self):
        try:
            self._link.comm.progress()
        except Exception as error:
            raise self._link.failed(error, "monitored_barrier") from None

    def _forget(self, number):
        """Deletes the keys of an earlier barrier, which all ranks have passed."""
        if number < 0:
            return
        try:
            for part in ["passed", *range(1, self._link.size)]:
                self._store.delete_key(self._key(number, part))
        except (NotImplementedError, RuntimeError):
            pass

    def _key(self, number, part):
        # A group that is created again may have the name of an earlier one, and its store.
        return f"vescomm/monitored/{self._link.identity}/{number}/{part}"

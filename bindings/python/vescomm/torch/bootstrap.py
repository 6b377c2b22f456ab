# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Creates the communicator of a group over the store of torch.distributed.

Rank 0 sends its address and a random secret through the store, so neither has to be set. Any store
serves: it needs only set, get, wait and check.
"""

import hashlib
import threading
import time
from datetime import timedelta

from .. import _core
from .errors import BackendError


def clone(store):
    """The store over a connection of its own: a wait on the given one would stop the other threads
    that use it. Stores that cannot be cloned have no connection.
    """
    try:
        return store.clone()
    except (AttributeError, NotImplementedError, RuntimeError):
        return store


def wait(store, keys, seconds):
    """Waits for keys of a store, as its own wait() does. Ctrl-C ends it: the store, if its wait() blocks
    others, is of no use to this thread until the seconds have passed.
    """
    limit = timedelta(seconds=max(seconds, 0.001))
    if store.check(keys):
        return
    if threading.current_thread() is not threading.main_thread():
        store.wait(keys, limit)
        return
    errors = []

    def wait_there():
        try:
            store.wait(keys, limit)
        except Exception as error:
            errors.append(error)

    # A signal is handled in the main thread between instructions of Python: not in a wait of torch.
    thread = threading.Thread(target=wait_there, name="vescomm store", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def create(store, rank, size, seconds, name):
    """Creates the communicator; collective. Raises BackendError when ranks do not come in time.

    Returns also a text that only its ranks have, and no other communicator: the ranks have sent one
    another a random secret.
    """
    gather = _StoreGather(store, rank, size, seconds, name)
    try:
        created = _core.create_from_all_gather(rank, size, gather, timeout=seconds)
        return created, gather.digest.hexdigest()[:32]
    finally:
        gather.forget()


class _StoreGather:
    """An all-gather: rank 0 collects the parts of all ranks and sets their concatenation."""

    def __init__(self, store, rank, size, seconds, name):
        self._given = store
        self._store = clone(store)
        self._rank = rank
        self._size = size
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._name = name
        self._steps = 0
        self._keys = []  # that this rank deletes
        self.digest = hashlib.sha256()  # of all results

    def __call__(self, mine):
        result = self._gather(mine)
        self.digest.update(result)
        return result

    def _gather(self, mine):
        step = self._steps
        self._steps += 1
        whole = self._key(step, "all")
        if self._rank != 0:
            key = self._key(step, self._rank)
            self._store.set(key, mine)
            self._keys.append(key)
            self._wait([whole], [0])
            return self._store.get(whole)
        others = range(1, self._size)
        keys = [self._key(step, rank) for rank in others]
        self._wait(keys, others)
        parts = b"".join([mine, *map(self._store.get, keys)])
        if self._size > 1:
            self._store.set(whole, parts)
            self._keys.append(whole)
        return parts

    def forget(self):
        """Deletes the keys, because a later group may have the same name. When the communicator has
        been created, all ranks have read them.
        """
        for key in self._keys:
            try:
                self._given.delete_key(key)
            except (NotImplementedError, RuntimeError):
                return  # a store that cannot delete, or whose host has gone

    @staticmethod
    def _key(step, part):
        return f"vescomm/{step}/{part}"

    def _wait(self, keys, ranks):
        if not keys:
            return
        try:
            wait(self._store, keys, self._end - time.monotonic())
        except RuntimeError as error:
            missing = [str(rank) for key, rank in zip(keys, ranks) if not self._store.check([key])]
            raise BackendError(
                f"vescomm: Timed out in creating the group {self._name}: rank {self._rank} waited "
                f"{self._seconds:g} s for rank {', '.join(missing) or '0'}; look there first, or "
                "give the group a longer timeout"
            ) from error

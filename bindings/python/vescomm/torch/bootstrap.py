# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Creates the communicator of a group over the store of torch.distributed.

Rank 0 sends its address and a random secret through the store, so neither has to be set. Any store
serves: it needs only set, get, wait and check.

The store may have keys of an earlier group of the same name, which its ranks have not deleted yet, or
cannot delete. So rank 0 begins with a random word, which is a part of all other keys. A rank that has
read the word of an earlier group finds the new one while it waits.
"""

import hashlib
import secrets
import threading
import time
from datetime import timedelta

from .. import _core
from .errors import BackendError, failure_of

_WORD_BYTES = 16
_WORD_OF_RANK_0 = "vescomm/word"
# A rank looks for another word of rank 0 after these seconds; each further look takes twice as long.
_FIRST_LOOK, _LAST_LOOK = 0.1, 5
# Seconds to the first call of `watch`, and at most between two. Each time is twice the one before.
_FIRST_WATCH, _LAST_WATCH = 0.1, 1
# Time between looks while the result of an earlier group is there.
_RETRY = 0.01


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


def wait_watched(store, keys, end, watch):
    """As wait(), until the time `end` of time.monotonic(). Returns the error of the store if the keys have
    not come, also that of a store that does not wait.

    Args:
        watch: called now and then; its exception ends the wait. None: nothing is called.
    """
    longest = _FIRST_WATCH
    while True:
        begin = time.monotonic()
        part = end - begin if watch is None else min(end - begin, longest)
        try:
            wait(store, keys, part)
            return None
        except RuntimeError as error:
            if watch is not None:
                watch()
            now = time.monotonic()
            if now >= end or now < begin + part / 2:
                return error
        longest = min(2 * longest, _LAST_WATCH)


def create(store, rank, size, seconds, name, tag=None, watch=None):
    """Creates the communicator; collective. Raises BackendError when ranks do not come in time.

    `tag`: the same on all ranks; another thread may create a communicator without it meanwhile.
    `watch`: called now and then; its exception ends the creation.

    Returns also a text that only its ranks have, and no other communicator: the ranks have sent one
    another a random secret.
    """
    gather = _StoreGather(store, rank, size, seconds, name, watch)
    try:
        created = _core.create_from_all_gather(rank, size, gather, timeout=seconds, tag=tag)
        return created, gather.digest.hexdigest()[:32]
    except Exception as error:
        raise failure_of(error, f"creating the group {name}")
    finally:
        gather.forget()


class _StoreGather:
    """An all-gather: rank 0 collects the parts of all ranks and sets their concatenation. Each part
    begins with a random word of its rank.
    """

    def __init__(self, store, rank, size, seconds, name, watch):
        self._given = store
        self._store = clone(store)
        self._rank = rank
        self._size = size
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._name = name
        self._watch = watch
        self._steps = 0
        self._word = secrets.token_bytes(_WORD_BYTES)
        self._word_of_rank_0 = None
        self._keys = []  # that this rank deletes
        self.digest = hashlib.sha256()  # of all results

    def __call__(self, mine):
        gather = self._lead if self._rank == 0 else self._follow
        whole = gather(self._word + mine)
        self._steps += 1
        length = _WORD_BYTES + len(mine)
        begins = range(_WORD_BYTES, self._size * length, length)
        result = b"".join(whole[begin : begin + len(mine)] for begin in begins)
        self.digest.update(result)
        return result

    def _lead(self, mine):
        if self._size == 1:
            return mine
        if self._steps == 0:
            self._word_of_rank_0 = self._word.hex()
            self._set(_WORD_OF_RANK_0, self._word_of_rank_0)
        others = range(1, self._size)
        keys = [self._key(rank) for rank in others]
        self._wait(keys, others)
        whole = b"".join([mine, *map(self._store.get, keys)])
        self._set(self._key("all"), whole)
        return whole

    def _follow(self, mine):
        if self._steps == 0:
            return self._meet(mine)
        self._set(self._key(self._rank), mine)
        self._wait([self._key("all")], [0])
        return self._store.get(self._key("all"))

    def _meet(self, mine):
        """The first exchange with rank 0, which may not have begun, and may leave an earlier group."""
        look = _FIRST_LOOK
        while True:
            self._wait([_WORD_OF_RANK_0], [0])
            word = self._store.get(_WORD_OF_RANK_0).decode()
            if word != self._word_of_rank_0:
                self._word_of_rank_0, look = word, _FIRST_LOOK
                self._set(self._key(self._rank), mine)
            if not self._comes(self._key("all"), look):
                look = min(2 * look, _LAST_LOOK)
                continue
            whole = self._store.get(self._key("all"))
            if whole[self._rank * len(mine) :].startswith(mine):
                return whole
            time.sleep(_RETRY)

    def _set(self, key, value):
        self._store.set(key, value)
        self._keys.append(key)

    def forget(self):
        """Deletes the keys, because a later group may have the same name. When the communicator has
        been created, all ranks have read them.
        """
        for key in self._keys:
            try:
                self._given.delete_key(key)
            except (NotImplementedError, RuntimeError):
                return  # a store that cannot delete, or whose host has gone

    def _key(self, part):
        return f"vescomm/{self._word_of_rank_0}/{self._steps}/{part}"

    def _comes(self, key, seconds):
        """False: not within these seconds."""
        if self._end <= time.monotonic():
            raise self._late([0])
        end = min(self._end, time.monotonic() + seconds)
        return wait_watched(self._store, [key], end, self._watch) is None

    def _wait(self, keys, ranks):
        error = wait_watched(self._store, keys, self._end, self._watch)
        if error is not None:
            missing = [rank for key, rank in zip(keys, ranks) if not self._store.check([key])]
            raise self._late(missing or [0]) from error

    def _late(self, ranks):
        return BackendError(
            f"vescomm: Timed out in creating the group {self._name}: rank {self._rank} waited "
            f"{self._seconds:g} s for rank {', '.join(map(str, ranks))}; look there first, or give the "
            "group a longer timeout"
        )

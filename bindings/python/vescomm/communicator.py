# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Communicators."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Optional, Sequence, Union

from . import _core
from ._arguments import extents_of, seconds_of
from ._ending import is_failure, reason_of
from .errors import Error
from .types import Type

__all__ = ["Communicator", "Counters", "trace_seconds"]


class Counters(NamedTuple):
    """Counters of a communicator on this rank, since its creation: they never decrease.

    Attributes:
        operations: operations started: requests, calls on arrays, barriers.
        bytes_written: bytes that this rank's copies and conversions have written.
        bytes_reduced: bytes that this rank's reductions have read.
        bytes_sent: bytes that this rank has sent to other nodes.
        bytes_registered: bytes that this rank has read in registered arrays of other ranks.
        sleeps: number of times that a waiting thread of this rank slept.
        busy_seconds: time in copies and reductions of 16 KiB and more.
        waiting_seconds: time in waits that have ended, without the busy time in them.

    Since: 0.1
    """

    operations: int
    bytes_written: int
    bytes_reduced: int
    bytes_sent: int
    bytes_registered: int
    sleeps: int
    busy_seconds: float
    waiting_seconds: float


def trace_seconds() -> float:
    """Returns the time of the clock that traces use, in seconds; all processes of a machine share it.

    Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
    """
    return _core.get_trace_seconds()


class Communicator(_core.Communicator):
    """The ranks that work together, and the connections between them.

    Use it as a context manager: it is finalized at the end, which is collective, or aborted if the
    block raises an exception, so that the other ranks do not wait for this one:

        with vescomm.Communicator.from_environment() as comm:
            comm.all_reduce(gradients)

    A communicator that is dropped without finalize() or free() stays until the process ends, which
    finalizes it. If the process ends with an exception, its communicators are aborted.

    Collectives and messages on arrays accept any array in host memory that exports DLPack or the
    buffer protocol (NumPy, torch, JAX, bytearray and others), and NumPy arrays of the types of
    ml_dtypes. Arrays must be contiguous. They are never copied, so an output must be writable.

    One thread at a time may be in a call on a communicator; calls that may wait release the GIL, and
    a second thread gets an exception. Each thread can have a communicator of its own: dup(). Signals
    are handled in waits: Ctrl-C ends them with KeyboardInterrupt. A blocking call then aborts the
    communicator, because other ranks rely on the call; a request stays running.

    Since: 0.1
    """

    def __init__(
        self,
        rank: int,
        ranks: int,
        address: Optional[str] = None,
        secret: Optional[str] = None,
        *,
        timeout: Optional[float] = None,
        node: Optional[str] = None,
        reproducible: bool = False,
        tag: Optional[str] = None,
    ) -> None:
        """Creates a communicator from an explicit rank, number of ranks, address and secret.

        Args:
            rank: of the caller, in [0, ranks).
            ranks: number of ranks of the job, at least 1.
            address: "host:port" on which rank 0 listens. Not used when ranks is 1.
            secret: the same on every rank; at least 16 characters, unless the address is a loopback
                address. Not used when ranks is 1.
            timeout: maximum seconds of a wait for a peer; after it the wait fails. None: the
                variable VESCOMM_TIMEOUT_SECONDS, or 300.
            node: name of the node of this rank; ranks with the same name share memory. None: the
                variable VESCOMM_NODE, or the host.
            reproducible: sums are bit-identical for any placement of ranks on nodes. The same on
                every rank.
            tag: the same on every rank; identifies a communicator when several threads create
                communicators of the same ranks at the same time.

        Raises:
            InvalidArgumentError, TimeoutError (names the ranks that did not connect),
            PeerFailedError, MismatchError, OutOfMemoryError, UnsupportedError,
            OperatingSystemError.

        Collective: yes.  Blocking: until all ranks have called it, at most the timeout.
        Threads: safe.  Since: 0.1
        """
        self._own(
            _core.create(rank, ranks, address, secret, seconds_of(timeout), node, reproducible, tag)
        )

    def _own(self, created: Any) -> None:
        _core.Communicator.__init__(self, created)
        info = self._info()
        self._node, self._nodes = info["node"], info["nodes"]
        self._local_rank, self._local_ranks = info["local_rank"], info["local_ranks"]
        self._timeout = info["timeout"]

    @classmethod
    def _of(cls, created: Any) -> "Communicator":
        comm = cls.__new__(cls)
        comm._own(created)
        return comm

    @classmethod
    def from_environment(
        cls,
        *,
        timeout: Optional[float] = None,
        node: Optional[str] = None,
        reproducible: bool = False,
        tag: Optional[str] = None,
    ) -> "Communicator":
        """Creates a communicator of the ranks that a launcher started: vescomm-run, torchrun, mpirun,
        srun. Without a launcher it has one rank.

        Args:
            timeout, node, reproducible, tag: as in Communicator().

        Raises:
            as Communicator(). InvalidArgumentError: a variable is missing or wrong.

        Collective: yes.  Blocking: as Communicator().  Threads: safe, as long as no thread changes
        the environment.  Since: 0.1
        """
        return cls._of(_core.create_from_environment(seconds_of(timeout), node, reproducible, tag))

    @classmethod
    def from_all_gather(
        cls,
        rank: int,
        ranks: int,
        all_gather: Callable[[bytes], Union[bytes, Sequence[bytes]]],
        *,
        timeout: Optional[float] = None,
        node: Optional[str] = None,
        reproducible: bool = False,
        tag: Optional[str] = None,
    ) -> "Communicator":
        """Creates a communicator with an all-gather of the caller (MPI, a store, sockets). Rank 0
        sends its address and a random secret through it.

        Args:
            rank, ranks: as in Communicator().
            all_gather: gets the bytes of this rank, and returns those of all ranks: a sequence with
                one bytes object for each rank, or one bytes object. All ranks give the same number
                of bytes. Called a few times, only during this call, from the calling thread.
            timeout, node, reproducible, tag: as in Communicator().

        Raises:
            as Communicator(), and the exceptions of all_gather.

        Collective: yes.  Blocking: as Communicator(), plus the calls of all_gather.  Threads: safe.
        Since: 0.1
        """
        return cls._of(
            _core.create_from_all_gather(
                rank, ranks, all_gather, seconds_of(timeout), node, reproducible, tag
            )
        )

    def split(
        self,
        color: int,
        key: int = 0,
        *,
        timeout: Optional[float] = None,
        node: Optional[str] = None,
        reproducible: bool = False,
    ) -> Optional["Communicator"]:
        """Divides the ranks into new communicators, one for each color.

        Args:
            color: ranks with the same color form one communicator. Negative: this rank is in none.
            key: orders the ranks of a color; equal keys are ordered by rank.
            timeout, node, reproducible: as in Communicator(); by default as this communicator.

        Returns:
            The new communicator; None if the color is negative.

        Collective: yes, same order.  Blocking: yes, at most the timeout.  Threads: one at a time per
        communicator.  Since: 0.1
        """
        created = self._split(color, key, seconds_of(timeout), node, reproducible)
        return None if created is None else type(self)._of(created)

    def dup(
        self,
        *,
        timeout: Optional[float] = None,
        node: Optional[str] = None,
        reproducible: bool = False,
    ) -> "Communicator":
        """Creates another communicator of the same ranks, for another thread or library.

        Args:
            timeout, node, reproducible: as in Communicator(); by default as this communicator.

        Collective: yes, same order.  Blocking: yes, at most the timeout.  Threads: one at a time per
        communicator.  Since: 0.1
        """
        return type(self)._of(self._dup(seconds_of(timeout), node, reproducible))

    def shrink(self, failed: Sequence[int] = ()) -> "Communicator":
        """Creates a communicator of the ranks that survive a failure; this one is broken then.

        Args:
            failed: ranks to exclude although their process may not have ended; the same on every
                rank.

        Raises:
            TimeoutError: a rank is alive and has not called this. MismatchError: another rank
            passed this one in failed.

        Collective: yes, all ranks that are alive and not in failed.  Blocking: yes, at most the
        timeout.  Threads: one at a time per communicator.  Since: 0.1
        """
        return type(self)._of(self._shrink(failed))

    @property
    def node(self) -> int:
        """Node of the caller; nodes are numbered in the order of their first rank. Since: 0.1"""
        return self._node

    @property
    def nodes(self) -> int:
        """Number of nodes. Since: 0.1"""
        return self._nodes

    @property
    def local_rank(self) -> int:
        """Position of the caller among the ranks of its node. Since: 0.1"""
        return self._local_rank

    @property
    def local_ranks(self) -> int:
        """Number of ranks on the caller's node. Since: 0.1"""
        return self._local_ranks

    @property
    def timeout(self) -> float:
        """Longest time of a wait in seconds, as given or by default. Since: 0.1"""
        return self._timeout

    def counters(self) -> Counters:
        """Returns the counters of this rank.

        Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
        """
        return Counters(**self._counters())

    def empty(self, shape: Union[int, Sequence[int]], type: int = Type.F32) -> _core.Array:
        """Allocates an array in registered memory, which moves within a node without a copy in
        between. Its bytes are zero. The memory is freed with the last array that shares it.

        Args:
            shape: extents, or the number of elements.
            type: of the elements.

        Raises:
            OutOfMemoryError: the machine, or the address space of this rank (VESCOMM_MALLOC_BYTES),
            has too little.

        Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
        """
        return self._empty(extents_of(shape), type)

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        """Collects the calls on arrays of a with block, and runs them together at its end.

        Collectives that differ only in their arrays and counts become one operation. Sends and
        receives run concurrently. No call may write elements that another one reads or writes. If
        the block raises an exception, the calls so far are started, and nothing waits for them.

            with comm.group():
                comm.send(right_edge, peer=right)
                comm.receive(left_halo, peer=left)

        Collective: yes, same order.  Blocking: at its end, at most the timeout.  Threads: one at a
        time per communicator.  Since: 0.1
        """
        self.group_begin()
        try:
            yield
        except BaseException:
            with contextlib.suppress(Error):
                self.start_group_end()
            raise
        self.group_end()

    @contextlib.contextmanager
    def span(self, name: str, track: str = "python",
             values: Optional[Mapping[str, Union[float, str]]] = None) -> Iterator[None]:
        """Records the time of a with block as a span of the trace; nothing if no trace was started.

        Args:
            name: of the span, such as "forward block.3".
            track: row of the timeline.
            values: numbers and texts by name, such as bytes. Read at the end of the block.

        Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
        """
        begin = trace_seconds()
        try:
            yield
        finally:
            self.add_span(name, track, begin, trace_seconds(), dict(values or {}))

    def write_trace(self, path: Union[str, bytes, os.PathLike[Any], None] = None) -> None:
        """Writes the spans of all ranks into one file in the Chrome trace event format.

        Args:
            path: of the file, which rank 0 writes; other ranks may pass None.

        Raises:
            OperatingSystemError on every rank: the file cannot be written.

        Collective: yes, same order.  Blocking: yes.  Threads: one at a time per communicator.
        Since: 0.1
        """
        self._write_trace(None if path is None else os.fsencode(path))

    def write_flight_recorder(self, path: Union[str, bytes, os.PathLike[Any]]) -> None:
        """Writes the last operations of this rank into a file, for `vescomm-info --flight`.

        Args:
            path: of the file. In it %r stands for this rank, %c for the number of the communicator
                in this process, %p for the process id, and %% for a %.

        Raises:
            InvalidArgumentError, OperatingSystemError, TimeoutError.

        Collective: no.  Blocking: while the file is written.  Threads: safe, also while another
        thread waits.  Since: 0.1
        """
        self._write_flight_recorder(os.fsencode(path))

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if self.freed:
            return
        try:
            if is_failure(error):
                self.abort(reason_of(error))
            else:
                self.finalize()
        finally:
            self.free()

    def __repr__(self) -> str:
        if self.freed:
            return "<vescomm.Communicator, freed>"
        return f"<vescomm.Communicator rank {self.rank} of {self.ranks}>"

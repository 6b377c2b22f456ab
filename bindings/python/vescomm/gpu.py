# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Device memory: ragged collectives on the memory of GPUs, on CUDA streams.

    import torch, vescomm
    from vescomm import gpu

    comm = vescomm.Communicator.from_environment()
    torch.cuda.set_device(comm.rank % torch.cuda.device_count())
    with gpu.Communicator(comm) as device:
        parameters = gpu.Buffer(device, layout, vescomm.BF16)
        weight = parameters.tensor("weight").torch()  # shares the memory
        parameters.all_gather_v()                     # on torch's current stream
        y = x @ weight.t()

Calls are on a stream: they follow its earlier work, and return before they are complete. `stream` is
an object of a package, such as torch.cuda.Stream, the integer of a cudaStream_t, or None: torch's
current stream if the program has imported torch, otherwise the legacy default stream. Arrays that a
call uses must live until it is complete. All of this is experimental; docs/gpu.md has the rest.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

from . import _core
from ._core import GpuArray as Array
from ._nccl_config import NcclConfig, settings_of
from .communicator import Communicator as HostCommunicator
from .gpu_buffer import Buffer, all_gather_v, get_buffer_bytes, reduce_scatter_v
from .gpu_kernels import CLIP_BYTES, SUM_WORDS, Piece, _address, add, add_squares
from .gpu_kernels import check_kernels, clip_factor, copy, dequantise, quantise, scale, unscale
from .gpu_kernels import sum_quantised, zero
from .gpu_optimizers import MOMENT_BLOCK, adam8bit, adamw, sgd
from .layout import Layout
from .types import Op, Type

__all__ = [
    "Array",
    "Buffer",
    "CLIP_BYTES",
    "Communicator",
    "MOMENT_BLOCK",
    "Piece",
    "SUM_WORDS",
    "adam8bit",
    "adamw",
    "add",
    "add_squares",
    "all_gather_v",
    "check_kernels",
    "check_support",
    "clip_factor",
    "copy",
    "dequantise",
    "get_buffer_bytes",
    "quantise",
    "reduce_scatter_v",
    "scale",
    "sgd",
    "sum_quantised",
    "unscale",
    "zero",
]


def check_support() -> int:
    """Returns the version of NCCL, such as 22809 for 2.28.9, if device memory can be used.

    Raises:
        UnsupportedError: its text states what is missing.

    Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
    """
    return _core.gpu_check_support()


class Communicator(_core.GpuCommunicator):
    """An NCCL communicator of the ranks of a vescomm.Communicator, each with its GPU.

    Free it on all ranks with free(), or by a with statement. Without that it stays until the process
    ends.

    Since: 0.1
    """

    def __init__(
        self,
        comm: HostCommunicator,
        *,
        workspace_bytes: int = 0,
        min_ctas: int = 0,
        max_ctas: int = 0,
        shrinkable: bool = False,
        method: Optional[str] = None,
        nccl_comm: int = 0,
        nccl_config: Optional[NcclConfig] = None,
    ) -> None:
        """Creates it on the current device of the calling thread.

        Args:
            comm: its control plane connects NCCL. It may be freed before or after this one.
            workspace_bytes: device memory for the method "padded".
            min_ctas, max_ctas: numbers of thread blocks of NCCL's kernels. 0: NCCL chooses.
            shrinkable: a failure revokes NCCL's communicator instead of aborting it, so that
                shrink() can use ncclCommShrink(). Graphs that captured its calls must not be
                launched after the failure.
            method: of all_gather_v and reduce_scatter_v, such as "rooted". None: vescomm chooses.
                "copy_engine" applies to all_gather_v only.
            nccl_comm: the address of an ncclComm_t of the program, of the same ranks. 0: a new one.
            nccl_config: settings of ncclConfig_t that are passed to NCCL, by their names there:
                {"cgaClusterSize": 4, "netName": "IB"}.

        Raises:
            UnsupportedError: a rank lacks a GPU or a library; the text names both. MismatchError,
            OutOfMemoryError, InvalidArgumentError, OperatingSystemError, TimeoutError,
            PeerFailedError.

        Collective: yes, same order.  Blocking: yes, at most the timeout.  Threads: one at a time per
        communicator.  Since: 0.1
        """
        super().__init__(
            comm, workspace_bytes, min_ctas, max_ctas, shrinkable, method, nccl_comm,
            settings_of(nccl_config),
        )

    @classmethod
    def _of(cls, created: Any) -> "Communicator":
        comm = cls.__new__(cls)
        _core.GpuCommunicator.__init__(comm, created)
        return comm

    def split(
        self,
        comm: Optional[HostCommunicator],
        *,
        workspace_bytes: int = 0,
        min_ctas: int = 0,
        max_ctas: int = 0,
        shrinkable: bool = False,
        method: Optional[str] = None,
        nccl_config: Optional[NcclConfig] = None,
    ) -> Optional["Communicator"]:
        """Creates a device communicator of some ranks of this one through ncclCommSplit(), or, if
        NCCL cannot, a new one on all ranks; see derived. This one stays usable. Waits for the work
        of the device.

        Args:
            comm: of ranks of this communicator, as split() of the host's returns it. None: this
                rank is in no new communicator.
            workspace_bytes, min_ctas, max_ctas, shrinkable, method, nccl_config: as in
                Communicator(); the same on every rank of comm.

        Returns:
            The new communicator; None if comm is None.

        Raises:
            as Communicator(). If ncclCommSplit() fails on a rank, this communicator is broken.

        Collective: yes, all ranks of this communicator, same order.  Blocking: yes, at most the
        timeout.  Threads: one at a time per communicator.  Since: 0.1
        """
        created = self._split(
            comm, workspace_bytes, min_ctas, max_ctas, shrinkable, method, settings_of(nccl_config)
        )
        return None if created is None else type(self)._of(created)

    def shrink(
        self,
        survivors: HostCommunicator,
        *,
        workspace_bytes: int = 0,
        min_ctas: int = 0,
        max_ctas: int = 0,
        shrinkable: bool = False,
        method: Optional[str] = None,
        nccl_config: Optional[NcclConfig] = None,
    ) -> "Communicator":
        """Creates a device communicator of the survivors of this one through ncclCommShrink(), or,
        if NCCL cannot, a new one on all ranks; see derived. After a failure NCCL can if this one is
        shrinkable, and if nothing on it was freed since: free its buffers and itself afterwards.

        Args:
            survivors: ranks of this communicator in its order, as shrink() of the host's returns
                them.
            workspace_bytes, min_ctas, max_ctas, shrinkable, method, nccl_config: as in
                Communicator().

        Raises:
            as Communicator(). If ncclCommShrink() fails on a rank, survivors is broken.

        Collective: yes, all survivors, same order.  Blocking: yes, at most the timeout.  Threads:
        one at a time per communicator.  Since: 0.1
        """
        return type(self)._of(
            self._shrink(
                survivors, workspace_bytes, min_ctas, max_ctas, shrinkable, method,
                settings_of(nccl_config),
            )
        )

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        # After an exception arrays may exist, and other ranks may not come.
        if kind is None:
            self.free()

    def all_gather_v(
        self, output: Any, layout: Layout, source: Any = None, *, stream: Any = None
    ) -> None:
        """Gathers the shards of all ranks on all ranks.

        Args:
            output: the whole buffer, a contiguous device array.
            layout: the same on every rank, with one shard for each rank.
            source: the shard of this rank. None: it lies in its place of output.

        Raises:
            InvalidArgumentError: nothing happened. UnsupportedError, TimeoutError, PeerFailedError,
            OperatingSystemError.

        Collective: yes, same order.  Blocking: until it is on the stream, at most the timeout.
        Threads: one at a time per communicator.  Since: 0.1
        """
        self._all_gather_v(output, layout, source, _address(stream))

    def reduce_scatter_v(
        self,
        source: Any,
        layout: Layout,
        output: Any = None,
        op: int = Op.SUM,
        *,
        stream: Any = None,
    ) -> None:
        """Reduces the arrays of all ranks and leaves each rank its shard of the result.

        Args:
            source: the whole buffer, a contiguous device array.
            layout: the same on every rank, with one shard for each rank.
            output: for the shard of this rank. None: its place in source; the rest is undefined.
            op: sum, product, minimum, maximum; average of floats.

        Raises:
            as all_gather_v().

        Collective: yes, same order.  Blocking: until it is on the stream, at most the timeout.
        Threads: one at a time per communicator.  Since: 0.1
        """
        self._reduce_scatter_v(source, layout, output, op, _address(stream))

    def all_reduce(
        self, source: Any, output: Any = None, op: int = Op.SUM, *, stream: Any = None
    ) -> None:
        """Reduces the arrays of all ranks and leaves every rank the result.

        Args:
            source: a contiguous device array, of the same size on every rank.
            output: an array of the same size. None: source.
            op: as reduce_scatter_v().

        Raises:
            as all_gather_v().

        Collective: yes, same order.  Blocking: until it is on the stream, at most the timeout.
        Threads: one at a time per communicator.  Since: 0.1
        """
        self._all_reduce(source, output, op, _address(stream))

    def broadcast(self, data: Any, root: int = 0, *, stream: Any = None) -> None:
        """Copies the array of the root to all ranks.

        Args:
            data: a contiguous device array: read on rank root, written on all others.
            root: the same on every rank.

        Raises:
            as all_gather_v().

        Collective: yes, same order.  Blocking: until it is on the stream, at most the timeout.
        Threads: one at a time per communicator.  Since: 0.1
        """
        self._broadcast(data, root, _address(stream))

    def all_to_all_v(
        self,
        source: Any,
        source_counts: Sequence[int],
        output: Any,
        output_counts: Sequence[int],
        *,
        source_offsets: Optional[Sequence[int]] = None,
        output_offsets: Optional[Sequence[int]] = None,
        stream: Any = None,
    ) -> None:
        """Sends one block from every rank to every rank.

        If a rank sends another one of its node a block of another size than that rank expects,
        they raise MismatchError, in this call or a later one. Counts are not compared between
        nodes: wait() raises TimeoutError there, or the results are undefined.

        Args:
            source: a contiguous device array with source_counts[k] elements for rank k.
            output: another array, which gets output_counts[k] elements of rank k.
            source_offsets, output_offsets: where the blocks begin, in elements. None: one after
                another. Blocks of the output must not overlap.

        Raises:
            as all_gather_v().

        Collective: yes, same order.  Blocking: until it is on the stream, at most the timeout.
        Threads: one at a time per communicator.  Since: 0.1
        """
        self._all_to_all_v(
            source,
            source_counts,
            output,
            output_counts,
            source_offsets,
            output_offsets,
            _address(stream),
        )

    def wait(self, stream: Any = None) -> None:
        """Waits until the work of a stream is complete. Use it instead of a synchronisation of CUDA,
        which would wait for a rank that has died for ever.

        Raises:
            TimeoutError, PeerFailedError, and the first error of a broken communicator.

        Collective: no.  Blocking: yes, at most the timeout.  Threads: one at a time per communicator.
        Since: 0.1
        """
        self._wait(_address(stream))

    def order_stream(self, stream: Any = None) -> None:
        """Makes the later work of a stream wait for the collectives so far, on whichever streams they
        are. The host does not wait. Exports of arrays do this for the stream of their package.

        Raises:
            InvalidArgumentError: the stream is captured into a graph.

        Collective: no.  Blocking: no.  Threads: one at a time per communicator.  Since: 0.1
        """
        self._order_stream(_address(stream))

    def explain(self, layout: Layout, type: int = Type.F32, reduces: bool = False) -> str:
        """Returns a text that says how a ragged collective on a layout will run, and why.

        Args:
            reduces: False: all_gather_v(); True: reduce_scatter_v().

        Collective: no.  Blocking: no.  Threads: one at a time per communicator.  Since: 0.1
        """
        return self._explain(layout, type, reduces)

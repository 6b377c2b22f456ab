# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Buffers of vescomm.gpu, and their collectives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Sequence

from . import _core
from .gpu_kernels import _address
from .layout import Layout
from .types import Op, Type

if TYPE_CHECKING:
    from .gpu import Communicator


class Buffer(_core.GpuBuffer):
    """A layout in device memory that is registered with NCCL once.

    Since: 0.1
    """

    def __init__(
        self,
        comm: Communicator,
        layout: Layout,
        type: int = Type.F32,
        *,
        memory: int = 0,
        offset_bytes: int = 0,
        strided: bool = False,
        any_cuts: bool = False,
        name: Optional[str] = None,
    ) -> None:
        """Creates a buffer with undefined contents.

        Args:
            layout: the same on every rank, with one shard for each rank.
            type: of the elements.
            memory: an address of Communicator.malloc(), of the same call on all ranks. 0: new
                memory, which is freed with the buffer.
            offset_bytes: first byte in memory, a multiple of 256.
            strided: shards begin at multiples of the largest one.
            any_cuts: shards may begin at any element, which is slower than multiples of 16 bytes.
            name: in error texts.

        Raises:
            InvalidArgumentError: also for a shard that does not begin at a multiple of 16 bytes.
            MismatchError, OutOfMemoryError, TimeoutError, PeerFailedError.

        Collective: yes, same order.  Blocking: yes, at most the timeout.  Threads: one at a time per
        communicator.  Since: 0.1
        """
        super().__init__(comm, layout, type, memory, offset_bytes, strided, any_cuts, name)

    @property
    def layout(self) -> Layout:
        """The layout. Since: 0.1"""
        return Layout._of(self._layout)

    def all_gather_v(self, *, stream: Any = None) -> None:
        """all_gather_v() of the module on this buffer alone, in place. Since: 0.1"""
        all_gather_v([self], stream=stream)

    def reduce_scatter_v(self, op: int = Op.SUM, *, stream: Any = None) -> None:
        """reduce_scatter_v() of the module on this buffer alone, in place. Since: 0.1"""
        reduce_scatter_v([self], op, stream=stream)

    def __repr__(self) -> str:
        return f"<vescomm.gpu.Buffer of {self._layout.elements} {self.type.name}>"


def get_buffer_bytes(
    layout: Layout, type: int = Type.F32, *, strided: bool = False, any_cuts: bool = False
) -> int:
    """Returns the bytes of device memory that a buffer needs. Needs no GPU.

    Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
    """
    return _core.gpu_buffer_get_bytes(layout, type, strided, any_cuts)


def all_gather_v(buffers: Sequence[Buffer], *, stream: Any = None) -> None:
    """Gathers the shards of all ranks on all ranks, in place, in several buffers at once.

    Args:
        buffers: of one communicator; the same on every rank, in the same order.

    Raises:
        as Communicator.all_gather_v().

    Collective: yes, same order.  Blocking: until it is on the stream, at most the timeout.
    Threads: one at a time per communicator.  Since: 0.1
    """
    _core.gpu_all_gather_v(list(buffers), _address(stream))


def reduce_scatter_v(
    buffers: Sequence[Buffer], op: int = Op.SUM, *, stream: Any = None
) -> None:
    """Reduces the buffers of all ranks, in place, and leaves each rank its shard of each result.

    Args:
        buffers: as for all_gather_v().
        op: sum, product, minimum, maximum; average of floats.

    Raises:
        as Communicator.all_gather_v().

    Collective: yes, same order.  Blocking: until it is on the stream, at most the timeout.
    Threads: one at a time per communicator.  Since: 0.1
    """
    _core.gpu_reduce_scatter_v(list(buffers), op, _address(stream))

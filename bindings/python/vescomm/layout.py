# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Layouts: the places of tensors and shards in a fused buffer."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Sequence, Tuple, Union

from . import _core

__all__ = ["Layout", "Piece", "Tensor"]


class Tensor(NamedTuple):
    """One tensor of a layout.

    Attributes:
        name: unique within the layout.
        shape: row-major extents, each at least 0; () is a scalar.
        offset: of the first element in the buffer, in elements.
        block: number of consecutive elements that must stay on one rank. 0 and 1: no blocks.
        batch_dimensions: number of leading dimensions that index sub-matrices; the grid of blocks
            restarts at each sub-matrix.

    Since: 0.1
    """

    name: str
    shape: Sequence[int]
    offset: int = 0
    block: int = 1
    batch_dimensions: int = 0


class Piece(NamedTuple):
    """The part of one tensor that lies in one shard; all numbers are elements.

    Attributes:
        tensor: index in the layout.
        first: first element, counted within the tensor.
        elements: number of elements.
        offset: position of the first element within the shard.

    Since: 0.1
    """

    tensor: int
    first: int
    elements: int
    offset: int


class Layout(_core.Layout):
    """The places of tensors and shards in a fused buffer. Immutable; the same on every rank. Offsets
    and sizes are in elements. Layouts can be compared, hashed, pickled, and used as keys.

    Since: 0.1
    """

    def __init__(self, tensors: Sequence[Tensor], elements: int, cuts: Sequence[int]) -> None:
        """Creates a layout from tensors at given offsets and given cuts, and checks it.

        Args:
            tensors: in order of offset, not overlapping.
            elements: size of the whole buffer.
            cuts: ranks + 1 offsets, not decreasing, from 0 to elements: rank k owns
                [cuts[k], cuts[k + 1]).

        Raises:
            InvalidArgumentError: names the tensor or the cut.

        Since: 0.1
        """
        self._own(_core.Layout._from_tensors(tensors, elements, cuts))

    def _own(self, layout: Any) -> None:
        _core.Layout.__init__(self, layout)

    @classmethod
    def _of(cls, created: Any) -> "Layout":
        layout = cls.__new__(cls)
        layout._own(created)
        return layout

    @classmethod
    def from_counts(cls, counts: Sequence[int]) -> "Layout":
        """Creates a layout of one vector, "data", of which rank k owns counts[k] elements. Since: 0.1"""
        return cls._of(_core.Layout._from_counts(counts))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Layout":
        """Creates a layout from the bytes of to_bytes(), which may come from an untrusted source.

        Raises:
            InvalidArgumentError: these bytes are not a layout.

        Since: 0.1
        """
        return cls._of(_core.Layout._parse(bytes(memoryview(data))))

    @property
    def tensors(self) -> List[Tensor]:
        """The tensors, in order of offset. Since: 0.1"""
        return [Tensor(*self._tensor(index)) for index in range(self._tensors)]

    def tensor(self, which: Union[str, int]) -> Tensor:
        """Returns the tensor of a name or an index.

        Raises:
            InvalidArgumentError: no tensor has this name. IndexError.

        Since: 0.1
        """
        return Tensor(*self._tensor(which))

    def pieces(self, rank: int) -> List[Piece]:
        """Returns the pieces of tensors that a rank owns, in order of offset. Since: 0.1"""
        return [Piece(*piece) for piece in self._pieces(rank)]

    def piece(self, tensor: Union[str, int], rank: int) -> Piece:
        """Returns the part of one tensor that a rank owns, which may have no elements. Since: 0.1"""
        return Piece(*self._piece(tensor, rank))

    @property
    def counts(self) -> Tuple[int, ...]:
        """Sizes of the shards of all ranks. Since: 0.1"""
        shards = [self.shard(rank) for rank in range(self.ranks)]
        return tuple(end - begin for begin, end in shards)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _core.Layout):
            return NotImplemented
        return self.hash == other.hash and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash(self.hash)

    def __reduce__(self) -> Any:
        return Layout.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        return (
            f"<vescomm.Layout of {self._tensors} tensors, {self.elements} elements, "
            f"{self.ranks} ranks>"
        )

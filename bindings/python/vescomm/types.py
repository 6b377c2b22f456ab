# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Enumerations, with the values of vescomm.h and vescomm/planner.h."""

import enum
from typing import NamedTuple

# The peer of a receive that takes a message of any rank.
ANY_SOURCE = -2


class Message(NamedTuple):
    """A message that was received.

    Attributes:
        source: rank of the sender.
        tag: tag of the message.
        type: type of its elements.
        count: number of its elements.

    Since: 0.1
    """

    source: int
    tag: int
    type: "Type"
    count: int  # type: ignore[assignment]


class Type(enum.IntEnum):
    """Type of the elements of a buffer or an array. `bytes` is the size of one element.

    F8E4M3 is called float8_e4m3fn elsewhere. C64 and C128 are complex numbers of two F32 or F64.

    Since: 0.1
    """

    F32 = 1
    BF16 = 2
    F16 = 3
    F64 = 4
    F8E4M3 = 5
    F8E5M2 = 6
    I8 = 7
    U8 = 8
    I16 = 9
    U16 = 10
    I32 = 11
    U32 = 12
    I64 = 13
    U64 = 14
    BOOL = 15
    C64 = 16
    C128 = 17

    @property
    def bytes(self) -> int:
        """Size of one element in bytes. Since: 0.1"""
        return _bytes[self]


_bytes = {
    Type.F32: 4,
    Type.BF16: 2,
    Type.F16: 2,
    Type.F64: 8,
    Type.F8E4M3: 1,
    Type.F8E5M2: 1,
    Type.I8: 1,
    Type.U8: 1,
    Type.I16: 2,
    Type.U16: 2,
    Type.I32: 4,
    Type.U32: 4,
    Type.I64: 8,
    Type.U64: 8,
    Type.BOOL: 1,
    Type.C64: 8,
    Type.C128: 16,
}


class Op(enum.IntEnum):
    """Operator of a reduction; see vescomm_op_t in vescomm.h for the operators of each type.

    Since: 0.1
    """

    SUM = 0
    AVERAGE = 1
    PROD = 2
    MIN = 3
    MAX = 4
    PREMULTIPLIED_SUM = 5
    BITWISE_AND = 6
    BITWISE_OR = 7
    BITWISE_XOR = 8
    LOGICAL_AND = 9
    LOGICAL_OR = 10
    LOGICAL_XOR = 11


class Sharing(enum.IntEnum):
    """Number of slabs of a memory: one for each rank, or one for each node. Since: 0.1"""

    PER_RANK = 0
    PER_NODE = 1


class Mode(enum.IntEnum):
    """How the planner cuts buffers: see vescomm_planner_mode_t in vescomm/planner.h. Since: 0.1"""

    RAGGED = 0
    UNIFORM = 1
    BALANCED = 2
    OWNER = 3
    AUTOMATIC = 4


class Work(enum.IntEnum):
    """The optimizer's work on a matrix, by which Mode.OWNER balances. Since: 0.1"""

    MUON = 0
    ELEMENTS = 1

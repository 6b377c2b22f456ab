# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""vescomm: collectives on fused buffers and on arrays, for training large models.

    import numpy, vescomm

    with vescomm.Communicator.from_environment() as comm:
        x = numpy.ones(10, dtype=numpy.float32)
        comm.all_reduce(x)

Start it with `vescomm-run -n 4 python program.py`. The package needs no other package: arrays are
those of NumPy, torch, JAX and any other package that exports DLPack or the buffer protocol.
"""

from . import errors  # first: the extension module raises its classes
from ._core import Array, Memory, Request
from ._core import get_version as _get_version
from .buffer import Buffer
from .communicator import Communicator, Counters, trace_seconds
from .errors import (
    AbortedError,
    Error,
    InternalError,
    InvalidArgumentError,
    MismatchError,
    OperatingSystemError,
    OutOfMemoryError,
    PeerFailedError,
    TimeoutError,
    UnsupportedError,
)
from .layout import Layout, Piece, Tensor
from .log import use_logging, use_standard_error
from .planner import (
    BufferPlan,
    Figures,
    ModelPlan,
    PlannerTensor,
    Totals,
    plan,
    plan_model,
)
from .types import ANY_SOURCE, Message, Mode, Op, Sharing, Type, Work

__version__ = _get_version()

F32, BF16, F16, F64, F8E4M3, F8E5M2, I8, U8, I16, U16, I32, U32, I64, U64, BOOL, C64, C128 = Type
(
    SUM,
    AVERAGE,
    PROD,
    MIN,
    MAX,
    PREMULTIPLIED_SUM,
    BITWISE_AND,
    BITWISE_OR,
    BITWISE_XOR,
    LOGICAL_AND,
    LOGICAL_OR,
    LOGICAL_XOR,
) = Op
PER_RANK, PER_NODE = Sharing

__all__ = [
    "ANY_SOURCE",
    "AbortedError",
    "Array",
    "Buffer",
    "BufferPlan",
    "Communicator",
    "Counters",
    "Error",
    "Figures",
    "InternalError",
    "InvalidArgumentError",
    "Layout",
    "Memory",
    "Message",
    "MismatchError",
    "Mode",
    "ModelPlan",
    "Op",
    "OperatingSystemError",
    "OutOfMemoryError",
    "PeerFailedError",
    "Piece",
    "PlannerTensor",
    "Request",
    "Sharing",
    "Tensor",
    "TimeoutError",
    "Totals",
    "Type",
    "UnsupportedError",
    "Work",
    "errors",
    "plan",
    "plan_model",
    "trace_seconds",
    "use_logging",
    "use_standard_error",
    *Type.__members__,
    *Op.__members__,
    *Sharing.__members__,
]

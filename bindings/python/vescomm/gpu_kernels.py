# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Kernels on device memory, as functions of vescomm.gpu.

    words, clip = zeros(gpu.SUM_WORDS, int64), zeros(gpu.CLIP_BYTES, uint8)
    gpu.zero(words)
    gpu.add_squares(words, gradients)
    device.all_reduce(words)
    gpu.clip_factor(words, 1 / loss_scale, max_norm, clip)
    gpu.adamw(masters, gradients, m, v, step=1, clip=clip)

A call puts one launch for up to 128 pieces on a stream of the current device, on which all arrays
are, and returns before it is complete: the arrays must live until then. Results are bit-identical
to the same operations on host memory. `pieces` are consecutive elements, in ascending order of `target`, as
Piece or as tuples; None is the whole target, from the first element of the source on. A piece that
ends behind its array raises InvalidArgumentError. UnsupportedError: there are no kernels, no CUDA
runtime or no GPU; see check_kernels(). OperatingSystemError: CUDA failed.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple, Optional, Sequence

from . import _core
from .types import Type

#: Number of i64 of an exact sum of squares.
SUM_WORDS: int = _core.gpu_sum_words()
#: Bytes of a result of clip_factor(): norm (f64), factor (f32), and 1 if the step is skipped (i32).
CLIP_BYTES: int = _core.gpu_clip_bytes()


class Piece(NamedTuple):
    """Consecutive elements of slabs. Since: 0.1"""

    target: int  # first element in the target
    source: int  # first element in the source; not used without a source
    count: int  # type: ignore[assignment]  # elements


Pieces = Optional[Sequence[tuple[int, int, int]]]


def _address(stream: Any) -> int:
    """The cudaStream_t of a stream."""
    if stream is None:
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available():
            return 0
        stream = torch.cuda.current_stream()
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("cuda_stream", "ptr", "handle"):  # torch, CuPy, Numba and others
        if hasattr(stream, name):
            return int(getattr(stream, name))
    return int(stream)


def check_kernels() -> None:
    """Loads the kernels on the current device: call it before graphs are captured.

    Raises:
        UnsupportedError: its text states what is missing.

    Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
    """
    _core.gpu_check_kernels()


def zero(target: Any, pieces: Pieces = None, *, stream: Any = None) -> None:
    """Sets elements to zero.

    Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
    """
    _core.gpu_zero(target, pieces, _address(stream))


def copy(target: Any, source: Any, pieces: Pieces = None, *, stream: Any = None) -> None:
    """Copies elements. Types are equal, or both are floats, one of them f32 or f64.

    Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
    """
    _core.gpu_copy(target, source, pieces, _address(stream))


def add(target: Any, source: Any, pieces: Pieces = None, *, stream: Any = None) -> None:
    """Adds elements of the source to floats of the target, rounded once. Types are equal, or one is
    f32.

    Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
    """
    _core.gpu_add(target, source, pieces, _address(stream))


def scale(target: Any, factor: float, pieces: Pieces = None, *, stream: Any = None) -> None:
    """Multiplies floats by a factor, rounded to f32 (f64 for f64).

    Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
    """
    _core.gpu_scale(target, factor, pieces, _address(stream))


def unscale(
    target: Any, factor: float, overflow: Any, pieces: Pieces = None, *, stream: Any = None
) -> None:
    """Multiplies floats by a factor, and reports products that are not finite.

    Args:
        overflow: an array of one i32; becomes 1, and otherwise keeps its value.

    Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
    """
    _core.gpu_unscale(target, factor, overflow, pieces, _address(stream))


def add_squares(words: Any, source: Any, pieces: Pieces = None, *, stream: Any = None) -> None:
    """Adds the squares of elements to an exact sum.

    Args:
        words: SUM_WORDS i64, zero before the first call; all_reduce() adds those of ranks.
        source: f32, bf16 or f16; pieces have their places in it as target.

    Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
    """
    _core.gpu_add_squares(words, source, pieces, _address(stream))


def clip_factor(
    words: Any, scale: float, max_norm: float, result: Any, *, stream: Any = None
) -> None:
    """Computes the norm of gradients and the factor that clips it.

    Args:
        words: the sum of all ranks. Afterwards carries have moved between them; the sum is the same.
        scale: by which the gradients are multiplied before they are clipped.
        max_norm: 0 or less: no clipping.
        result: an array of at least CLIP_BYTES bytes.

    Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
    """
    _core.gpu_clip_factor(words, scale, max_norm, result, _address(stream))


def quantise(
    codes: Any,
    scales: Any,
    source: Any,
    block: int,
    code_type: int = Type.I8,
    *,
    stream: Any = None,
) -> None:
    """Writes a code of one byte for each element of the source, and an f32 scale for each block.

    Args:
        codes: elements of one byte, of any type.
        block: elements with one scale; the last block may be shorter.
        code_type: Type.I8 or Type.F8E4M3.

    Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
    """
    _core.gpu_quantise(codes, scales, source, block, code_type, _address(stream))


def dequantise(
    target: Any,
    codes: Any,
    scales: Any,
    block: int,
    code_type: int = Type.I8,
    *,
    stream: Any = None,
) -> None:
    """Writes code * scale for each element of the target; see quantise().

    Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
    """
    _core.gpu_dequantise(target, codes, scales, block, code_type, _address(stream))


def sum_quantised(
    target: Any,
    codes: Any,
    scales: Any,
    block: int,
    code_type: int = Type.I8,
    *,
    sources: int,
    code_stride: int,
    scale_stride: int,
    factor: float = 1.0,
    add: bool = False,
    stream: Any = None,
) -> None:
    """Sums contributions that quantise() has written, in their order and in f32, times a factor.

    Args:
        target: f32; the sum replaces its elements.
        codes, scales: those of source k begin at elements k * code_stride and k * scale_stride.
        add: True: the sum is added to the target.

    Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
    """
    _core.gpu_sum_quantised(
        target,
        codes,
        code_stride,
        scales,
        scale_stride,
        sources,
        block,
        factor,
        add,
        code_type,
        _address(stream),
    )

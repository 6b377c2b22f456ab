# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Steps of optimizers on device memory, as functions of vescomm.gpu; see gpu_kernels.py."""

from __future__ import annotations

from typing import Any, Optional

from . import _core
from .gpu_kernels import Pieces, _address

#: Elements of a block of moments of adam8bit().
MOMENT_BLOCK: int = _core.gpu_moment_block()


def _random_bits(random: Optional[tuple[int, int]]) -> Optional[tuple[int, int]]:
    return None if random is None else (random[0] % 2**64, random[1] % 2**64)


def adamw(
    parameters: Any,
    gradients: Any,
    m: Any,
    v: Any,
    pieces: Pieces = None,
    *,
    step: int,
    learning_rate: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 1e-2,
    gradient_scale: float = 1.0,
    clip: Any = None,
    random: Optional[tuple[int, int]] = None,
    stream: Any = None,
) -> None:
    """Makes one AdamW step in f32, in the order of operations of PyTorch's fused AdamW.

    Args:
        parameters: the target of the pieces, f32, bf16 or f16.
        m, v: f32, the target of the pieces.
        gradients: f32, the source of the pieces; unchanged.
        step: counted from 1.
        gradient_scale: multiplies every gradient first, without clip.
        clip: a result of clip_factor(), whose factor replaces gradient_scale; if it says skip,
            nothing changes.
        random: with bf16 and f16: they are rounded stochastically, with the random bits of a stream
            (another one in each step, such as seed + step). The second number is that of element 0
            of the parameters in the stream. None: they are rounded to the nearest.

    Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
    """
    _core.gpu_adamw(
        parameters,
        gradients,
        m,
        v,
        step,
        learning_rate,
        beta1,
        beta2,
        epsilon,
        weight_decay,
        gradient_scale,
        clip,
        _random_bits(random),
        pieces,
        _address(stream),
    )


def adam8bit(
    parameters: Any,
    gradients: Any,
    m: Any,
    v: Any,
    m_scales: Any,
    v_scales: Any,
    pieces: Pieces = None,
    *,
    step: int,
    learning_rate: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 1e-2,
    gradient_scale: float = 1.0,
    clip: Any = None,
    random: Optional[tuple[int, int]] = None,
    stream: Any = None,
) -> None:
    """Makes one AdamW step with moments in 8 bits. The other arguments are those of adamw().

    Args:
        m, v: u8, the target of the pieces; zero before the first step, as the scales.
        m_scales, v_scales: f32, one for each block of MOMENT_BLOCK elements of a piece, counted from
            its first element: those of the first piece, behind them those of the second one, and so
            on. The last block of a piece may be shorter. Use the same pieces in all steps.

    Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
    """
    _core.gpu_adam8bit(
        parameters,
        gradients,
        m,
        v,
        m_scales,
        v_scales,
        step,
        learning_rate,
        beta1,
        beta2,
        epsilon,
        weight_decay,
        gradient_scale,
        clip,
        _random_bits(random),
        pieces,
        _address(stream),
    )


def sgd(
    parameters: Any,
    gradients: Any,
    momentum_array: Any = None,
    pieces: Pieces = None,
    *,
    step: int,
    learning_rate: float = 1e-3,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    decoupled: bool = False,
    gradient_scale: float = 1.0,
    clip: Any = None,
    random: Optional[tuple[int, int]] = None,
    stream: Any = None,
) -> None:
    """Makes one step of stochastic gradient descent in f32, in the order of operations of
    torch.optim.SGD. The other arguments are those of adamw().

    Args:
        momentum_array: f32, the target of the pieces; zero before the first step. None if momentum
            is 0.
        momentum: 0: none.
        dampening: the momentum takes 1 - dampening of a gradient, but all of the first.
        weight_decay: added to the gradient; with decoupled a factor of the parameter.
        nesterov: Nesterov momentum, which needs a momentum and no dampening.

    Collective: no.  Blocking: no.  Threads: safe.  Since: 0.1
    """
    _core.gpu_sgd(
        parameters,
        gradients,
        momentum_array,
        step,
        learning_rate,
        momentum,
        dampening,
        weight_decay,
        nesterov,
        decoupled,
        gradient_scale,
        clip,
        _random_bits(random),
        pieces,
        _address(stream),
    )

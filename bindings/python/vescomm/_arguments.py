# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Arguments of Python as the extension module takes them."""

from __future__ import annotations

import operator
from typing import Optional, Sequence, Union

from .errors import InvalidArgumentError


def seconds_of(timeout: Optional[float]) -> float:
    """Returns a timeout as the library has it, where 0 is the default."""
    if timeout is None:
        return 0.0
    # Also scalars of NumPy are numbers.
    if isinstance(timeout, str) or not hasattr(timeout, "__float__") and not hasattr(timeout, "__index__"):
        raise TypeError(
            f"timeout is of type {type(timeout).__name__}; give a number of seconds, or None for the "
            "default"
        )
    if not timeout > 0:
        raise InvalidArgumentError(
            f"timeout is {timeout}; give more than 0 seconds, or None for the default"
        )
    return timeout


def extents_of(shape: Union[int, Sequence[int]]) -> Sequence[int]:
    """Returns a shape, or that of a vector, whose size may be a scalar of NumPy."""
    try:
        return (operator.index(shape),)  # type: ignore[arg-type]
    except TypeError:
        return shape  # type: ignore[return-value]


def types_of(type: Union[int, Sequence[int]], count: int) -> Sequence[int]:
    """Returns a type for each of `count` units."""
    if isinstance(type, (str, bytes)):
        raise TypeError(
            f"type is {type!r}; give a member of vescomm.Type, such as Type.BF16, or one for each unit"
        )
    return [type] * count if hasattr(type, "__index__") else list(type)  # type: ignore

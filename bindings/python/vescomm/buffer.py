# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Fused buffers, and the arrays that show their memory."""

from __future__ import annotations

from typing import Any

from . import _core
from .errors import InvalidArgumentError
from .layout import Layout

__all__ = ["Buffer", "to_numpy", "to_torch"]


class Buffer(_core.Buffer):
    __doc__ = _core.Buffer.__doc__

    @property
    def layout(self) -> Layout:
        """The layout. Since: 0.1"""
        return Layout._of(self._layout)

    def __repr__(self) -> str:
        try:
            return f"<vescomm.Buffer of {self._layout.elements} {self.type.name}>"
        except InvalidArgumentError:
            return "<vescomm.Buffer, freed>"


def to_numpy(array: _core.Array) -> Any:
    """Returns a NumPy array that shares the memory of an array; Array.numpy() calls it.

    Types that NumPy has not become those of the package ml_dtypes. Since: 0.1
    """
    import numpy

    names = {"BF16": "bfloat16", "F8E4M3": "float8_e4m3fn", "F8E5M2": "float8_e5m2"}
    name = names.get(array.type.name)
    if name is None:
        return numpy.asarray(memoryview(array))
    try:
        import ml_dtypes
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"NumPy has no type {name}; install the package ml_dtypes, or use torch()",
            name=error.name,
        ) from error

    raw = numpy.asarray(memoryview(array._raw()))
    return raw.view(getattr(ml_dtypes, name)).reshape(array.shape)


def to_torch(array: _core.Array) -> Any:
    """Returns a tensor of torch that shares the memory of an array; Array.torch() calls it.

    Since: 0.1
    """
    import torch  # type: ignore[import-not-found,unused-ignore]

    return torch.from_dlpack(array)

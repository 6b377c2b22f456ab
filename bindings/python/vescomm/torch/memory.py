# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors in registered memory: local peers read them where they are."""

import ctypes
import weakref

import torch

from ..errors import OutOfMemoryError
from ..types import Type


def _registered(link, nbytes):
    return torch.from_dlpack(link.comm._empty([nbytes], Type.U8))


def _bytes(count, dtype):
    return count * torch.empty((), dtype=dtype).element_size()


def allocate(link, count, dtype):
    """A tensor of one dimension in registered memory, which is freed with its storage."""
    return _registered(link, _bytes(count, dtype)).view(dtype)


class Pool:
    """Registered memory that is used again and again, because the pages of new memory cost more than
    a gather in it. Memory comes back when the last tensor in it dies.
    """

    def __init__(self, link):
        self._link = link
        self._free = {}  # by size in bytes
        self._exhausted = False

    def allocate(self, count, dtype):
        nbytes = _bytes(count, dtype)
        if nbytes == 0:
            return torch.empty(count, dtype=dtype)
        free = self._free.setdefault(nbytes, [])
        memory = free.pop() if free else self._new(nbytes)
        # The tensor keeps the lease alive, and the lease the memory.
        lease = (ctypes.c_ubyte * nbytes).from_address(memory.data_ptr())
        weakref.finalize(lease, free.append, memory).atexit = False
        return torch.frombuffer(lease, dtype=dtype, count=count)

    def _new(self, nbytes):
        if not self._exhausted:
            try:
                return _registered(self._link, nbytes)
            except OutOfMemoryError:
                self._exhausted = True  # private memory serves too
        return torch.empty(nbytes, dtype=torch.uint8)

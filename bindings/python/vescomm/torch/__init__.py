# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Backend "vescomm" of torch.distributed, and accelerate() for FSDP2.

    torch.distributed.init_process_group("vescomm")

needs no import of this module: torch finds the backend through its entry point. An import registers
the backend too.
"""

import torch.distributed as _dist

from . import group as _group
from . import work as _work
from .errors import BackendError

__all__ = ["BackendError", "accelerate", "register"]

_registered = False


def register():
    """Registers the backend with torch.distributed. May be called several times."""
    global _registered
    if _registered:
        return
    _dist.Backend.register_backend(
        "vescomm", _group.create, extended_api=True, devices=["cpu"]
    )
    _work.keep_works_of_reducers()
    _registered = True


register()


def __getattr__(name):
    # FSDP2 takes half a second to import, and only callers of accelerate() have it.
    if name == "accelerate":
        from .fsdp2 import accelerate

        return accelerate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

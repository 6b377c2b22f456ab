# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""The process group of torch.distributed, and the Backend in it.

Python callers call the methods of Group directly, and get its Works. Callers in C++, such as the
reducer of DDP, find them through torch's trampolines. What ProcessGroup does not forward reaches
the Backend, which has the same methods over the same communicator.
"""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend as _Backend

from .collectives import Collectives
from .errors import BackendError
from .link import Link
from .memory import allocate
from .operation import Operation
from .work import Work

# Torch holds the C++ halves of these objects only.
_alive: dict = {}


class _Member(Collectives):
    """The methods of Group and Backend that are no collectives."""

    def getBackendName(self):
        return "vescomm"

    def abort(self):
        """Breaks the group, and ends its use: torch makes no other call after it."""
        self._main_link.abort("the program aborted the group")
        self.shutdown()

    def shutdown(self):
        self._main_link.close()
        _alive.pop(id(self._main_link), None)

    def set_timeout(self, timeout):
        self._main_link.set_timeout(timeout.total_seconds())

    _set_default_timeout = set_timeout

    def get_error(self):
        types = torch._C._distributed_c10d.ErrorType
        failure = self._main_link.failure
        if failure is None:
            return types.SUCCESS
        return types.TIMEOUT if "Timed out" in str(failure) else types.COMM_ERROR

    def _set_sequence_number_for_group(self):
        pass

    def _get_sequence_number_for_group(self):
        return self._main_link.calls


class VescommBackend(_Member, _Backend):
    """What group._get_backend(device) returns."""

    # Torch recurses for ever when it reads one of these that a subclass does not define.
    supports_splitting = True
    supports_coalescing = False
    supports_shrinking = False
    supports_reconfigure = False
    supports_window = False
    _supports_time_estimate = False

    def __init__(self, link, timeout):
        super().__init__(link.rank, link.size)
        self._main_link = link
        self._options = _Backend.Options("vescomm", timeout)

    @property
    def options(self):
        return self._options

    @property
    def link(self):
        return self._main_link

    def supports_tensor_alloc(self, device):
        return not isinstance(device, torch.device) or device.type == "cpu"

    def allocate_tensor(self, size, *, dtype, device=None):
        return allocate(self._main_link, size, dtype)

    def eager_connect_single_device(self, device):
        pass  # it is connected

    # Called by torch's own groups of several devices. It would use None as a backend.
    def split(self, store, ranks, opts):
        if self._main_link.rank not in ranks:
            raise NotImplementedError(
                f"vescomm: rank {self._main_link.rank} is not in the new group {ranks}: split_group() of a "
                "group of several devices needs a split that contains each rank; use new_group()"
            )
        timeout = opts._timeout
        name = getattr(opts, "group_name", None) or "split"
        link = Link(store, ranks.index(self._main_link.rank), len(ranks), timeout, name)
        backend = VescommBackend(link, timeout)
        _alive[id(link)] = backend
        return backend


class Group(_Member, dist.ProcessGroup):
    """A process group of ranks over one communicator."""

    def __init__(self, store, link, timeout):
        super().__init__(store, link.rank, link.size)
        self._main_link = link
        backend = VescommBackend(link, timeout)
        kind = dist.ProcessGroup.BackendType.CUSTOM
        self._set_default_backend(kind)
        self._register_backend(torch.device("cpu"), kind, backend)
        _alive[id(link)] = (self, backend)

    def split_group(
        self, new_ranks, timeout=None, opts=None, group_name=None, group_desc=None, device_types=None
    ):
        """Called by torch.distributed.split_group(). The new group is one of this class, too."""
        if self._main_link.rank not in new_ranks:
            return None
        if timeout is None:
            timeout = getattr(opts, "_timeout", None) or timedelta(seconds=self._main_link.seconds)
        store = dist.PrefixStore(f"split/{group_name}", self.get_group_store())
        rank = new_ranks.index(self._main_link.rank)
        link = Link(store, rank, len(new_ranks), timeout, group_name)
        group = Group(store, link, timeout)
        group._set_group_name(group_name)
        group._set_group_desc(group_desc or "")
        return group


def create(options, backend_options):
    """Called by torch on each member of a new group."""
    timeout = options.timeout
    if isinstance(backend_options, _Backend.Options):
        timeout = backend_options._timeout
    link = Link(options.store, options.group_rank, options.group_size, timeout, options.group_id)
    if _is_mixed(options):
        # Torch itself dispatches to the backends of a group of several devices.
        backend = VescommBackend(link, timeout)
        _alive[id(link)] = backend
        return backend
    return Group(options.store, link, timeout)


def _is_mixed(options):
    """True: the group has other backends for other devices."""
    name = options.process_group.name()
    return name not in ("custom", "vescomm", "undefined")

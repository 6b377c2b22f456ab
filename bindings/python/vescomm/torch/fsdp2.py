# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""accelerate(): FSDP2 on registered memory, with gathers and reductions that overlap with compute.

FSDP2 on the CPU waits for every collective where it calls it. The hooks here return from a gather
at once, and prefetch the parameters of the next module in forward; FSDP2 itself does so in
backward. A reduction ends in a callback at the end of backward, unless something reads its result
before.
"""

import warnings
import weakref

import torch
import torch.distributed as dist
from torch.autograd import Variable
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter
from torch.distributed.fsdp._fully_shard._fsdp_collectives import (
    DefaultAllGather,
    DefaultReduceScatter,
)
from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState

from .calls import Lazy
from .group import VescommBackend
from .memory import Pool


def accelerate(model):
    """Makes an FSDP2 model communicate in registered memory, and while it computes.

        model = fully_shard(model)
        vescomm.torch.accelerate(model)

    Call it after fully_shard() on all modules and before the first forward; once. The groups of the
    model must have the backend vescomm. Training gives the same numbers as without it, bit for bit.

    It uses FSDP2's own hooks: set_custom_all_gather(), set_custom_reduce_scatter(),
    set_modules_to_forward_prefetch(). Where a feature of FSDP2 forbids a part of it, that part
    stays as it is in FSDP2, and a warning says so once.

    Args:
        model: a module to which fully_shard() was applied.

    Returns:
        The model.
    """
    modules = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not modules:
        raise ValueError("vescomm: accelerate() was given a model without FSDP2 modules; call fully_shard() first")
    notices = _Notices()
    order = _ForwardOrder()
    gathered = _Gathered()
    reductions = _Reductions()
    pools = {}
    for module in modules:
        groups = module._get_fsdp_state()._fsdp_param_groups
        if len(groups) > 1:
            notices.say("a module has several parameter groups; FSDP2 has no hooks for it")
        if len(groups) != 1:
            continue
        group = groups[0]
        link = _link_of(group)
        if link is None:
            notices.say(
                "a module is not sharded over several ranks of a group with the backend vescomm"
            )
            continue
        pool = pools.setdefault(id(link), Pool(link))
        module.set_custom_all_gather(_Gather(pool, group, module, order, gathered))
        module.set_custom_reduce_scatter(_Scatter(pool, group, reductions, notices))
    return model


def _link_of(group):
    """The link over which the parameters of an FSDPParamGroup are gathered, or None."""
    try:
        process_group = group._all_gather_process_group
    except (AttributeError, AssertionError):
        return None  # replicate() shards nothing
    backend = _backend_of(process_group)
    return None if backend is None or process_group.size() == 1 else backend.link


def _backend_of(process_group):
    """The backend for tensors of the CPU, if it is this one. A group with several backends has no
    methods with the options of this one.
    """
    try:
        backend = process_group._get_backend(torch.device("cpu"))
    except (AttributeError, RuntimeError):
        return None
    return backend if isinstance(backend, VescommBackend) else None


class _Notices:
    """Warnings, each once, on rank 0."""

    def __init__(self):
        self._said = set()

    def say(self, why):
        if why in self._said:
            return
        self._said.add(why)
        if dist.get_rank() == 0:
            warnings.warn(f"vescomm.torch.accelerate: {why}", stacklevel=3)


class _ForwardOrder:
    """The order in which forward uses modules, seen in the first iteration, then prefetched."""

    def __init__(self):
        self._modules = []
        self._done = False

    def gathers(self, module, state):
        """A module gathers its parameters."""
        if self._done:
            return
        if state == TrainingState.FORWARD and all(each() is not module for each in self._modules):
            self._modules.append(weakref.ref(module))
            return
        # The first backward, or the second forward.
        self._done = True
        modules = [each() for each in self._modules]
        for module, following in zip(modules, modules[1:]):
            if module is None or following is None:
                continue
            if not module._get_fsdp_state()._states_to_forward_prefetch:
                module.set_modules_to_forward_prefetch([following])


class _Gathered:
    """The groups that have started a gather in this forward.

    Forward may end before the last of the modules, and the program may change the parameters before
    it uses those that were prefetched. The end of a forward therefore drops every gather for which
    no module has waited; backward does so itself.
    """

    def __init__(self):
        self._groups = weakref.WeakSet()
        self._roots = weakref.WeakSet()  # modules whose forward ends with a call of _end()

    def add(self, module, group):
        state = module._get_fsdp_state()
        root = state._state_ctx.iter_forward_root
        if root is None:
            return  # the program has gathered outside of forward
        self._groups.add(group)
        for each in root._modules:
            if each not in self._roots:
                self._roots.add(each)
                each.register_forward_hook(self._end, always_call=True)

    def _end(self, module, *arguments):
        state = module._get_fsdp_state()
        root = state._state_ctx.iter_forward_root
        if root is not None and root is not state:
            return  # the module was called by another one
        for group in [each for each in self._groups if each.comm_ctx is state._comm_ctx]:
            self._groups.discard(group)
            result, group._all_gather_result = group._all_gather_result, None
            # A forward that raised an exception is still set. It waits for no other rank: the gather
            # ends in a thread.
            if result is not None and root is None and result.all_gather_work is not None:
                result.all_gather_work.wait()


class _Gather(AllGather):
    def __init__(self, pool, group, module, order, gathered):
        self._pool = pool
        self._gathered = gathered
        self._group = weakref.ref(group)
        self._module = weakref.ref(module)
        self._order = order

    def allocate(self, size, *, dtype, device):
        return _allocate(self._pool, size, dtype)

    def __call__(self, output_tensor, input_tensor, group, async_op=False):
        module, param_group = self._module(), self._group()
        state = param_group._training_state
        self._order.gathers(module, state)
        if state == TrainingState.FORWARD:
            self._gathered.add(module, param_group)
        backend = _backend_of(group)
        if backend is None:
            return DefaultAllGather.__call__(self, output_tensor, input_tensor, group, async_op)
        return backend.all_gather_single(output_tensor, input_tensor, Lazy())


class _Scatter(ReduceScatter):
    def __init__(self, pool, group, reductions, notices):
        self._pool = pool
        self._group = weakref.ref(group)
        self._reductions = reductions
        self._notices = notices

    def allocate(self, size, *, dtype, device):
        return _allocate(self._pool, size, dtype)

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        backend = _backend_of(group)
        if backend is None:  # set_separate_reduce_scatter_group()
            self._notices.say("gradients are reduced over a group of another backend")
            return DefaultReduceScatter.__call__(
                self, output_tensor, input_tensor, group, op, async_op
            )
        work = backend.reduce_scatter_single(output_tensor, input_tensor, Lazy(op))
        why = _reader(self._group(), output_tensor.dtype, op)
        if why is None:
            why = self._reductions.add(work)
        if why is not None:
            self._notices.say(f"{why}, so a module waits for its gradients within backward")
            work.wait()


class _Reductions:
    """The reductions of a model that end after the calls that started them."""

    # Each holds all gradients of a module. A reduction ends when the next but one starts.
    _max = 2

    def __init__(self):
        self._running = []

    def add(self, work):
        """Returns why the caller must wait, or None."""
        # Each time: a backward that raised an exception did not run its callbacks.
        try:
            Variable._execution_engine.queue_callback(self._end)
        except RuntimeError:
            return "gradients are reduced outside of backward"
        self._running.append(work)
        while len(self._running) > self._max:
            self._running.pop(0).wait()
        return None

    def _end(self):
        running, self._running = self._running, []
        for work in running:
            work.wait()


def _reader(group, dtype, op):
    """What reads or changes the reduced gradients before the end of backward; None: nothing."""
    if op not in (dist.ReduceOp.AVG, dist.ReduceOp.PREMUL_SUM) and group is not None:
        return "gradients are divided after their reduction"
    if getattr(group, "_is_hsdp", True):
        return "gradients are also reduced over replicas"
    if group._all_reduce_hook is not None:
        return "there is an all-reduce hook"
    for param in group.fsdp_params:
        if param.offload_to_cpu:
            return "gradients are offloaded"
        if param.sharded_param.grad is not None:
            return "gradients are accumulated"
        if getattr(param, "sharded_grad_dtype", param.orig_dtype) not in (None, dtype):
            return "gradients are reduced in another type than they have"
        if getattr(param.sharded_param, "_post_accumulate_grad_hooks", None):
            return "a parameter has a post-accumulate-grad hook"
    return None


def _allocate(pool, size, dtype):
    count = 1
    for extent in size:
        count *= int(extent)
    return pool.allocate(count, dtype).view(*size)

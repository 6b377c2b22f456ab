# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""The parts that all calls of a group share: their options, checks, starts, and ends.

A call with options that do not ask for an asynchronous operation returns None when it is complete;
torch accepts that everywhere. A call without options is asynchronous, as in torch.
"""

import contextlib
import threading
from datetime import timedelta

import torch
from torch.distributed import ReduceOp

from ..errors import InvalidArgumentError
from .callbacks import running as running_callbacks
from .errors import is_of_overlap
from .operation import LARGE, Operation
from .work import Work

_SUM = ReduceOp(ReduceOp.SUM)


def single(tensors, what):
    """The tensor of a call that torch gives a list."""
    if tensors.__class__ is list and len(tensors) == 1:
        return tensors[0]
    if isinstance(tensors, torch.Tensor):
        return tensors
    raise ValueError(f"vescomm: {what} takes one tensor, and was given {len(tensors)}")


def seconds_of(timeout):
    """Seconds of a timeout of torch; None if it is not set."""
    return None if timeout is None or timeout.days < 0 else timeout.total_seconds()


class Given:
    """The options of a call that was made without options, as in allreduce(tensor, op, timeout)."""

    asyncOp = True
    def __init__(self, *given, timeout=None, op=None, root=0):
        for each in given:
            if isinstance(each, timedelta):
                timeout = each
            elif hasattr(each, "op") or isinstance(each, type(ReduceOp.SUM)):
                op = each
            elif isinstance(each, int):
                root = each
        if op is None:
            op = _SUM
        # An enumerator counts as an instance of ReduceOp, but lacks its attributes.
        self.reduceOp = op if hasattr(op, "op") else ReduceOp(op)
        self.rootRank = root
        self.timeout = timeout


class Lazy(Given):
    """The options of a call whose caller waits soon, on registered arrays.

    Other ranks read these arrays without this one. A large operation then needs a thread only to
    overlap with what the program computes, for which there must be a core.
    """


# To be asked for an attribute takes a class of torch longer than to be found in a set.
_CLASSES = {Given, Lazy}


def options(given, more=(), named={}):
    """Options of torch as they are; those of the short forms as Given."""
    if given.__class__ in _CLASSES:
        return given
    if hasattr(given, "asyncOp"):
        _CLASSES.add(given.__class__)
        return given
    return Given(given, *more, **named)


def require_whole(whole, part, size, what, whole_name, part_name):
    """Checks that one tensor has the elements of all ranks, and another those of one rank."""
    require_types([whole, part], what)
    if whole.numel() != part.numel() * size:
        raise ValueError(
            f"vescomm: the {whole_name} of {what} has {whole.numel()} elements; it must have "
            f"{part.numel()} ({part_name}) * {size} (ranks)"
        )


def require_types(tensors, what):
    for tensor in tensors:
        if tensor.dtype != tensors[0].dtype:
            raise ValueError(
                f"vescomm: the tensors of {what} have the types {tensors[0].dtype} and "
                f"{tensor.dtype}; give all of them one type"
            )


def require_equal(parts, one, what, parts_name, one_name):
    require_types([one, *parts], what)
    for rank, part in enumerate(parts):
        if part.numel() != one.numel():
            raise ValueError(
                f"vescomm: {parts_name}[{rank}] of {what} has {part.numel()} elements, and the "
                f"{one_name} {one.numel()}; they must be equal"
            )


def require_pairs(outputs, inputs, what):
    if not inputs or len(outputs) != len(inputs):
        raise ValueError(
            f"vescomm: {what} was given {len(outputs)} outputs and {len(inputs)} inputs; give the "
            "same number, at least one"
        )


class _All:
    """Several operations, as a request."""

    def __init__(self, operations):
        self._operations = operations

    def wait(self, seconds=None):
        for operation in self._operations:
            operation.wait(seconds)
        return True

    def test(self):
        return all([operation.test() for operation in self._operations])


class _Collected:
    """The operations of a thread since start_coalescing(). Torch does not call end_coalescing() after
    an exception, so those that are complete are dropped, with their tensors.
    """

    def __init__(self):
        self.thread = threading.get_ident()
        self.operations = []
        self._next_search = 8  # number of operations

    def append(self, operation):
        if len(self.operations) >= self._next_search:
            # A failed one is kept for its exception.
            self.operations = [each for each in self.operations if not each.done or each.error]
            self._next_search = 8 + 2 * len(self.operations)
        self.operations.append(operation)


class Calls:
    """The starts and ends of calls, over the Link in self._link."""

    _main_link = None
    _collected = None

    @property
    def _link(self):
        if running_callbacks() is None:
            return self._main_link
        return self._main_link.of_callbacks()

    def _start(self, build, *arguments):
        """Starts a call on arrays, and returns its request and what else `build` returned.

        The library takes no arrays that overlap, but for a rank's own block in place. It refuses
        them before the operation starts. The call is then built again, with every array apart from
        the others: calls that do not need it bear no cost. A refusal for another reason is raised.

        Args:
            build: build(*arguments, apart=False) returns the call, as a tuple of a function and its
                arguments; the memory that it uses; and the Copies that follow it.
        """
        call, kept, copies = build(*arguments)
        try:
            return self._link.start(kept, *call), kept, copies
        except InvalidArgumentError as error:
            if not is_of_overlap(error):
                raise
        call, kept, copies = build(*arguments, apart=True)
        return self._link.start(kept, *call), kept, copies

    def _end(self, request, opts, what, tensors, result, nbytes, then=None):
        """Waits for a request, or returns its Work."""
        limit = seconds_of(opts.timeout)
        link = self._link
        if not opts.asyncOp:
            try:
                link.wait(request, what, limit)
            except Exception as error:
                raise link.failed(error, what) from None
            except BaseException:
                # The program was interrupted. The other ranks need the operation all the same.
                with contextlib.suppress(RuntimeError):  # no threads are left
                    link.complete_in_thread(Operation(link, request, what, tensors, result))
                raise
            if then:
                then()
            return None
        if nbytes >= LARGE and opts.__class__ is Lazy and not link.has_free_cores:
            nbytes = 0
        return self._work(Operation(link, request, what, tensors, result, then, limit), nbytes)

    def _work(self, operation, nbytes):
        if nbytes >= LARGE:
            operation.link.complete_in_thread(operation)
        collected = self._collected
        if collected is not None and collected.thread == threading.get_ident():
            collected.append(operation)
        return Work(operation)

    def start_coalescing(self, device=None):
        self._collected = _Collected()

    def end_coalescing(self, device=None):
        """One Work for the operations since start_coalescing(). They have started one by one."""
        operations = self._collected.operations
        self._collected = None
        return Work(Operation(self._main_link, _All(operations), "coalesced calls", None, []))

    def _end_group(self, calls, opts, what, tensors, result, nbytes, then):
        """Starts calls, given as tuples of a function and its arguments, as one request."""
        if not calls:
            raise ValueError(f"vescomm: {what} was given no tensors")
        request = self._link.start_group(calls, tensors)
        return self._end(request, opts, what, tensors, result, nbytes, then)

    def _each(self, tensors, what, name):
        """A list with a tensor for each rank."""
        if len(tensors) != self._link.size:
            raise ValueError(
                f"vescomm: {what} was given {len(tensors)} {name}; give one for each of the "
                f"{self._link.size} ranks"
            )
        return tensors

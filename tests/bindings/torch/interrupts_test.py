#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Exceptions of signal handlers, such as that of Ctrl-C, between any two steps of a call: the memory
of the tensors lives as long as the library uses it, and no other rank waits.
"""

import gc
import unittest
import weakref

import ranks
import torch
import torch.distributed as dist
import vescomm
from vescomm.torch.calls import Calls

COUNTS = (3, 9_000, 200_000)


class Interrupted(BaseException):
    """As KeyboardInterrupt."""


def interrupted(call, owner, method):
    """Calls, with an exception at the beginning of a method."""
    original = getattr(owner, method)

    def interrupt(*arguments, **named):
        raise Interrupted

    setattr(owner, method, interrupt)
    try:
        call()
        raise AssertionError("no exception")
    except Interrupted:
        pass
    finally:
        setattr(owner, method, original)


def started(count):
    """The exception comes when the operation has started, and nobody has its request."""
    rank, size = dist.get_rank(), dist.get_world_size()
    store = dist.distributed_c10d._get_default_store()
    world = dist.group.WORLD

    def calls(tensors):
        """A call for each kind of memory: one tensor, several, copies, and those of a group."""
        first, second, strided = tensors
        return [
            lambda: dist.all_reduce(first),
            lambda: dist.all_gather([first, second], torch.ones(count)),
            lambda: dist.all_reduce(strided),
            lambda: dist.reduce_scatter(first, [second, torch.ones(count)]),
            lambda: dist.all_to_all([first, second], [torch.ones(count), torch.ones(count)]),
            lambda: world.allreduce_coalesced([first, second]).wait(),
            lambda: dist.broadcast(first, 1),
        ]

    def make_tensors():
        return [torch.ones(count), torch.ones(count), torch.ones(2 * count)[::2]]

    for index in range(len(calls([None] * 3))):
        if rank != 0:
            store.wait([f"dropped {index}"])
            calls(make_tensors())[index]()
            dist.barrier()
            continue
        tensors = make_tensors()
        alive = weakref.ref(tensors[0])
        interrupted(calls(tensors)[index], Calls, "_end")
        if index != 2:
            del tensors
            gc.collect()
            assert alive() is not None, f"call {index} of {count} elements"
        # What the program allocates now is not written by the operation.
        others = [torch.zeros(count) for _ in range(20)]
        store.set(f"dropped {index}", "")
        dist.barrier()
        assert all((other == 0).all() for other in others), f"call {index} of {count} elements"
    tensor = torch.ones(count)
    dist.all_reduce(tensor)
    assert (tensor == size).all()


def in_a_group():
    """The exception comes between the calls of a group: the other ranks get a failure, not a wait."""
    link = dist.group.WORLD._link
    tensor = torch.ones(2)
    good = (vescomm.Communicator.all_reduce_at, tensor.data_ptr(), tensor.data_ptr(), 2, 1, 0)

    def interrupt(comm):
        raise Interrupted

    if dist.get_rank() == 0:
        try:
            link.start_group([good, (interrupt,)])
            raise AssertionError("no exception")
        except Interrupted:
            pass
    for _ in range(2):
        try:
            while True:
                dist.all_reduce(tensor)
        except RuntimeError as error:
            assert "a call of a group failed: Interrupted" in str(error), error


class Interrupts(unittest.TestCase):
    def test_after_a_start(self):
        for count in COUNTS:
            ranks.run(2, started, count)

    def test_in_a_group_of_calls(self):
        ranks.run(2, in_a_group)


if __name__ == "__main__":
    ranks.import_before_fork()
    unittest.main(verbosity=2, warnings="ignore")

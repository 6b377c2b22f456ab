#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Failures: every rank gets an exception that names the rank and the reason, and every process ends.

The ranks have a timeout of a minute, so none of these exceptions is a timeout unless the test says
so. The time from a failure to the last exception is printed, and not checked.
"""

import os
import signal
import tempfile
import threading
import time
import unittest
from datetime import timedelta

import ranks
import torch
import torch.distributed as dist
import vescomm

LARGE = 200_000


def raises(call, *words):
    """Calls, and returns the text of the exception, which has all words."""
    try:
        call()
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        for word in words:
            assert word in text, f"no {word!r} in: {text}"
        assert isinstance(error, RuntimeError), text
        return text
    raise AssertionError(f"no exception with {words}")


def reduce(count=4):
    dist.all_reduce(torch.ones(count))


def meet():
    """Returns after all ranks have called it: no operation is under way then."""
    store = dist.distributed_c10d._get_default_store()
    if store.add("met", 1) == dist.get_world_size():
        store.set("all have met", "")
    store.wait(["all have met"])


def until_failure():
    while True:
        reduce()


def killed(how):
    """The last rank is killed while the others wait, compute, or hold a Work or a future."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    reduce()
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    future.wait()
    meet()
    name = f"rank {last}"
    if rank == last:
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "in a wait":
        raises(reduce, name)
    elif how == "with a Work":
        for count in (4, LARGE):
            raises(lambda: dist.all_reduce(torch.ones(count), async_op=True).wait(), name)
    elif how == "with a future":
        raises(lambda: dist.all_reduce(torch.ones(LARGE), async_op=True).get_future().wait(), name)
    elif how == "in a receive":
        raises(lambda: dist.recv(torch.ones(3), last), name)
    elif how == "in a callback":
        raises(lambda: future.then(lambda _: reduce()).wait(), name)
    elif how == "in a monitored barrier":
        raises(dist.monitored_barrier, name)
    # The group stays unusable, with the same reason.
    raises(reduce, name)
    error = dist.group.WORLD._get_backend(torch.device("cpu")).get_error()
    assert error != torch._C._distributed_c10d.ErrorType.SUCCESS


def mismatched(how):
    rank = dist.get_rank()
    reduce()
    meet()
    if how == "sizes":
        raises(lambda: reduce(4 + rank % 2), "rank")
    elif how == "types":
        dtype = torch.float32 if rank % 2 else torch.int32
        raises(lambda: dist.all_reduce(torch.ones(4, dtype=dtype)), "f32", "i32")
    elif how == "collectives":
        call = reduce if rank % 2 else lambda: dist.broadcast(torch.ones(4), 0)

        def repeat():
            call()
            until_failure()  # a root of a broadcast depends on no other rank

        raises(repeat, "broadcast", "all_reduce")


def raised_in_one(how):
    """The last rank raises an exception, and its process ends."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    if rank == last:
        if how == "uncaught":
            raise KeyError("the reason")
        if how == "with destroy":
            try:
                raise KeyError("the reason")
            finally:
                dist.destroy_process_group()
    # With destroy_process_group() the end of the group may come before that of the process.
    reason = ["KeyError: 'the reason'"] if how == "uncaught" else []
    raises(until_failure, f"rank {last}", *reason)


def destroyed_in_a_handler():
    """One rank destroys its group while it handles an exception; the others read its broadcast.
    Within a node it has done so before they call broadcast()."""
    store = dist.distributed_c10d._get_default_store()
    tensor = torch.full((4,), float(dist.get_rank() + 1))
    if dist.get_rank() == 0:
        dist.broadcast(tensor, 0)
        try:
            raise KeyError("handled")
        except KeyError:
            dist.destroy_process_group()
        store.set("destroyed", "")
        return
    if ranks.NODES == 1:
        store.wait(["destroyed"])
    dist.broadcast(tensor, 0)
    assert (tensor == 1).all()


def wrong_in_a_group():
    """A wrong argument of a coalesced call is an exception of that rank only, as of a plain one."""
    size = dist.get_world_size()
    world = dist.group.WORLD
    AND = dist.ReduceOp.BAND
    ones = torch.ones(2 * size)
    one = dist.AllreduceCoalescedOptions()
    one.reduceOp = AND
    huge = dist.AllreduceCoalescedOptions()
    huge.reduceOp = dist.ReduceOp.PREMUL_SUM(1e19)
    for call in (
        lambda: world.allreduce_coalesced([torch.ones(2, dtype=torch.int32), ones], one),
        lambda: world.allreduce_coalesced([ones, torch.ones(2, dtype=torch.int32)], one),
        lambda: dist.all_reduce(ones, op=AND),
        lambda: dist.reduce(torch.ones(2, dtype=torch.complex64), 0, op=dist.ReduceOp.MAX),
        lambda: dist.all_reduce(torch.ones(2, dtype=torch.bool), op=dist.ReduceOp.AVG),
        lambda: dist.all_reduce(ones, op=dist.ReduceOp.PREMUL_SUM(0.0)),
        lambda: dist.all_reduce(ones.int(), op=dist.ReduceOp.PREMUL_SUM(0.5)),
        lambda: world.allreduce_coalesced([ones.int(), ones], huge),
    ):
        if dist.get_rank() == 0:
            try:
                call()
                raise AssertionError("no exception")
            except ValueError as error:
                assert str(error).startswith("vescomm: "), error
    tensors = [torch.ones(2), torch.ones(3)]
    world.allreduce_coalesced(tensors).wait()
    assert all((tensor == size).all() for tensor in tensors)


def broken_in_a_group():
    """A call of a group fails for a reason that only the library finds."""
    link = dist.group.WORLD._link
    tensor = torch.ones(2)
    reduce_at = vescomm.Communicator.all_reduce_at
    good = (reduce_at, tensor.data_ptr(), tensor.data_ptr(), 2, 1, 0)
    wrong = (reduce_at, tensor.data_ptr(), tensor.data_ptr(), -1, 1, 0)
    if dist.get_rank() == 0:
        try:
            link.start_group([good, wrong])
            raise AssertionError("no exception")
        except ValueError as error:
            assert "count is -1" in str(error), error
        # The communicator is broken, and has no open group.
        raises(lambda: link.start_group([good]), "a call of a group failed", "count is -1")
        raises(reduce, "a call of a group failed")
        return
    raises(until_failure, "rank 0 aborted", "a call of a group failed")


def timed_out():
    """Timeouts of a second, of the group or of the call. Only rank 0 calls."""
    world = dist.group.WORLD
    groups = [dist.new_group(timeout=timedelta(seconds=1)), dist.new_group(), dist.new_group()]
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() != 0:
        store.wait(["done"])
        return
    second = timedelta(seconds=1)
    raises(lambda: dist.barrier(groups[0]), " Timed out ", "rank 1", "1 s")
    raises(
        lambda: dist.all_reduce(torch.ones(3), group=groups[0]), "rank 1", "give the group a longer"
    )
    work = dist.all_reduce(torch.ones(3), group=groups[1], async_op=True)
    raises(lambda: work.wait(second), " Timed out ", "all_reduce", "still running")
    assert not work.is_completed()
    opts = dist.BarrierOptions()
    opts.timeout = second
    opts.asyncOp = False
    raises(lambda: groups[1].barrier(opts=opts), " Timed out in barrier", "1 s")
    raises(work.wait, "rank 0 aborted", "barrier")
    groups[2].set_timeout(second)
    raises(lambda: dist.barrier(groups[2]), " Timed out ", "1 s")
    store.set("done", "")
    assert world.name() == "vescomm"


def timeouts_of_calls():
    """The timeout of a call counts, also if it is longer than that of set_timeout()."""
    waits = []

    class Request:
        def wait(self, seconds=None):
            waits.append(seconds)
            return True

    link = dist.group.WORLD._link
    dist.group.WORLD.set_timeout(timedelta(seconds=2))
    for limit in (None, 1, 50):
        assert link.wait(Request(), "a call", limit)
    assert waits == [2, 1, 50], waits


def interrupted_in_creation():
    """Ctrl-C while a group is created, and its other rank does not come."""
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() != 0:
        store.wait(["interrupted"])
        return
    main = threading.main_thread().ident

    def interrupt():
        while not any(each.name == "vescomm store" for each in threading.enumerate()):
            pass
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        dist.new_group()
        raise AssertionError("the group was created without rank 1")
    except KeyboardInterrupt:
        pass
    store.set("interrupted", "")


def aborted():
    if dist.get_rank() == 0:
        dist.group.WORLD.abort()
        raises(reduce, "rank 0 aborted")
        return
    raises(until_failure, "rank 0 aborted")


def aborted_in_wait():
    """Another thread of the same process aborts."""
    if dist.get_rank() != 0:
        raises(until_failure, "rank 0 aborted")
        return
    work = dist.irecv(torch.ones(3), 0)  # never sent
    threading.Thread(target=dist.group.WORLD.abort).start()
    raises(work.wait, "rank 0 aborted")


def interrupted():
    """Ctrl-C ends a wait, and the process; the other ranks learn the reason."""
    if dist.get_rank() != 0:
        raises(until_failure, "rank 0", "KeyboardInterrupt")
        return
    main = threading.main_thread().ident
    waiting = torch.zeros(1)

    def interrupt():
        while not waiting[0]:
            pass
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        waiting[0] = 1
        dist.recv(torch.ones(3), 0)  # never sent
    except KeyboardInterrupt:
        raise


def incomplete(folder):
    """The last rank never creates its group."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if rank == size - 1:
        return
    raises(
        lambda: dist.init_process_group(
            "vescomm",
            init_method=f"file://{folder}/store",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=1),
        ),
        " Timed out in creating the group",
        f"rank {size - 1}" if rank == 0 else "rank 0",
    )


def destroyed_in_any_order():
    groups = [dist.new_group() for _ in range(3)]
    for group in groups:
        dist.all_reduce(torch.ones(3), group=group)
    turned = groups if dist.get_rank() == 0 else groups[::-1]
    for group in turned:
        dist.destroy_process_group(group)
        reduce()


def not_destroyed():
    """A process that ends without destroy_process_group() disturbs no other."""
    tensor = torch.ones(LARGE)
    dist.all_reduce(tensor)
    assert (tensor == dist.get_world_size()).all()
    dist.barrier()
    dist.distributed_c10d._world.default_pg = None  # the helper destroys nothing then


NUMBERS = (2, 3) if ranks.ALL else (3,)


class FailuresTest(unittest.TestCase):
    """A test whose cases run ranks that fail."""

    def check(self, function, *arguments, numbers=NUMBERS, raises=None, kills=False, **options):
        for number in numbers:
            with self.subTest(ranks=number, arguments=arguments):
                begin = time.monotonic()
                if kills:
                    options["killed"] = [number - 1]
                try:
                    ranks.run(number, function, *arguments, **options)
                except ranks.Failed as error:
                    # One rank was to raise this exception, and no other.
                    if raises is None or str(error).count("\nrank ") > 0:
                        raise
                    self.assertIn(raises, str(error))
                print(f"{time.monotonic() - begin:.1f} s", end=" ", flush=True)


class Failures(FailuresTest):
    def test_killed_rank(self):
        for how in (
            "in a wait",
            "with a Work",
            "with a future",
            "in a receive",
            "in a callback",
            "in a monitored barrier",
        ):
            self.check(killed, how, kills=True)

    def test_mismatched_calls(self):
        for how in ("sizes", "types", "collectives"):
            self.check(mismatched, how)

    def test_exception_in_one_rank(self):
        self.check(raised_in_one, "uncaught", raises="KeyError: 'the reason'")
        self.check(raised_in_one, "with destroy", raises="KeyError: 'the reason'")

    def test_timeouts(self):
        self.check(timed_out, numbers=(2,))
        self.check(timeouts_of_calls, numbers=(1,))

    def test_abort(self):
        self.check(aborted)
        self.check(aborted_in_wait)

    def test_interrupt(self):
        self.check(interrupted, raises="KeyboardInterrupt")
        self.check(interrupted_in_creation, numbers=(2,))

    def test_missing_rank(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check(incomplete, folder, numbers=(3,), group=False)

    def test_groups_destroyed_in_any_order(self):
        self.check(destroyed_in_any_order)

    def test_group_destroyed_while_an_exception_is_handled(self):
        self.check(destroyed_in_a_handler, numbers=(2, 3))

    def test_wrong_calls_in_groups(self):
        self.check(wrong_in_a_group)
        self.check(broken_in_a_group, numbers=(2,))

    def test_groups_that_are_not_destroyed(self):
        self.check(not_destroyed)


if __name__ == "__main__":
    ranks.import_before_fork()
    unittest.main(verbosity=2, warnings="ignore")

#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""The threads of a group: those that cannot start, and what happens in them at the same time."""

import contextlib
import gc
import threading
import unittest
import unittest.mock
import weakref

import ranks
import torch
import torch.distributed as dist
import vescomm

LARGE = 200_000  # elements; a thread completes the operation


@contextlib.contextmanager
def no_threads():
    start = threading.Thread.start

    def refuse(self):
        raise RuntimeError("can't start new thread")

    threading.Thread.start = refuse
    try:
        yield
    finally:
        threading.Thread.start = start


def refused(call):
    with no_threads():
        try:
            call()
        except RuntimeError as error:
            assert "can't start new thread" in str(error), error
        else:
            raise AssertionError("a thread has started")


def completed(future):
    """Waits for the callback of a future, which a wait for the operation does not run."""
    done = threading.Event()
    future.add_done_callback(lambda future: done.set())
    done.wait()


def started_later():
    """No thread can start for the first operation; one starts for a later operation, or for the same."""
    tensors = [torch.ones(LARGE) for _ in range(3)]
    refused(lambda: dist.all_reduce(tensors[0], async_op=True))
    refused(lambda: dist.all_reduce(tensors[1], async_op=True))
    completed(dist.all_reduce(tensors[2], async_op=True).get_future())
    assert all((tensor == dist.get_world_size()).all() for tensor in tensors)
    small = dist.all_reduce(torch.ones(3), group=dist.new_group(), async_op=True)
    refused(small.get_future)
    completed(small.get_future())
    rank, size = dist.get_rank(), dist.get_world_size()
    given = dist.isend(torch.ones(3), (rank + 1) % size)
    taken = dist.irecv(torch.empty(3), (rank - 1) % size)
    refused(taken.get_future)
    completed(taken.get_future())
    given.wait()


def tensors_live():
    """The tensors of an operation live until its end, also if no thread could start for it."""
    store = dist.distributed_c10d._get_default_store()
    tensor = torch.ones(LARGE)
    alive = weakref.ref(tensor)
    if dist.get_rank() != 0:
        store.wait(["dropped"])
        dist.all_reduce(tensor)
        return
    refused(lambda: dist.all_reduce(tensor, async_op=True))
    del tensor
    gc.collect()
    assert alive() is not None
    store.set("dropped", "")
    completed(dist.all_reduce(torch.ones(3), group=dist.new_group([0]), async_op=True).get_future())


def profiled():
    """Programs end the profiler as soon as they have waited."""
    for _ in range(60):
        with torch.autograd.profiler.profile(record_shapes=True) as profile:
            works = [dist.all_reduce(torch.ones(LARGE), async_op=True) for _ in range(2)]
            for work in works:
                work.wait()
        spans = [event for event in profile.function_events if event.name == "vescomm:all_reduce"]
        assert len(spans) == 2, spans


def finalizing():
    """Rank 0 ends its group before rank 1. Meanwhile its threads may wait, and calls are refused."""
    link = dist.group.WORLD._link
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 1:
        store.wait(["finalizing"])
        dist.send(torch.full((3,), 1.0), 0)
        store.wait(["refused"])
        return
    received = torch.zeros(3)
    receive = dist.irecv(received)
    begun, finalize = threading.Event(), vescomm._core.Communicator.finalize

    def note(comm):
        begun.set()
        finalize(comm)

    with unittest.mock.patch.object(vescomm._core.Communicator, "finalize", note):
        end = threading.Thread(target=link.finalize)
        end.start()
        begun.wait()
    world = dist.group.WORLD
    for call in (
        lambda: dist.all_reduce(torch.ones(3)),
        lambda: dist.all_gather([torch.ones(3)] * 2, torch.ones(3)),
        lambda: dist.isend(torch.ones(3), 1),
        lambda: world.allreduce_coalesced([torch.ones(3), torch.ones(2)]),
    ):
        try:
            call()
            raise AssertionError("no exception")
        except ValueError as error:
            text = "rank 0 started a call on group"
            assert text in str(error) and "after the end of the group" in str(error), error
    assert end.is_alive()
    store.set("finalizing", "")
    receive.wait()
    assert (received == 1).all() and receive.source_rank() == 1 and end.is_alive()
    store.set("refused", "")
    end.join()
    assert link.failure is None


class Waits:
    """Stands for an operation that is complete."""

    def __init__(self):
        self.done = threading.Event()

    def complete(self):
        self.done.set()

    def request_is_complete(self):
        return True


class Threads(unittest.TestCase):
    def test_thread_that_starts_later(self):
        for size in (1, 2):
            ranks.run(size, started_later)

    def test_tensors_without_a_thread(self):
        ranks.run(2, tensors_live)

    def test_calls_while_the_group_ends(self):
        ranks.run(2, finalizing)

    def test_profiler_that_ends_after_a_wait(self):
        ranks.run(2, profiled)

    def test_no_wait_returns_before_a_span_has_ended(self):
        from vescomm.torch.operation import Operation

        class Complete:
            def wait(self, *arguments):
                return True

        operation = Operation(Complete(), None, "a test", None, None)
        order, entered, leave = [], threading.Event(), threading.Event()

        def end():
            entered.set()
            leave.wait()
            order.append("span")

        def wait():
            operation.wait()
            order.append("wait")

        operation.before_done(end)
        threads = [threading.Thread(target=wait) for _ in range(2)]
        for thread in threads:
            thread.start()
        entered.wait()
        self.assertFalse(operation.done)
        leave.set()
        for thread in threads:
            thread.join()
        self.assertEqual(order, ["span", "wait", "wait"])
        operation.before_done(lambda: order.append("at once"))
        self.assertEqual(order[-1], "at once")

    def test_callbacks_without_another_thread(self):
        """A thread that runs callbacks goes on after them when no other one can take over."""
        from vescomm.torch.completer import Completer, InAnyOrder, InOrder

        for kind in (InOrder, InAnyOrder):
            completer = kind("test")
            begun, more = threading.Event(), threading.Event()

            class First(Waits):
                def complete(self):
                    begun.set()
                    more.wait()
                    with Completer.callbacks():
                        pass
                    super().complete()

            first, second, third = First(), Waits(), First()
            completer.give(first)
            begun.wait()
            completer.give(second)
            with no_threads():
                more.set()
                for operation in (first, second):
                    self.assertTrue(operation.done.wait(ranks.LIMIT))
            completer.give(third)
            self.assertTrue(third.done.wait(ranks.LIMIT))
            completer.end()

    def test_garbage_in_a_thread_of_the_group(self):
        """The collector of garbage drops a Work in a thread that is about to run callbacks."""
        from vescomm.torch.completer import Completer, InAnyOrder, InOrder

        for kind in (InOrder, InAnyOrder):
            garbage = Waits()

            class Collecting(kind):
                collects = False

                def _has_more(self):
                    if self.collects:
                        self.collects = False
                        self.give(garbage)
                    return super()._has_more()

            completer = Collecting("test")

            class Calls(Waits):
                def complete(self):
                    completer.collects = True
                    with Completer.callbacks():
                        garbage.done.wait()
                    super().complete()

            operation = Calls()
            completer.give(operation)
            self.assertTrue(operation.done.wait(ranks.LIMIT))
            completer.end()


if __name__ == "__main__":
    ranks.import_before_fork()
    unittest.main(verbosity=2, warnings="ignore")

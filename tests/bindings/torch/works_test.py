#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Asynchronous operations: their Works and futures, their order, and the threads that complete them."""

import gc
import threading
import unittest
import weakref
from datetime import timedelta

import ranks
import torch
import torch.distributed as dist

LARGE = 200_000  # elements; a thread completes the operation


def total():
    return dist.get_world_size() * (dist.get_world_size() - 1) / 2


def ones_of_rank(count):
    return torch.full((count,), float(dist.get_rank()))


def works():
    for count in (5, LARGE):
        tensor = ones_of_rank(count)
        work = dist.all_reduce(tensor, async_op=True)
        assert work.wait() is True and work.is_completed() and work.is_success()
        assert work.exception() is None and work.result()[0] is tensor
        assert work.wait(timedelta(seconds=5)), "a second wait"
        assert (tensor == total()).all()
        tensor.fill_(7)
        work.wait()
        assert (tensor == 7).all(), "a second wait changes nothing"
        work = dist.all_reduce(tensor, async_op=True)
        while not work.is_completed():  # makes progress
            pass
        assert (tensor == 7 * dist.get_world_size()).all()
        work = dist.broadcast(tensor, 0, async_op=True)
        work.synchronize()
        assert work.is_completed()


def futures():
    for count in (5, LARGE):
        tensor = ones_of_rank(count)
        future = dist.all_reduce(tensor, async_op=True).get_future()  # the Work is dropped
        assert future.wait()[0] is tensor and (future.value()[0] == total()).all()
        tensor = ones_of_rank(count)
        work = dist.all_reduce(tensor, async_op=True)
        doubled = work.get_future().then(lambda future: future.value()[0] * 2)
        assert (doubled.wait() == 2 * total()).all()
        assert work.get_future().done() and work.is_completed()
        # A strided tensor has its elements before the future is complete.
        wide = torch.zeros(count, 2)
        strided = wide[:, 0]
        strided.fill_(dist.get_rank())
        future = dist.all_reduce(strided, async_op=True).get_future()
        assert (future.wait()[0] == total()).all() and (wide[:, 1] == 0).all()
        # A callback starts the next collective, as a hook of DDP does.
        tensor = ones_of_rank(count)
        first = dist.all_reduce(tensor, async_op=True).get_future()
        second = first.then(
            lambda future: dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]
        )
        assert (second.wait() == total() * dist.get_world_size()).all()


def callbacks_in_order():
    """Callbacks start collectives while the program starts others of the same size. All ranks start
    them in the same order, although they run at different speeds.
    """
    size, count = dist.get_world_size(), 5
    done = []

    def again(k):
        def callback(future):
            sums = future.value()[0].clone()
            dist.all_reduce(sums)
            nested = dist.all_reduce(sums, async_op=True).get_future().then(lambda _: done.append(-k))
            nested.add_done_callback(lambda _: done.append(k))
            return sums

        return callback

    for turn in range(30):
        done.clear()
        results = []
        for k in range(1, 9):
            sum(range(3000 * (dist.get_rank() + turn) % 7000))  # another time on each rank
            future = dist.all_reduce(ones_of_rank(count) + k, async_op=True).get_future()
            results.append(future.then(again(k)))
            last = results[-1].then(lambda future: future.value() + 1)
        for k, result in enumerate(results, 1):
            result.wait()
        assert (last.wait() == size**2 * (total() + 8 * size) + 1).all()
        for k, result in enumerate(results, 1):
            assert (result.value() == size**2 * (total() + k * size)).all()
        later = dist.all_reduce(ones_of_rank(count), async_op=True).get_future().then(lambda _: None)
        later.wait()  # all earlier callbacks have run
        assert done == [sign * k for k in range(1, 9) for sign in (-1, 1)], done


def callbacks_of_groups():
    """Callbacks of two groups start collectives of a third one, and so do callbacks of the future that a
    callback returns.
    """
    size = dist.get_world_size()
    groups = [dist.new_group() for _ in range(3)]
    for turn in range(30):

        def again(add):
            def callback(future):
                sums = torch.full((5,), float(add))
                dist.all_reduce(sums, group=groups[2])
                return dist.all_reduce(sums, group=groups[2], async_op=True).get_future()

            return callback

        futures = [
            dist.all_reduce(ones_of_rank(5), group=groups[k % 2], async_op=True).get_future()
            for k in range(6)
        ]
        results = [future.then(again(k)) for k, future in enumerate(futures)]
        sum(range(3000 * (dist.get_rank() + turn) % 7000))
        inner = [result.wait().then(again(10 + k)) for k, result in enumerate(results)]
        for k, result in enumerate(results):
            assert (result.value().wait()[0] == k * size**2).all()
            assert (inner[k].wait().wait()[0] == (10 + k) * size**2).all()


def large_messages_in_callbacks():
    """They need no other rank than the two that exchange them."""
    rank = dist.get_rank()
    if rank > 1:
        dist.all_reduce(torch.ones(5))
        return dist.barrier()
    tensor = torch.full((LARGE,), 3.0 if rank == 0 else 0.0)

    def move(future):
        (dist.send if rank == 0 else dist.recv)(tensor, 1 - rank)

    dist.all_reduce(torch.ones(5), async_op=True).get_future().then(move).wait()
    assert (tensor == 3).all()
    dist.barrier()


def callbacks_that_wait():
    """A callback waits for the result of one that the program added after it."""
    given = []
    first = dist.all_reduce(ones_of_rank(5), async_op=True).get_future()
    second = dist.all_reduce(ones_of_rank(LARGE), async_op=True).get_future()
    added = threading.Event()
    results = [first.then(lambda _: (added.wait(), given[0].wait())[1])]
    given.append(second.then(lambda future: dist.all_reduce(future.value()[0]) or 7))
    added.set()
    assert results[0].wait() == 7

    def wrong(_):
        raise KeyError("wrong")

    failed = first.then(wrong)
    after = failed.then(lambda future: future.wait())
    for future in (failed, after):
        try:
            future.wait()
            raise AssertionError("no exception")
        except KeyError as error:
            assert "wrong" in str(error)


def order():
    """Forty operations of many sizes are under way; all ranks wait in different orders."""
    counts = [1, 300, LARGE, 0, 70_000] * 8
    tensors = [ones_of_rank(count) + k for k, count in enumerate(counts)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    generator = torch.Generator().manual_seed(dist.get_rank())
    for k in torch.randperm(len(works), generator=generator).tolist():
        works[k].wait()
        assert (tensors[k] == total() + k * dist.get_world_size()).all()
    one = torch.ones(1)
    works = [dist.all_reduce(torch.ones(100), async_op=True) for _ in range(5)]
    dist.all_reduce(one)  # overtakes in this rank, not in the group
    assert one.item() == dist.get_world_size()
    for work in works:
        work.wait()


def dropped():
    """Nobody waits for an operation, and no tensor is kept: it ends all the same, then frees them."""
    for count in (5, LARGE):
        tensor = ones_of_rank(count)
        alive = weakref.ref(tensor)
        work = dist.all_reduce(tensor, async_op=True)
        del tensor, work
        # The other ranks need what this rank does for that operation.
        dist.barrier()
        while alive() is not None:
            gc.collect()
        # A tensor that refers to its own Work is garbage that only the collector finds.
        tensor = ones_of_rank(count)
        alive = weakref.ref(tensor)
        tensor.work = dist.all_reduce(tensor, async_op=True)
        del tensor
        gc.collect()
        dist.barrier()
        while alive() is not None:
            gc.collect()
    work = dist.all_reduce(torch.ones(LARGE), async_op=True)
    # The process ends with a Work that has not been waited for.


def progress_without_waits():
    """Rank 0 starts an operation and then calls nothing until the others have got theirs."""
    store = dist.distributed_c10d._get_default_store()
    size = dist.get_world_size()
    for count in (1, 10, 100, 1000, 4000, 8000, LARGE):
        tensor, gathered, scattered = ones_of_rank(count), torch.empty(size * count), torch.empty(count)
        exchanged, root = torch.empty(size * count), size - 1
        for call in (
            lambda: dist.all_reduce(tensor, async_op=True),
            lambda: dist.all_gather_into_tensor(gathered, tensor, async_op=True),
            lambda: dist.reduce_scatter_tensor(scattered, gathered, async_op=True),
            lambda: dist.all_to_all_single(exchanged, gathered, async_op=True),
            lambda: dist.broadcast(scattered, 0, async_op=True),
            lambda: dist.reduce(tensor, root, async_op=True),
        ):
            work = call()
            if dist.get_rank() != 0:
                work.wait()
                store.add(f"done {count}", 1)
            else:
                while store.add(f"done {count}", 0) < size - 1:
                    pass
                work.wait()
                store.delete_key(f"done {count}")
            dist.barrier()


def messages():
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    for count in (1, 0, LARGE):
        given, taken = ones_of_rank(count), torch.empty(count)
        works = [dist.isend(given, right), dist.irecv(taken, left)]
        for work in works:
            work.wait()
            assert work.is_completed()
        assert works[1].source_rank() == left and works[1]._source_rank() == left
        assert (taken == left).all()
        # Futures complete by themselves, in any order, and so do dropped Works.
        taken = [torch.empty(count) for _ in range(3)]
        futures = [dist.irecv(each, left).get_future() for each in taken]
        for k in range(3):
            dist.isend(given + k, right)
        for k in (2, 0, 1):
            futures[k].wait()
            assert (taken[k] == left + k).all()
        ops = [dist.P2POp(dist.isend, given, right), dist.P2POp(dist.irecv, taken[0], left)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert (taken[0] == left).all()
    strided = torch.zeros(4, 6)[:, ::2]
    works = [dist.isend(torch.ones(3, 4).t() * rank, right), dist.irecv(strided, left)]
    for work in works:
        work.wait()
    assert (strided == left).all()
    dist.isend(torch.full((3,), 9.0), rank)
    taken = torch.empty(3)
    dist.recv(taken, rank)
    assert (taken == 9).all(), "a message to itself"


def tagged_messages():
    """Messages with tags are received in any order, and from any rank."""
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    for count in (1, LARGE):
        works = [dist.isend(torch.full((count,), 10.0 * rank + k), right, tag=k) for k in range(9)]
        for k in reversed(range(9)):
            taken = torch.empty(count)
            dist.recv(taken, left, tag=k)
            assert (taken == 10 * left + k).all()
        for work in works:
            work.wait()
        dist.barrier()
        # Every rank sends to every rank, which does not know which is the first.
        works = [dist.isend(torch.full((count,), float(rank)), peer, tag=5) for peer in range(size)]
        taken = [torch.empty(count) for _ in range(size)]
        senders = []
        for work in [dist.irecv(each, tag=5) for each in taken]:
            work.wait()
            senders.append(work.source_rank())
        assert sorted(senders) == list(range(size)), senders
        for sender, each in zip(senders, taken):
            assert (each == sender).all()
        for work in works:
            work.wait()
        dist.barrier()
    if size == 1:
        return
    # recv() returns the rank in the world.
    pair = dist.new_group([size - 2, size - 1])
    if rank >= size - 2:
        other = 2 * size - 3 - rank
        work = dist.isend(torch.ones(2), other, group=pair, tag=3)
        assert dist.recv(torch.empty(2), group=pair, tag=3) == other
        work.wait()


def two_threads():
    """A second group is used from a second thread while training goes on in the first."""
    group = dist.new_group()
    problems = []

    def second():
        try:
            for k in range(60):
                tensor = torch.full((1 + k * k,), 1.0)
                dist.all_reduce(tensor, group=group)
                assert (tensor == dist.get_world_size()).all()
                objects = [None] * dist.get_world_size()
                dist.all_gather_object(objects, (dist.get_rank(), k), group=group)
                assert objects == [(rank, k) for rank in range(dist.get_world_size())]
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=second)
    thread.start()
    for k in range(200):
        tensor = torch.full((1000 + k,), 1.0)
        dist.all_reduce(tensor)
        assert (tensor == dist.get_world_size()).all()
    thread.join()
    if problems:
        raise problems[0]


def functional():
    from torch.distributed import _functional_collectives as functional

    group = dist.group.WORLD
    size = dist.get_world_size()
    reduced = functional.all_reduce(ones_of_rank(7), "sum", group)
    assert (functional.wait_tensor(reduced) == total()).all()
    gathered = functional.all_gather_tensor(ones_of_rank(2), 0, group)
    assert gathered.tolist() == [float(k) for k in range(size) for _ in range(2)]
    scattered = functional.reduce_scatter_tensor(torch.ones(3 * size), "sum", 0, group)
    assert scattered.tolist() == [float(size)] * 3
    many = functional.all_reduce_coalesced([torch.ones(3), torch.ones(LARGE)], "sum", group)
    assert all((functional.wait_tensor(each) == size).all() for each in many)
    exchanged = functional.all_to_all_single(torch.arange(float(size)), None, None, group)
    assert exchanged.tolist() == [float(dist.get_rank())] * size


def profiled():
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        dist.all_reduce(torch.ones(3))
        work = dist.all_reduce(torch.ones(LARGE), async_op=True)
        dist.broadcast(torch.ones(3), 0)
        work.wait()
        dist.barrier()
    names = [event.name for event in profiler.events()]
    assert names.count("vescomm:all_reduce") == 2, names
    assert names.count("vescomm:broadcast") == names.count("vescomm:barrier") == 1, names


class Works(unittest.TestCase):
    def check(self, function, numbers=(1, 2, 3)):
        for number in numbers:
            with self.subTest(ranks=number):
                ranks.run(number, function)

    def test_works(self):
        self.check(works)

    def test_futures(self):
        self.check(futures)

    def test_callbacks_in_order(self):
        self.check(callbacks_in_order, (2, 3))

    def test_callbacks_of_groups(self):
        self.check(callbacks_of_groups, (2, 3))

    def test_large_messages_in_callbacks(self):
        self.check(large_messages_in_callbacks, (2, 3))

    def test_callbacks_that_wait(self):
        self.check(callbacks_that_wait, (2, 3))

    def test_profiler(self):
        self.check(profiled, (2,))

    def test_order_of_waits(self):
        self.check(order)

    def test_dropped_works(self):
        self.check(dropped)

    def test_progress_without_waits(self):
        self.check(progress_without_waits, (2, 3, 5))

    def test_messages(self):
        self.check(messages)

    def test_tagged_messages(self):
        self.check(tagged_messages)

    def test_two_threads(self):
        self.check(two_threads, (2, 3))

    def test_functional_collectives(self):
        self.check(functional)


if __name__ == "__main__":
    ranks.import_before_fork()
    unittest.main(verbosity=2, warnings="ignore")

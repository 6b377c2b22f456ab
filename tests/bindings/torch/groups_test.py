#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Groups: stores, sub-groups, meshes, splits, names, and groups that are created again."""

import os
import socket
import tempfile
import threading
import time
import unittest
import warnings
from datetime import timedelta
from unittest import mock

import ranks
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from vescomm.torch.link import Link

MINUTE = timedelta(minutes=1)


def sum_of_ranks(group=None):
    tensor = torch.full((3,), float(dist.get_rank()))
    dist.all_reduce(tensor, group=group)
    return tensor[0].item()


def over_tcp(port):
    """As torchrun: the store of rank 0, and a second group after the first one is destroyed."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    for _ in range(2):
        dist.init_process_group("vescomm")
        size = dist.get_world_size()
        assert dist.get_backend() == "vescomm" and dist.group.WORLD.name() == "vescomm"
        assert sum_of_ranks() == size * (size - 1) / 2
        dist.barrier()
        dist.destroy_process_group()


def recreated_on_one_store(path):
    """A barrier that is monitored finds nothing of an earlier group of the same name and store."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.FileStore(path, size)
    for group in range(2):
        dist.init_process_group("vescomm", store=store, rank=rank, world_size=size)
        if group == 0:
            dist.monitored_barrier()
        elif rank == 0:
            try:
                dist.monitored_barrier(timeout=timedelta(seconds=0.3))
                raise AssertionError("no rank has come, and the barrier has passed")
            except RuntimeError as error:
                assert "failed to pass monitoredBarrier" in str(error), error
        dist.barrier()
        dist.destroy_process_group()


def recreated_without_deletion(path):
    """A store keeps the keys of groups that have ended."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.FileStore(path, size)
    with mock.patch("vescomm.torch.bootstrap._StoreGather.forget", lambda _: None):
        for _ in range(10):
            dist.init_process_group("vescomm", store=store, rank=rank, world_size=size)
            assert sum_of_ranks() == size * (size - 1) / 2
            dist.destroy_process_group()


def timed_out_creation(path):
    """Rank 0 does not come."""
    if int(os.environ["RANK"]) == 0:
        return
    try:
        dist.init_process_group(
            "vescomm",
            store=dist.FileStore(path, 2),
            rank=1,
            world_size=2,
            timeout=timedelta(seconds=0.5),
        )
        raise AssertionError("there is no rank 0")
    except dist.DistBackendError as error:
        assert "Timed out" in str(error) and "for rank 0" in str(error), error


def barriers_without_tensors():
    """torch's default device and its modes have no effect on a barrier."""
    with torch.device("meta"):
        dist.barrier()
    with FakeTensorMode():
        dist.barrier()
    assert sum_of_ranks() == dist.get_world_size() * (dist.get_world_size() - 1) / 2


def monitored_by_the_backend():
    """A group and its backend count barriers together."""
    dist.monitored_barrier()
    if dist.get_rank() == 0:
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        try:
            backend.monitored_barrier(timedelta(seconds=0.3), False)
            raise AssertionError("no rank has come, and the barrier has passed")
        except RuntimeError as error:
            assert "failed to pass monitoredBarrier" in str(error), error
    dist.barrier()


def aborted():
    """The group of an abort leaves nothing behind."""
    from torch.distributed.distributed_c10d import _abort_process_group
    from vescomm.torch import group as of_groups
    from vescomm.torch.link import open_links

    if dist.get_rank() == 0:
        dist.barrier()
        _abort_process_group()
    else:
        try:
            while True:  # the abort may end the first one already
                dist.barrier()
        except RuntimeError as error:
            assert "aborted" in str(error), error
        dist.destroy_process_group()
    end = time.monotonic() + 60
    while open_links and time.monotonic() < end:
        pass
    assert not open_links and not of_groups._alive


def subgroups():
    rank, size = dist.get_rank(), dist.get_world_size()
    # Every pair, of which most ranks are no members, in the same order everywhere.
    for low in range(size):
        for high in range(low + 1, size):
            group = dist.new_group([low, high])
            if rank in (low, high):
                assert sum_of_ranks(group) == low + high
                assert dist.get_rank(group) == (rank == high)
            else:
                assert group == dist.GroupMember.NON_GROUP_MEMBER
    # Members only, at the same time as other groups.
    mine = [k for k in range(size) if k % 2 == rank % 2]
    group = dist.new_group(mine, use_local_synchronization=True, group_desc="parity")
    assert sum_of_ranks(group) == sum(mine)
    turned = dist.new_group(mine[::-1], use_local_synchronization=True, sort_ranks=False)
    gathered = [None] * len(mine)
    dist.all_gather_object(gathered, rank, group=turned)
    assert gathered == mine[::-1], gathered
    alone = dist.new_group([rank], use_local_synchronization=True)
    assert sum_of_ranks(alone) == rank
    current, groups = dist.new_subgroups(1)
    assert sum_of_ranks(current) == rank
    copies = [dist.new_group() for _ in range(4)]
    for copy in copies:
        assert sum_of_ranks(copy) == size * (size - 1) / 2
    names = {copy.group_name for copy in copies} | {dist.group.WORLD.group_name}
    assert len(names) == 5


def first_call_is_a_message():
    """Only two ranks of a group use it, and exchange a message."""
    group = dist.new_group()
    if dist.get_rank() == 0:
        dist.send(torch.tensor([5.0]), 1, group=group)
    elif dist.get_rank() == 1:
        tensor = torch.zeros(1)
        dist.recv(tensor, 0, group=group)
        assert tensor.item() == 5


def meshes():
    from torch.distributed.device_mesh import init_device_mesh

    size = dist.get_world_size()
    for shape in ((size,), (1, size), (size, 1), (2, size // 2)):
        if torch.Size(shape).numel() != size:
            continue
        mesh = init_device_mesh("cpu", shape)
        for dimension, extent in enumerate(shape):
            group = mesh.get_group(dimension)
            ones = torch.ones(2)
            dist.all_reduce(ones, group=group)
            assert ones[0] == extent, (shape, dimension, ones)


def splits():
    rank, size = dist.get_rank(), dist.get_world_size()
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.supports_splitting and backend.options._timeout == MINUTE
    ranks_of_parts = [[k for k in range(size) if k % 2 == part] for part in range(2)]
    store = dist.distributed_c10d._get_default_store()
    mine = ranks_of_parts[rank % 2]
    options = torch._C._distributed_c10d.Backend.Options("vescomm", MINUTE)
    part = backend.split(dist.PrefixStore(f"part {rank % 2}", store), mine, options)
    assert part.size() == len(mine) and part.rank() == mine.index(rank)
    tensor = torch.full((2,), float(rank))
    part.allreduce([tensor]).wait()
    assert tensor[0] == sum(mine)
    part.shutdown()


def split_groups():
    """torch.distributed.split_group(): groups with all that others have, and ranks without one."""
    rank, size = dist.get_rank(), dist.get_world_size()
    alone = dist.split_group(split_ranks=[[0]], group_desc="alone")
    if rank != 0:
        assert alone is dist.GroupMember.NON_GROUP_MEMBER
    else:
        assert alone.size() == 1 and alone.group_desc == "alone"
        dist.all_reduce(torch.ones(2), group=alone)
        dist.destroy_process_group(alone)
    mine = [k for k in range(size) if k % 2 == rank % 2][::-1]
    others = [k for k in range(size) if k % 2 != rank % 2][::-1]
    group = dist.split_group(split_ranks=[each for each in (mine, others) if each])
    assert isinstance(group, type(dist.group.WORLD)), group
    assert dist.get_process_group_ranks(group) == mine
    tensor = torch.full((2,), float(rank))
    work = dist.all_reduce(tensor, group=group, async_op=True)
    work.wait()
    assert work.is_completed() and tensor[0] == sum(mine)
    if len(mine) > 1:
        if rank == mine[0]:
            dist.send(torch.full((1,), 7.0), mine[1], group=group)
        elif rank == mine[1]:
            got = torch.zeros(1)
            assert dist.recv(got, group=group) == mine[0] and got[0] == 7
    dist.destroy_process_group(group)


def options_of_the_backend():
    """The timeout in the options of a group, and calls of the Backend itself."""
    options = torch._C._distributed_c10d.Backend.Options("vescomm", timedelta(seconds=7))
    group = dist.new_group(pg_options=options)
    assert group._get_backend(torch.device("cpu")).options._timeout == timedelta(seconds=7)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.name() == "vescomm"
    # Torch recurses for ever on those that a backend does not define.
    for name in dir(torch._C._distributed_c10d.Backend):
        if "supports_" in name and isinstance(getattr(type(backend), name), (bool, property)):
            assert isinstance(getattr(backend, name), bool)
    tensor = torch.full((3,), float(dist.get_rank()))
    work = backend.allreduce([tensor])
    assert work.wait() and work.is_completed()
    assert backend.get_error() == torch._C._distributed_c10d.ErrorType.SUCCESS
    before = dist.group.WORLD._get_sequence_number_for_group()
    dist.barrier()
    assert dist.group.WORLD._get_sequence_number_for_group() == before + 1
    # Messages, in which not all ranks take part, do not count.
    if dist.get_rank() == 0 and dist.get_world_size() > 1:
        dist.send(torch.ones(1), 1)
    elif dist.get_rank() == 1:
        dist.recv(torch.ones(1), 0)
    assert dist.group.WORLD._get_sequence_number_for_group() == before + 1


def timeouts_that_are_set_later():
    """A group cannot wait longer than it was created for, and says so."""
    group = dist.new_group(timeout=MINUTE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        group.set_timeout(timedelta(seconds=59))
        group.set_timeout(MINUTE)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        group.set_timeout(timedelta(seconds=61))
    assert len(given) == 1, given
    text = str(given[0].message)
    assert "61 s" in text and "60 s" in text and "create" in text, text
    dist.all_reduce(torch.ones(3), group=group)


def memory():
    """Memory of the backend: every type, freed with the storage, and usable after the group's end."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    device = torch.device("cpu")
    assert backend.supports_tensor_alloc(device)
    for dtype in (torch.float32, torch.bfloat16, torch.uint8, torch.int64, torch.float8_e4m3fn):
        for count in (0, 1, 1000):
            tensor = backend.allocate_tensor(count, dtype=dtype, device=device)
            assert tensor.shape == (count,) and tensor.dtype == dtype
            assert (tensor.float() == 0).all()
    size = dist.get_world_size()
    comm = backend.link.comm
    source = backend.allocate_tensor(100_000, dtype=torch.float32, device=device)
    output = backend.allocate_tensor(100_000 * size, dtype=torch.float32, device=device)
    source.fill_(dist.get_rank())
    before = comm._counters()["bytes_registered"]
    dist.all_gather_into_tensor(output, source)
    assert (output.view(size, -1).amin(1) == torch.arange(size)).all()
    if comm._info()["local_ranks"] > 1:
        assert comm._counters()["bytes_registered"] > before
    places = set()
    for _ in range(20):
        places.add(backend.allocate_tensor(1 << 22, dtype=torch.uint8, device=device).data_ptr())
    assert len(places) == 1, "the memory is not freed"
    dist.destroy_process_group()
    assert (output.view(size, -1).amax(1) == torch.arange(size)).all()
    source.add_(1)


def autograd_and_objects():
    size = dist.get_world_size()
    objects = [{"rank": dist.get_rank()}, "text"]
    dist.broadcast_object_list(objects, size - 1)
    assert objects == [{"rank": size - 1}, "text"]
    gathered = [None] * size if dist.get_rank() == 0 else None
    dist.gather_object(dist.get_rank() ** 2, gathered)
    assert gathered is None or gathered == [k * k for k in range(size)]
    received = [None]
    dist.scatter_object_list(received, list(range(size)) if dist.get_rank() == 0 else None)
    assert received == [dist.get_rank()]


def ranks_as_threads():
    """Over stores that need no network."""
    size = 3
    for make in (dist.HashStore, None):
        with tempfile.TemporaryDirectory() as folder:
            store = make() if make else None
            sums = []

            def run(rank):
                mine = store or dist.FileStore(folder + "/store", size)
                link = Link(dist.PrefixStore("a group", mine), rank, size, MINUTE, "a group")
                tensor = torch.full((3,), float(rank))
                address = tensor.data_ptr()
                link.comm.all_reduce_at(address, address, 3, 1, 0)
                sums.append(tensor.tolist())
                link.close()
                link.join()

            threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sums == [[3.0] * 3] * size, sums
            if store is not None:
                assert store.num_keys() == 0, "the secret stays"


def with_other_backends(name, folder):
    """The group has this backend for the CPU, and another one for another device."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        name, init_method=f"file://{folder}/store", rank=rank, world_size=size, timeout=MINUTE
    )
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.name() == "vescomm"
    assert sum_of_ranks() == size * (size - 1) / 2
    work = dist.all_reduce(tensor := torch.ones(100_000), async_op=True)
    assert work.get_future().wait()[0][0] == size and work.wait() and tensor[-1] == size
    outputs = [torch.empty(2) for _ in range(size)]
    dist.all_gather(outputs, torch.full((2,), float(rank)))
    assert torch.cat(outputs).tolist() == [float(k) for k in range(size) for _ in range(2)]
    reduced = torch.empty(2)
    dist.reduce_scatter_tensor(reduced, torch.ones(2 * size))
    assert (reduced == size).all()
    dist.send(torch.full((1,), 7.0), (rank + 1) % size)
    dist.recv(tensor := torch.zeros(1), (rank - 1) % size)
    assert tensor == 7
    dist.barrier()
    dist.monitored_barrier()
    group = dist.new_group([0, 1])
    if rank < 2:
        assert sum_of_ranks(group) == 1
    dist.destroy_process_group()


class Groups(unittest.TestCase):
    def check(self, function, numbers=(1, 2, 3), **options):
        for number in numbers:
            with self.subTest(ranks=number):
                ranks.run(number, function, **options)

    def test_tcp_store(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ranks.run(3, over_tcp, port, group=False)

    def test_groups_of_one_name_and_store(self):
        for size in (2, 3):
            with tempfile.TemporaryDirectory() as folder:
                ranks.run(size, recreated_on_one_store, folder + "/store", group=False)

    def test_keys_of_earlier_groups(self):
        for size in (2, 3):
            with tempfile.TemporaryDirectory() as folder:
                ranks.run(size, recreated_without_deletion, folder + "/store", group=False)

    def test_timeout_of_a_creation(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks.run(2, timed_out_creation, folder + "/store", group=False)

    def test_barriers_without_tensors(self):
        self.check(barriers_without_tensors)

    def test_monitored_barriers_of_a_backend(self):
        self.check(monitored_by_the_backend, (2, 3))

    def test_an_abort(self):
        self.check(aborted, (2, 3))

    def test_stores_of_threads(self):
        # In a process of its own: this one must have no communicators when it forks.
        ranks.run(1, ranks_as_threads, group=False)

    def test_subgroups(self):
        self.check(subgroups, (1, 2, 4))

    def test_first_call_is_a_message(self):
        self.check(first_call_is_a_message, (2, 3))

    def test_meshes(self):
        self.check(meshes, (1, 2, 4))

    def test_splits(self):
        self.check(splits, (2, 3))
        self.check(split_groups, (2, 3, 4))

    def test_options(self):
        self.check(options_of_the_backend, (1, 2))

    def test_timeouts(self):
        self.check(timeouts_that_are_set_later, (1,))

    def test_memory(self):
        self.check(memory)

    def test_several_backends(self):
        for name in ("cpu:vescomm", "cpu:vescomm,cuda:gloo", "cuda:gloo,cpu:vescomm"):
            with self.subTest(name=name), tempfile.TemporaryDirectory() as folder:
                ranks.run(3, with_other_backends, name, folder, group=False)

    def test_objects(self):
        self.check(autograd_and_objects)


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")

#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors that share memory with one another, and tensors that wrap others."""

import unittest
import unittest.mock

import ranks
import torch
import torch.distributed as dist
import vescomm

LARGE = 200_000  # elements; a thread completes the operation


def filled(count, value):
    return torch.full((count,), float(value))


def values(tensors):
    """The value of each tensor, which has only one."""
    assert all((each == each[0]).all() for each in tensors), tensors
    return [each[0].item() for each in tensors]


def me_and_size():
    return dist.get_rank(), dist.get_world_size()


def gathered(count):
    rank, size = me_and_size()
    expected = [float(k) for k in range(size)]
    for place in range(size):
        # The input is the output of some rank, which is another one on most ranks.
        outputs = [filled(count, -1) for _ in range(size)]
        outputs[place].fill_(rank)
        dist.all_gather(outputs, outputs[place])
        assert values(outputs) == expected, outputs
        whole = filled(size * count, -1)
        part = whole[place * count : (place + 1) * count]
        part.fill_(rank)
        dist.all_gather_into_tensor(whole, part)
        assert values(whole.split(count)) == expected, whole
        outputs = list(filled(size * count, -1).split(count))
        outputs[place].fill_(rank)
        dist.gather(outputs[place], outputs if rank == 0 else None)
        assert rank != 0 or values(outputs) == expected, outputs
        part.fill_(rank)
        work = dist.all_gather_into_tensor(whole, part, async_op=True)
        work.wait()
        assert values(whole.split(count)) == expected, whole
    # The result is of no use: the last rank's elements remain, as with gloo.
    dummy = filled(count, -1)
    dist.all_gather([dummy] * size, filled(count, rank))
    assert values([dummy]) == [size - 1.0]
    # A part of the input lies in an output.
    whole = filled(3 * count, rank)
    outputs = [torch.empty(2 * count) for _ in range(size - 1)] + [whole[: 2 * count]]
    dist.all_gather(outputs, whole[count:])
    assert values(outputs) == expected, outputs


def exchanged(count):
    rank, size = me_and_size()
    expected = [10.0 * k + rank for k in range(size)]
    for adjacent in (False, True):
        tensors = [filled(count, 10 * rank + k) for k in range(size)]
        whole = torch.cat(tensors)
        if adjacent:
            tensors = list(whole.split(count))
        dist.all_to_all(tensors, tensors)
        assert values(tensors) == expected, tensors
    whole = torch.cat([filled(count, 10 * rank + k) for k in range(size)])
    dist.all_to_all_single(whole, whole)
    assert values(whole.split(count)) == expected, whole
    for place in range(size):
        tensors = [filled(count, k) for k in range(size)]
        dist.scatter(tensors[place], tensors if rank == 0 else None, src=0)
        assert values([tensors[place]]) == [rank]
        same = filled(count, 7)
        dist.scatter(same, [same] * size if rank == 0 else None, src=0)
        assert values([same]) == [7]


def reduced(count):
    rank, size = me_and_size()
    for place in range(size):
        for adjacent in (False, True):
            tensors = [filled(count, rank + 10 * k) for k in range(size)]
            if adjacent:
                tensors = list(torch.cat(tensors).split(count))
            dist.reduce_scatter(tensors[place], tensors)
            expected = sum(k + 10 * rank for k in range(size))
            assert values([tensors[place]]) == [expected], tensors
        whole = torch.cat([filled(count, rank + 10 * k) for k in range(size)])
        part = whole[place * count : (place + 1) * count]
        dist.reduce_scatter_tensor(part, whole)
        assert values([part]) == [expected], whole


def coalesced(count):
    """A call that the library refuses would break a group of calls."""
    rank, size = me_and_size()
    world = dist.group.WORLD
    expected = [float(k) for k in range(size)]
    wholes = [filled(size * count, -1) for _ in range(2)]
    parts = [whole[:count] for whole in wholes]
    for part in parts:
        part.fill_(rank)
    world.allgather_into_tensor_coalesced(wholes, parts).wait()
    assert all(values(whole.split(count)) == expected for whole in wholes), wholes
    for whole in wholes:
        whole.fill_(rank)
    world.reduce_scatter_tensor_coalesced(parts, wholes).wait()
    assert values(parts) == [sum(range(size))] * 2, parts
    dummy, other = filled(count, rank), filled(count, rank)
    lists = [[dummy, torch.empty(count)] for _ in range(size)]
    world.allgather_coalesced(lists, [dummy, other]).wait()
    assert values([dummy]) == [size - 1.0]
    assert values([each[1] for each in lists]) == expected


def tangled(count):
    """Calls of one group that have memory in common: inputs have their values before the group."""
    rank, size = me_and_size()
    world = dist.group.WORLD
    every = sum(range(size))
    tensor, other = filled(count, rank), filled(count, 1)
    world.allreduce_coalesced([tensor, other, tensor]).wait()
    assert values([tensor, other]) == [every, size]
    long = filled(2 * count, rank)
    world.allreduce_coalesced([long, long[count:]]).wait()
    assert values(long.split(count)) == [every] * 2
    # The output of the first call is the input of the second one, and the other way round.
    whole, part = filled(size * count, rank), filled(count, 10 * rank)
    wholes = [filled(size * count, -1), whole]
    world.allgather_into_tensor_coalesced(wholes, [part, wholes[0][:count]]).wait()
    assert values(wholes[0].split(count)) == [10.0 * k for k in range(size)]
    assert values(wholes[1].split(count)) == [-1.0] * size
    inputs = [filled(size * count, rank), filled(size * count, 10 * rank)]
    outputs = [inputs[1][:count], inputs[0][:count]]
    world.reduce_scatter_tensor_coalesced(outputs, inputs).wait()
    assert values(outputs) == [every, 10 * every]
    first, second = filled(count, rank), filled(count, 10 * rank)
    lists = [[torch.empty(count), torch.empty(count)] for _ in range(size)]
    lists[0][0] = second
    world.allgather_coalesced(lists, [first, second]).wait()
    assert values([each[1] for each in lists]) == [10.0 * k for k in range(size)]
    assert values([each[0] for each in lists]) == [float(k) for k in range(size)]


def misaligned():
    """Elements at addresses that are no multiples of their size, on one rank only."""
    rank, size = me_and_size()
    every = float(sum(range(size)))

    def tensor(count, value):
        place = 1 if rank == 0 else 0
        memory = torch.zeros(4 * count + 4, dtype=torch.uint8)
        data = torch.frombuffer(memory.numpy(), dtype=torch.float32, count=count, offset=place)
        assert data.data_ptr() % 4 == place  # or this test tests nothing
        return data.fill_(value)

    data = tensor(3, rank)
    dist.all_reduce(data)
    assert values([data]) == [every]
    pair = [tensor(3, rank), torch.ones(2)]
    dist.group.WORLD.allreduce_coalesced(pair).wait()
    assert values(pair) == [every, size]
    whole = tensor(3 * size, -1)
    dist.all_gather_into_tensor(whole, tensor(3, rank))
    assert values(whole.split(3)) == [float(k) for k in range(size)]
    wholes = [tensor(3 * size, -1), torch.empty(size)]
    parts = [tensor(3, rank), torch.ones(1)]
    dist.group.WORLD.allgather_into_tensor_coalesced(wholes, parts).wait()
    assert values(wholes[0].split(3)) == [float(k) for k in range(size)]
    parts = [tensor(3, -1), torch.ones(1)]
    wholes = [tensor(3 * size, rank), torch.ones(size)]
    dist.group.WORLD.reduce_scatter_tensor_coalesced(parts, wholes).wait()
    assert values(parts) == [every, size]
    data = tensor(3, rank)
    dist.broadcast(data, 0)
    assert values([data]) == [0.0]


def wrapped():
    """Results of functional collectives are tensors without memory until they are used."""
    from torch.distributed import _functional_collectives as functional

    rank, size = me_and_size()
    world = dist.group.WORLD

    def result():
        tensor = functional.all_reduce(torch.ones(6), "sum", world)
        assert tensor.data_ptr() == 0  # or this test tests nothing
        return tensor

    tensor = result()
    dist.all_reduce(tensor)
    assert tensor.tolist() == [size * size] * 6
    tensor = result()
    dist.broadcast(tensor, 0)
    dist.reduce(tensor, 0)
    assert tensor.tolist() == [size * size if rank == 0 else size] * 6
    whole = torch.empty(6 * size)
    dist.all_gather_into_tensor(whole, result())
    assert whole.tolist() == [size] * 6 * size
    outputs = [result() for _ in range(size)]
    dist.all_gather(outputs, filled(6, rank))
    assert [each.tolist() for each in outputs] == [[k] * 6 for k in range(size)]
    outputs = [result() for _ in range(size)]
    dist.all_to_all(outputs, [result() + rank for _ in range(size)])
    assert [each.tolist() for each in outputs] == [[size + k] * 6 for k in range(size)]
    output = result()
    dist.reduce_scatter(output, [result() for _ in range(size)])
    assert output.tolist() == [size * size] * 6
    tensor = result()
    works = [dist.isend(result(), (rank + 1) % size), dist.irecv(tensor, (rank - 1) % size)]
    for work in works:
        work.wait()
    assert tensor.tolist() == [size] * 6
    tensors = [result(), torch.ones(2)]
    world.allreduce_coalesced(tensors).wait()
    assert tensors[0].tolist() == [size * size] * 6 and tensors[1].tolist() == [size] * 2


def refused():
    """Other wrappers have no memory that a call can use: an error of each rank, before the call."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate

    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    tensor = DTensor.from_local(torch.ones(4), mesh, [Replicate()])
    world = dist.group.WORLD
    for call in (
        lambda: world.allreduce([tensor]).wait(),
        lambda: world.allreduce_coalesced([torch.ones(2), tensor]).wait(),
        lambda: world._allgather_base(torch.empty(4 * size), tensor).wait(),
        lambda: world.send([tensor], 0, 0),
    ):
        try:
            call()
            raise AssertionError("no exception")
        except ValueError as error:
            assert "DTensor has no memory of its own" in str(error), error
    one = torch.ones(1)
    dist.all_reduce(one)
    assert one.item() == size


def defective():
    """An exception while a call is built is not taken for a refusal of its arrays: it is raised at
    once, and the call is not built again.
    """
    from vescomm.torch import exchanges, gathers, reductions

    size = dist.get_world_size()
    part, whole = torch.ones(2), torch.ones(2 * size)
    parts = list(torch.ones(2 * size).split(2))
    for module, name, call in (
        (exchanges, "moved", lambda: dist.scatter(part, parts)),
        (exchanges, "moved", lambda: dist.all_to_all_single(torch.empty(2 * size), whole)),
        (exchanges, "moved", lambda: dist.all_to_all([torch.empty(2)] * size, parts)),
        (gathers, "moved", lambda: dist.all_gather_into_tensor(whole, part)),
        (gathers, "moved", lambda: dist.all_gather(parts, part)),
        (gathers, "moved", lambda: dist.gather(part, parts)),
        (reductions, "reduced", lambda: dist.reduce_scatter_tensor(part, whole)),
        (reductions, "reduced", lambda: dist.reduce_scatter(part, parts)),
    ):
        defect = ValueError("a defect")
        with unittest.mock.patch.object(module, name, side_effect=defect) as patched:
            try:
                call()
                raise AssertionError("no exception")
            except ValueError as error:
                assert error is defect, error
        assert patched.call_count == 1, (name, patched.call_count)
        call()


def refused_for_another_reason():
    """Copies mend only arrays that overlap. Another refusal is raised at once, also of such arrays:
    the call starts once.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    world = dist.group.WORLD
    link = world._link
    part, whole = torch.ones(2), torch.ones(2 * size)
    parts = list(torch.ones(2 * size).split(2))
    own = whole[2 * rank : 2 * rank + 2]
    nobody = dist.GatherOptions()
    nobody.rootRank = size
    from_nobody = dist.ScatterOptions()
    from_nobody.rootRank = size
    starts = []
    start = link.start

    def counting(kept, call, *arguments, **named):
        starts.append(call)
        return start(kept, call, *arguments, **named)

    def check(call, words):
        starts.clear()
        with unittest.mock.patch.object(link, "start", counting):
            try:
                call()
                raise AssertionError("no exception")
            except vescomm.InvalidArgumentError as error:
                assert words in str(error), error
        assert len(starts) == 1, starts

    check(lambda: world.gather([], [part], nobody), f"root is {size}")
    check(lambda: world.gather_single(whole, part, nobody), f"root is {size}")
    check(lambda: world.scatter([part], [], from_nobody), f"root is {size}")
    every = (
        lambda: dist.scatter(part, parts if rank == 0 else None),
        lambda: dist.all_to_all_single(torch.empty(2 * size), whole),
        lambda: dist.all_to_all([torch.empty(2) for _ in range(size)], parts),
        lambda: dist.all_gather_into_tensor(whole, own),
        lambda: dist.all_gather(parts, part),
        lambda: dist.gather(part, parts if rank == 0 else None),
        lambda: dist.reduce_scatter_tensor(own, whole),
        lambda: dist.reduce_scatter(part, parts),
        # These overlap in a way that the library refuses too.
        lambda: dist.all_to_all(parts, parts),
        lambda: dist.all_gather([part] * size, part),
    )
    with unittest.mock.patch.object(link, "_finalizing", True):
        for call in every:
            check(call, "after the end of the group")
    for call in every:
        call()


class Aliases(unittest.TestCase):
    def check(self, function, counts=(3, LARGE)):
        for size in (1, 2, 3):
            for count in counts:
                with self.subTest(ranks=size, count=count):
                    ranks.run(size, function, count)

    def test_gathers(self):
        self.check(gathered)

    def test_exchanges(self):
        self.check(exchanged)

    def test_reductions(self):
        self.check(reduced)

    def test_coalesced_calls(self):
        self.check(coalesced)

    def test_coalesced_calls_that_share_memory(self):
        self.check(tangled)

    def test_misaligned_elements(self):
        for size in (1, 2, 3):
            ranks.run(size, misaligned)

    def test_results_of_functional_collectives(self):
        for size in (1, 2, 3):
            ranks.run(size, wrapped)

    def test_exceptions_of_other_causes(self):
        ranks.run(1, defective)

    def test_refusals_of_other_causes(self):
        for size in (1, 2, 3):
            ranks.run(size, refused_for_another_reason)

    def test_wrappers_without_memory(self):
        ranks.run(2, refused)


if __name__ == "__main__":
    ranks.import_before_fork()
    unittest.main(verbosity=2, warnings="ignore")

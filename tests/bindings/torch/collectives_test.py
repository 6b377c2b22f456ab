#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Results of all collectives: types, operators, shapes, strides, sizes, options, and errors."""

import gc
import itertools
import unittest
import weakref

import ranks
import torch
import torch.distributed as dist

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
FLOATS8 = [torch.float8_e4m3fn, torch.float8_e5m2]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
COMPLEX = [torch.complex64, torch.complex128]
MOVED_ONLY = [torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu, torch.complex32]
MOVED = FLOATS + FLOATS8 + INTEGERS + UNSIGNED + COMPLEX + MOVED_ONLY + [torch.bool]
SHAPES = [(0,), (1,), (7,), (3, 5), (2, 0, 3), (), (1025,)]


def rank():
    return dist.get_rank()


def size():
    return dist.get_world_size()


def values(shape, dtype, of_rank, salt=0):
    """Small whole numbers: sums and products are exact in every type."""
    count = torch.Size(shape).numel()
    numbers = (torch.arange(count) * 3 + 5 * of_rank + salt) % 3
    if dtype == torch.bool:
        return (numbers % 2 == 0).view(shape)
    if dtype in COMPLEX + [torch.complex32]:
        return torch.complex(numbers.float(), (numbers + of_rank).float()).to(dtype).view(shape)
    return numbers.float().to(dtype).view(shape)


def all_values(shape, dtype, salt=0):
    return [values(shape, dtype, each, salt) for each in range(size())]


def bits(tensor):
    """Comparable in every type."""
    return torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.reshape(-1)).view(torch.uint8)


def expect(found, wanted, *what):
    assert found.shape == wanted.shape and found.dtype == wanted.dtype, (found, wanted, *what)
    same = found.numel() == 0 or torch.equal(bits(found), bits(wanted))
    assert same, f"{what}: {found} instead of {wanted}"


def fold(function, parts):
    result = parts[0].clone()
    for part in parts[1:]:
        result = function(result, part)
    return result


def reduction(op, parts):
    """The reference, in float64 or int64."""
    dtype = parts[0].dtype
    if dtype in COMPLEX:
        total = sum(part.to(torch.complex128) for part in parts)
        return (total / len(parts) if op == dist.ReduceOp.AVG else total).to(dtype)
    wide = [part.double() if part.is_floating_point() else part.long() for part in parts]
    if op == dist.ReduceOp.SUM:
        total = sum(wide)
    elif op == dist.ReduceOp.AVG:
        total = sum(wide)
        total = total / len(wide) if total.is_floating_point() else total // len(wide)
    elif op == dist.ReduceOp.PRODUCT:
        total = fold(torch.mul, wide)
    elif op == dist.ReduceOp.MIN:
        total = fold(torch.minimum, wide)
    elif op == dist.ReduceOp.MAX:
        total = fold(torch.maximum, wide)
    elif op == dist.ReduceOp.BAND:
        total = fold(torch.bitwise_and, wide)
    elif op == dist.ReduceOp.BOR:
        total = fold(torch.bitwise_or, wide)
    elif op == dist.ReduceOp.BXOR:
        total = fold(torch.bitwise_xor, wide)
    return total.to(dtype)


ARITHMETIC = [
    dist.ReduceOp.SUM,
    dist.ReduceOp.PRODUCT,
    dist.ReduceOp.MIN,
    dist.ReduceOp.MAX,
    dist.ReduceOp.AVG,
]
BITWISE = [dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR]


def reductions():
    """Types, operators and shapes to test: all pairs of type and operator, all shapes in some type."""
    for dtype in FLOATS + FLOATS8 + INTEGERS + UNSIGNED:
        for op in ARITHMETIC + ([] if dtype.is_floating_point else BITWISE):
            yield dtype, op, (5, 3)
    for dtype in COMPLEX:
        yield dtype, dist.ReduceOp.SUM, (5, 3)
        yield dtype, dist.ReduceOp.AVG, (5, 3)
    for op in [each for each in ARITHMETIC if each != dist.ReduceOp.AVG] + BITWISE:
        yield torch.bool, op, (5, 3)
    for shape in SHAPES:
        yield torch.float32, dist.ReduceOp.SUM, shape
        yield torch.int64, dist.ReduceOp.MAX, shape


def exact(dtype, op):
    """Averages of three or five are rounded; the library multiplies by the reciprocal."""
    return not (op == dist.ReduceOp.AVG and (dtype.is_floating_point or dtype.is_complex))


def check_reduced(found, wanted, dtype, op, *what):
    if exact(dtype, op):
        expect(found, wanted, dtype, op, *what)
        return
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    wide = torch.complex128 if dtype.is_complex else torch.float64
    error = 0.0
    if found.numel():
        error = (found.to(wide) - wanted.to(wide)).abs().max().item()
    limit = {torch.float8_e5m2: 0.26, torch.float8_e4m3fn: 0.13}.get(dtype, 1e-2)
    assert error <= limit, (dtype, op, found, wanted, *what)


def reduce_all():
    for dtype, op, shape in reductions():
        parts = all_values(shape, dtype)
        wanted = reduction(op, parts)
        tensor = parts[rank()].clone()
        dist.all_reduce(tensor, op)
        check_reduced(tensor, wanted, dtype, op, "all_reduce")
        root = len(shape) % size()
        if dtype not in COMPLEX:
            tensor = parts[rank()].clone()
            dist.reduce(tensor, root, op)
            if rank() == root:
                check_reduced(tensor, wanted, dtype, op, "reduce")
        if dtype in COMPLEX:
            continue
        parts = [all_values(shape, dtype, salt) for salt in range(size())]  # by receiver, sender
        output = torch.empty(shape, dtype=dtype)
        dist.reduce_scatter(output, [part[rank()] for part in parts], op)
        check_reduced(output, reduction(op, parts[rank()]), dtype, op, "reduce_scatter")
        if shape:
            output.zero_()
            whole = torch.cat([part[rank()] for part in parts])
            dist.reduce_scatter_tensor(output, whole, op)
            check_reduced(output, reduction(op, parts[rank()]), dtype, op, "reduce_scatter_tensor")
            stacked = torch.stack([part[rank()] for part in parts])
            output.zero_()
            dist.reduce_scatter_tensor(output, stacked, op)
            check_reduced(output, reduction(op, parts[rank()]), dtype, op, "stacked")


def move_all():
    for dtype, shape in itertools.chain(
        ((dtype, (4, 3)) for dtype in MOVED), ((torch.float32, shape) for shape in SHAPES)
    ):
        parts = all_values(shape, dtype)
        mine = parts[rank()]
        root = len(shape) % size()
        tensor = mine.clone()
        dist.broadcast(tensor, root)
        expect(tensor, parts[root], "broadcast", dtype)
        outputs = [torch.empty(shape, dtype=dtype) for _ in parts]
        dist.all_gather(outputs, mine)
        for output, part in zip(outputs, parts):
            expect(output, part, "all_gather", dtype)
        outputs = [torch.empty(shape, dtype=dtype) for _ in parts] if rank() == root else None
        dist.gather(mine, outputs, root)
        for output, part in zip(outputs or [], parts):
            expect(output, part, "gather", dtype)
        given = all_values(shape, dtype, salt=1)
        output = torch.empty(shape, dtype=dtype)
        dist.scatter(output, given if rank() == root else None, root)
        expect(output, given[rank()], "scatter", dtype)
        # Rank k sends values(..., k, salt=j) to rank j.
        outputs = [torch.empty(shape, dtype=dtype) for _ in parts]
        dist.all_to_all(outputs, [values(shape, dtype, rank(), salt) for salt in range(size())])
        for sender, output in enumerate(outputs):
            expect(output, values(shape, dtype, sender, rank()), "all_to_all", dtype)
        if not shape:
            continue
        output = torch.empty((size() * shape[0], *shape[1:]), dtype=dtype)
        dist.all_gather_into_tensor(output, mine)
        expect(output, torch.cat(bytewise(parts)).view(dtype).view(output.shape), "cat", dtype)
        output = torch.empty((size(), *shape), dtype=dtype)
        dist.all_gather_into_tensor(output, mine)
        expect(output[-1], parts[-1], "stack", dtype)
        given = [values(shape, dtype, rank(), salt) for salt in range(size())]
        whole = torch.cat(bytewise(given)).view(dtype).view(size() * shape[0], *shape[1:])
        output = torch.empty_like(whole)
        dist.all_to_all_single(output, whole)
        taken = [values(shape, dtype, sender, rank()) for sender in range(size())]
        expect(output, torch.cat(bytewise(taken)).view(dtype).view(whole.shape), "single", dtype)


def bytewise(tensors):
    """torch.cat does not have every type."""
    return [bits(tensor) for tensor in tensors]


def move_ragged():
    counts = [2 * k % 5 for k in range(size())]  # some are zero
    parts = [torch.arange(3.0 * count).view(count, 3) + 100 * k for k, count in enumerate(counts)]
    outputs = [torch.empty(count, 3) for count in counts]
    dist.all_gather(outputs, parts[rank()])
    for output, part in zip(outputs, parts):
        expect(output, part, "ragged all_gather")
    output = torch.empty(counts[rank()], 3)
    dist.reduce_scatter(output, [part.clone() for part in parts])
    expect(output, parts[rank()] * size(), "ragged reduce_scatter")
    # Rank k sends k + j rows to rank j, none to itself.
    rows = [[0 if k == j else k + j for j in range(size())] for k in range(size())]
    given, taken = rows[rank()], [rows[k][rank()] for k in range(size())]
    source = torch.arange(2.0 * sum(given)).view(-1, 2) + 1000 * rank()
    output = torch.empty(sum(taken), 2)
    dist.all_to_all_single(output, source, taken, given)
    for k, part in enumerate(output.split(taken)):
        begin = sum(rows[k][: rank()])
        wanted = torch.arange(2.0 * sum(rows[k])).view(-1, 2)[begin : begin + rows[k][rank()]]
        expect(part, wanted + 1000 * k, "splits")
    outputs = [torch.empty(count, 2) for count in taken]
    dist.all_to_all(outputs, list(source.split(given)))
    expect(torch.cat(outputs), output, "ragged all_to_all")


def strided(shape, dtype=torch.float32):
    """A tensor whose elements do not lie in order."""
    return torch.empty(*shape, 2, dtype=dtype).transpose(0, -1)[1].transpose(0, 1)


def move_strided():
    """Inputs are read, and outputs keep their strides, whatever they are."""
    parts = [torch.arange(12.0).view(4, 3).t() * (k + 1) for k in range(size())]  # 3 x 4
    total = sum(parts)
    mine = parts[rank()]
    assert not mine.is_contiguous() or size() == 0
    for async_op in (False, True):
        tensor = strided((3, 4)).t()
        tensor = torch.empty(4, 6)[:, ::2].t()
        tensor.copy_(mine)
        strides = tensor.stride()
        expanded = mine[0].clone().expand(5, 4)  # all rows are the same memory
        work = dist.all_reduce(expanded, async_op=async_op)
        if async_op:
            work.wait()
        expect(expanded, total[0].expand(5, 4), "expanded all_reduce")
        work = dist.all_reduce(tensor, async_op=async_op)
        if async_op:
            work.wait()
        assert tensor.stride() == strides
        expect(tensor, total, "strided all_reduce")
        tensor.copy_(mine)
        work = dist.broadcast(tensor, size() - 1, async_op=async_op)
        if async_op:
            work.wait()
        expect(tensor, parts[-1], "strided broadcast")
        outputs = [torch.empty(4, 6)[:, ::2].t() for _ in parts]
        work = dist.all_gather(outputs, mine, async_op=async_op)
        if async_op:
            work.wait()
        for output, part in zip(outputs, parts):
            expect(output, part, "strided all_gather")
        output = torch.empty(4, 6)[:, ::2].t()
        work = dist.reduce_scatter(output, [mine] * size(), async_op=async_op)
        if async_op:
            work.wait()
        expect(output, total, "strided reduce_scatter")
        outputs = [torch.empty(4, 6)[:, ::2].t() for _ in parts]
        work = dist.all_to_all(outputs, [mine] * size(), async_op=async_op)
        if async_op:
            work.wait()
        for output, part in zip(outputs, parts):
            expect(output, part, "strided all_to_all")
        # Channels last, and one row broadcast to several.
        images = torch.full((2, 3, 4, 5), 1.0 + rank()).to(memory_format=torch.channels_last)
        work = dist.all_reduce(images, async_op=async_op)
        if async_op:
            work.wait()
        assert images.is_contiguous(memory_format=torch.channels_last)
        expect(images, torch.full((2, 3, 4, 5), size() * (size() + 1) / 2), "channels last")
        output = torch.empty(size(), 5)
        work = dist.all_gather_into_tensor(
            output, torch.tensor([1.0 + rank()]).expand(5), async_op=async_op
        )
        if async_op:
            work.wait()
        expect(output, torch.arange(1.0, size() + 1).view(-1, 1).repeat(1, 5), "expanded")
    conjugate = torch.tensor([1 + 2j, 3 - 1j]).conj()
    dist.broadcast(real := torch.view_as_real(conjugate.resolve_conj()), 0)
    outputs = [torch.empty(2, dtype=torch.complex64) for _ in parts]
    dist.group.WORLD.allgather([outputs], [conjugate]).wait()
    expect(outputs[-1], torch.tensor([1 - 2j, 3 + 1j]), "conjugate")


def move_beside_autograd():
    """Strided tensors of all sizes, with gradients and in inference mode. Whether a thread of the
    group or the caller copies the result depends on the size.
    """
    for count in (4, 50_000):
        for async_op in (False, True):

            def reduce(tensor):
                work = dist.all_reduce(tensor, async_op=async_op)
                if async_op:
                    work.wait()
                expect(tensor.detach(), torch.full_like(tensor, float(size())), count, async_op)

            strided = torch.ones(count, 2).t()
            leaf = torch.nn.Parameter(strided.clone())
            assert not leaf.is_contiguous()
            with torch.no_grad():
                reduce(leaf)
            leaf = torch.nn.Parameter(strided.clone())
            reduce(leaf)
            assert leaf.requires_grad and leaf.is_leaf
            with torch.inference_mode():
                inferred = torch.ones(count, 2).t()
                reduce(inferred)
                reduce(strided.clone())
            outside = torch.ones(count, 2).t()
            with torch.inference_mode():
                reduce(outside)
            assert not outside.is_inference() and inferred.is_inference()
            source = torch.nn.Parameter(strided.clone())
            output = torch.empty(size() * 2, count)
            work = dist.all_gather_into_tensor(output, source * 1, async_op=async_op)
            if async_op:
                work.wait()
            assert not output.requires_grad and (output == 1).all()


def move_in_place():
    """As FSDP2: the input of a gather is a slice of the output."""
    output = torch.zeros(size() * 6)
    mine = output.narrow(0, rank() * 6, 6)
    mine.fill_(rank() + 1.0)
    dist.all_gather_into_tensor(output, mine)
    expect(output, torch.arange(1.0, size() + 1).repeat_interleave(6), "in place")
    whole = torch.arange(6.0 * size())
    output = whole.narrow(0, rank() * 6, 6)
    dist.reduce_scatter_tensor(output, whole)
    expect(output, (torch.arange(6.0) + 6 * rank()) * size(), "reduce_scatter in place")
    parts = [torch.zeros(3) for _ in range(size())]
    parts[rank()].fill_(rank())
    dist.all_gather(parts, parts[rank()])
    expect(torch.cat(parts), torch.arange(float(size())).repeat_interleave(3), "list in place")


def premultiply():
    for dtype in FLOATS + [torch.int32]:
        for factor in (0.5, torch.tensor(0.5), torch.tensor([0.25])):
            number = float(factor)
            if dtype == torch.int32:
                factor, number = 3.0, 3.0
            parts = [values((5,), dtype, k) * 4 for k in range(size())]
            wanted = sum((part.double() * number for part in parts)).to(dtype)
            tensor = parts[rank()].clone()
            dist.all_reduce(tensor, dist.ReduceOp.PREMUL_SUM(factor))
            expect(tensor, wanted, "premultiplied", dtype, factor)
            output = torch.empty(5, dtype=dtype)
            dist.reduce_scatter_tensor(
                output, parts[rank()].repeat(size()), dist.ReduceOp.PREMUL_SUM(factor)
            )
            expect(output, wanted, "premultiplied reduce_scatter", dtype, factor)


def coalesce():
    tensors = [torch.full((k,), float(rank() + k)) for k in (1, 4, 0, 3)]
    tensors.append(torch.full((3, 2), float(rank())).t())
    mixed = [*tensors, torch.full((2,), rank(), dtype=torch.int64)]
    total = size() * (size() - 1) / 2
    dist.group.WORLD.allreduce_coalesced(mixed).wait()
    for k, tensor in zip((1, 4, 0, 3), mixed):
        expect(tensor, torch.full((k,), total + k * size()), "coalesced")
    expect(mixed[4], torch.full((2, 3), total), "coalesced, strided")
    expect(mixed[5], torch.full((2,), int(total), dtype=torch.int64), "coalesced, of another type")
    outputs = [torch.empty(size() * 2), torch.empty(size(), dtype=torch.int32)]
    inputs = [torch.full((2,), float(rank())), torch.full((1,), rank(), dtype=torch.int32)]
    dist.group.WORLD.all_gather_single_coalesced(outputs, inputs).wait()
    expect(outputs[0], torch.arange(float(size())).repeat_interleave(2), "gathers")
    expect(outputs[1], torch.arange(size(), dtype=torch.int32), "gathers")
    inputs = [torch.arange(2.0 * size()), torch.arange(size())]
    outputs = [torch.empty(2), torch.empty(1, dtype=torch.int64)]
    dist.group.WORLD.reduce_scatter_single_coalesced(outputs, inputs).wait()
    expect(outputs[0], (torch.arange(2.0) + 2 * rank()) * size(), "scatters")
    expect(outputs[1], torch.tensor([rank() * size()]), "scatters")
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        tensors = [torch.ones(3), torch.full((2,), float(rank()))]
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    expect(tensors[0], torch.full((3,), float(size())), "the manager")
    expect(tensors[1], torch.full((2,), total), "the manager")


def leave_a_manager_by_an_exception():
    """Torch does not end the coalescing then; later operations keep no tensors alive."""
    group = dist.group.WORLD
    try:
        with dist._coalescing_manager(device=torch.device("cpu")):
            raise KeyError
    except KeyError:
        dist.distributed_c10d._world.pg_coalesce_state.pop(group)
    alive = []
    for count in 50 * (3, 20_000):
        tensor = torch.ones(count)
        group.allreduce([tensor]).wait()
        alive.append(weakref.ref(tensor))
    del tensor
    # A thread holds large ones until it has seen their ends.
    while sum(each() is not None for each in alive) >= 20:
        gc.collect()
    coalesce()


def call_short_forms():
    """The methods of the group without options, as C++ and older programs call them."""
    group = dist.group.WORLD
    total = float(size() * (size() - 1) // 2)
    tensor = torch.full((3,), float(rank()))
    group.allreduce(tensor).wait()
    expect(tensor, torch.full((3,), total), "allreduce(tensor)")
    tensor = torch.full((3,), float(rank()))
    group.allreduce([tensor], dist.ReduceOp.MAX).wait()
    expect(tensor, torch.full((3,), size() - 1.0), "allreduce(tensors, op)")
    tensor = torch.full((3,), float(rank()))
    group.broadcast(tensor, root=size() - 1).wait()
    expect(tensor, torch.full((3,), size() - 1.0), "broadcast(tensor, root)")
    tensor = torch.full((3,), float(rank()))
    group.reduce(tensor, size() - 1, dist.ReduceOp.SUM).wait()
    if rank() == size() - 1:
        expect(tensor, torch.full((3,), total), "reduce(tensor, root, op)")
    outputs = [torch.empty(3) for _ in range(size())]
    group.allgather(outputs, torch.full((3,), float(rank()))).wait()
    expect(torch.stack(outputs)[:, 0], torch.arange(float(size())), "allgather(outputs, input)")
    output = torch.empty(2)
    group.reduce_scatter(output, [torch.ones(2)] * size(), dist.ReduceOp.SUM).wait()
    expect(output, torch.full((2,), float(size())), "reduce_scatter(output, inputs, op)")
    output = torch.empty(2)
    root = size() - 1
    group.scatter(output, [torch.ones(2) * k for k in range(size())] if rank() == root else [], root).wait()
    expect(output, torch.full((2,), float(rank())), "scatter(output, inputs, root)")
    outputs = [torch.empty(2) for _ in range(size())] if rank() == root else []
    group.gather(outputs, torch.full((2,), float(rank())), root).wait()
    for k, each in enumerate(outputs):
        expect(each, torch.full((2,), float(k)), "gather(outputs, input, root)")
    group.barrier().wait()


def reduce_sparse():
    mine = torch.sparse_coo_tensor([[rank(), 4, 4]], [1.0, 2.0, 3.0], (8,))
    wanted = torch.zeros(8)
    for k in range(size()):
        wanted[k] += 1
        wanted[4] += 5
    dist.all_reduce(mine)
    expect(mine.to_dense(), wanted, "sparse")
    rows = torch.sparse_coo_tensor([[rank()] * rank()], torch.ones(rank(), 3), (size() + 1, 3))
    dist.all_reduce(rows)  # rank 0 has no entries
    wanted = torch.arange(float(size() + 1)).view(-1, 1).repeat(1, 3)
    wanted[-1] = 0
    expect(rows.to_dense(), wanted, "sparse rows")


def refuse():
    """Errors of the arguments come at once, name the values, and leave the group usable."""
    world = dist.group.WORLD
    half, halves = torch.zeros(1, dtype=torch.complex32), torch.zeros(size(), dtype=torch.complex32)

    def op(operator):
        options = dist.ReduceScatterOptions()
        options.reduceOp = operator
        return options

    meta, metas = torch.empty(1, device="meta"), torch.empty(size(), device="meta")
    for call, words in [
        (lambda: world.all_gather_single(torch.empty(5), torch.empty(3)), "5 elements"),
        (lambda: world.all_gather_single(torch.empty(3 * size()), torch.empty(3).int()), "types"),
        (lambda: world.allgather([[torch.empty(1)] * (size() + 1)], [torch.empty(1)]), "outputs"),
        (lambda: world.reduce_scatter([torch.empty(3)], [[torch.empty(2)] * size()]), "3 elements"),
        (lambda: world.all_to_all_single(torch.empty(9), torch.empty(9), [9], [4]), "splits"),
        (lambda: world.send([torch.empty(1)], size(), 0), f"names rank {size()}"),
        (lambda: world.allreduce([meta]), "device meta"),
        (lambda: world.reduce([meta]), "device meta"),
        (lambda: world.broadcast([meta]), "device meta"),
        (lambda: world.send([meta], 0, 0), "device meta"),
        (lambda: world.recv([meta], 0, 0), "device meta"),
        (lambda: world.all_gather_single(torch.empty(size()), meta), "device meta"),
        (lambda: world.allgather([[torch.empty(1)] * size()], [meta]), "device meta"),
        (lambda: world.reduce_scatter_single(torch.empty(1), metas), "device meta"),
        (lambda: world.reduce_scatter([torch.empty(1)], [[meta] * size()]), "device meta"),
        (lambda: world.all_to_all_single(torch.empty(size()), metas, [], []), "device meta"),
        (lambda: world.alltoall([torch.empty(1)] * size(), [meta] * size()), "device meta"),
        (lambda: world.allreduce([torch.empty(1, dtype=torch.float8_e8m0fnu)]), "float8_e8m0fnu"),
        (lambda: world.allreduce([torch.ones(1)], dist.ReduceOp.BAND), "torch.float32 with"),
        (lambda: world.reduce([half], op=dist.ReduceOp.PRODUCT), "torch.complex32 with"),
        (lambda: world.allreduce([half], dist.ReduceOp.MAX), "torch.complex32 with"),
        (lambda: world.reduce_scatter_single(half, halves, op(dist.ReduceOp.MIN)), "complex32 with"),
    ]:
        try:
            call()
        except ValueError as error:
            assert words in str(error), f"{error} does not have: {words}"
        else:
            raise AssertionError(f"no error with: {words}")
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == size()


class Collectives(unittest.TestCase):
    def check(self, function, numbers=(1, 2, 3, 5)):
        for number in numbers:
            with self.subTest(ranks=number):
                ranks.run(number, function)

    def test_reductions_of_all_types_and_operators(self):
        self.check(reduce_all)

    def test_moves_of_all_types_and_shapes(self):
        self.check(move_all)

    def test_ragged_sizes(self):
        self.check(move_ragged)

    def test_strides(self):
        self.check(move_strided, (1, 3))

    def test_tensors_with_gradients_and_in_inference_mode(self):
        self.check(move_beside_autograd, (1, 3))

    def test_in_place(self):
        self.check(move_in_place)

    def test_premultiplied_sums(self):
        self.check(premultiply, (1, 3))

    def test_coalesced_calls(self):
        self.check(coalesce)

    def test_exception_in_a_coalescing_manager(self):
        self.check(leave_a_manager_by_an_exception, (1, 2))

    def test_short_forms(self):
        self.check(call_short_forms, (1, 3))

    def test_sparse_tensors(self):
        self.check(reduce_sparse, (1, 3))

    def test_wrong_arguments(self):
        self.check(refuse, (1, 2))


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")

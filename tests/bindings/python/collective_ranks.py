# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""One rank of collectives_test.py."""

import numpy as np

import vescomm
from job import run_case
from vescomm import Op, Type

ALL_TYPES = {
    Type.F32: np.float32,
    Type.F16: np.float16,
    Type.F64: np.float64,
    Type.I8: np.int8,
    Type.U8: np.uint8,
    Type.I16: np.int16,
    Type.U16: np.uint16,
    Type.I32: np.int32,
    Type.U32: np.uint32,
    Type.I64: np.int64,
    Type.U64: np.uint64,
    Type.C64: np.complex64,
    Type.C128: np.complex128,
}


def counts_of(ranks, shape):
    """Counts of every rank: ragged, some empty, all empty, or equal."""
    return {
        "ragged": [k * 3 % 5 for k in range(ranks)],
        "one": [7 if k == ranks - 1 else 0 for k in range(ranks)],
        "empty": [0] * ranks,
        "equal": [4] * ranks,
    }[shape]


def values(rank, count, dtype=np.float32):
    return (np.arange(count) + 10 * rank + 1).astype(dtype)


def same(got, expected):
    np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))


def check_v(comm, shape):
    """The collectives that take a count for each rank."""
    rank, ranks = comm.rank, comm.ranks
    counts = counts_of(ranks, shape)
    total = sum(counts)
    begins = np.cumsum([0, *counts])
    parts = [values(k, counts[k]) for k in range(ranks)]
    whole = np.concatenate(parts)

    output = np.zeros(total, np.float32)
    comm.all_gather_v(parts[rank], output, counts)
    same(output, whole)

    # In place, and at offsets with gaps.
    output = np.zeros(total, np.float32)
    mine = output[begins[rank] : begins[rank + 1]]
    mine[:] = parts[rank]
    comm.all_gather_v(mine, output, np.array(counts))
    same(output, whole)
    offsets = [int(begins[k]) + 2 * k for k in range(ranks)]
    output = np.full(total + 2 * ranks, -1, np.float32)
    comm.all_gather_v(parts[rank], output, counts, offsets=tuple(offsets))
    for k in range(ranks):
        same(output[offsets[k] : offsets[k] + counts[k]], parts[k])
        same(output[offsets[k] + counts[k] :][:2], [-1, -1])

    output = np.zeros(counts[rank], np.float32)
    comm.reduce_scatter_v(whole * (rank + 1), output, counts, Op.MAX)
    same(output, parts[rank] * ranks)

    for root in {0, ranks - 1}:
        output = np.zeros(total, np.float32) if rank == root else None
        comm.gather_v(parts[rank], output, counts, root)
        if rank == root:
            same(output, whole)
        output = np.zeros(counts[rank], np.float32)
        comm.scatter_v(whole if rank == root else None, output, counts, root=root)
        same(output, parts[rank])

    # Rank j sends (j + k) % 3 elements to rank k.
    size = lambda j, k: (j + k) % 3 if shape != "empty" else 0
    sends = [size(rank, k) for k in range(ranks)]
    receives = [size(k, rank) for k in range(ranks)]
    source = np.full(sum(sends), rank, np.int32)
    output = np.full(sum(receives), -1, np.int32)
    comm.all_to_all_v(source, sends, output, receives)
    same(output, np.repeat(np.arange(ranks), receives))


def check_equal(comm, count):
    """The collectives that take the same count for all ranks."""
    rank, ranks = comm.rank, comm.ranks
    every = [values(k, count) for k in range(ranks)]
    output = np.zeros((ranks, count), np.float32)
    comm.all_gather(every[rank], output)
    same(output, np.stack(every))

    source = np.concatenate([values(k, count) for k in range(ranks)])
    output = np.zeros(count, np.float32)
    comm.reduce_scatter(source, output)
    same(output, every[rank] * ranks)

    total = sum(every)
    data = every[rank].copy()
    comm.all_reduce(data)
    same(data, total)
    output = np.zeros(count, np.float32)
    comm.all_reduce(every[rank], output, Op.AVERAGE)
    np.testing.assert_allclose(output, total / ranks, rtol=1e-6)
    comm.all_reduce(every[rank], output, Op.PREMULTIPLIED_SUM, factor=0.5)
    same(output, total * 0.5)

    root = ranks - 1
    data = every[rank].copy()
    comm.reduce(data, root=root)
    same(data, total if rank == root else every[rank])
    output = np.zeros(count, np.float32)
    comm.reduce(every[rank], output if rank == root else None, root=root, op=Op.MIN)
    if rank == root:
        same(output, every[0])

    data = every[rank].copy()
    comm.broadcast(data, root)
    same(data, every[root])

    source = np.repeat(np.arange(ranks) + 100 * rank, count)
    output = np.zeros_like(source)
    comm.all_to_all(source, output)
    same(output, np.repeat(100 * np.arange(ranks) + rank, count))


def check_types(comm):
    for type, dtype in ALL_TYPES.items():
        data = np.full(5, comm.rank + 1, dtype)
        comm.all_reduce(data)
        same(data, np.full(5, comm.ranks * (comm.ranks + 1) // 2, dtype))
    flags = np.array([comm.rank == 0, False, True])
    comm.all_reduce(flags, op=Op.LOGICAL_OR)
    same(flags, [True, False, True])
    # The bits of 1.0 and of the number of ranks, as bf16.
    data = np.full(3, 0x3F80, np.uint16)
    comm.all_reduce(data, type=Type.BF16)
    expected = (np.array([comm.ranks], np.float32).view(np.uint32) >> 16)[0]
    same(data, np.full(3, expected))
    try:
        import ml_dtypes
    except ImportError:
        return
    for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        data = np.ones(4, dtype)
        comm.all_reduce(data)
        same(data.astype(np.float32), np.full(4, comm.ranks))


def check_messages(comm):
    right, left = (comm.rank + 1) % comm.ranks, (comm.rank - 1) % comm.ranks
    got = np.zeros(3, np.int64)
    with comm.group():
        comm.send(np.array([comm.rank, 7, 8]), right)
        comm.receive(got, left)
    same(got, [left, 7, 8])
    # Tags, in the reverse order, and any source.
    sent = [comm.send(np.array([comm.rank, tag, 0]), right, tag, wait=False) for tag in range(9)]
    for tag in reversed(range(1, 9)):
        assert comm.receive(got, left, tag) is None
        same(got, [left, tag, 0])
    message = comm.receive(got, vescomm.ANY_SOURCE)
    assert message == vescomm.Message(left, 0, vescomm.I64, 3), message
    for request in sent:
        request.wait()
    request = comm.receive(got, peer=vescomm.ANY_SOURCE, tag=77, wait=False)
    comm.send(np.array([comm.rank, 7, 7]), right, tag=77)
    request.wait()
    assert request.message().source == left and request.message().tag == 77
    # Arrays of a group stay alive until its request is complete.
    comm.group_begin()
    outputs = [np.zeros(1000, np.float32) for _ in range(3)]
    for output in outputs:
        comm.all_reduce(np.ones(1000, np.float32), output)
    request = comm.start_group_end()
    assert request.wait(60)
    for output in outputs:
        same(output, np.full(1000, comm.ranks))


def check_requests(comm):
    data = np.ones(2000, np.float64)
    request = comm.all_reduce(data, wait=False)
    while not request.test():
        pass
    same(data, np.full(2000, comm.ranks))
    request.run()
    same(data, np.full(2000, comm.ranks**2))
    assert "all_reduce of 2000 f64" in request.explain()
    # Dropped while it runs: it completes, and its arrays live as long.
    for _ in range(5):
        comm.all_reduce(np.ones(3000), wait=False)
    request.free()
    comm.barrier()


def check_waits_with_other_communicators(comm):
    """Half of the ranks wait on one communicator first, the others on another one."""
    comms = [comm, comm.dup()]
    count = 1_000_000  # many chunks: start() does not move all of them
    for _ in range(3):
        data = [np.full(count, k + 1, np.float32) for k in range(2)]
        requests = [each.all_reduce(array, wait=False) for each, array in zip(comms, data)]
        for k in (comm.rank % 2, 1 - comm.rank % 2):
            assert requests[k].wait_with(comms) is True
            same(data[k], np.full(count, (k + 1) * comm.ranks))
    assert requests[0].wait_with((), timeout=0) is True  # complete already
    comms[1].free()
    for wrong, error in ((3, TypeError), ([3], TypeError), (comms, vescomm.InvalidArgumentError)):
        try:
            requests[0].wait_with(wrong)
        except error:
            pass
        else:
            raise AssertionError(f"wait_with({wrong}) has raised no {error}")


def check_buffers(comm):
    counts = [k + 1 for k in range(comm.ranks)]
    layout = vescomm.Layout.from_counts(counts)
    expected = np.repeat(np.arange(comm.ranks), counts)
    for sharing in vescomm.Sharing:
        buffer = vescomm.Buffer(comm, layout, vescomm.F32, sharing=sharing, name="parameters")
        gather = buffer.create_all_gather_v()
        buffer.acquire()
        buffer.shard().numpy()[:] = comm.rank
        gather.run()
        same(buffer.data(), expected)
        source = np.full(counts[comm.rank], 5 + comm.rank, np.float64)
        buffer.create_all_gather_v(source).run()
        same(buffer.tensor("data"), expected + 5)
        buffer.release()
    buffer = vescomm.Buffer(comm, layout, vescomm.F32)
    buffer.data().numpy()[:] = 1
    buffer.create_reduce_scatter_v(op=Op.SUM).run()
    same(buffer.shard(), np.full(counts[comm.rank], comm.ranks))
    output = np.zeros(counts[comm.rank], np.float32)
    buffer.data().numpy()[:] = 2
    buffer.create_reduce_scatter_v(output).run()
    same(output, np.full(counts[comm.rank], 2 * comm.ranks))
    buffer.create_all_reduce(Op.AVERAGE).run()
    buffer.data().numpy()[:] = comm.rank
    buffer.create_broadcast(comm.ranks - 1).run()
    same(buffer.data(), np.full(sum(counts), comm.ranks - 1))
    buffer.create_reduce(0, Op.MAX).run()
    comm.create_barrier().run()
    memory = vescomm.Memory(comm, 4096)
    inside = vescomm.Buffer(comm, layout, vescomm.U8, memory=memory, offset_bytes=64)
    inside.data().numpy()[:] = 3
    same(memory.data().numpy()[64 : 64 + sum(counts)], np.full(sum(counts), 3))


def check_registered(comm):
    array = comm.empty((3, 5), vescomm.F32)
    array.numpy()[:] = 1
    comm.all_reduce(array)
    same(array, np.full((3, 5), comm.ranks))
    empty = comm.empty((0, 4))
    comm.all_reduce(empty)
    assert empty.numpy().shape == (0, 4)


def check_communicators(comm):
    other = comm.dup()
    other.barrier()
    half = comm.split(comm.rank % 2, key=-comm.rank)
    assert half.ranks == len(range(comm.rank % 2, comm.ranks, 2))
    none = comm.split(-1 if comm.rank == 0 else 0)
    assert (none is None) == (comm.rank == 0)

    def all_gather(mine):
        output = bytearray(len(mine) * comm.ranks)
        comm.all_gather(mine, output)
        return bytes(output)

    mixed = vescomm.Communicator.from_all_gather(comm.rank, comm.ranks, all_gather)
    assert (mixed.rank, mixed.ranks, mixed.nodes) == (comm.rank, comm.ranks, 1)
    assert (mixed.local_rank, mixed.local_ranks, mixed.node) == (comm.rank, comm.ranks, 0)
    mixed.barrier()
    for each in (other, half, none, mixed):
        if each is not None:
            each.free()


def collectives():
    with vescomm.Communicator.from_environment() as comm:
        for shape in ("ragged", "one", "empty", "equal"):
            check_v(comm, shape)
        for count in (0, 1, 3, 1000):
            check_equal(comm, count)
        check_types(comm)
        check_messages(comm)
        check_requests(comm)
        check_waits_with_other_communicators(comm)
        check_buffers(comm)
        check_registered(comm)
        check_communicators(comm)
        assert comm.counters().operations > 50
        assert f'rank="{comm.rank}"' in comm.metrics()


run_case({"collectives": collectives})

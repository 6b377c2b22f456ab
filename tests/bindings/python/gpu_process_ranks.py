# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""A rank of gpu_processes_test.py."""

import os
import signal

import vescomm
from gpu_test import CUDA, layout_of, read, write
from job import run_case
from vescomm import gpu


def connect():
    comm = vescomm.Communicator.from_environment()
    assert CUDA.cudaSetDevice(comm.rank) == 0
    return comm


def gather_and_reduce(comm, device):
    """Ragged collectives on a new buffer, whose values are those of all ranks."""
    buffer = gpu.Buffer(device, layout_of(comm.ranks))
    own = buffer.shard()
    write(own, [comm.rank + 1.0] * own.size)
    buffer.all_gather_v()
    device.wait()
    for rank in range(comm.ranks):
        assert set(read(buffer.shard(rank))) == {rank + 1.0}
    whole = buffer.data()
    write(whole, [comm.rank + 1.0] * whole.size)
    buffer.reduce_scatter_v()
    device.wait()
    assert set(read(buffer.shard())) == {comm.ranks * (comm.ranks + 1) / 2}
    del own, whole
    buffer.free()


def collectives():
    with connect() as comm, gpu.Communicator(comm) as device:
        gather_and_reduce(comm, device)
        exchange = device.split(comm.split(0, -comm.rank))
        assert exchange.derived
        exchange.free()


def killed():
    comm = connect()
    device = gpu.Communicator(comm, shrinkable=True)
    # NCCL shrinks a communicator that has freed nothing since the failure.
    buffer = gpu.Buffer(device, layout_of(comm.ranks))
    try:
        while True:
            buffer.all_gather_v()
            device.wait()
            if comm.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
    except vescomm.PeerFailedError as error:
        print(f"PeerFailedError rank={error.rank}: {error}")
    survivors = comm.shrink()
    shrunk = device.shrink(survivors)
    assert shrunk.derived
    buffer.free()
    device.free()
    gather_and_reduce(survivors, shrunk)
    shrunk.free()
    survivors.free()


def mismatch():
    comm = connect()
    device = gpu.Communicator(comm)
    buffer = gpu.Buffer(device, layout_of(2))
    try:
        device.broadcast(buffer.data(), root=comm.rank)
        device.wait()
    except vescomm.MismatchError as error:
        print(f"MismatchError: {error}")


if __name__ == "__main__":
    run_case({"collectives": collectives, "killed": killed, "mismatch": mismatch})

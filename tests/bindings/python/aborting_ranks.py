# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""One rank of failures_test.py: the reasons of aborts, which the other ranks get."""

import ctypes
import gc
import resource
import weakref

import vescomm
from failing_ranks import barriers, expect
from job import run_case

Communicator = vescomm.Communicator


def uncaught_surrogate():
    """The sentence of the exception has a lone surrogate, as the names of some files."""
    with Communicator.from_environment() as comm:
        if comm.rank == 1:
            comm.barrier()
            raise ValueError("cannot read caf\udce9")
        error = expect(vescomm.AbortedError, barriers, comm)
        assert r"ValueError: cannot read caf\udce9" in str(error)
        comm.free()  # the end of the block would raise the error


def reasons():
    """The reasons that other ranks get."""

    class Mute(Exception):
        def __str__(self):
            raise KeyError

    for reason, words in (
        ("caf\udce9", r"caf\udce9"),
        ("café", "café"),
        (None, "rank 1 aborted"),
        ("the gradients of rank 0 are not finite", "rank 0 are"),
        ("rank 0 aborted the communicator: no", "no"),
    ):
        comm = Communicator.from_environment()
        if comm.rank == 1:
            comm.barrier()
            comm.abort(reason)
        else:
            error = expect(vescomm.AbortedError, barriers, comm)
            assert words in str(error) and error.rank == 1
        comm.free()
    try:
        with Communicator.from_environment() as comm:
            if comm.rank == 1:
                comm.barrier()
                raise Mute
            assert "Mute" in str(expect(vescomm.AbortedError, barriers, comm))
            comm.free()
    except Mute:
        pass


class Owner:
    """Owns the memory of a request."""


def wait_with_a_broken_communicator():
    """A wait for a request ends by the error of another communicator; the request goes on."""
    comm = Communicator.from_environment()
    other, go = comm.dup(), comm.dup()
    count = 1 << 20
    data = (ctypes.c_ubyte * count)(*b"ab")
    arguments = (ctypes.addressof(data), ctypes.addressof(data), count, vescomm.Type.U8, vescomm.Op.SUM)
    if comm.rank == 0:
        owner = Owner()
        gone = weakref.ref(owner)
        request = comm.start_all_reduce_at(*arguments, owner)
        del owner
        while not other.broken:
            pass
        error = expect(vescomm.AbortedError, request.wait_with, [other])
        assert error.rank == 1 and "the test breaks it" in str(error)
        gc.collect()
        assert gone() is not None, "the request runs without the owner of its memory"
        assert not request.test()
        go.barrier()
        assert request.wait()
        gc.collect()
        assert gone() is None
    else:
        other.abort("the test breaks it")
        go.barrier()
        comm.all_reduce_at(*arguments)
    assert bytes(data[:3]) == bytes([2 * ord("a"), 2 * ord("b"), 0])
    comm.barrier()
    for each in (comm, other, go):
        each.free()


def group_without_memory():
    """Rank 1 has no memory for the end of a group: it breaks the communicator, and leaves no group."""
    for name in ("group_end", "start_group_end"):
        comm = Communicator.from_environment()
        if comm.rank == 0:
            error = expect(vescomm.AbortedError, barriers, comm)
            assert error.rank == 1 and "a group of calls failed" in str(error)
        else:
            end_without_memory(comm, getattr(comm, name))
            assert "a group of calls failed" in str(expect(vescomm.AbortedError, comm.barrier))
            comm.group_begin()  # raises an exception if a group is open
            comm.group_end()
        comm.free()


def end_without_memory(comm, end):
    """Calls, when the memory of this process cannot grow."""
    data = bytearray(8)
    address = ctypes.addressof((ctypes.c_ubyte * 8).from_buffer(data))
    comm.group_begin()
    for _ in range(5000):
        comm.all_reduce_at(address, address, 8, vescomm.Type.U8, vescomm.Op.SUM)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used, limits[1]))
    try:
        expect(vescomm.OutOfMemoryError, end)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


if __name__ == "__main__":
    cases = (group_without_memory, reasons, uncaught_surrogate, wait_with_a_broken_communicator)
    run_case({case.__name__: case for case in cases})

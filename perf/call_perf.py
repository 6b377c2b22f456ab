# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""The time of blocking calls of the Python package on 64 bytes; call_perf measures those of C.

vescomm-run -n 2 python call_perf.py
"""

import array
import itertools
import time

import vescomm

CALLS = 5000
REPETITIONS = 40


def measure(comm, name, call):
    """Prints the shortest mean time of CALLS calls, without that of the loop."""
    shortest = loop = float("inf")
    for _ in range(REPETITIONS):
        begin = time.perf_counter()
        for _ in itertools.repeat(None, CALLS):
            pass
        loop = min(loop, (time.perf_counter() - begin) / CALLS)
        comm.barrier()
        begin = time.perf_counter()
        for _ in itertools.repeat(None, CALLS):
            call()
        shortest = min(shortest, (time.perf_counter() - begin) / CALLS)
    if comm.rank == 0:
        print(f"{name:34} {(shortest - loop) * 1e9:7.0f} ns", flush=True)


def main():
    with vescomm.Communicator.from_environment() as comm:
        data = array.array("f", [0.0] * 16)
        address, count = data.buffer_info()
        op = vescomm.MAX
        measure(
            comm,
            "Python: all_reduce_at",
            lambda: comm.all_reduce_at(address, address, count, 1, 4),
        )
        measure(comm, "Python: all_reduce, array.array", lambda: comm.all_reduce(data, None, op))
        registered = comm.empty(16)
        measure(comm, "Python: all_reduce, comm.empty()", lambda: comm.all_reduce(registered, None, op))
        try:
            import numpy
        except ImportError:
            pass
        else:
            values = numpy.zeros(16, numpy.float32)
            measure(comm, "Python: all_reduce, numpy", lambda: comm.all_reduce(values, None, op))
        measure(comm, "Python: barrier", comm.barrier)


if __name__ == "__main__":
    main()

# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""One rank of ending_test.py: communicators end by finalize(), free(), and the end of a with block."""

import os
import signal
import sys
import traceback

import vescomm
from failing_ranks import Interrupt, asleep, barriers, expect
from job import run_case

Communicator = vescomm.Communicator


def end_by_with(comm):
    with comm:
        pass


def broken():
    """Each end of a broken communicator raises its first error; free() does not."""
    comm = Communicator.from_environment()
    if comm.rank == 1:
        comm.barrier()
        os.kill(os.getpid(), signal.SIGKILL)
    first = expect(vescomm.PeerFailedError, barriers, comm)
    for end in (comm.finalize, comm.finalize, lambda: end_by_with(comm)):
        error = expect(vescomm.PeerFailedError, end)
        assert (str(error), error.rank) == (str(first), 1)
    assert comm.freed


def broken_in_a_block():
    """The body of the block raises no exception, or another one."""
    for wrong in (False, True):
        comm = Communicator.from_environment()

        def block(comm=comm, wrong=wrong):
            with comm:
                if comm.rank == 1:
                    comm.abort("the test breaks it")
                expect(vescomm.AbortedError, barriers, comm)
                if wrong:
                    raise LookupError

        expect(LookupError if wrong else vescomm.AbortedError, block)
        assert comm.freed


def interrupted():
    """Rank 1 waits in another call than the rank whose end is interrupted."""
    for end in (Communicator.finalize, Communicator.free, end_by_with):
        comm = Communicator.from_environment()
        if comm.rank == 0:
            Interrupt(asleep(comm))
            expect(KeyboardInterrupt, end, comm)
            assert comm.freed == (end is end_by_with)
        else:
            while not comm.broken:
                pass
            error = expect(vescomm.AbortedError, comm.barrier)
            assert error.rank == 0
            assert "rank 0 was interrupted in finalizing the communicator" in str(error)
        comm.free()


def interrupted_with_the_process():
    """The process of rank 0 ends while rank 1 uses the communicator."""
    comm = Communicator.from_environment()
    if comm.rank == 0:
        Interrupt(asleep(comm))
        return
    while not comm.broken:
        pass
    error = expect(vescomm.AbortedError, comm.barrier)
    assert "rank 0 was interrupted in finalizing the communicator" in str(error)


def interrupted_shrink():
    """The communicator, which no failure had broken, is aborted."""
    comm = Communicator.from_environment()
    if comm.rank == 0:

        def tick(_, frame):
            if any(each.name == "shrink" for each in traceback.extract_stack(frame)):
                ticks.append(1)
                if len(ticks) == 3:  # earlier ones may come before the wait
                    raise KeyboardInterrupt

        ticks = []
        signal.signal(signal.SIGALRM, tick)
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        expect(KeyboardInterrupt, comm.shrink)
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert comm.broken
    else:
        error = expect(vescomm.AbortedError, barriers, comm)
        assert error.rank == 0 and "shrink() was interrupted" in str(error)
    comm.free()


def freed_in_a_block():
    comm = Communicator.from_environment()
    with comm:
        comm.free()
    assert comm.freed


def exits_with(code):
    with Communicator.from_environment() as comm:
        if comm.rank == 0 and code == 3:
            assert "SystemExit: 3" in str(expect(vescomm.AbortedError, barriers, comm))
            comm.free()
        sys.exit(code)


def exits():
    """sys.exit() with code 0 or None ends a block as its last line does, with another one by an abort."""
    for code in (None, 0, 3):
        expect(SystemExit, exits_with, code)


if __name__ == "__main__":
    cases = (
        broken,
        broken_in_a_block,
        exits,
        freed_in_a_block,
        interrupted,
        interrupted_shrink,
        interrupted_with_the_process,
    )
    run_case({case.__name__: case for case in cases})

# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""One rank of failures_test.py. Every case prints the error that it expects."""

import os
import signal
import socket
import sys
import threading

import vescomm
from job import run_case

Communicator = vescomm.Communicator


def show(error):
    print(f"{type(error).__name__} rank={error.rank}: {error}", flush=True)


def expect(kind, call, *arguments, **options):
    """Calls a function, which must raise an exception, and returns it."""
    try:
        call(*arguments, **options)
    except kind as error:
        if isinstance(error, vescomm.Error):
            show(error)
        return error
    raise AssertionError(f"{call} raised no exception")


def barriers(comm):
    """Calls that end only by an error."""
    while True:
        comm.barrier()


def killed():
    comm = Communicator.from_environment()
    if comm.rank == 1:
        comm.barrier()
        os.kill(os.getpid(), signal.SIGKILL)
    error = expect(vescomm.PeerFailedError, barriers, comm)
    assert error.rank == 1 and comm.broken
    assert isinstance(error, ConnectionError) and isinstance(error, RuntimeError)
    expect(vescomm.PeerFailedError, comm.all_reduce, bytearray(3))
    survivors = comm.shrink()
    assert (survivors.rank, survivors.ranks) == (comm.rank // 2, comm.ranks - 1)
    survivors.barrier()
    survivors.free()
    comm.free()


def mismatch():
    comm = Communicator.from_environment()
    error = expect(vescomm.MismatchError, comm.all_reduce, bytearray(10 + comm.rank))
    assert "all_reduce" in str(error)


def timeout():
    comm = Communicator.from_environment(timeout=1.0)
    if comm.rank == 0:
        error = expect(vescomm.TimeoutError, comm.all_reduce, bytearray(10))
        assert error.rank == 1 and isinstance(error, TimeoutError)
    else:
        expect(vescomm.Error, lambda: [comm.progress() for _ in iter(int, 1)])


def uncaught():
    """Rank 1 ends with an exception, outside of a with block."""
    comm = Communicator.from_environment()
    if comm.rank == 1:
        comm.barrier()
        raise ValueError("the data is gone")
    error = expect(vescomm.AbortedError, barriers, comm)
    assert "rank 1" in str(error) and "ValueError: the data is gone" in str(error)
    assert error.rank == 1


def uncaught_interrupt():
    """Ctrl-C ends the program of rank 1 while it computes."""
    comm = Communicator.from_environment()
    if comm.rank == 1:
        comm.barrier()
        os.kill(os.getpid(), signal.SIGINT)
    error = expect(vescomm.AbortedError, barriers, comm)
    assert error.rank == 1 and "KeyboardInterrupt" in str(error)


def uncaught_in_block():
    with Communicator.from_environment() as comm:
        if comm.rank == 1:
            comm.barrier()
            raise ValueError("the data is gone")
        error = expect(vescomm.AbortedError, barriers, comm)
        assert "ValueError: the data is gone" in str(error)
        comm.free()  # the end of the block would raise the error


def dropped():
    """Nobody finalizes. Rank 0 still works when the others have reached their end."""
    comm = Communicator.from_environment()
    other = comm.dup()
    comm.barrier()
    request = comm.all_reduce(bytearray(1 << 20), wait=False)
    if comm.rank == 0:
        other.progress()
    del comm, other, request


class Interrupt(threading.Thread):
    """Sends SIGINT to this process when `waits` returns true."""

    def __init__(self, waits):
        super().__init__(daemon=True)
        self.waits = waits
        self.start()

    def run(self):
        while not self.waits():
            pass
        os.kill(os.getpid(), signal.SIGINT)


def asleep(comm):
    before = comm.counters().sleeps
    return lambda: comm.counters().sleeps > before + 1


def interrupted_call():
    comm = Communicator.from_environment()
    if comm.rank == 0:
        Interrupt(asleep(comm))
        expect(KeyboardInterrupt, comm.all_reduce, bytearray(3))
        error = expect(vescomm.AbortedError, comm.barrier)
    else:
        while not comm.broken:
            pass
        error = expect(vescomm.AbortedError, comm.all_reduce, bytearray(3))
        assert error.rank == 0
    assert "rank 0 was interrupted in all_reduce of 3 u8" in str(error)


def interrupted_receive():
    """A receive from any rank waits for a request of its own, and ends the communicator too."""
    comm = Communicator.from_environment()
    data = bytearray(3)
    if comm.rank == 0:
        Interrupt(asleep(comm))
        expect(KeyboardInterrupt, comm.receive, data, vescomm.ANY_SOURCE)
        assert comm.broken
        error = expect(vescomm.AbortedError, comm.barrier)
    else:
        error = expect(vescomm.AbortedError, barriers, comm)
        assert error.rank == 0
    assert "a receive from any rank was interrupted" in str(error)


def interrupted_request():
    comm = Communicator.from_environment()
    go = comm.dup()
    data = bytearray([1, 2, 3])
    if comm.rank == 0:
        request = comm.all_reduce(data, wait=False)
        Interrupt(asleep(comm))
        expect(KeyboardInterrupt, request.wait)
        assert not request.test()
        assert not request.wait(timeout=0.01)
        go.barrier()
    else:
        go.barrier()
        request = comm.all_reduce(data, wait=False)
    assert request.wait(timeout=60.0)
    assert data == bytes(comm.ranks * each for each in (1, 2, 3))
    comm.barrier()
    comm.free()
    go.free()


def interrupted_creation():
    """The other rank never comes."""
    host, port = os.environ["VESCOMM_ADDRESS"].split(":")

    def listens():
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    Interrupt(listens)
    expect(KeyboardInterrupt, Communicator.from_environment)


def handler_raises():
    """The exception of any signal handler ends a wait; a handler without one does not."""
    comm = Communicator.from_environment()
    if comm.rank != 0:
        # The call of rank 0 comes to nothing.
        while not comm.broken:
            pass
        expect(vescomm.AbortedError, comm.barrier)
        return
    calls = []
    signal.signal(signal.SIGINT, lambda *_: calls.append(1))
    signal.signal(signal.SIGTERM, lambda *_: 1 / 0)

    def send():
        waits = asleep(comm)
        while not waits():
            pass
        os.kill(os.getpid(), signal.SIGINT)
        while not calls:
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=send, daemon=True).start()
    # Rank 1 is not in this call.
    expect(ZeroDivisionError, comm.all_reduce, bytearray(3))
    assert calls


def handler_waits():
    """The timeout of a wait is not one of the calls that a signal handler makes meanwhile."""
    comm = Communicator.from_environment()
    other = comm.dup()
    data = bytearray(1)
    if comm.rank == 0:
        calls = []

        def handle(*_):
            other.send(data, peer=1)
            other.barrier()
            calls.append(1)

        signal.signal(signal.SIGALRM, handle)
        request = comm.receive(data, peer=1, wait=False)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        while not calls:
            request.wait(timeout=0.8)
        comm.send(data, peer=1)
    else:
        other.receive(data, peer=0)
        # Longer than rank 0 waits in the call that the signal interrupts.
        request = comm.receive(data, peer=0, wait=False)
        assert not request.wait(timeout=1.5)
        other.barrier()
        comm.send(data, peer=0)
    request.wait()
    comm.barrier()


class AtTeardown:
    """Calls a function when the interpreter ends, after the functions of atexit."""

    def __init__(self, function):
        self.function = function

    def __del__(self):
        self.function()


def daemon():
    """A daemon thread returns from a wait while the interpreter ends."""
    global at_teardown
    comm = Communicator.from_environment()
    if comm.rank == 0:
        waits = asleep(comm)
        threading.Thread(target=comm.receive, args=(bytearray(1), 0), daemon=True).start()
        while not waits():
            pass

        def end_the_wait():
            comm.abort("the test ends")
            # Meanwhile the thread asks for the GIL.
            for _ in range(3_000_000):
                pass
            print("the end", flush=True)

        at_teardown = AtTeardown(end_the_wait)


def threads():
    """Two threads with a communicator each; two threads with one."""
    comm = Communicator.from_environment()
    others = [comm.dup() for _ in range(2)]
    failures = []

    def work(other, factor):
        try:
            for i in range(200):
                data = bytearray([factor * (i % 10)] * 100)
                other.all_reduce(data)
                assert data == bytes([factor * (i % 10) * comm.ranks % 256] * 100)
        except BaseException as error:
            failures.append(error)
            raise

    workers = [threading.Thread(target=work, args=(each, k + 1)) for k, each in enumerate(others)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures
    if comm.rank == 0:
        waiter = threading.Thread(target=comm.barrier)
        waiter.start()
        waits = asleep(comm)
        while not waits():
            pass
        error = expect(vescomm.InvalidArgumentError, comm.all_reduce, bytearray(3))
        assert "another thread" in str(error)
        comm.counters(), comm.metrics(), comm.progress()
        others[0].barrier()
        waiter.join()
    else:
        others[0].barrier()
        comm.barrier()
    comm.barrier()


def forked():
    """A child of fork() can neither use nor harm the objects of its parent."""
    comm = Communicator.from_environment()
    array = comm.empty(10)
    request = comm.create_barrier()
    child = os.fork()
    if child == 0:
        expect(vescomm.InvalidArgumentError, comm.barrier)
        expect(vescomm.InvalidArgumentError, request.start)
        comm.free()
        del array, request, comm
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    comm.all_reduce(array)
    request.run()
    comm.barrier()


def observed():
    import json
    import logging
    import tempfile

    lines = []

    class Lines(logging.Handler):
        def emit(self, record):
            lines.append((record.levelno, record.getMessage()))

    logging.getLogger("vescomm").addHandler(Lines())
    logging.getLogger("vescomm").setLevel(logging.DEBUG)
    vescomm.use_logging()
    comm = Communicator.from_environment()
    comm.start_trace()
    values = {"unit": "block.0"}
    with comm.span("forward", "compute", values):
        comm.all_reduce(bytearray(3))
        values["bytes"] = 3
    expect(TypeError, comm.add_span, "a", "b", 0, 1, {"list": []})
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        comm.write_trace(path if comm.rank == 0 else None)
        if comm.rank == 0:
            with open(path, encoding="utf-8") as file:
                events = {event.get("name"): event for event in json.load(file)["traceEvents"]}
            assert events["forward"]["args"] == {"unit": "block.0", "bytes": 3}, events["forward"]
        comm.write_flight_recorder(os.path.join(folder, "flight.%r"))
        with open(os.path.join(folder, f"flight.{comm.rank}"), encoding="utf-8") as file:
            assert '"collective":"all_reduce"' in file.read()
    expect(vescomm.OperatingSystemError, comm.write_flight_recorder, "/no/such/folder/flight")
    error = expect(vescomm.OperatingSystemError, comm.write_trace, "/no/such/folder/trace")
    assert isinstance(error, OSError) and error.status == -7
    comm.free()
    vescomm.use_standard_error()
    assert any(level == logging.INFO for level, _ in lines), lines


if __name__ == "__main__":
    run_case(
        {
            case.__name__: case
            for case in (
                daemon,
                dropped,
                forked,
                handler_raises,
                handler_waits,
                interrupted_call,
                interrupted_creation,
                interrupted_receive,
                interrupted_request,
                killed,
                mismatch,
                observed,
                threads,
                timeout,
                uncaught,
                uncaught_in_block,
                uncaught_interrupt,
            )
        }
    )

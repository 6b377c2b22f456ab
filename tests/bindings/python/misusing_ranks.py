# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""One rank of misuse_test.py. A case that corrupts memory ends its process, or fails later in it."""

import ctypes
import gc
import os
import re
import signal
import sys
import threading
import traceback

import vescomm
from job import run_case
from vescomm import Layout, Tensor, Type


def alone():
    return vescomm.Communicator(0, 1)


def expect(kind, text, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except kind as error:
        assert text in str(error), error
        return error
    raise AssertionError(f"{call} raised no exception")


def reuse_freed_memory():
    """Allocates memory of many sizes, which replaces what freed objects held."""
    return [bytearray(b"\xa5" * size) for size in range(16, 600, 8) for _ in range(20)]


def freed_while_another_thread_works(work):
    """Runs `work` in a thread until the communicator is freed."""
    for _ in range(40):
        comm = alone()
        started = threading.Event()
        failures = []

        def run():
            try:
                started.set()
                while True:
                    work(comm)
            except vescomm.InvalidArgumentError as error:
                if "the communicator has been freed" not in str(error):
                    failures.append(error)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        started.wait()
        comm.free()
        for thread in threads:
            thread.join()
        assert not failures, failures


def freed_while_another_thread_allocates():
    # Large enough that the allocation lasts.
    def work(comm):
        comm.mfree(comm.malloc(1 << 26))

    freed_while_another_thread_works(work)


def freed_while_another_thread_makes_progress():
    freed_while_another_thread_works(vescomm.Communicator.progress)


class Freeing:
    """Owner of memory whose end frees something."""

    def __init__(self, *objects):
        self.objects = objects

    def __del__(self):
        for each in self.objects:
            each.free()


def freed_by_a_destructor():
    """The next call frees a request that is complete, and so its owner, which frees objects. Nothing
    but the communicator of Python shares that of the library, except in calls on objects of it.
    """
    layout = Layout.from_counts([4])
    array = bytearray(4)

    def grouped(comm):
        with comm.group():
            comm.all_reduce(array)

    def on_buffer(method):
        def prepare(comm):
            buffer = vescomm.Buffer(comm, layout)
            return lambda: getattr(buffer, method)(), buffer

        return prepare

    def in_memory(comm):
        memory = vescomm.Memory(comm, 4096)
        return lambda: vescomm.Buffer(comm, layout, memory=memory), memory

    def on_request(method):
        def prepare(comm):
            return (getattr(comm.create_barrier(), method),)

        return prepare

    cases = {
        "barrier": lambda comm: (comm.barrier,),
        "group": lambda comm: (lambda: grouped(comm),),
        "finalize": lambda comm: (comm.finalize,),
        "free": lambda comm: (comm.free,),
        "dup": lambda comm: (comm.dup,),
        "all_reduce": lambda comm: (lambda: comm.all_reduce(array),),
        "request": lambda comm: (lambda: comm.all_reduce(array, wait=False),),
        "receive": lambda comm: (lambda: comm.receive(array, vescomm.ANY_SOURCE),),
        "memory": lambda comm: (lambda: vescomm.Memory(comm, 64),),
        "buffer": lambda comm: (lambda: vescomm.Buffer(comm, layout),),
        "create_barrier": lambda comm: (comm.create_barrier,),
        "write_trace": lambda comm: (lambda: comm.write_trace("/no/such/folder/trace"),),
        "buffer in memory": in_memory,
        "release": on_buffer("release"),
        "acquire": on_buffer("acquire"),
        "create": on_buffer("create_broadcast"),
        "start": on_request("start"),
        "explain": on_request("explain"),
    }
    data = (ctypes.c_ubyte * 3)()
    address = ctypes.addressof(data)
    for name, prepare in cases.items():
        comm = alone()
        call, *objects = prepare(comm)
        request = comm.start_receive_at(address, 3, Type.U8, 0, 0, Freeing(*objects, comm))
        del request, objects
        comm.send_at(address, 3, Type.U8, 0, 0)
        assert not comm.freed
        try:
            call()
        except vescomm.Error as error:
            assert re.search("finalized|freed", str(error)), f"{name}: {error}"
        junk = reuse_freed_memory()
        assert comm.freed, name
        expect(vescomm.InvalidArgumentError, "has been freed", comm.barrier)
        del call, junk
        gc.collect()


def freed_while_it_starts():
    """A destructor frees the request that the call starts."""
    comm = alone()
    data = comm.empty(3, Type.U8)
    request = comm.create_barrier()
    refused = []

    class Owner:
        def __del__(self):
            try:
                request.free()
            except vescomm.InvalidArgumentError as error:
                refused.append(str(error))

    running = comm.start_receive_at(data.address, 3, Type.U8, 0, 0, Owner())
    del running
    send = comm.start_send_at(data.address, 3, Type.U8, 0, 0)
    request.start()
    assert refused and "a call starts the request" in refused[0], refused
    request.wait()
    del send
    comm.free()


def index_shortens_the_list():
    comm = alone()

    class Shortening:
        def __init__(self, items):
            self.items = items

        def __index__(self):
            self.items.clear()
            gc.collect()
            return 1

    counts = []
    counts.extend([Shortening(counts), 1, 2, 3])
    expect(vescomm.InvalidArgumentError, "counts has 4 numbers", comm.all_gather_v,
           bytearray(1), bytearray(1), counts)
    shape = []
    shape.extend([Shortening(shape)] + [2] * 1000)
    plan = vescomm.plan([("w", shape[:1])], ranks=1)
    assert plan.layout.elements == 1
    offsets = []
    offsets.extend([Shortening(offsets), 0])
    expect(vescomm.InvalidArgumentError, "1 elements at offset 1", comm.all_gather_v,
           bytearray(1), bytearray(1), [1], offsets=offsets)

    class Endless:
        def __init__(self, error):
            self.error = error

        def __iter__(self):
            raise self.error

    for error in (MemoryError, KeyboardInterrupt):
        expect(error, "", Layout.from_counts, Endless(error))
        expect(error, "", comm.all_gather_v, bytearray(1), bytearray(1), [1],
               offsets=Endless(error))


def sequence_is_longer_than_it_says():
    class Tensors:
        def __init__(self, says):
            self.says = says

        def __len__(self):
            return self.says

        def __getitem__(self, index):
            if index >= 200:
                raise IndexError
            return Tensor(f"tensor {index}", (1,), index)

    for says in (0, 1, 2**40, 2**62):
        layout = Layout(Tensors(says), 200, [0, 200])
        assert [tensor.name for tensor in layout.tensors] == [f"tensor {i}" for i in range(200)]


class Interface:
    """An array by __array_interface__ alone."""

    def __init__(self, memory, **changes):
        self.memory = memory
        self.__array_interface__ = {
            "data": (memory.address, False),
            "shape": (3,),
            "typestr": "<f8",
            "version": 3,
            **changes,
        }


def interface_with_wrong_strides():
    comm = alone()
    memory = comm.empty(3, Type.F64)
    for strides in ((), (8, 8, 8), (8, 8)):
        expect(vescomm.InvalidArgumentError, f"{len(strides)} strides and 1 extents",
               comm.all_reduce, Interface(memory, strides=strides), type=Type.F64)
    comm.all_reduce(Interface(memory, strides=(8,)), type=Type.F64)


def many_dimensions():
    comm = alone()
    exporters = (lambda array: array.__dlpack__(), memoryview, lambda array: array.__array__())
    for dimensions in (65, 129, 300):
        array = comm.empty([1] * dimensions)
        for export in exporters:
            try:
                export(array)
            except (BufferError, ImportError) as error:
                assert f"{dimensions} dimensions" in str(error) or isinstance(error, ImportError)
            else:
                raise AssertionError(f"{dimensions} dimensions were exported")
        comm.all_reduce(array)
    comm.empty([1] * 64).__dlpack__()
    memoryview(comm.empty([1] * 64))
    tensor = vescomm.Buffer(comm, Layout([Tensor("w", [1] * 129)], 1, [0, 1])).tensor("w")
    expect(BufferError, "129 dimensions", tensor.__dlpack__)


def capsule_is_returned_twice():
    comm = alone()

    class Caching:
        def __init__(self):
            self.capsule = comm.empty(300).__dlpack__()

        def __dlpack__(self, **_):
            return self.capsule

        def __dlpack_device__(self):
            return 1, 0

    cached = Caching()
    comm.all_reduce(cached)
    for _ in range(5):
        junk = reuse_freed_memory()
        expect(vescomm.InvalidArgumentError, "a capsule that has been used", comm.all_reduce, cached)
        del junk
    del cached
    gc.collect()
    raw = comm.empty(300).__dlpack__()
    comm.all_reduce(raw)
    expect(vescomm.InvalidArgumentError, "", comm.all_reduce, raw)
    # A capsule that is refused stays valid.
    cached = Caching()
    output = comm.empty(3)
    expect(vescomm.InvalidArgumentError, "output has 3 elements", comm.all_gather, cached, output)
    del cached
    gc.collect()


def subinterpreter():
    """The import is refused there, and the main interpreter goes on."""
    try:
        import _interpreters as interpreters  # from Python 3.13 on
    except ImportError:
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            print("skipped")
            return
    comm = alone()
    script = f"import sys\nsys.path[:] = {sys.path!r}\nimport vescomm._core\n"
    other = interpreters.create()
    try:
        # Python 3.13 returns the failure, earlier versions raise it.
        failure = interpreters.run_string(other, script)
    except Exception as error:
        failure = error
    assert "subinterpreter" in str(failure) and "ImportError" in str(failure), failure
    interpreters.destroy(other)
    comm.all_reduce(bytearray(3))
    comm.all_reduce(bytearray(3), wait=False).wait()
    assert Layout.from_counts([3]).ranks == 1
    alone().barrier()


def interrupted_at_the_end():
    """A signal handler raises an exception while the end of the process waits for the other rank."""
    comm = vescomm.Communicator.from_environment()
    if comm.rank == 1:
        try:
            while True:
                comm.barrier()
        except vescomm.Error as error:
            assert error.rank == 0, error
        return
    ticks = []

    def tick(_, frame):
        if any(each.name == "_end" for each in traceback.extract_stack(frame)):
            ticks.append(1)
            if len(ticks) == 3:  # earlier ones may come before the wait
                # Without a handler, which the interpreter removes next, a tick ends the process.
                signal.setitimer(signal.ITIMER_REAL, 0)
                raise KeyboardInterrupt

    comm.barrier()
    signal.signal(signal.SIGALRM, tick)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)


def destructors_at_the_end():
    """Errors of calls while the interpreter ends are those of the library."""

    class Late:
        def __init__(self, comm):
            self.comm = comm

        def __del__(self):
            try:
                self.comm.all_reduce(bytearray(3), op=99)
            except BaseException as error:
                os.write(1, f"{type(error).__name__}: {error}\n".encode())

    sys.modules["late"] = Late(alone())


if __name__ == "__main__":
    run_case(
        {
            case.__name__: case
            for case in (
                capsule_is_returned_twice,
                destructors_at_the_end,
                freed_by_a_destructor,
                freed_while_another_thread_allocates,
                freed_while_another_thread_makes_progress,
                freed_while_it_starts,
                index_shortens_the_list,
                interface_with_wrong_strides,
                interrupted_at_the_end,
                many_dimensions,
                sequence_is_longer_than_it_says,
                subinterpreter,
            )
        }
    )

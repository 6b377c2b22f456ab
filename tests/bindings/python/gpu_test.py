# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""vescomm.gpu on the test double of CUDA and NCCL: ranks are threads of this process, each with a
device. GPU_DOUBLE_FOLDER has the double's libraries, which the loader must find."""

import ctypes
import gc
import os
import threading
import unittest

import vescomm
from job import free_address
from vescomm import gpu

FOLDER = os.environ["GPU_DOUBLE_FOLDER"]
CUDA = ctypes.CDLL(os.path.join(FOLDER, "libcudart.so.13"), mode=ctypes.RTLD_GLOBAL)
TO_DEVICE, TO_HOST = 1, 2
DL_CUDA = 2


def write(array, values):
    data = (ctypes.c_float * len(values))(*values)
    size = ctypes.c_size_t(4 * len(values))
    assert CUDA.cudaMemcpy(ctypes.c_void_p(array.address), data, size, TO_DEVICE) == 0


def read(array):
    data = (ctypes.c_float * array.size)()
    size = ctypes.c_size_t(4 * array.size)
    assert CUDA.cudaMemcpy(data, ctypes.c_void_p(array.address), size, TO_HOST) == 0
    return list(data)


def run_ranks(ranks, body, breaks=False):
    """Runs body(comm) in a thread for each rank, with a device of its own. breaks: the body breaks
    the communicator."""
    address, errors = free_address(), []

    def run(rank):
        try:
            assert CUDA.cudaSetDevice(rank) == 0
            comm = vescomm.Communicator(rank, ranks, address, "a secret of this test")
            if breaks:
                body(comm)
                comm.free()
            else:
                with comm:
                    body(comm)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def layout_of(ranks):
    """Shards of 8, 16, 24 elements and so on, with a tensor of 2 x 2 in the first one."""
    counts = [8 * (rank + 1) for rank in range(ranks)]
    cuts = [sum(counts[:rank]) for rank in range(ranks + 1)]
    return vescomm.Layout([vescomm.Tensor("w", (2, 2)), vescomm.Tensor("b", (3,), 4)], cuts[-1], cuts)


class Exported:
    """An array of another package."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        assert stream == -1
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Gpu(unittest.TestCase):
    def test_buffers_gather_and_reduce(self):
        def body(comm):
            layout = layout_of(comm.ranks)
            with gpu.Communicator(comm) as device:
                self.assertEqual(device.device, comm.rank)
                first, second = (gpu.Buffer(device, layout, name=name) for name in "ab")
                for buffer in (first, second):
                    own = buffer.shard()
                    write(own, [comm.rank + 1.0] * own.size)
                gpu.all_gather_v([first, second])
                device.wait()
                for buffer in (first, second):
                    for rank in range(comm.ranks):
                        self.assertEqual(set(read(buffer.shard(rank))), {rank + 1.0})
                self.assertEqual(first.tensor("w").shape, (2, 2))
                self.assertEqual(read(first.tensor(0)), [1.0] * 4)
                whole = first.data()
                write(whole, [comm.rank + 1.0] * whole.size)
                first.reduce_scatter_v()
                device.wait()
                total = comm.ranks * (comm.ranks + 1) / 2
                self.assertEqual(set(read(first.shard())), {total})
                self.assertIn("reduce_scatter_v", first.explain(True))
                del whole, own
                first.free()
                with self.assertRaisesRegex(vescomm.InvalidArgumentError, "has been freed"):
                    first.shard()

        for ranks in (1, 2, 3):
            run_ranks(ranks, body)

    def test_settings_are_passed_to_nccl(self):
        def body(comm):
            settings = {"cgaClusterSize": 2, "netName": "IB", "commName": f"{comm.ranks} ranks"}
            with gpu.Communicator(comm, nccl_config=settings) as device:
                part = comm.split(0)
                device.split(part, nccl_config={}).free()
                part.free()
            for config, error, text in (
                ({"cgaClusterSize": "x"}, vescomm.InvalidArgumentError, "must be a whole number"),
                ({"blocking": 0}, vescomm.InvalidArgumentError, "blocking is set by vescomm"),
                ({"netName": "a,b"}, vescomm.InvalidArgumentError, "must have no comma"),
                ("cgaClusterSize=4", TypeError, "pass a dictionary"),
                ({"netName": b"IB"}, TypeError, "whole numbers or texts"),
                ({"collnetEnable": True}, TypeError, "whole numbers or texts"),
                ({"maxP2pPeers": 4}, vescomm.UnsupportedError, "needs NCCL 2.30.0 or later"),
            ):
                with self.assertRaisesRegex(error, text):
                    gpu.Communicator(comm, nccl_config=config)

        run_ranks(2, body)

    def test_wrong_values_are_named(self):
        def body(comm):
            layout = layout_of(comm.ranks)
            with gpu.Communicator(comm) as device:
                for text, call in {
                    "name has a NUL character at byte 1": lambda: gpu.Buffer(
                        device, layout, name="a\0b"
                    ),
                    "method has a NUL character at byte 2": lambda: device.split(
                        comm, method="ab\0"
                    ),
                    "op is 4294967296; it must be": lambda: gpu.Buffer(
                        device, layout
                    ).reduce_scatter_v(2**32),
                    "a Twice, has a __dlpack__() that returned no new capsule": lambda: (
                        device.all_reduce(Twice(device, layout))
                    ),
                    "a HostArray, is in host memory; pass an array in device memory": lambda: (
                        device.all_reduce(HostArray())
                    ),
                }.items():
                    with self.assertRaises(vescomm.InvalidArgumentError) as caught:
                        call()
                    self.assertIn(text, str(caught.exception))

        class HostArray:
            """An array of a package that has no streams, such as NumPy."""

            def __dlpack__(self, stream=None):
                raise RuntimeError("only supports stream=None")

            def __dlpack_device__(self):
                return 1, 0

        class Twice:
            """An array whose capsule has been used."""

            def __init__(self, device, layout):
                buffer = gpu.Buffer(device, layout)
                self.capsule = buffer.data().__dlpack__()
                device.all_reduce(self)

            def __dlpack__(self, stream=None):
                return self.capsule

            def __dlpack_device__(self):
                return 2, 0

        run_ranks(1, body)

    def test_parts_have_the_ranks_of_their_communicator(self):
        def body(comm):
            with gpu.Communicator(comm) as device:
                host = comm.split(-1 if comm.rank == 1 else 0, -comm.rank)
                part = device.split(host, workspace_bytes=4096)
                self.assertEqual(part is None, comm.rank == 1)
                if part is not None:
                    self.assertTrue(part.derived)
                    self.assertIsInstance(part, gpu.Communicator)
                    buffer = gpu.Buffer(part, layout_of(2))
                    write(buffer.shard(), [float(comm.rank)] * buffer.shard().size)
                    buffer.all_gather_v()
                    part.wait()
                    for rank in range(2):
                        self.assertEqual(set(read(buffer.shard(rank))), {2.0 - 2 * rank})
                    buffer.free()
                    part.free()
                    host.free()
                self.assertFalse(device.derived)
                whole = gpu.Buffer(device, layout_of(3))
                write(whole.data(), [1.0] * whole.data().size)
                whole.reduce_scatter_v()
                device.wait()
                self.assertEqual(set(read(whole.shard())), {3.0})

        run_ranks(3, body)

    def test_survivors_shrink_their_devices(self):
        def run(shrinkable):
            all_ranks = threading.Barrier(3, timeout=60)

            def body(comm):
                device = gpu.Communicator(comm, shrinkable=shrinkable)
                all_ranks.wait()
                if comm.rank == 1:
                    comm.abort("rank 1 has ended")
                    all_ranks.wait()
                    return
                with self.assertRaisesRegex(vescomm.AbortedError, "rank 1 has ended"):
                    while True:
                        device.check()
                host = comm.shrink([1])
                survivors = device.shrink(host, workspace_bytes=4096)
                self.assertEqual(survivors.derived, shrinkable)
                buffer = gpu.Buffer(survivors, layout_of(2))
                write(buffer.data(), [float(comm.rank)] * buffer.data().size)
                buffer.reduce_scatter_v()
                survivors.wait()
                self.assertEqual(set(read(buffer.shard())), {2.0})
                buffer.free()
                survivors.free()
                host.free()
                all_ranks.wait()

            run_ranks(3, body, breaks=True)

        run(False)
        run(True)

    def test_calls_take_arrays_of_other_packages(self):
        def body(comm):
            layout = layout_of(comm.ranks)
            with gpu.Communicator(comm, workspace_bytes=4096, method="padded") as device:
                memory = gpu.Buffer(device, layout)
                other = gpu.Buffer(device, layout)
                whole, own = memory.data(), other.shard()
                write(own, [float(comm.rank)] * own.size)
                device.all_gather_v(Exported(whole), layout, Exported(own))
                device.wait()
                for rank in range(comm.ranks):
                    self.assertEqual(set(read(memory.shard(rank))), {float(rank)})
                device.reduce_scatter_v(whole, layout, own, vescomm.MAX)
                device.wait()
                self.assertEqual(set(read(own)), {float(comm.rank)})
                device.broadcast(whole, root=comm.ranks - 1)
                device.all_reduce(whole, other.data())
                device.wait()
                with self.assertRaisesRegex(vescomm.InvalidArgumentError, "output has 8 elements"):
                    device.all_reduce(whole, memory.shard(0))
                with self.assertRaisesRegex(vescomm.InvalidArgumentError, "does not export DLPack"):
                    device.all_reduce([1.0])
                self.assertIn("method padded", device.explain(layout))
                del whole, own
                # Rank 0 sends one element to itself and three to rank 1, which sends two and four.
                sent, received = ([1, 3], [1, 2]) if comm.rank == 0 else ([2, 4], [3, 4])
                source, output = memory.data(), other.data()
                write(source, [10.0 * comm.rank + i for i in range(8)])
                write(output, [-1.0] * 8)
                device.all_to_all_v(source, sent, output, received, output_offsets=[0, 4])
                device.wait()
                expected = [0, -1, -1, -1, 10, 11] if comm.rank == 0 else [1, 2, 3, -1, 12, 13, 14, 15]
                self.assertEqual(read(output)[: len(expected)], expected)
                for changed, text in (
                    (([1], received), "source_counts has 1 numbers, and there are 2 ranks"),
                    ((sent, [received[0], 99]), "the block of rank 1 is 99 elements at offset"),
                    (([1, -3], received), "the block of rank 1 is -3 elements"),
                ):
                    sent, received = changed
                    with self.assertRaisesRegex(vescomm.InvalidArgumentError, text):
                        device.all_to_all_v(source, sent, output, received)
                del source, output

        run_ranks(2, body)

    def test_arrays_export_dlpack_and_keep_the_memory(self):
        def body(comm):
            with gpu.Communicator(comm) as device:
                buffer = gpu.Buffer(device, layout_of(1), vescomm.BF16)
                array = buffer.tensor("w")
                self.assertEqual(array.__dlpack_device__(), (DL_CUDA, 0))
                capsule = array.__dlpack__(stream=-1)
                self.assertEqual(array.type, vescomm.BF16)
                del array
                for free in (buffer.free, device.free):
                    with self.assertRaisesRegex(vescomm.InvalidArgumentError, "drop them first"):
                        free()
                del capsule
                gc.collect()
                buffer.free()

        run_ranks(1, body)

    def test_exports_order_the_stream_of_their_package(self):
        class Stream:
            def __init__(self):
                self.handle = ctypes.c_void_p()
                assert CUDA.cudaStreamCreateWithFlags(ctypes.byref(self.handle), 1) == 0

            def destroy(self):
                assert CUDA.cudaStreamDestroy(self.handle) == 0

        def waits():
            return CUDA.gpu_double_calls_of(b"cudaStreamWaitEvent")

        def body(comm):
            with gpu.Communicator(comm) as device:
                buffer = gpu.Buffer(device, layout_of(1))
                array = buffer.data()
                other = Stream()
                before = waits()
                array.__dlpack__(stream=other.handle.value)
                self.assertEqual(waits(), before, "there was no collective")
                first = Stream()
                buffer.all_gather_v(stream=first.handle.value)
                array.__dlpack__(stream=-1)
                self.assertEqual(waits(), before)
                for number, stream in enumerate((other.handle.value, None, 1, 0)):
                    array.__dlpack__(stream=stream)
                    self.assertEqual(waits(), before + number + 1)
                array.__dlpack__()
                self.assertEqual(waits(), before + 5)
                for bad in ("1", -2, 1.5):
                    with self.assertRaises(TypeError):
                        array.__dlpack__(stream=bad)
                device.order_stream(other.handle.value)
                self.assertEqual(waits(), before + 6)
                # A captured stream cannot wait for work outside its graph.
                assert CUDA.cudaStreamBeginCapture(other.handle, 1) == 0
                array.__dlpack__(stream=other.handle.value)
                with self.assertRaisesRegex(vescomm.InvalidArgumentError, "captured"):
                    device.order_stream(other.handle.value)
                graph = ctypes.c_void_p()
                assert CUDA.cudaStreamEndCapture(other.handle, ctypes.byref(graph)) == 0
                CUDA.cudaGraphDestroy(graph)
                self.assertEqual(waits(), before + 6)
                device.wait(other.handle.value)
                device.wait(first.handle.value)
                del array
                buffer.free()
                first.destroy()
                other.destroy()

        run_ranks(1, body)

    def test_a_dropped_buffer_is_freed_with_its_communicator(self):
        def body(comm):
            device = gpu.Communicator(comm)
            gpu.Buffer(device, layout_of(1))
            kept = gpu.Buffer(device, layout_of(1))
            gc.collect()
            device.free()
            device.free()
            with self.assertRaisesRegex(vescomm.InvalidArgumentError, "has been freed"):
                kept.data()

        run_ranks(1, body)

    def test_memory_holds_several_buffers(self):
        def body(comm):
            layout = layout_of(comm.ranks)
            size = gpu.get_buffer_bytes(layout)
            with gpu.Communicator(comm) as device:
                memory = device.malloc(512 + size)
                buffers = [
                    gpu.Buffer(device, layout, memory=memory, offset_bytes=offset)
                    for offset in (0, 512)
                ]
                self.assertEqual(buffers[1].data().address - buffers[0].data().address, 512)
                with self.assertRaisesRegex(vescomm.InvalidArgumentError, "device buffers"):
                    device.mfree(memory)
                for buffer in buffers:
                    buffer.free()
                device.mfree(memory)

        run_ranks(2, body)

    def test_wrong_arguments_raise(self):
        def body(comm):
            with gpu.Communicator(comm) as device:
                with self.assertRaisesRegex(vescomm.InvalidArgumentError, "is None"):
                    gpu.all_gather_v([None])
                for buffers in ([1], "x", None):
                    with self.assertRaises(TypeError):
                        gpu.all_gather_v(buffers)
                for bad in (None, 3):
                    with self.assertRaises(TypeError):
                        gpu.Buffer(bad, layout_of(1))
                with self.assertRaises(TypeError):
                    device.all_reduce(None)
                with self.assertRaises(ValueError):
                    device.wait("stream")
                gpu.all_gather_v([])

        run_ranks(1, body)

    def test_streams_are_integers_or_objects(self):
        class Torch:
            cuda_stream = 0

        class Protocol:
            def __cuda_stream__(self):
                return (0, 0)

        def body(comm):
            with gpu.Communicator(comm) as device:
                for stream in (None, 0, Torch(), Protocol()):
                    device.wait(stream)

        run_ranks(1, body)

    def test_support(self):
        self.assertEqual(gpu.check_support(), 22809)


if __name__ == "__main__":
    unittest.main()

# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Arrays of many packages, wrong arguments, and the life of objects, on one rank."""

import array
import ast
import ctypes
import gc
import inspect
import os
import pickle
import unittest
import weakref

import vescomm
from vescomm import Layout, Op, Tensor, Type

try:
    import numpy as np
except ImportError:
    np = None

needs_numpy = unittest.skipIf(np is None, "numpy is not installed")


class OneRank(unittest.TestCase):
    def setUp(self):
        self.comm = vescomm.Communicator(0, 1)
        self.addCleanup(self.comm.free)

    def refuses(self, text, call, *arguments, **options):
        with self.assertRaises(vescomm.InvalidArgumentError) as caught:
            call(*arguments, **options)
        self.assertIn(text, str(caught.exception))


class Arrays(OneRank):
    def test_buffers_of_the_standard_library(self):
        data = array.array("d", [1, 2, 3])
        self.comm.all_reduce(data, op=Op.MAX)
        self.assertEqual(data.tolist(), [1, 2, 3])
        output = bytearray(3)
        self.comm.all_reduce(b"abc", output)
        self.assertEqual(output, b"abc")
        view = memoryview(bytearray(8)).cast("f")
        self.comm.all_reduce(array.array("f", [4, 5]), view)
        self.assertEqual(view.tolist(), [4, 5])

    def test_arrays_of_ctypes(self):
        source, output = (ctypes.c_float * 3)(1, 2, 3), (ctypes.c_float * 3)()
        self.comm.all_reduce(source, output)
        self.assertEqual(list(output), [1, 2, 3])
        rows = ((ctypes.c_int32 * 2) * 3)((1, 2), (3, 4), (5, 6))
        request = self.comm.all_reduce(rows, op=Op.MAX, wait=False)
        request.wait()
        self.assertEqual([list(row) for row in rows], [[1, 2], [3, 4], [5, 6]])
        for other in (ctypes.c_double(3), (ctypes.c_float * 0)(), (ctypes.c_uint8 * 5)()):
            self.comm.all_reduce(other)

        class Pair(ctypes.Structure):
            _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_int)]

        for other in (Pair(1, 2), (Pair * 2)(), (ctypes.c_char_p * 2)()):
            self.refuses("has elements of format", self.comm.all_reduce, other)
        released = memoryview(bytearray(3))
        released.release()
        self.refuses("is not an array", self.comm.all_reduce, released)

    def test_an_array_cannot_be_resized_while_a_request_uses_it(self):
        data = bytearray(100)
        request = self.comm.all_reduce(data, wait=False)
        with self.assertRaises(BufferError):
            data.extend(b"more")
        request.wait()
        request.free()
        data.extend(b"more")

    def test_own_arrays(self):
        source = self.comm.empty(4, vescomm.BF16)
        self.comm.all_reduce(source)
        self.comm.all_reduce(source, type=Type.U16, op=Op.BITWISE_OR)
        self.assertEqual((source.shape, source.size, source.nbytes), ((4,), 4, 8))
        self.assertEqual(source.address % 4096, 0)
        self.assertIs(source.type, Type.BF16)

    @needs_numpy
    def test_shapes_of_numpy(self):
        for shape in ((), (0,), (3, 0, 2), (2, 3), (1, 5, 1)):
            self.comm.all_reduce(np.ones(shape, np.float32))
        # Strides of extents of 1 have no meaning.
        self.comm.all_reduce(np.ones((4, 5), np.float32)[:1, :])
        for data in (np.ones((4, 5))[:, ::2], np.ones((4, 5)).T, np.ones(8)[::2], np.ones(8)[::-1]):
            self.refuses("is not contiguous", self.comm.all_reduce, data)
            self.refuses("is not contiguous", self.comm.all_reduce, data, np.ones(data.size))

    @needs_numpy
    def test_read_only_outputs(self):
        data = np.ones(3)
        data.setflags(write=False)
        self.refuses("source, a ndarray, is read-only", self.comm.all_reduce, data)
        self.comm.all_reduce(data, np.zeros(3))
        self.refuses("output, a bytes, is read-only", self.comm.all_reduce, bytearray(3), b"abc")

    @needs_numpy
    def test_types_that_do_not_exist(self):
        self.refuses("of a type that vescomm has not", self.comm.all_reduce, np.ones(3, "longdouble"))
        self.refuses("objects of Python", self.comm.all_reduce, np.array([None]))
        self.refuses("order of bytes", self.comm.all_reduce, np.ones(3, ">f4"))
        self.refuses("has elements of 2 bytes, and type=F32 has 4", self.comm.all_reduce,
                     np.ones(3, np.uint16), type=Type.F32)
        self.refuses("source has elements of type F64, and output of F32", self.comm.all_reduce,
                     np.ones(3), np.ones(3, np.float32))
        self.refuses("unknown", self.comm.all_reduce, np.ones(3), type=99)

    @needs_numpy
    def test_types_of_ml_dtypes(self):
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("ml_dtypes is not installed")
        for dtype, type in (
            (ml_dtypes.bfloat16, Type.BF16),
            (ml_dtypes.float8_e4m3fn, Type.F8E4M3),
            (ml_dtypes.float8_e5m2, Type.F8E5M2),
        ):
            self.comm.all_reduce(np.ones(3, dtype), self.comm.empty(3, type))
            shared = self.comm.empty((2, 2), type).numpy()
            self.assertEqual((shared.dtype, shared.shape), (np.dtype(dtype), (2, 2)))
            fixed = np.ones(3, dtype)
            fixed.setflags(write=False)
            self.refuses("is read-only", self.comm.all_reduce, fixed)
            self.refuses("is not contiguous", self.comm.all_reduce, np.ones((4, 4), dtype).T)

    def test_objects_that_are_no_arrays(self):
        for other in ([1.0, 2.0], 3, "text", object()):
            self.refuses("is not an array", self.comm.all_reduce, other)

    def test_immutable_arrays(self):
        # The classes of JAX say that they are writable, and are not.
        class Array(bytearray):
            pass

        Array.__module__ = "jaxlib._jax"
        self.refuses("is immutable", self.comm.all_reduce, Array(3))
        self.comm.all_reduce(Array(3), bytearray(3))

    def test_torch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        data = torch.ones(3, dtype=torch.bfloat16)
        self.comm.all_reduce(data)
        shared = self.comm.empty(3, vescomm.F8E4M3).torch()
        self.assertEqual(shared.dtype, torch.float8_e4m3fn)
        self.refuses("is not contiguous", self.comm.all_reduce, torch.ones(4, 4).t())

    def test_views_of_torch_whose_memory_holds_other_values(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        plain = torch.tensor([1 + 2j, 3 - 4j])
        copy = torch.zeros_like(plain)
        negative = torch._neg_view(torch.tensor([1.0, 2.0]))
        for view, text in (
            (plain.conj(), "source, a Tensor, is a conjugate view"),
            (plain.conj().imag, "source, a Tensor, is a negative view"),
            (negative, "source, a Tensor, is a negative view"),
        ):
            self.refuses(text, self.comm.all_reduce, view)
            self.refuses(text, self.comm.all_reduce, view, torch.zeros(2, dtype=view.dtype))
        self.refuses("resolve_conj()", self.comm.all_gather, plain, copy.conj())
        self.refuses("resolve_neg()", self.comm.all_gather, torch.ones(2), negative)
        self.comm.all_reduce(plain.conj().resolve_conj(), copy)
        self.assertEqual(copy.tolist(), [1 - 2j, 3 + 4j])
        parameter = torch.nn.Parameter(torch.ones(2))
        self.comm.all_reduce(parameter)


class WrongArguments(OneRank):
    def test_sizes(self):
        call, f = self.comm, lambda count: array.array("f", [0] * count)
        self.refuses("output has 3 elements", call.all_gather, f(2), f(3))
        self.refuses("source has 2 elements", call.reduce_scatter, f(2), f(3))
        self.refuses("output has 3 elements", call.all_reduce, f(2), f(3))
        self.refuses("counts has 2 numbers; give one for each of the 1 ranks", call.all_gather_v,
                     f(2), f(3), [2, 1])
        self.refuses("source has 2 elements", call.all_gather_v, f(2), f(3), [3])
        self.refuses("output has 3 elements", call.all_gather_v, f(2), f(3), [2])
        self.refuses("2 elements at offset 2", call.all_gather_v, f(2), f(3), [2], offsets=[2])
        self.refuses("offset -1", call.all_gather_v, f(2), f(3), [2], offsets=[-1])
        self.refuses("2 elements at offset", call.all_gather_v, f(2), f(3), [2],
                     offsets=[2**63 - 1])
        self.refuses("offsets has 0 numbers", call.all_gather_v, f(2), f(3), [2], offsets=[])
        self.refuses("output is None on rank 0, the root", call.gather_v, f(2), None, [2])
        self.refuses("source is None on rank 0, the root", call.scatter_v, None, f(2), [2])

    def test_values(self):
        data = array.array("f", [0] * 3)
        with self.assertRaises(vescomm.InvalidArgumentError):
            self.comm.all_reduce(data, op=77)
        with self.assertRaises(vescomm.InvalidArgumentError):
            self.comm.all_reduce(data, op=Op.BITWISE_AND)
        with self.assertRaises(vescomm.InvalidArgumentError):
            self.comm.all_reduce(data, op=2**40)
        with self.assertRaises(vescomm.InvalidArgumentError):
            self.comm.broadcast(data, root=1)
        with self.assertRaises(vescomm.InvalidArgumentError):
            self.comm.send(data, peer=1)
        with self.assertRaises(vescomm.InvalidArgumentError):
            self.comm.send(data, peer=vescomm.ANY_SOURCE)
        for tag in (-1, 2**31, 2**40):
            with self.assertRaisesRegex(vescomm.InvalidArgumentError, f"tag is {tag};"):
                self.comm.receive(data, peer=0, tag=tag)
        with self.assertRaisesRegex(vescomm.InvalidArgumentError, "receives 0 messages"):
            self.comm.all_reduce(data, wait=False).message()
        with self.assertRaises(vescomm.Error):
            self.comm.all_reduce(data, algorithm="no such algorithm")
        with self.assertRaises(TypeError):
            self.comm.all_gather_v(data, data, "3")
        with self.assertRaises(TypeError):
            self.comm.all_gather_v(data, data, [1.5])
        with self.assertRaises(TypeError):
            self.comm.all_reduce(data, op="sum")
        with self.assertRaises(ValueError):
            self.comm.create_barrier().wait(-1)

    def test_addresses(self):
        data = array.array("f", [1, 2])
        address, count = data.buffer_info()
        self.comm.all_reduce_at(address, address, count, Type.F32, Op.SUM)
        self.comm.all_reduce_at(address, address, count, 1, 5, 2.0, None)
        self.assertEqual(data.tolist(), [2, 4])
        self.assertTrue(self.comm.start_all_reduce_at(address, address, count, 1, 0).wait())
        self.assertTrue(self.comm.start_all_reduce_at(address, address, count, 1, 5, 2.0, None).wait())
        self.refuses("counts has 0 numbers", self.comm.all_gather_v_at, address, address, [], None, 1)
        self.refuses("count is -1", self.comm.all_reduce_at, address, address, -1, 1, 0)
        self.refuses("not aligned", self.comm.all_reduce_at, address + 1, address, 1, 1, 0)

    def test_owners_of_addresses(self):
        """A request keeps the owner of its memory until it is complete, also if nobody keeps it."""

        class Memory:
            def __init__(self):
                self.bytes = bytearray(3)
                self.address = ctypes.addressof((ctypes.c_ubyte * 3).from_buffer(self.bytes))

        memory = Memory()
        alive = weakref.ref(memory)

        def receive():
            request = self.comm.start_receive_at(memory.address, 3, Type.U8, 0, 0, memory)
            self.assertFalse(request.test())
            return request

        def send():
            self.comm.send(b"abc", 0)

        request = receive()
        del memory
        self.assertIsNotNone(alive())
        send()
        request.wait()
        self.assertIsNone(alive(), "the request is complete")
        memory = Memory()
        alive = weakref.ref(memory)
        receive()
        del memory
        gc.collect()
        self.assertIsNotNone(alive(), "the request is dropped, and runs")
        send()
        while alive() is not None:
            self.comm.barrier()
        memory = Memory()
        alive = weakref.ref(memory)
        address, u8 = memory.address, Type.U8
        for arguments in ((), (2.0, None)):
            op = Op.PREMULTIPLIED_SUM if arguments else Op.SUM
            start = self.comm.start_all_reduce_at
            # Premultiplied sums are of floats.
            data = array.array("f", [1])
            address = data.buffer_info()[0]
            start(address, address, 1, Type.F32, op, *arguments, memory).wait()
        self.refuses("count is -1", self.comm.start_send_at, address, -1, u8, 0, 0, memory)
        self.comm.group_begin()
        self.comm.send_at(memory.address, 3, u8, 0, 0)
        request = self.comm.start_group_end(memory)
        del memory
        self.comm.receive(bytearray(3), 0)
        request.wait()
        self.assertIsNone(alive())

    def test_creation(self):
        for arguments in ((1, 1), (-1, 1), (0, 0), (0, 2**40), (0, 2), (0, 2, "nowhere", "secret")):
            with self.assertRaises(vescomm.InvalidArgumentError):
                vescomm.Communicator(*arguments)
        with self.assertRaises(vescomm.InvalidArgumentError):
            vescomm.Communicator(0, 1, timeout=-1.0)
        for wrong in (b"x", [b"x", b"y"], [b"x"], 3):
            with self.assertRaises((ValueError, TypeError, RuntimeError)):
                vescomm.Communicator.from_all_gather(1, 2, lambda mine: wrong)
        with self.assertRaises(KeyError):
            vescomm.Communicator.from_all_gather(0, 2, lambda mine: {}["absent"])

    def test_groups(self):
        self.comm.group_begin()
        with self.assertRaises(vescomm.InvalidArgumentError):
            self.comm.group_begin()
        with self.assertRaises(vescomm.InvalidArgumentError):
            self.comm.all_reduce(bytearray(3), wait=False)
        self.comm.group_end()
        with self.assertRaises(vescomm.InvalidArgumentError):
            self.comm.group_end()
        with self.assertRaises(ZeroDivisionError):
            with self.comm.group():
                self.comm.all_reduce(bytearray(3))
                1 / 0
        self.comm.barrier()

    def test_freed_objects(self):
        comm = vescomm.Communicator(0, 1)
        buffer = vescomm.Buffer(comm, Layout.from_counts([3]))
        request = buffer.create_all_reduce()
        request.free()
        request.free()
        self.refuses("the request has been freed", request.start)
        buffer.free()
        buffer.free()
        self.refuses("the buffer has been freed", buffer.data)
        comm.free()
        comm.free()
        self.assertTrue(comm.freed)
        self.refuses("the communicator has been freed", comm.barrier)
        self.refuses("the communicator has been freed", lambda: comm.rank)
        comm = vescomm.Communicator(0, 1)
        comm.finalize()
        with self.assertRaises(vescomm.Error):
            comm.all_reduce(bytearray(3))
        comm.free()
        self.assertEqual(repr(comm), "<vescomm.Communicator, freed>")


class Lives(OneRank):
    def test_views_outlive_their_buffer(self):
        buffer = vescomm.Buffer(self.comm, Layout([Tensor("w", (2, 3), 0)], 6, [0, 6]))
        views = [memoryview(buffer.tensor("w")), memoryview(buffer.shard())]
        views[0][1, 2] = 7.0
        buffer.free()
        self.comm.free()
        del buffer
        gc.collect()
        self.assertEqual(views[0].tolist(), [[0, 0, 0], [0, 0, 7]])
        self.assertEqual(views[1].tolist(), [0, 0, 0, 0, 0, 7])
        views[1][0] = 1.0

    def test_registered_memory_outlives_the_communicator(self):
        array = self.comm.empty((3, 4), vescomm.I64)
        view = memoryview(array)
        gone = weakref.ref(array)
        del array
        self.comm.free()
        gc.collect()
        self.assertIsNotNone(gone())
        view[2, 3] = 5
        self.assertEqual(view.tolist()[2], [0, 0, 0, 5])
        del view
        gc.collect()
        self.assertIsNone(gone())

    @needs_numpy
    def test_dlpack_keeps_memory_alive(self):
        shared = np.from_dlpack(self.comm.empty(4, vescomm.F64))
        again = vescomm.Buffer(self.comm, Layout.from_counts([4])).data()
        also = np.from_dlpack(again)
        del again
        self.comm.free()
        gc.collect()
        shared[:] = 1
        also[:] = 2
        self.assertEqual(shared.sum() + also.sum(), 12)

    def test_registered_memory_is_used_again(self):
        # Freed with its last view: many allocations need no more than a few of them at a time.
        for _ in range(200):
            self.comm.empty(1 << 20, vescomm.F64)

    def test_requests_keep_their_arrays(self):
        class Bytes(bytearray):
            pass

        data = Bytes(10)
        gone = weakref.ref(data)
        request = self.comm.all_reduce(data, wait=False)
        del data
        gc.collect()
        self.assertIsNotNone(gone())
        request.wait()
        del request
        gc.collect()
        self.assertIsNone(gone())


class Layouts(unittest.TestCase):
    def setUp(self):
        self.layout = Layout([Tensor("a", (4, 2), 0, 2), Tensor("b", (3,), 8)], 12, [0, 6, 12])

    def test_properties(self):
        layout = self.layout
        self.assertEqual((layout.ranks, layout.elements, layout.padding, layout.largest), (2, 12, 1, 6))
        self.assertEqual(layout.counts, (6, 6))
        self.assertEqual(layout.tensors, [Tensor("a", (4, 2), 0, 2), Tensor("b", (3,), 8)])
        self.assertEqual(layout.tensor(-1).name, "b")
        self.assertEqual(layout.find("b"), 1)
        self.assertEqual(layout.shard(1), (6, 12))
        self.assertEqual(layout.pieces(1), [(0, 6, 2, 0), (1, 0, 3, 2)])
        self.assertEqual(layout.piece("a", 0).elements, 6)
        self.assertEqual(layout.piece("b", 0), (1, 0, 0, 0))
        self.assertEqual(layout.boxes("a", 1, 3), [((0, 1), (1, 1)), ((1, 0), (1, 2))])
        self.assertEqual(layout.boxes("a", 0, 0), [])

    def test_values(self):
        again = Layout.from_bytes(self.layout.to_bytes())
        self.assertEqual(again, self.layout)
        self.assertEqual(len({again, self.layout, pickle.loads(pickle.dumps(again))}), 1)
        self.assertNotEqual(Layout.from_counts([1, 2]), Layout.from_counts([2, 1]))
        self.assertNotEqual(again, 3)

    def test_wrong_arguments(self):
        for call in (
            lambda: Layout([], 3, [0]),
            lambda: Layout([], 3, []),
            lambda: Layout([], 3, [0, 4]),
            lambda: Layout([Tensor("a", (2,), 0), Tensor("a", (1,), 2)], 3, [0, 3]),
            lambda: Layout.from_counts([]),
            lambda: Layout.from_counts([-1]),
            lambda: Layout.from_bytes(b"not a layout"),
            lambda: self.layout.find("c"),
            lambda: self.layout.shard(2),
            lambda: self.layout.pieces(-1),
        ):
            with self.assertRaises(vescomm.InvalidArgumentError):
                call()
        for index in (2, -3):
            with self.assertRaises(IndexError):
                self.layout.tensor(index)
        with self.assertRaises(TypeError):
            self.layout.tensor(1.5)


class Planner(unittest.TestCase):
    def test_plan(self):
        tensors = [("w", (100, 30), 10), vescomm.PlannerTensor("b", (30,))]
        plan = vescomm.plan(tensors, ranks=3)
        self.assertEqual(plan.layout.ranks, 3)
        self.assertEqual(plan.figures.elements, plan.layout.elements)
        self.assertGreaterEqual(plan.figures.largest_shard, plan.figures.lower_bound)
        self.assertIn("shards for 3 ranks", plan.explanation)
        self.assertEqual(plan.layout.tensor("w").block, 300)
        heavy = vescomm.plan(tensors, ranks=2, weights=[1, 3], cut_alignment=1).layout.counts
        self.assertGreater(heavy[1], 2 * heavy[0])

    def test_no_layout(self):
        plan = vescomm.plan([("w", (10,), -1)], ranks=2, shard_limit=3)
        self.assertIsNone(plan.layout)
        self.assertNotEqual(plan.explanation, "")

    def test_plan_model(self):
        units = [(f"block.{i}", [("w", (64, 64)), ("v", (64,))]) for i in range(3)]
        plan = vescomm.plan_model(units, ranks=4, type=Type.F32, mode=vescomm.Mode.BALANCED)
        self.assertEqual([unit.layout.ranks for unit in plan.units], [4, 4, 4])
        self.assertTrue(plan.totals.feasible)
        self.assertEqual(plan.totals.mode, vescomm.Mode.BALANCED)
        self.assertIn("3 units", plan.explanation)

    def test_wrong_arguments(self):
        for call in (
            lambda: vescomm.plan([("w", (10,)), ("w", (10,))], ranks=2),
            lambda: vescomm.plan([("w", (-1,))], ranks=2),
            lambda: vescomm.plan([("w", (10,))], ranks=0),
            lambda: vescomm.plan([("w", (10,))], ranks=2, weights=[1]),
            lambda: vescomm.plan([("w", (10,))], ranks=2, mode=77),
        ):
            with self.assertRaises(vescomm.InvalidArgumentError):
                call()
        with self.assertRaises(TypeError):
            vescomm.plan([("w", (10,))], ranks=2, modes=1)
        with self.assertRaises(ValueError):
            vescomm.plan_model([("u", [("w", (10,))])], ranks=2, type=[Type.F32] * 2)


class Members(OneRank):
    def test_other_arguments_name_the_enumeration(self):
        data = bytearray(8)
        layout = vescomm.Layout.from_counts([2])
        for call, sentence in (
            (lambda: self.comm.all_reduce(data, op="max"),
             "op is a str; give a member of vescomm.Op, such as Op.SUM"),
            (lambda: self.comm.all_reduce(data, op=b"4"),
             "op is a bytes; give a member of vescomm.Op, such as Op.SUM"),
            (lambda: self.comm.all_reduce(data, type="float32"),
             "type is a str; give a member of vescomm.Type, such as Type.F32"),
            (lambda: vescomm.Buffer(self.comm, layout, type="f32"),
             "type is a str; give a member of vescomm.Type, such as Type.F32"),
            (lambda: vescomm.Buffer(self.comm, layout, sharing="node"),
             "sharing is a str; give a member of vescomm.Sharing, such as Sharing.PER_NODE"),
            (lambda: vescomm.Memory(self.comm, 10, 1.5),
             "sharing is a float; give a member of vescomm.Sharing, such as Sharing.PER_NODE"),
        ):
            with self.assertRaises(TypeError) as raised:
                call()
            self.assertEqual(str(raised.exception), sentence)

    def test_values_are_members(self):
        data = array.array("f", [1.5, 2.5])
        self.comm.all_reduce(data, op=4, type=1)
        self.assertEqual(list(data), [1.5, 2.5])

    def test_signatures_name_members(self):
        text = vescomm.Communicator.all_reduce.__doc__
        self.assertIn("op: vescomm.Op = Op.SUM", text)
        self.assertIn("type: vescomm.Type | None = None", text)
        self.assertIn("sharing: vescomm.Sharing = Sharing.PER_RANK", vescomm.Memory.__init__.__doc__)


class Interface(unittest.TestCase):
    def test_everything_public_has_a_docstring(self):
        for name in vescomm.__all__:
            value = getattr(vescomm, name)
            if isinstance(value, (Type, Op, vescomm.Sharing)):
                continue
            self.assertTrue(value.__doc__, name)
            if not inspect.isclass(value) or not value.__module__.startswith("vescomm"):
                continue
            for member in dir(value):
                if member.startswith("_") or member.endswith("_at"):
                    continue
                function = getattr(value, member)
                if callable(function) or isinstance(function, property):
                    self.assertTrue(function.__doc__, f"{name}.{member}")

    def test_stubs_name_everything(self):
        path = os.path.join(os.path.dirname(vescomm.__file__), "_core.pyi")
        with open(path, encoding="utf-8") as file:
            stub = {node.name: node for node in ast.parse(file.read()).body if hasattr(node, "name")}
        for name, value in vars(vescomm._core).items():
            if name.startswith("__"):
                continue
            self.assertIn(name, stub)
            if inspect.isclass(value):
                listed = {node.name for node in stub[name].body if hasattr(node, "name")}
                real = {each for each in vars(value) if not each.startswith("__")}
                self.assertEqual({each for each in listed if not each.startswith("__")}, real)

    def test_enumerations_match_the_header(self):
        header = os.environ.get("VESCOMM_TEST_HEADER")
        if not header:
            self.skipTest("VESCOMM_TEST_HEADER does not name vescomm.h")
        with open(header, encoding="utf-8") as file:
            text = file.read()
        for kind, members in (("type", Type), ("op", Op), ("sharing", vescomm.Sharing)):
            for member in members:
                self.assertIn(f"#define VESCOMM_{member.name} ((vescomm_{kind}_t){member.value})", text)
            self.assertEqual(text.count(f"((vescomm_{kind}_t)"), len(members) + (kind == "type"))

    def test_sizes_of_types(self):
        comm = vescomm.Communicator(0, 1)
        for type in Type:
            self.assertEqual(comm.empty(3, type).nbytes, 3 * type.bytes)
        with self.assertRaises(vescomm.InvalidArgumentError):
            comm.empty(3, 99)
        with self.assertRaises(vescomm.InvalidArgumentError):
            comm.empty((-1, 2))
        with self.assertRaises(vescomm.Error):
            comm.empty((2**40, 2**40))
        comm.free()


if __name__ == "__main__":
    unittest.main()

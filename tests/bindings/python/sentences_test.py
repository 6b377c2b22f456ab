#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Exceptions of wrong values: their class, and what the sentence says. And values that are near them,
which are permitted.
"""

import ctypes
import logging
import os
import tempfile
import unittest

import vescomm
from job import free_address
from refusals import Refusals
from vescomm import Layout, Op, PlannerTensor, Tensor, Type

try:
    import numpy as np
except ImportError:
    np = None

needs_numpy = unittest.skipIf(np is None, "numpy is not installed")


class Texts(Refusals):
    def test_the_secret_is_not_cut_at_a_nul(self):
        """Two secrets that differ behind a NUL were the same."""
        secret = "0123456789abcdef\0one"
        with self.assertRaises(vescomm.InvalidArgumentError) as caught:
            vescomm.Communicator(1, 2, free_address(), secret, timeout=1.0)
        self.assertIn("secret has a NUL character at byte 16", str(caught.exception))
        self.assertNotIn("0123456789", str(caught.exception))

    def test_texts_with_a_nul_are_refused(self):
        text, comm = "a\0b", self.comm
        layout = Layout.from_counts([3])
        buffer = vescomm.Buffer(comm, layout)
        address = ctypes.addressof((ctypes.c_float * 1)())
        for name, call in {
            "address": lambda: vescomm.Communicator(0, 2, text, "s" * 16),
            "node": lambda: vescomm.Communicator(0, 1, node=text),
            "tag": lambda: vescomm.Communicator(0, 1, tag=text),
            "algorithm": lambda: comm.all_reduce(bytearray(3), algorithm=text),
            "name": lambda: vescomm.Buffer(comm, layout, name=text),
            "path": lambda: comm.write_trace(text),
            "the name of the tensor": lambda: layout.find(text),
            "tensors[0].name": lambda: Layout([Tensor(text, (1,))], 1, [0, 1]),
            "units[0].name": lambda: vescomm.plan_model([(text, [("w", (1,))])], ranks=1),
            "units[0]: tensors[0].name": lambda: vescomm.plan_model([("u", [(text, (1,))])], ranks=1),
        }.items():
            with self.subTest(name):
                self.refuses(f"{name} has a NUL character at byte 1", call)
        for call in (
            lambda: comm.dup(node=text),
            lambda: comm.split(0, node=text),
            lambda: vescomm.Communicator.from_environment(tag=text),
            lambda: vescomm.Communicator.from_all_gather(0, 1, lambda mine: mine, node=text),
            lambda: comm.start_all_reduce_at(address, address, 1, Type.F32, Op.SUM, 0.0, text),
            lambda: buffer.create_all_reduce(algorithm=text),
            lambda: comm.create_barrier(algorithm=text),
            lambda: comm.write_flight_recorder(text),
            lambda: comm.add_span(text, "track", 0, 1),
            lambda: comm.add_span("name", text, 0, 1),
            lambda: comm.add_span("name", "track", 0, 1, {text: 1.0}),
            lambda: comm.add_span("name", "track", 0, 1, {"key": text}),
            lambda: vescomm.plan([(text, (1,))], ranks=1),
        ):
            self.refuses("has a NUL character at byte 1", call)

    def test_the_reason_of_an_abort_keeps_what_follows_a_nul(self):
        comm = vescomm.Communicator(0, 1)
        comm.abort("begin\0end")
        self.raises(vescomm.AbortedError, r"begin\x00end", comm.barrier)

    def test_long_names_are_cut_between_characters(self):
        for letter in ("é", "漢", "𝄞"):
            for shift in range(4):
                name = "x" * shift + letter * 200
                for call in (
                    lambda: vescomm.plan([(name, (-1,))], ranks=2),
                    lambda: vescomm.plan_model([(name, [("w", (-1,))])], ranks=2),
                    lambda: Layout([Tensor(name, (5,))], 1, [0, 1]),
                ):
                    error = self.refuses(letter + "...", call)
                    self.assertNotIn("\\x", str(error))

    def test_sentences_with_bytes_that_are_not_utf8(self):
        """The name of a tensor in bytes of an untrusted source."""
        tensors = [Tensor("abcd", (3,)), Tensor("efgh", (1,), 3)]
        data = Layout(tensors, 4, [0, 4]).to_bytes().replace(b"abcd", b"\xff\xfe\xfdd")
        self.assertEqual(Layout.from_bytes(data).tensor(0).name, r"\xff\xfe\xfdd")
        data = data.replace(b"efgh", b"\xff\xfe\xfdd")
        self.refuses(r'both named "\xff\xfe\xfdd"', Layout.from_bytes, data)

    def test_lone_surrogates(self):
        self.refuses("surrogate", Layout.from_counts([1]).find, "\udc80")
        self.refuses("tensors[0].name has a surrogate", vescomm.plan, [("\udc80", (1,))], ranks=1)

    def test_paths_are_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            self.comm.start_trace()
            for path in (b"trace", "trace \udcff", b"trace \xfe"):
                whole = os.path.join(os.fsencode(folder), os.fsencode(path))
                self.comm.write_trace(whole if isinstance(path, bytes) else os.fsdecode(whole))
                self.comm.write_flight_recorder(whole + b".flight")
                self.assertTrue(os.path.exists(whole) and os.path.exists(whole + b".flight"))
        for call in (self.comm.write_trace, self.comm.write_flight_recorder):
            self.raises(TypeError, "not int", call, 5)


class Values(Refusals):
    def test_values_beyond_32_bits_are_shown(self):
        data, comm, big = bytearray(3), self.comm, 2**40 + 7
        layout = Layout.from_counts([3])
        buffer = vescomm.Buffer(comm, layout)
        for name, call in {
            "root": lambda: comm.broadcast(data, root=big),
            "op": lambda: comm.all_reduce(data, op=big),
            "type": lambda: comm.all_reduce(data, type=big),
            "peer": lambda: comm.send(data, big),
            "tag": lambda: comm.receive(data, 0, tag=big),
            "rank": lambda: layout.shard(big),
            "ranks": lambda: vescomm.plan([("w", (1,))], ranks=big),
            "sharing": lambda: vescomm.Memory(comm, 1, big),
            "color": lambda: comm.split(big),
            "key": lambda: comm.split(0, big),
            "index": lambda: comm.create_barrier().message(big),
            "mode": lambda: vescomm.plan([("w", (1,))], ranks=1, mode=big),
            "tensors[0].batch_dimensions": lambda: vescomm.plan([("w", (1,), 0, big)], ranks=1),
        }.items():
            with self.subTest(name):
                self.refuses(f"{name} is {big}; it must be an integer of 32 bits", call)
        self.refuses(f"root is {-big};", buffer.create_broadcast, -big)
        self.refuses(f"ranks is {big};", vescomm.Communicator, 0, big)
        self.refuses(f"a rank of failed is {big};", comm.shrink, [big])

    def test_values_beyond_64_bits_are_shown(self):
        big = 2**63
        self.refuses(f"tensors[1].offset is {big}; it must be an integer of 64 bits", Layout,
                     [Tensor("a", ()), Tensor("w", (1,), big)], 2, [0, 2])
        self.refuses(f"tensors[0].shape[1] is {big};", vescomm.plan, [("w", (1, big))], ranks=1)
        self.refuses("tensors[0].shape[0] is an integer of thousands of digits;", vescomm.plan,
                     [("w", (10**5000,))], ranks=1)
        self.refuses(f"shard_limit is {big};", vescomm.plan, [("w", (1,))], ranks=1, shard_limit=big)
        self.refuses("which is too large for a float", vescomm.plan, [("w", (1,))], ranks=1,
                     unit_imbalance=10**400)

    def test_types_of_members(self):
        for text, tensor in {
            "name is of type int; give a str": Tensor(5, (1,)),
            "name is of type bytes; give a str": Tensor(b"w", (1,)),
            "shape is of type int; give a sequence of integers": Tensor("w", 5),
            "shape is of type str; give a sequence of integers": Tensor("w", "5"),
            "shape[1] is of type float; give an integer": Tensor("w", (1, 1.5)),
            "offset is of type str; give an integer": Tensor("w", (1,), "0"),
            "block is of type NoneType; give an integer": Tensor("w", (1,), 0, None),
            "batch_dimensions is of type float; give an integer": Tensor("w", (1,), 0, 1, 0.5),
        }.items():
            self.raises(TypeError, f"tensors[1].{text}", Layout, [Tensor("a", ()), tensor], 2, [0, 2])
        self.raises(TypeError, "tensors[0] is of type tuple, which has no member name", Layout,
                    [("w", (1,))], 1, [0, 1])
        for text, tensor in {
            "name is of type int; give a str": (5, (1,)),
            "shape is of type NoneType; give a sequence of integers": ("w", None),
            "block_rows is of type str; give an integer": PlannerTensor("w", (1,), "x"),
            "alignment is of type str; give an integer": PlannerTensor("w", (1,), 0, 0, "x"),
        }.items():
            self.raises(TypeError, f"tensors[0].{text}", vescomm.plan, [tensor], ranks=1)
            self.raises(TypeError, f"units[0]: tensors[0].{text}", vescomm.plan_model,
                        [("u", [tensor])], ranks=1)
        for option, value, expected in (
            ("mode", "ragged", "an integer"),
            ("work", None, "an integer"),
            ("search_steps", 1.5, "an integer"),
            ("unit_imbalance", "x", "a number"),
        ):
            self.raises(TypeError, f"{option} is of type {type(value).__name__}; give {expected}",
                        vescomm.plan, [("w", (1,))], ranks=1, **{option: value})
        self.raises(TypeError, "units[0].name is of type int; give a str", vescomm.plan_model,
                    [(5, [("w", (1,))])], ranks=1)
        self.raises(TypeError, "type[0] is of type NoneType; give an integer", vescomm.plan_model,
                    [("u", [("w", (1,))])], ranks=1, type=[None])
        self.raises(TypeError, "not by a value of type float", Layout.from_counts([1]).find, 1.5)
        self.assertEqual(Layout.from_counts([3, 4]).tensor(0).shape, (7,))

    def test_exceptions_of_members_pass(self):
        class Raising:
            def __index__(self):
                raise KeyError("mine")

        self.raises(KeyError, "mine", vescomm.plan, [("w", (Raising(),))], ranks=1)

    def test_results_of_all_gather(self):
        for result in (None, 5, "text"):
            self.raises(TypeError,
                        f"all_gather() returned a value of type {type(result).__name__}; it must",
                        vescomm.Communicator.from_all_gather, 0, 2, lambda mine: result)

    def test_timeouts(self):
        for timeout in (0, 0.0, float("nan"), -1.0):
            self.refuses(f"timeout is {timeout}; give more than 0", vescomm.Communicator, 0, 1,
                         timeout=timeout)
            self.refuses(f"timeout is {timeout};", self.comm.dup, timeout=timeout)
        request = self.comm.create_barrier()
        request.run()
        for timeout, text in ((-1, "-1"), (float("nan"), "nan"), (-0.5, "-0.5")):
            self.refuses(f"timeout is {text}; give at least 0", request.wait, timeout)
        self.assertTrue(request.wait(0))

    def test_owners_of_addresses(self):
        data = (ctypes.c_float * 1)(1)
        address = ctypes.addressof(data)
        start = self.comm.start_all_reduce_at
        for owner in (2.0, 3):
            self.raises(TypeError, f"owner is of type {type(owner).__name__}", start, address,
                        address, 1, Type.F32, Op.SUM, owner)
        start(address, address, 1, Type.F32, Op.PREMULTIPLIED_SUM, 2.0, None, data).wait()
        self.assertEqual(data[0], 2)

    def test_counts_and_bytes_of_layouts(self):
        self.refuses("counts is empty", Layout.from_counts, [])
        for data in (5, [1, 2], "x"):
            self.raises(TypeError, type(data).__name__, Layout.from_bytes, data)
        layout = Layout.from_counts([3])
        for kind in (bytes, bytearray, memoryview):
            self.assertEqual(Layout.from_bytes(kind(layout.to_bytes())), layout)

    def test_loggers(self):
        for logger in ("vescomm", 5):
            self.raises(TypeError, f"logger is of type {type(logger).__name__}; give a logging.Logger",
                        vescomm.use_logging, logger)
        vescomm.use_logging(logging.LoggerAdapter(logging.getLogger("other"), {}))
        vescomm.use_standard_error()


class ArrayLike:
    """An array by DLPack, or one that raises an exception instead."""

    def __init__(self, result):
        self.result = result

    def __dlpack__(self, **_):
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result

    def __dlpack_device__(self):
        return 1, 0


class Imports(Refusals):
    def test_the_reason_of_dlpack_is_kept(self):
        for raised in (RuntimeError("the array\0 is gone"), BufferError("busy")):
            error = self.refuses(f"raised {type(raised).__name__}: {raised}", self.comm.all_reduce,
                                 ArrayLike(raised))
            self.assertIs(error.__cause__, raised)
            error = self.refuses("output, a ArrayLike, is not an array", self.comm.all_gather,
                                 bytearray(3), ArrayLike(raised))
            self.assertIs(error.__cause__, raised)
        for result in (None, 5, b"abc"):
            self.refuses(f"returned a value of type {type(result).__name__} instead of a capsule",
                         self.comm.all_reduce, ArrayLike(result))

    def test_exceptions_that_are_no_errors_of_the_array_pass(self):
        for kind in (KeyboardInterrupt, SystemExit, MemoryError, GeneratorExit):
            with self.assertRaises(kind):
                self.comm.all_reduce(ArrayLike(kind("mine")))
            with self.assertRaises(kind):
                self.comm.all_gather(bytearray(3), ArrayLike(kind("mine")))

            class Interface:
                @property
                def __array_interface__(self):
                    raise kind("mine")

            with self.assertRaises(kind):
                self.comm.all_reduce(Interface())

    def test_values_of_interfaces(self):
        memory = self.comm.empty(3, Type.F64)
        good = {"data": (memory.address, False), "shape": (3,), "typestr": "<f8", "version": 3}

        def interface(**changes):
            class Interface:
                __array_interface__ = {**good, **changes}

            return Interface()

        for key, value, text in (
            ("data", None, "data is of type NoneType; a tuple"),
            ("data", bytes(24), "data is of type bytes; a tuple"),
            ("data", (1,), "data is of type tuple; a tuple"),
            ("data", ("x", False), "address in data is of type str; an integer"),
            ("shape", 3, "shape is of type int; a tuple"),
            ("shape", ("x",), "shape[0] is of type str; give an integer"),
            ("typestr", 5, "typestr is of type int; a str"),
            ("strides", 5, "strides is of type int; a tuple"),
        ):
            with self.subTest(key=key, value=value):
                self.raises(TypeError, text, self.comm.all_reduce, interface(**{key: value}),
                            type=Type.F64)
        for key, value, text in (
            ("data", (2**70, False), "address is no address"),
            ("shape", (-3,), "an extent of -3"),
            ("shape", (2**40, 2**40), f"an extent of {2**40}"),
            ("typestr", "", 'typestr is ""'),
            ("typestr", "<f", 'typestr is "<f"'),
            ("typestr", "<fx", 'typestr is "<fx"'),
            ("typestr", "<f" + 30 * "9", "typestr is"),
            ("typestr", ">f8", "order of bytes"),
            ("typestr", "<U2", "elements that are texts"),
        ):
            with self.subTest(key=key, value=value):
                self.refuses(text, self.comm.all_reduce, interface(**{key: value}), type=Type.F64)
        self.comm.all_reduce(interface(), type=Type.F64)
        self.comm.all_reduce(interface(shape=(0, 2**40, 2**40)), type=Type.F64)

        class Other:
            __array_interface__ = 7

        self.raises(TypeError, "an __array_interface__ of type int; a dict", self.comm.all_reduce,
                    Other(), type=Type.F64)

    @needs_numpy
    def test_texts_and_dates_of_numpy(self):
        self.refuses("has elements that are texts", self.comm.all_reduce, np.array(["ab"]),
                     type=Type.U16, op=Op.MAX)
        dates = np.zeros(2, "datetime64[ns]")
        self.refuses("of a type that vescomm has not", self.comm.all_reduce, dates)
        self.comm.all_reduce(dates, type=Type.I64, op=Op.MAX)


class PyBuffer(ctypes.Structure):
    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
        ("internal", ctypes.c_void_p),
    ]


SIMPLE, WRITABLE, FORMAT, ND, STRIDES = 0, 1, 4, 8, 0x10 | 8
C_CONTIGUOUS, F_CONTIGUOUS, ANY_CONTIGUOUS = 0x20 | STRIDES, 0x40 | STRIDES, 0x80 | STRIDES


class OwnArrays(Refusals):
    def get(self, array, flags):
        view = PyBuffer()
        api = ctypes.pythonapi
        if api.PyObject_GetBuffer(ctypes.py_object(array), ctypes.byref(view), flags) != 0:
            raise AssertionError("no exception was raised")
        dimensions = view.ndim
        values = (
            dimensions,
            view.shape[:dimensions] if view.shape else None,
            view.strides[:dimensions] if view.strides else None,
            view.format,
            view.len,
        )
        api.PyBuffer_Release(ctypes.byref(view))
        return values

    def test_requests_of_the_buffer_protocol(self):
        matrix = self.comm.empty((2, 3))
        for flags in (SIMPLE, WRITABLE):
            self.assertEqual(self.get(matrix, flags), (1, None, None, None, 24))
        self.assertEqual(self.get(matrix, ND), (2, [2, 3], None, None, 24))
        self.assertEqual(self.get(matrix, ND | FORMAT), (2, [2, 3], None, b"f", 24))
        for flags in (STRIDES, C_CONTIGUOUS, ANY_CONTIGUOUS):
            self.assertEqual(self.get(matrix, flags), (2, [2, 3], [12, 4], None, 24))
        for flags in (F_CONTIGUOUS, FORMAT, FORMAT | WRITABLE):
            with self.subTest(flags=flags), self.assertRaises(BufferError):
                self.get(matrix, flags)
        for shape in ((3,), (1, 3), (3, 1), (0, 3), (2, 0)):
            self.assertEqual(self.get(self.comm.empty(shape), F_CONTIGUOUS)[1], list(shape))
        scalar = self.comm.empty(())
        self.assertEqual(self.get(scalar, STRIDES | FORMAT), (0, None, None, b"f", 4))

    def test_memory_of_an_array_is_not_freed_by_its_address(self):
        array = self.comm.empty(4096)
        self.refuses("belongs to an array of empty()", self.comm.mfree, array.address)
        other = vescomm.Communicator(0, 1)
        self.refuses("belongs to an array of empty()", other.mfree, array.address)
        address = array.address
        del array
        self.refuses("no memory of vescomm_malloc()", self.comm.mfree, address)
        self.comm.mfree(self.comm.malloc(100))
        other.free()

    def test_shapes(self):
        for shape in ([0, 2**63 - 1, 2**63 - 1], [2**32, 2**32, 0], [0, 2**62]):
            self.refuses("an extent of the shape is", self.comm.empty, shape)
        self.assertEqual(self.comm.empty([0, 2**40]).size, 0)
        self.raises(TypeError, "", self.comm.empty, 5.0)

    @needs_numpy
    def test_scalars_of_numpy(self):
        self.assertEqual(self.comm.empty(np.int64(5)).shape, (5,))
        self.assertEqual(self.comm.empty(np.array(5)).shape, (5,))
        array = self.comm.empty([np.uint8(2), 3], np.int64(Type.I32))
        self.assertEqual((array.shape, array.type), ((2, 3), Type.I32))
        units = [("u", [("w", (np.int64(3),))])]
        plan = vescomm.plan_model(units, ranks=np.int64(1), type=np.int64(Type.F32))
        self.assertEqual(plan.units[0].layout.elements, 3)

    @needs_numpy
    def test_scalars_of_numpy_as_arrays(self):
        # Their results would be written into temporary arrays.
        text = "a float64, is a scalar of NumPy"
        self.refuses(text, self.comm.all_reduce, np.ones(4).sum())
        self.refuses(text, self.comm.all_reduce, np.ones(1), np.float64(0))
        output = np.zeros(1)
        self.comm.all_reduce(np.float64(5), output)
        self.assertEqual(output[0], 5)

    @needs_numpy
    def test_arrays_of_many_dimensions_for_numpy(self):
        for type in (Type.F32, Type.I8):
            with self.assertRaises(BufferError):
                self.comm.empty([1] * 65, type).numpy()


if __name__ == "__main__":
    unittest.main()

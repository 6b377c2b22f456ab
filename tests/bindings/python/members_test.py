#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Values of the wrong kind, which would have another meaning: members of other enumerations, bools,
numbers out of range. And arrays of formats that vescomm has not.
"""

import array
import ctypes
import enum
import unittest

import vescomm
from refusals import Refusals
from vescomm import Layout, Mode, Op, Sharing, Type, Work


class Members(Refusals):
    def test_members_of_other_enumerations_are_refused(self):
        data, comm = bytearray(3), self.comm
        layout, tensors = Layout.from_counts([3]), [("w", (1,))]
        buffer = vescomm.Buffer(comm, layout)
        for text, call in {
            "op is vescomm.Type.F64; give a member of vescomm.Op": lambda: comm.all_reduce(data, op=Type.F64),
            "op is a bool; give a member of vescomm.Op": lambda: comm.all_reduce(data, op=True),
            "op is vescomm.Type.F32;": lambda: comm.reduce_scatter(data, bytearray(3), Type.F32),
            "type is vescomm.Op.MAX; give a member of vescomm.Type": lambda: comm.broadcast(data, type=Op.MAX),
            "type is a bool;": lambda: comm.broadcast(data, type=True),
            "root is vescomm.Op.SUM; give an integer": lambda: comm.broadcast(data, Op.SUM),
            "root is vescomm.Op.MAX;": lambda: buffer.create_broadcast(Op.MAX),
            "type is vescomm.Sharing.PER_NODE;": lambda: vescomm.Buffer(comm, layout, Sharing.PER_NODE),
            "sharing is vescomm.Op.AVERAGE; give": lambda: vescomm.Memory(comm, 3, Op.AVERAGE),
            "mode is vescomm.Work.MUON; give": lambda: vescomm.plan(tensors, 1, mode=Work.MUON),
            "work is vescomm.Mode.OWNER; give": lambda: vescomm.plan(tensors, 1, work=Mode.OWNER),
            "type[0] is vescomm.Op.PROD; give": lambda: vescomm.plan_model([("u", tensors)], 1, type=Op.PROD),
            "type is 'bf16'; give": lambda: vescomm.plan_model([("u", tensors)], 1, type="bf16"),
        }.items():
            with self.subTest(text):
                self.raises(TypeError, text, call)

    def test_values_of_members_are_accepted(self):
        class Own(enum.IntEnum):
            SUM = 0

        data = bytearray(3)
        for op in (0, Op.SUM, Own.SUM):
            self.comm.all_reduce(data, op=op)
        self.comm.broadcast(data, root=False, type=8)


class Numbers(Refusals):
    def test_numbers_of_bytes(self):
        comm, layout = self.comm, Layout.from_counts([3])
        self.refuses("bytes is -1; give 0 or more bytes", vescomm.Memory, comm, -1)
        self.refuses("bytes is -1;", comm.malloc, -1)
        self.refuses(f"bytes is {2**63};", comm.malloc, 2**63)
        self.refuses("offset_bytes is -1;", vescomm.Buffer, comm, layout, offset_bytes=-1)
        self.raises(TypeError, "bytes is of type float; give an integer", comm.malloc, 1.5)

    def test_numbers_beyond_64_bits(self):
        big = 2**63
        self.refuses(f"ranks is {big}; it must be", vescomm.plan, [("w", (1,))], ranks=big)
        self.refuses(f"ranks is {big};", vescomm.plan_model, [("u", [("w", (1,))])], ranks=big)
        self.refuses(f"root is {big};", self.comm.broadcast, bytearray(3), root=big)

    def test_timeouts(self):
        for value in ("3", [3.0], object()):
            self.raises(TypeError, f"timeout is of type {type(value).__name__}; give a number of",
                        self.comm.dup, timeout=value)


class Formats(Refusals):
    def test_formats_that_vescomm_has_not(self):
        class Pair(ctypes.Structure):
            _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_float)]

        for data, text in (
            (array.array("u", "abc"), 'has elements of format "w"'),
            ((ctypes.c_float.__ctype_be__ * 3)(), 'has elements of format ">f"'),
            ((Pair * 3)(), 'has elements of format "T{'),
        ):
            for call in (self.comm.all_reduce, lambda data: self.comm.send(data, 0)):
                self.refuses(text, call, data)

    def test_a_memoryview_that_was_released(self):
        view = memoryview(bytearray(3))
        view.release()
        self.refuses("is not an array: its buffer protocol raised ValueError: operation forbidden",
                     self.comm.all_reduce, view)

    def test_the_order_of_elements(self):
        try:
            import numpy as np
        except ImportError:
            self.skipTest("numpy is not installed")
        self.refuses("is not contiguous in row-major order (C order)", self.comm.all_reduce,
                     np.ones((3, 3), order="F"))

    def test_a_request_within_a_group(self):
        with self.comm.group():
            self.refuses("a call within a group has no request of its own", self.comm.all_reduce,
                         bytearray(3), wait=False)


if __name__ == "__main__":
    unittest.main()

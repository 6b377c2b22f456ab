#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Objects that have no value, and requests whose arrays run code of Python at their end."""

import gc
import threading
import unittest

import vescomm
from vescomm import Type


class Objects(unittest.TestCase):
    def setUp(self):
        self.comm = vescomm.Communicator(0, 1)
        self.addCleanup(self.comm.free)

    def test_an_array_without_a_value(self):
        empty = vescomm.Array.__new__(vescomm.Array)
        calls = (memoryview, bytes, self.comm.all_reduce, vescomm.Array.numpy, repr)
        for call in (*calls, vescomm.Array.__dlpack__):
            with self.subTest(call), self.assertRaises((BufferError, TypeError, vescomm.Error)):
                call(empty)
        with self.assertRaises(vescomm.InvalidArgumentError) as caught:
            self.comm.all_reduce(bytearray(3), empty)
        self.assertIn("output, a Array, has no memory", str(caught.exception))

    def test_a_buffer_that_was_freed(self):
        buffer = vescomm.Buffer(self.comm, vescomm.Layout.from_counts([3]))
        self.assertEqual(repr(buffer), "<vescomm.Buffer of 3 F32>")
        buffer.free()
        self.assertEqual(repr(buffer), "<vescomm.Buffer, freed>")

    def test_another_thread_enters_a_call_while_a_dropped_request_is_freed(self):
        comm = self.comm
        memory = comm.empty(3, Type.U8)
        failures = []

        def receive():
            try:
                comm.receive_at(memory.address, 3, Type.U8, 0, 1)
            except vescomm.AbortedError as error:
                failures.append(error)

        thread = threading.Thread(target=receive)

        class Owner:
            def __del__(self):
                before = comm.counters().sleeps
                thread.start()
                while comm.counters().sleeps == before:
                    pass

        request = comm.start_receive_at(memory.address, 3, Type.U8, 0, 0, Owner())
        del request  # it runs: a later call frees it
        gc.collect()
        comm.send_at(memory.address, 3, Type.U8, 0, 0)
        try:
            with self.assertRaises(vescomm.InvalidArgumentError) as caught:
                comm.send_at(memory.address, 3, Type.U8, 0, 1)
            self.assertIn("another thread is in a call", str(caught.exception))
        finally:
            comm.abort("the test ends")
            thread.join()
        self.assertEqual(len(failures), 1)


if __name__ == "__main__":
    unittest.main()

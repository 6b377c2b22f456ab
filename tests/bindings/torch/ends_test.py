#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Ends of programs: every process ends, and says nothing but the exception that ended it."""

import unittest

from ranks import run_scripts

REFUSE_THREADS = (
    "def refuse(self): raise RuntimeError(\"can't create new thread at interpreter shutdown\")\n"
    "import atexit, threading\n"
    "atexit.register(setattr, threading.Thread, 'start', refuse)\n"
)


class Ends(unittest.TestCase):
    def test_program_that_ends(self):
        for code, text in run_scripts("pass"):
            self.assertEqual((code, text), (0, ""))

    def test_operation_that_nobody_waits_for(self):
        """Its Work dies with the module of the program, when no thread can start."""
        for end in (
            "work = dist.all_reduce(torch.ones(3), async_op=True)",
            "work = dist.all_reduce(torch.ones(300000), async_op=True)",
            "future = dist.all_reduce(torch.ones(3), async_op=True).get_future()",
            "work = dist.all_reduce(torch.ones(3), async_op=True); dist.destroy_process_group()",
            "torch.work = dist.all_reduce(torch.ones(3), async_op=True)",
            "if rank == 0: work = dist.isend(torch.ones(3), 1)\nelse: dist.recv(torch.ones(3), 0)",
            "if rank == 1: work = dist.irecv(torch.ones(3), 0)\nelse: dist.send(torch.ones(3), 1)",
        ):
            with self.subTest(end):
                for code, text in run_scripts(end):
                    self.assertEqual((code, text), (0, ""))

    def test_work_that_dies_after_the_groups(self):
        """It starts no thread, which Python refuses from 3.12 on."""
        end = (
            "import threading\n"
            "from vescomm.torch import closing\n"
            "work = dist.all_reduce(torch.ones(3), async_op=True)\n"
            "closing._end()\n"
            "def refuse(self): raise RuntimeError('a thread')\n"
            "threading.Thread.start = refuse\n"
            "del work"
        )
        for code, text in run_scripts(end):
            self.assertEqual((code, text), (0, ""))

    def test_exception_in_a_function_that_holds_a_work(self):
        first, second = run_scripts(
            "def fail():\n"
            "    work = dist.all_reduce(torch.ones(3), async_op=True)\n"
            "    if rank == 0: raise KeyError('the reason')\n"
            "    while True: dist.all_reduce(torch.ones(3))\n"
            "fail()"
        )
        self.assertEqual((first[0], second[0]), (1, 1))
        self.assertTrue(first[1].endswith("KeyError: 'the reason'\n"), first[1])
        self.assertIn("the process of rank 0 ended with KeyError: 'the reason'", second[1])

    def test_program_that_ends_without_threads(self):
        """As Python 3.12.1, which starts no thread while it ends."""
        for code, text in run_scripts(REFUSE_THREADS):
            self.assertEqual((code, text), (0, ""))
        first, second = run_scripts(
            REFUSE_THREADS + "if rank == 0: raise KeyError('the reason')\n"
            "while True: dist.all_reduce(torch.ones(3))"
        )
        self.assertEqual((first[0], second[0]), (1, 1))
        self.assertIn("the process of rank 0 ended with KeyError: 'the reason'", second[1])

    def test_program_that_raises(self):
        first, second = run_scripts(
            "if rank == 0: raise KeyError('the reason')\nwhile True: dist.all_reduce(torch.ones(3))"
        )
        self.assertEqual((first[0], second[0]), (1, 1))
        self.assertIn("the process of rank 0 ended with KeyError: 'the reason'", second[1])

    def test_reasons_that_are_not_utf_8(self):
        """File names of other encodings have lone surrogates, in the sentences of exceptions too."""
        first, second = run_scripts(
            "if rank == 0: raise ValueError('caf\\udce9')\nwhile True: dist.all_reduce(torch.ones(3))"
        )
        self.assertEqual((first[0], second[0]), (1, 1))
        self.assertIn("the process of rank 0 ended with ValueError: caf", second[1])


if __name__ == "__main__":
    unittest.main(verbosity=2)

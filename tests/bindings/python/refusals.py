# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of calls that raise an exception with a sentence."""

import unittest

import vescomm


class Refusals(unittest.TestCase):
    """Tests with a communicator of one rank."""

    def setUp(self):
        self.comm = vescomm.Communicator(0, 1)
        self.addCleanup(self.comm.free)

    def raises(self, kind, text, call, *arguments, **options):
        """Expects an exception whose text contains another one, and returns it."""
        with self.assertRaises(kind) as caught:
            call(*arguments, **options)
        self.assertIn(text, str(caught.exception))
        return caught.exception

    def refuses(self, text, call, *arguments, **options):
        return self.raises(vescomm.InvalidArgumentError, text, call, *arguments, **options)

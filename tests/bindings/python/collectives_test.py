# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Every collective, message, request and buffer of the Python package, on several ranks."""

import importlib.util
import sys
import unittest

from job import Job, JobTest


class Collectives(JobTest):
    def check(self, ranks):
        with Job(ranks, "collective_ranks.py", "collectives") as job:
            self.expect_success(job)

    def test_one_rank(self):
        self.check(1)

    def test_two_ranks(self):
        self.check(2)

    def test_three_ranks(self):
        self.check(3)

    def test_five_ranks(self):
        self.check(5)


if __name__ == "__main__":
    if importlib.util.find_spec("numpy") is None:
        print("numpy is not installed")
        sys.exit(77)
    unittest.main()

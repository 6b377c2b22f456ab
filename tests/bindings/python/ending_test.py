#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""The ends of communicators: finalize(), free(), with blocks, the end of the process. The cases are in
ending_ranks.py.
"""

import signal
import unittest

from job import Job, JobTest


class Ends(JobTest):
    def run_ranks(self, ranks, case):
        with Job(ranks, "ending_ranks.py", case) as job:
            return self.expect_success(job)

    def test_of_a_communicator_whose_peer_was_killed(self):
        with Job(3, "ending_ranks.py", "broken") as job:
            self.assertEqual(job.wait(1)[0], -signal.SIGKILL)
            del job.processes[1]
            self.expect_success(job)

    def test_of_a_block_with_a_broken_communicator(self):
        self.run_ranks(2, "broken_in_a_block")

    def test_of_a_block_that_freed_its_communicator(self):
        self.run_ranks(1, "freed_in_a_block")

    def test_of_a_block_by_an_exit(self):
        self.run_ranks(2, "exits")

    def test_interrupted(self):
        self.run_ranks(2, "interrupted")

    def test_of_a_shrink_interrupted(self):
        self.run_ranks(2, "interrupted_shrink")

    def test_of_the_process_interrupted(self):
        self.run_ranks(2, "interrupted_with_the_process")


if __name__ == "__main__":
    unittest.main()

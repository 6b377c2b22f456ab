# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""vescomm.gpu between processes, on the test double for processes: gpu_double_run starts this test.
The cases are in gpu_process_ranks.py."""

import signal
import unittest

from job import Job, JobTest


class GpuProcesses(JobTest):
    def test_buffers_gather_and_reduce(self):
        for ranks in (2, 3):
            with Job(ranks, "gpu_process_ranks.py", "collectives") as job:
                self.expect_success(job)

    def test_survivors_of_a_killed_rank_shrink_their_devices(self):
        with Job(3, "gpu_process_ranks.py", "killed") as job:
            self.assertEqual(job.wait(1)[0], -signal.SIGKILL)
            del job.processes[1]
            for text in self.expect_success(job).values():
                self.assertIn("PeerFailedError rank=1: ", text)

    def test_different_calls_are_a_mismatch(self):
        with Job(2, "gpu_process_ranks.py", "mismatch") as job:
            for text in self.expect_success(job).values():
                for words in ("MismatchError", "broadcast", "rank 0", "rank 1"):
                    self.assertIn(words, text)


if __name__ == "__main__":
    unittest.main()

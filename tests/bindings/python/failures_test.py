# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Failures, signals, threads and processes with the Python package. The cases are in failing_ranks.py
and aborting_ranks.py.
"""

import signal
import unittest

from job import Job, JobTest


class Failures(JobTest):
    def test_a_killed_rank(self):
        with Job(3, "failing_ranks.py", "killed") as job:
            self.assertEqual(job.wait(1)[0], -signal.SIGKILL)
            del job.processes[1]
            for text in self.expect_success(job).values():
                self.assertIn("PeerFailedError rank=1: ", text)

    def test_mismatched_calls(self):
        with Job(2, "failing_ranks.py", "mismatch") as job:
            for text in self.expect_success(job).values():
                for words in ("MismatchError", "rank 0", "rank 1", "all_reduce"):
                    self.assertIn(words, text)

    def test_a_timeout_names_the_rank(self):
        with Job(2, "failing_ranks.py", "timeout") as job:
            self.assertIn("TimeoutError rank=1: ", self.expect_success(job)[0])

    def test_an_exception_that_nothing_catches_reaches_the_other_ranks(self):
        for program, case, words in (
            ("failing_ranks.py", "uncaught", "the data is gone"),
            ("failing_ranks.py", "uncaught_in_block", "the data is gone"),
            ("aborting_ranks.py", "uncaught_surrogate", "cannot read caf"),
        ):
            with self.subTest(case), Job(3, program, case) as job:
                status, text = job.wait(1)
                self.assertEqual(status, 1)
                self.assertIn(f"ValueError: {words}", text)
                del job.processes[1]
                self.expect_success(job)

    def test_an_interrupt_that_nothing_catches_reaches_the_other_ranks(self):
        with Job(3, "failing_ranks.py", "uncaught_interrupt") as job:
            status, text = job.wait(1)
            self.assertEqual(status, -signal.SIGINT, text)
            del job.processes[1]
            self.expect_success(job)

    def test_reasons_of_aborts(self):
        with Job(2, "aborting_ranks.py", "reasons") as job:
            self.expect_success(job)

    def test_a_wait_ends_by_an_error_of_another_communicator(self):
        with Job(2, "aborting_ranks.py", "wait_with_a_broken_communicator") as job:
            self.expect_success(job)

    def test_a_group_that_ends_without_memory(self):
        with Job(2, "aborting_ranks.py", "group_without_memory") as job:
            self.expect_success(job)

    def test_communicators_that_are_dropped_are_finalized_at_the_end(self):
        with Job(3, "failing_ranks.py", "dropped") as job:
            self.expect_success(job)


class Signals(JobTest):
    def test_a_call_is_interrupted(self):
        with Job(2, "failing_ranks.py", "interrupted_call") as job:
            self.expect_success(job)

    def test_a_receive_from_any_rank_is_interrupted(self):
        with Job(2, "failing_ranks.py", "interrupted_receive") as job:
            self.expect_success(job)

    def test_a_request_stays_running(self):
        with Job(3, "failing_ranks.py", "interrupted_request") as job:
            self.expect_success(job)

    def test_a_creation_is_interrupted(self):
        with Job(2, "failing_ranks.py", "interrupted_creation", absent=[1]) as job:
            self.expect_success(job)

    def test_handlers_run_in_waits(self):
        with Job(2, "failing_ranks.py", "handler_raises") as job:
            self.expect_success(job)

    def test_a_handler_waits_longer_than_the_wait_that_it_interrupts(self):
        with Job(2, "failing_ranks.py", "handler_waits") as job:
            self.expect_success(job)


class Processes(JobTest):
    def test_a_daemon_thread_waits_at_the_end(self):
        for ranks in (1, 2):
            with self.subTest(ranks=ranks), Job(ranks, "failing_ranks.py", "daemon") as job:
                self.assertEqual(self.expect_success(job)[0], "the end\n")

    def test_threads(self):
        with Job(2, "failing_ranks.py", "threads") as job:
            self.expect_success(job)

    def test_fork(self):
        with Job(2, "failing_ranks.py", "forked") as job:
            self.expect_success(job)

    def test_log_trace_and_flight_recorder(self):
        with Job(2, "failing_ranks.py", "observed", VESCOMM_LOG="info") as job:
            self.expect_success(job)


if __name__ == "__main__":
    unittest.main()

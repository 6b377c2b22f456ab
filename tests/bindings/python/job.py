# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Runs programs as the ranks of a job, without a launcher that ends them when one fails."""

import os
import socket
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
# For machines that hang: no test depends on its length.
DEADLINE = 300 if os.environ.get("VESCOMM_TEST_SLOW") else 120


def free_address():
    """Returns an address of this machine at which no process listens at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


class Job:
    """The ranks of a job, which run one case of a program of this folder. They end with the block."""

    def __init__(self, ranks, program, case, timeout=60, absent=(), **variables):
        address = free_address()
        self.processes = {}
        self.outputs = {}
        for rank in range(ranks):
            if rank in absent:
                continue
            environment = {
                **os.environ,
                "VESCOMM_RANK": str(rank),
                "VESCOMM_RANKS": str(ranks),
                "VESCOMM_ADDRESS": address,
                "VESCOMM_TIMEOUT_SECONDS": str(timeout),
                **variables,
            }
            self.outputs[rank] = tempfile.TemporaryFile("w+")
            self.processes[rank] = subprocess.Popen(
                [sys.executable, "-B", os.path.join(HERE, program), case],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=self.outputs[rank],
                stderr=subprocess.STDOUT,
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            process.kill()
            process.wait()
        for output in self.outputs.values():
            output.close()

    def wait(self, rank):
        """Returns the exit status and the output of a rank, after its end."""
        status = self.processes[rank].wait(timeout=DEADLINE)
        self.outputs[rank].seek(0)
        return status, self.outputs[rank].read()


class JobTest(unittest.TestCase):
    """A test whose cases run jobs."""

    maxDiff = None

    def expect_success(self, job):
        """Waits for all ranks, which must end with status 0."""
        results = {rank: job.wait(rank) for rank in job.processes}
        failed = {rank: text for rank, (status, text) in results.items() if status != 0}
        if failed:
            self.fail("".join(f"\n---- rank {rank} ----\n{text}" for rank, text in failed.items()))
        return {rank: text for rank, (_, text) in results.items()}


def run_case(cases):
    """Runs the function of `cases` that the command line names."""
    cases[sys.argv[1]]()

#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""The files of flight recorders after a job fails, and the reports of vescomm-info on them.
flight_test.py WORKER VESCOMM_INFO [CASE...]"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from ranks import INVALID_ARGUMENT, MISMATCH, PEER_FAILED, TIMEOUT, Job, expect, run_cases

WORKER, INFO = sys.argv[1:3]


def recorded(folder):
    """Returns variables that make ranks write into a folder."""
    return {"VESCOMM_FLIGHT_RECORDER": f"{folder}/flight.%r"}


def written(folder, ranks):
    """Returns the parsed lines of every rank's file."""
    names = sorted(path.name for path in Path(folder).iterdir())
    expect(names == [f"flight.{rank}" for rank in ranks], f"files {names}")
    return [[json.loads(line) for line in (Path(folder) / name).open(encoding="utf-8")]
            for name in names]


def report(folder):
    files = sorted(Path(folder).iterdir())
    done = subprocess.run([INFO, "--flight", *files], capture_output=True, text=True, timeout=60,
                          check=False)
    expect(done.returncode == 0, done.stdout + done.stderr)
    return done.stdout


def dies(nodes):
    """Survivors write their files before the failure is reported to the caller."""
    with tempfile.TemporaryDirectory() as folder:
        argv = [WORKER, "phase", "all_reduce", "--victims", 1]
        with Job(argv, 3, nodes, environment=recorded(folder)) as job:
            job.until_said("all_reduce 3", [1])
            job.kill(1)
            job.survivors_report([1], (PEER_FAILED,))
        for lines in written(folder, [0, 2]):
            header, *operations = lines
            expect(header["status"] == "peer failed" and "rank 1" in header["why"], header)
            expect(len(operations) >= 4, lines)
            expect(operations[-1]["collective"] == "all_reduce", operations[-1])
            expect(operations[0]["state"] == "completed", operations[0])
        text = report(folder)
        expect("No file of rank 1: dead" in text, text)
        return text.splitlines()[-1]


def makes_another_call():
    with tempfile.TemporaryDirectory() as folder:
        with Job([WORKER, "mismatch", "arrays"], 3, environment=recorded(folder)) as job:
            codes = job.finish()
            expect(set(codes.values()) == {MISMATCH}, f"codes {codes}\n{job.transcript()}")
        written(folder, [0, 1, 2])
        text = report(folder)
        # Rank 0 may not have started before the others detected the mismatch.
        expect(re.search(r"Ranks called different things: operation 1 is all_reduce of 400 bytes of "
                         r"f32 \(sum\) by \w+ on rank [01], and all_reduce of 400 bytes of f32 "
                         r"\(max\)", text), text)


def is_behind(nodes):
    """A rank that makes no call writes its file too: its control thread receives the failure."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**recorded(folder), "VESCOMM_TIMEOUT_SECONDS": "2"}
        with Job([WORKER, "phase", "sleep", "--victims", 2], 3, nodes,
                 environment=environment) as job:
            codes = job.finish([0, 1])
            expect(set(codes.values()) == {TIMEOUT}, f"codes {codes}\n{job.transcript()}")
            # The stopped rank prints nothing, so wait for its file.
            job.until(lambda: job.pump(0.05) or (Path(folder) / "flight.2").exists(), "its file")
        *_, last = written(folder, [0, 1, 2])
        expect(last[0]["status"] == "timeout", last[0])
        text = report(folder)
        expect("Behind: rank 2. Not started there: operation 2, all_gather_v of " in text, text)


def writes_nothing_without_a_failure():
    with tempfile.TemporaryDirectory() as folder:
        with Job([WORKER, "short", "--iterations", 2], 3, environment=recorded(folder)) as job:
            job.expect_success()
        written(folder, [])


def cannot_write():
    """A missing folder loses only the file, and the failure is still reported."""
    environment = {"VESCOMM_FLIGHT_RECORDER": "/nonexistent/%r"}
    with Job([WORKER, "phase", "barrier", "--victims", 0], 2, environment=environment) as job:
        job.until_said("barrier 3", [0])
        job.kill(0)
        job.survivors_report([0])
        expect(job.ranks[1].said("flight: cannot write the flight recorder to \"/nonexistent/1\""),
               job.transcript())


def overwrites():
    environment = {"VESCOMM_FLIGHT_RECORDER": "flight"}
    with Job([WORKER, "short"], 2, environment=environment) as job:
        codes = job.finish()
        expect(set(codes.values()) == {INVALID_ARGUMENT}, f"codes {codes}\n{job.transcript()}")
        for rank in job.ranks.values():
            expect("VESCOMM_FLIGHT_RECORDER=flight: " in rank.lines[-1], rank.lines[-1])


def cases():
    yield "a rank dies", lambda: dies(None)
    yield "a rank dies, two nodes", lambda: dies([0, 1, 1])
    yield "a rank makes another call", makes_another_call
    yield "a rank is behind", lambda: is_behind(None)
    yield "a rank is behind, three nodes", lambda: is_behind([0, 1, 2])
    yield "no failure", writes_nothing_without_a_failure
    yield "the file cannot be written", cannot_write
    yield "one file for all ranks", overwrites


if __name__ == "__main__":
    sys.exit(run_cases(cases(), sys.argv[3:]))

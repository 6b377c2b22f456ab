#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""More ranks than cores: random operations with verified results, several communicators in one
process, and threads as ranks. oversubscribed_test.py WORKER [--long] [CASE...]"""

import socket
import subprocess
import sys

import ranks
from ranks import Job, expect, run_cases

WORKER = sys.argv[1]
LONG = "--long" in sys.argv
SEEDS = (1, 2, 3, 4, 5, 6, 7, 8) if LONG else (1,)
# Enough operations to use every slot many times, but not too many for two shared cores.
ITERATIONS = 400 if LONG else 20 if ranks.SLOW else 60


def verified(job):
    job.expect_success()
    total = 0
    for rank in job.ranks.values():
        lines = [line for line in rank.lines if "verified" in line]
        expect(lines, f"rank {rank.number} has verified no operation\n{job.transcript()}")
        total += sum(int(line.split()[3]) for line in lines)
    return total


def collectives(nodes, *arguments, **environment):
    total = 0
    for seed in SEEDS:
        argv = [WORKER, "collectives", "--iterations", ITERATIONS, "--seed", seed, *arguments]
        with Job(argv, len(nodes), nodes, environment) as job:
            total += verified(job)
    return f"{total} operations, seeds {SEEDS[0]} to {SEEDS[-1]}"


def training(nodes):
    argv = [WORKER, "train", "--iterations", ITERATIONS]
    with Job(argv, len(nodes), nodes) as job:
        job.expect_success()


def nothing_grows(nodes):
    """Descriptors and mappings are released with communicators, memories and buffers."""
    argv = [WORKER, "create", "--iterations", 20 if LONG else 5]
    with Job(argv, len(nodes), nodes) as job:
        job.expect_success()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def threads(count, **environment):
    """Runs ranks as threads of one process. Retries if another process takes the port."""
    for _ in range(3):
        done = subprocess.run(
            [WORKER, "collectives", "--iterations", str(ITERATIONS), "--threads", str(count),
             "--address", f"127.0.0.1:{free_port()}"],
            env={"VESCOMM_TIMEOUT_SECONDS": str(ranks.HANG_SECONDS), **environment},
            capture_output=True, text=True, timeout=3 * ranks.HANG_SECONDS, check=False)
        if "in use" not in done.stdout:
            break
    expect(done.returncode == 0, done.stdout + done.stderr)
    lines = [line for line in done.stdout.splitlines() if "verified" in line]
    expect(len(lines) == count, done.stdout)


CASES = [
    ("eight ranks", lambda: collectives([0] * 8)),
    ("eight ranks on three nodes", lambda: collectives([0, 1, 0, 2, 1, 0, 2, 1])),
    ("five nodes of one rank, without progress threads",
     lambda: collectives([0, 1, 2, 3, 4], VESCOMM_PROGRESS="inline")),
    ("one rank", lambda: collectives([0])),
    ("three communicators on four ranks", lambda: collectives([0] * 4, "--comms", 3)),
    ("three communicators on three ranks of two nodes",
     lambda: collectives([0, 1, 0], "--comms", 3)),
    ("six ranks train", lambda: training([0] * 6)),
    ("six ranks train on two nodes", lambda: training([0, 0, 0, 1, 1, 1])),
    ("nothing grows", lambda: nothing_grows([0, 0, 0])),
    ("nothing grows on two nodes", lambda: nothing_grows([0, 1, 0])),
    ("six threads", lambda: threads(6)),
    ("four threads with progress threads", lambda: threads(4, VESCOMM_PROGRESS="thread")),
]

if __name__ == "__main__":
    sys.exit(run_cases(CASES, [word for word in sys.argv[2:] if not word.startswith("--")]))

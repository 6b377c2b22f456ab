#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks that fork. A child that uses the inherited handles must not disturb its parent.
fork_test.py FORK_WORKER [CASE...]"""

import os
import sys

# A child of fork() that exits has copies of objects that only its parent frees.
os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"

from ranks import Job, expect, run_cases

WORKER = sys.argv[1]


def forks(how, ranks, nodes):
    with Job([WORKER, how], ranks, nodes) as job:
        job.expect_success()
        for rank in job.ranks.values():
            expect(rank.said("verified"), job.transcript())


def cases():
    for how in ("frees", "destroys", "unwinds", "exits"):
        yield f"a child {how}, one node", lambda how=how: forks(how, 3, None)
        yield f"a child {how}, two nodes", lambda how=how: forks(how, 3, [0, 1, 1])


if __name__ == "__main__":
    sys.exit(run_cases(cases(), sys.argv[2:]))

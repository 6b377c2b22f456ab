#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Effects of environment variables on a whole job. environment_test.py WORKER [CASE...]"""

import sys

from ranks import ABORTED, INVALID_ARGUMENT, MISMATCH, PROMISE_SECONDS, Job, expect, run_cases

WORKER = sys.argv[1]


def misspelt():
    """Rank 0 warns of an unknown variable, and suggests the correct name."""
    environment = {"VESCOMM_TIMEOUT_SECOND": "5", "VESCOMM_ROOT": "/opt"}
    with Job([WORKER, "short", "--iterations", 1], 3, environment=environment) as job:
        job.expect_success()
        expect(job.ranks[0].said("warn 0/3 config: VESCOMM_TIMEOUT_SECOND is not a variable of "
                                 "vescomm and has no effect; did you mean "
                                 "VESCOMM_TIMEOUT_SECONDS?"), job.transcript())
        count = sum("no effect" in line for rank in job.ranks.values() for line in rank.lines)
        expect(count == 2, f"{count} lines\n{job.transcript()}")


def malformed():
    with Job([WORKER, "short"], 2, environment={"VESCOMM_PROGRESS": "maybe"}) as job:
        codes = job.finish()
        expect(set(codes.values()) == {INVALID_ARGUMENT}, f"codes {codes}\n{job.transcript()}")
        for rank in job.ranks.values():
            expect("VESCOMM_PROGRESS=maybe" in rank.lines[-1], rank.lines[-1])
            expect("auto, thread, inline" in rank.lines[-1], rank.lines[-1])


def malformed_on_one():
    """No rank waits: all ranks report the malformed value and its rank."""
    for victim in (0, 2):
        for nodes in (None, [0, 1, 1]):
            each = {victim: {"VESCOMM_PROGRESS": "maybe"}}
            with Job([WORKER, "short"], 3, nodes, each=each) as job:
                codes = job.finish(seconds=PROMISE_SECONDS)
                expect(set(codes.values()) == {INVALID_ARGUMENT}, f"codes {codes}\n"
                       f"{job.transcript()}")
                for number, rank in job.ranks.items():
                    expect("VESCOMM_PROGRESS=maybe" in rank.lines[-1], rank.lines[-1])
                    expect(number == victim or f"rank {victim} could not make its communicator"
                           in rank.lines[-1], rank.lines[-1])


def unsuitable_algorithm():
    """A ring needs a buffer on each rank, so it does not suit collectives on arrays."""
    with Job([WORKER, "short"], 3, environment={"VESCOMM_ALGORITHM": "all_gather_v=ring"}) as job:
        codes = job.finish()
        # A rank that receives the failure of another first returns its reason.
        expect(INVALID_ARGUMENT in codes.values() and
               set(codes.values()) <= {INVALID_ARGUMENT, ABORTED},
               f"codes {codes}\n{job.transcript()}")
        for number, rank in job.ranks.items():
            if codes[number] != INVALID_ARGUMENT:
                continue
            expect('VESCOMM_ALGORITHM: there is no algorithm "ring" for all_gather_v on'
                   in rank.lines[-1], rank.lines[-1])


def algorithms_that_differ():
    """No rank waits: communicator creation reports the difference."""
    each = {2: {"VESCOMM_ALGORITHM": "all_reduce=flat"}}
    for nodes in (None, [0, 1, 1]):
        with Job([WORKER, "collectives"], 3, nodes, each=each) as job:
            codes = job.finish(seconds=PROMISE_SECONDS)
            expect(set(codes.values()) == {MISMATCH}, f"codes {codes}\n{job.transcript()}")
            for rank in job.ranks.values():
                expect("VESCOMM_ALGORITHM is not set on rank 0 and all_reduce=flat on rank 2"
                       in rank.lines[-1], rank.lines[-1])


def reproducible_on_some():
    for nodes in (None, [0, 1, 1]):
        with Job([WORKER, "collectives"], 3, nodes,
                 each={2: {"VESCOMM_REPRODUCIBLE": "yes"}}) as job:
            codes = job.finish(seconds=PROMISE_SECONDS)
            expect(set(codes.values()) == {MISMATCH}, f"codes {codes}\n{job.transcript()}")
            for rank in job.ranks.values():
                expect("being reproducible is no on rank 0 and yes on rank 2" in rank.lines[-1],
                       rank.lines[-1])


def cases():
    yield "a misspelt variable", misspelt
    yield "a malformed value", malformed
    yield "a malformed value on one rank", malformed_on_one
    yield "a forced algorithm that does not suit", unsuitable_algorithm
    yield "forced algorithms that differ", algorithms_that_differ
    yield "ranks that differ in being reproducible", reproducible_on_some


if __name__ == "__main__":
    sys.exit(run_cases(cases(), sys.argv[2:]))

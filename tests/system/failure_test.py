#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks that die, stop, make different calls or never start. Every other rank must end soon with an
error that names them, and nothing may be left behind.
failure_test.py WORKER DIE_AT_LIBRARY [CASE...]"""

import random
import signal
import sys

import ranks
from ranks import (ABORTED, MISMATCH, PEER_FAILED, SLOW, TIMEOUT, WRONG, Failed, Job, expect,
                   names_rank, run_cases)

WORKER, DIE_AT = sys.argv[1:3]
SEED = 20250801
# Longer than a loaded machine needs to start processes, short enough to wait for.
SHORT_TIMEOUT = 10 if SLOW else 3

slowest = 0.0


def note_seconds(seconds):
    global slowest
    slowest = max(slowest, seconds)
    return f"{seconds:.2f} s"


def phase(name, victims, count, nodes=None, after=None, reap=False, codes=(PEER_FAILED,), **more):
    """Kills the victims after they have printed a line."""
    argv = [WORKER, "phase", name, "--victims", ",".join(map(str, victims))]
    with Job(argv, count, nodes, **more) as job:
        job.until_said("ready")
        if after is not None:
            job.until_said(f"{name} {after}", victims)
        job.kill(*victims, reap=reap)
        return note_seconds(job.survivors_report(victims, codes))


def kill_cases():
    """Kills ranks of several positions in every phase, on one node and several."""
    placements = [("one node", [0, 0, 0, 0]), ("two nodes", [0, 1, 0, 1, 0]),
                  ("three nodes", [0, 1, 2])]
    generator = random.Random(SEED)
    names = ("gather", "reduce", "all_reduce", "broadcast", "barrier", "create", "arrays", "messages")
    for index, name in enumerate(names):
        for where, nodes in placements:
            count = len(nodes)
            for position in (0, count // 2, count - 1):
                # Always the middle rank, and alternately the first or the last, to save time.
                if position != count // 2 and (index + position) % 2 == 1:
                    continue
                after = generator.randrange(6)
                yield (f"kill rank {position} of {count} in {name} {after}, {where}",
                       lambda n=name, p=position, c=count, o=nodes, a=after:
                       phase(n, [p], c, o, a, reap=a % 2 == 0))
    for name in ("sleep", "acquire", "test", "progress", "memory", "receive"):
        yield (f"kill rank 1 of 3 while the others wait in {name}",
               lambda n=name: phase(n, [1], 3))
    for name in ("sleep", "test", "memory"):
        yield (f"kill rank 0 of 4 while the others wait in {name}, two nodes",
               lambda n=name: phase(n, [0], 4, [0, 1, 1, 0]))
    yield ("kill two of six at once in gather, three nodes",
           lambda: phase("gather", [1, 4], 6, [0, 0, 1, 1, 2, 2], 2))
    yield ("kill two of four at once in sleep", lambda: phase("sleep", [0, 3], 4))
    yield ("kill rank 0 of 2 in barrier", lambda: phase("barrier", [0], 2, None, 3))
    yield ("kill rank 1 of 2 in reduce, two nodes", lambda: phase("reduce", [1], 2, [0, 1], 3))


def kill_at_random():
    """A rank of a training run dies at a random moment after a random line."""
    generator = random.Random(SEED)
    for _ in range(6):
        count = generator.randrange(2, 7)
        nodes = [generator.randrange(3) for _ in range(count)]
        victim, after = generator.randrange(count), generator.randrange(20)
        with Job([WORKER, "train", "--iterations", 1_000_000], count, nodes) as job:
            job.until_said(f"iteration {after}", [generator.randrange(count)])
            for _ in range(generator.randrange(2000)):
                pass
            job.kill(victim)
            note_seconds(job.survivors_report([victim]))
    return note_seconds(0) and f"{slowest:.2f} s at most"


def kill_while_others_free():
    """The others wait in free when the victim dies. Their free must succeed."""
    for victim, nodes in ((0, None), (2, None), (1, [0, 1, 0, 2])):
        with Job([WORKER, "phase", "free", "--victims", victim], 4, nodes) as job:
            job.until_said("ready")
            job.kill(victim)
            others = [r for r in range(4) if r != victim]
            codes = job.finish(others, ranks.PROMISE_SECONDS)
            expect(set(codes.values()) <= {0}, f"codes {codes}\n{job.transcript()}")


def die_at_every_call(nodes, victim, stride, first=1):
    """Kills a rank at every stride-th call while it creates, uses and frees a communicator."""
    count, deaths, at = len(nodes), 0, first
    argv = [WORKER, "short", "--iterations", 2]
    while True:
        each = {victim: {"LD_PRELOAD": DIE_AT, "VESCOMM_TEST_DIE_AT": str(at)}}
        with Job(argv, count, nodes, each=each) as job:
            job.until(lambda: any(rank.ended_at for rank in job.ranks.values()), "an end")
            job.until(lambda: job.ranks[victim].ended_at, f"the death at call {at}", 30)
            if job.ranks[victim].code != -signal.SIGKILL:
                job.expect_success()
                return f"{deaths} deaths"
            job.killed_at = job.ranks[victim].ended_at
            deaths += 1
            try:
                # Ranks that were freeing at the death may end without an error.
                codes = job.finish([r for r in job.ranks if r != victim], ranks.PROMISE_SECONDS)
                if any(rank.said("freeing") for rank in job.ranks.values()):
                    expect(set(codes.values()) <= {0, PEER_FAILED}, job.transcript())
                else:
                    note_seconds(job.survivors_report([victim]))
            except Failed as failure:
                raise Failed(f"rank {victim} of nodes {nodes} died before call {at}: "
                             f"{failure}") from failure
        at += stride


def die_before_connecting(victim, at):
    """A rank dies before it sends its rank number. Rank 0 waits until the deadline and names the
    missing rank. If rank 0 died, the others name rank 0."""
    each = {victim: {"LD_PRELOAD": DIE_AT, "VESCOMM_TEST_DIE_AT": str(at),
                     "VESCOMM_TEST_DIE_FROM": "all"}}
    environment = {"VESCOMM_TIMEOUT_SECONDS": str(SHORT_TIMEOUT)}
    with Job([WORKER, "short", "--iterations", 1], 3, environment=environment, each=each) as job:
        job.survivors_report([victim], (PEER_FAILED, TIMEOUT),
                             SHORT_TIMEOUT + ranks.PROMISE_SECONDS)
        return ", ".join(sorted({str(job.ranks[r].code) for r in range(3) if r != victim}))


def never_starts(absent):
    environment = {"VESCOMM_TIMEOUT_SECONDS": str(SHORT_TIMEOUT)}
    with Job([WORKER, "collectives"], 4, environment=environment, absent=[absent]) as job:
        job.survivors_report([absent], (TIMEOUT,), SHORT_TIMEOUT + ranks.PROMISE_SECONDS)


def stopped(name, victim, nodes, codes=(TIMEOUT,)):
    """Stops a rank. Its machine still answers, so only the deadline of the others detects it."""
    environment = {"VESCOMM_TIMEOUT_SECONDS": "2"}
    with Job([WORKER, "phase", name, "--victims", victim], len(nodes), nodes,
             environment=environment) as job:
        job.until_said("ready")
        if name in ("gather", "barrier", "create", "reduce", "arrays"):
            job.until_said(f"{name} 2", [victim])
        job.kill(victim, number=signal.SIGSTOP)
        # The timeout of two seconds, and two more in which rank 0 may report the missing rank.
        return note_stop(job.survivors_report([victim], codes, 4 + ranks.PROMISE_SECONDS))


def note_stop(seconds):
    return f"{seconds:.2f} s"


def silent(victim):
    """Stops a rank, with a long timeout and a short silence. The stopped rank counts as dead."""
    environment = {"VESCOMM_SILENCE_SECONDS": "2"}
    with Job([WORKER, "phase", "sleep", "--victims", victim], 3, environment=environment) as job:
        job.until_said("ready")
        job.kill(victim, number=signal.SIGSTOP)
        return note_stop(job.survivors_report([victim], seconds=2 + ranks.PROMISE_SECONDS))


def leaves(how, victim, nodes=None):
    """A rank ends without freeing its communicator."""
    with Job([WORKER, "phase", how, "--victims", victim], 3, nodes) as job:
        job.until(lambda: job.ranks[victim].ended_at, "the end of the victim")
        job.killed_at = job.ranks[victim].ended_at
        return note_seconds(job.survivors_report([victim]))


def aborts(victim, nodes=None):
    with Job([WORKER, "phase", "abort", "--victims", victim], 4, nodes) as job:
        job.survivors_report([victim], (ABORTED,), ranks.HANG_SECONDS,
                             ["the loss is not a number"])
        expect(job.ranks[victim].ended_at is None, job.transcript())


def throws(victim, nodes=None):
    """A C++ exception on one rank aborts the communicator on all ranks at once."""
    with Job([WORKER, "phase", "throw", "--victims", victim], 3, nodes) as job:
        codes = job.finish(seconds=ranks.PROMISE_SECONDS)
        expect(codes.pop(victim) == WRONG and set(codes.values()) == {ABORTED},
               f"codes {codes}\n{job.transcript()}")
        expect(job.ranks[victim].said("there is no more data"), job.transcript())
        for number in codes:
            expect(names_rank(job.ranks[number].lines[-1].partition(": ")[2], victim),
                   job.transcript())


MISMATCHES = {
    "layout": ["weights", "3666", "1833"],
    "tensor": ["weights", "norm"],
    "order": ["block.0", "block.1"],
    "type": ["f32", "bf16"],
    "sharing": ["sharing"],
    "bytes": ["4096", "8192"],
    "call": ["all_gather_v", "all_reduce"],
    "op": ["op is"],
    "root": ["root is 0", "1"],
    "free": ["memory creation", "left"],
    "arrays": ["all_reduce of f32 (sum", "all_reduce of f32 (max"],
}


def disagree(kind, nodes):
    last = len(nodes) - 1
    with Job([WORKER, "mismatch", kind], len(nodes), nodes) as job:
        others = range(last) if kind == "free" else range(last + 1)
        codes = job.finish(others)
        expect(set(codes.values()) == {MISMATCH}, f"codes {codes}\n{job.transcript()}")
        for number in others:
            line = job.ranks[number].lines[-1].partition(": ")[2]
            # The sentence also names one of the ranks that agree: the first one that called.
            expect(names_rank(line, last) and
                   any(names_rank(line, other) for other in range(last)) or
                   kind == "free" and names_rank(line, last),
                   f"the ranks that differ are not named: {line}")
            for text in MISMATCHES[kind]:
                expect(text in line, f'"{text}" is not in: {line}')
        job.finish()


def asks_for_too_much():
    """One rank creates the memory file of a node. If it cannot, the others must not wait."""
    with Job([WORKER, "phase", "too_much"], 3) as job:
        job.finish(seconds=2 * ranks.PROMISE_SECONDS)
        for rank in job.ranks.values():
            expect(rank.said("still works") and rank.said("out of memory: "),
                   f"rank {rank.number}\n{job.transcript()}")
            expect("4611686018427387904" in rank.lines[-1], rank.lines[-1])


def waits_for_another_call():
    """The last rank is in a barrier while the others create memory."""
    with Job([WORKER, "mismatch", "barrier"], 3) as job:
        codes = job.finish()
        expect(set(codes.values()) == {MISMATCH}, f"codes {codes}\n{job.transcript()}")
        for rank in job.ranks.values():
            line = rank.lines[-1].partition(": ")[2]
            expect(names_rank(line, 2) and "barrier" in line and "memory creation" in line, line)


def inconsistent_ranks():
    each = {2: {"VESCOMM_RANKS": "4"}}
    with Job([WORKER, "short"], 3, each=each) as job:
        codes = job.finish()
        expect(set(codes.values()) == {MISMATCH}, f"codes {codes}\n{job.transcript()}")
        for rank in job.ranks.values():
            expect("4 ranks" in rank.lines[-1] and "3" in rank.lines[-1], rank.lines[-1])
    each = {2: {"VESCOMM_RANK": "1"}}
    with Job([WORKER, "short"], 3, each=each) as job:
        codes = job.finish()
        expect(set(codes.values()) == {MISMATCH}, f"codes {codes}\n{job.transcript()}")
        expect("two processes say that they are rank 1" in job.ranks[0].lines[-1],
               job.ranks[0].lines[-1])


def cases():
    yield from kill_cases()
    yield "kill at random moments of training", kill_at_random
    yield "kill while others free", kill_while_others_free
    if not SLOW:  # sanitizers must be loaded before preloaded libraries
        everything = "--every-call" in sys.argv
        for nodes in ([0, 0, 0], [0, 1, 0]):
            for victim in range(3):
                yield (f"rank {victim} of nodes {nodes} dies at every call",
                       lambda n=nodes, v=victim: die_at_every_call(
                           n, v, 1 if everything else 7, 1 if everything else v + 1))
    for how, victim, nodes in (("exit", 1, None), ("return", 0, None), ("exit", 2, [0, 1, 2])):
        yield f"rank {victim} leaves by {how}", lambda h=how, v=victim, n=nodes: leaves(h, v, n)
    yield "three ranks ask for too much memory", asks_for_too_much
    yield "rank 1 aborts", lambda: aborts(1)
    yield "rank 0 aborts, two nodes", lambda: aborts(0, [0, 1, 0, 1])
    yield "rank 1 throws", lambda: throws(1)
    yield "rank 0 throws, two nodes", lambda: throws(0, [0, 1, 0])
    for index, kind in enumerate(MISMATCHES):
        nodes = [0, 0, 0] if index % 3 else [0, 1, 0]
        yield f"ranks disagree about {kind}", lambda k=kind, n=nodes: disagree(k, n)


def waiting_cases():
    """Cases that mostly wait for a deadline and need little processor time."""
    if not SLOW:
        for victim, at in ((0, 1), (0, 6), (1, 1), (1, 3), (2, 5)):
            yield (f"rank {victim} dies at call {at} of connecting",
                   lambda v=victim, a=at: die_before_connecting(v, a))
    for absent in (0, 2):
        yield f"rank {absent} never starts", lambda a=absent: never_starts(a)
    for name, victim, nodes in (("barrier", 1, [0, 0, 0]), ("gather", 0, [0, 0, 0]),
                                ("sleep", 2, [0, 1, 2]), ("memory", 1, [0, 0, 0]),
                                ("acquire", 2, [0, 0, 0]), ("create", 0, [0, 0, 1]),
                                ("arrays", 1, [0, 0, 0])):
        yield (f"stop rank {victim} in {name}, nodes {nodes}",
               lambda n=name, v=victim, o=nodes: stopped(n, v, o))
    yield "stop rank 1 with a short silence", lambda: silent(1)
    yield "stop rank 0 with a short silence", lambda: silent(0)
    yield "a barrier and a memory creation", waits_for_another_call
    yield "ranks with inconsistent rank numbers", inconsistent_ranks


if __name__ == "__main__":
    chosen = [word for word in sys.argv[3:] if not word.startswith("--")]
    status = run_cases(cases(), chosen) | run_cases(waiting_cases(), chosen, at_once=6)
    print(f"the slowest survivor ended {slowest:.2f} s after a death; the limit is 2 s, and "
          f"this test tolerates {ranks.PROMISE_SECONDS:.0f} s")
    sys.exit(status)

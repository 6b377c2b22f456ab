# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Runs ranks as processes: starts them, kills them, reads their output, and checks what is left.

Nothing here sleeps to wait for an event. A job reacts to the output and the ends of its processes.
Deadlines only catch hangs.
"""

import os
import re
import selectors
import signal
import socket
import subprocess
import time
from concurrent import futures

SLOW = os.environ.get("VESCOMM_TEST_SLOW", "") not in ("", "0")
# The library promises that every survivor ends within two seconds of a death. The rest is a margin
# for two cores shared with other tests, and for sanitizers.
PROMISE_SECONDS = 20.0 if SLOW else 5.0
HANG_SECONDS = 300.0 if SLOW else 100.0

PEER_FAILED, TIMEOUT, MISMATCH, ABORTED, INVALID_ARGUMENT, SYSTEM, WRONG = 3, 4, 5, 6, 7, 9, 12


class Failed(Exception):
    """A test failed, for the reason in the text."""


class Skipped(Exception):
    """A case cannot run on this machine, for the reason in the text."""


def expect(condition, text):
    if not condition:
        raise Failed(text)


def names_rank(line, rank):
    """Returns True if a sentence names a rank, alone or in a list."""
    for listed in re.findall(r"\branks? ((?:\d+)(?:(?:, | and )\d+)*)", line):
        if str(rank) in re.findall(r"\d+", listed):
            return True
    return False


def listen():
    """Returns a listening socket on a free port. Rank 0 inherits it, so jobs never share a port."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    return listener


def held_by_processes():
    """Returns the open and mapped files of all processes, as names like socket:[123]."""
    held = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            for name in os.listdir(f"/proc/{pid}/fd"):
                held.add(os.readlink(f"/proc/{pid}/fd/{name}"))
            with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
                held.update(line.split()[-1] for line in maps if "/dev/shm/" in line)
        except OSError:
            continue  # the process has just ended
    return held


def orphan_sockets():
    """Returns the abstract sockets of vescomm that no process holds. Parallel tests hold theirs."""
    with open("/proc/net/unix", encoding="ascii") as table:
        found = {line.split()[-1]: line.split()[-2] for line in table if "@vescomm-" in line}
    held = held_by_processes() if found else set()
    return {name for name, inode in found.items() if f"socket:[{inode}]" not in held}


def shared_memory_files():
    return set(os.listdir("/dev/shm"))


def orphan_files(before):
    # The library makes no folders there; tests that run at the same time do.
    new = {name for name in shared_memory_files() - before
           if not os.path.isdir(f"/dev/shm/{name}")}
    held = held_by_processes() if new else set()
    return {name for name in new if f"/dev/shm/{name}" not in held}


def processes_of_session(session):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
                fields = stat.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(pid))
    return found


def expect_none_left(remaining, what):
    """Fails if an item stays in the set that `remaining` returns.

    Items of parallel jobs come and go, so only items that are in every returned set count.
    """
    limit = time.monotonic() + PROMISE_SECONDS
    left = remaining()
    while left:
        expect(time.monotonic() < limit, f"{what} left: {', '.join(sorted(left)[:5])}")
        selectors.DefaultSelector().select(0.05)
        left &= remaining()


class Rank:
    def __init__(self, process, number):
        self.process = process
        self.number = number
        self.pidfd = os.pidfd_open(process.pid)
        self.lines = []
        self.rest = b""
        self.ended_at = None
        self.reaped = False

    @property
    def code(self):
        """Exit code, or minus the signal. The process stays a zombie until the job ends."""
        info = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOWAIT)
        return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status

    def said(self, text):
        return any(text in line for line in self.lines)


class Job:
    """The ranks of one job, a context manager. Its exit checks that nothing is left of the job."""

    def __init__(self, argv, ranks, nodes=None, environment=None, absent=(), each=None):
        self.argv, self.count = [str(a) for a in argv], ranks
        self.nodes = nodes
        self.environment = environment or {}
        self.each = each or {}
        self.absent = set(absent)
        self.ranks = {}
        self.selector = selectors.DefaultSelector()
        self.killed_at = None

    def __enter__(self):
        self.files_before = shared_memory_files()
        self.listener = listen()
        for number in range(self.count):
            if number not in self.absent:
                self.start(number)
        # Only rank 0 listens from now on.
        self.listener.close()
        return self

    def start(self, number, **extra):
        address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("VESCOMM_")}
        environment.update(VESCOMM_RANK=str(number), VESCOMM_RANKS=str(self.count),
                           VESCOMM_ADDRESS=address, VESCOMM_SECRET="the secret of test %d" % os.getpid(),
                           VESCOMM_TIMEOUT_SECONDS=str(HANG_SECONDS / 2))
        if self.nodes is not None:
            # Emulated nodes use TCP over loopback, even if this machine has RDMA.
            environment.update(VESCOMM_NODE=str(self.nodes[number]), UCX_TLS="tcp,self",
                               UCX_NET_DEVICES="lo")
        passed = ()
        if number == 0:
            environment["VESCOMM_LISTEN_DESCRIPTOR"] = str(self.listener.fileno())
            passed = (self.listener.fileno(),)
        environment.update(self.environment)
        environment.update(self.each.get(number, {}))
        environment.update(extra)
        self.spawn(number, self.argv, environment, passed)

    def spawn(self, number, argv, environment, passed=()):
        process = subprocess.Popen([str(word) for word in argv], env=environment, pass_fds=passed,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        rank = Rank(process, number)
        self.ranks[number if number not in self.ranks else f"{number} again"] = rank
        os.set_blocking(process.stdout.fileno(), False)
        self.selector.register(process.stdout, selectors.EVENT_READ, (rank, "output"))
        self.selector.register(rank.pidfd, selectors.EVENT_READ, (rank, "end"))

    def pump(self, timeout):
        for key, _ in self.selector.select(timeout):
            rank, what = key.data
            if what == "end":
                rank.ended_at = time.monotonic()
                self.selector.unregister(rank.pidfd)
                continue
            chunk = rank.process.stdout.read()
            if chunk is None:
                continue
            if not chunk:
                self.selector.unregister(rank.process.stdout)
            rank.rest += chunk
            *lines, rank.rest = rank.rest.split(b"\n")
            rank.lines += [line.decode(errors="replace") for line in lines]

    def until(self, condition, what, seconds=HANG_SECONDS):
        limit = time.monotonic() + seconds
        while not condition():
            left = limit - time.monotonic()
            expect(left > 0, f"{what} did not happen within {seconds:.0f} s\n{self.transcript()}")
            self.pump(left)

    def until_said(self, text, ranks=None):
        wanted = [self.ranks[r] for r in (ranks if ranks is not None else self.ranks)]
        self.until(lambda: all(r.said(text) or r.ended_at for r in wanted), f'"{text}"')
        for rank in wanted:
            expect(rank.said(text), f'rank {rank.number} ended before "{text}"\n'
                                    f"{self.transcript()}")

    def kill(self, *victims, number=signal.SIGKILL, reap=False):
        self.killed_at = time.monotonic()
        for victim in victims:
            rank = self.ranks[victim]
            if rank.ended_at is None:
                signal.pidfd_send_signal(rank.pidfd, number)
            if reap:
                self.until(lambda rank=rank: rank.ended_at, "the end of a killed rank")
                rank.process.wait()
                rank.reaped = True

    def finish(self, ranks=None, seconds=HANG_SECONDS):
        """Waits until ranks have ended and their output is read. Returns their exit codes."""
        wanted = [self.ranks[r] for r in (ranks if ranks is not None else self.ranks)]
        self.until(lambda: all(r.ended_at for r in wanted), "the end of "
                   + ", ".join(f"rank {r.number}" for r in wanted), seconds)
        open_outputs = {id(r.process.stdout) for r in wanted}
        self.until(lambda: not any(id(k.fileobj) in open_outputs
                                   for k in self.selector.get_map().values()), "end of output")
        return {r.number: r.code for r in wanted if not r.reaped}

    def survivors_report(self, victims, codes=(PEER_FAILED,), seconds=PROMISE_SECONDS, said=()):
        """Expects that every other rank ends with an error that names one of the victims. Returns
        the seconds from the kill to the end of the last rank."""
        others = [r for r in self.ranks if r not in victims]
        self.finish(others, max(seconds, 1))
        for number in others:
            rank = self.ranks[number]
            expect(rank.code in codes, f"rank {number} ended with {rank.code}, expected one of "
                                       f"{tuple(codes)}\n{self.transcript()}")
            # Lines that begin with "[" are from UCX.
            own = [line for line in rank.lines if not line.startswith("[")]
            last = own[-1] if own else ""
            expect(any(names_rank(last.partition(": ")[2], victim) for victim in victims),
                   f"rank {number} does not name rank {victims}: {last}\n{self.transcript()}")
            for text in said:
                expect(text in last, f'rank {number} does not say "{text}": {last}')
        return max((self.ranks[r].ended_at for r in others), default=self.killed_at) - (
            self.killed_at or 0)

    def expect_success(self, seconds=HANG_SECONDS):
        codes = self.finish(seconds=seconds)
        expect(not any(codes.values()), f"exit codes {codes}\n{self.transcript()}")

    def transcript(self):
        text = []
        for rank in self.ranks.values():
            end = "still running" if rank.ended_at is None else (
                "reaped" if rank.reaped else f"ended with {rank.code}")
            text.append(f"  -- rank {rank.number}: {end}")
            text += ["     " + line for line in rank.lines[-6:]]
        return "\n".join(text)

    def __exit__(self, kind, error, trace):
        for rank in self.ranks.values():
            if rank.ended_at is None:
                for number in (signal.SIGKILL, signal.SIGCONT):
                    signal.pidfd_send_signal(rank.pidfd, number)
        for rank in self.ranks.values():
            rank.process.wait()
            rank.process.stdout.close()
            os.close(rank.pidfd)
        self.selector.close()
        if kind is not None:
            return
        sessions = [rank.process.pid for rank in self.ranks.values()]
        expect_none_left(lambda: {str(p) for s in sessions for p in processes_of_session(s)},
                         "processes")
        expect_none_left(orphan_sockets, "abstract sockets")
        expect_none_left(lambda: orphan_files(self.files_before), "files in /dev/shm")


def run_case(name, function):
    begin = time.monotonic()
    try:
        note = function()
        text = f"ok    {time.monotonic() - begin:6.2f} s  {name}{f': {note}' if note else ''}"
        failed = False
    except Skipped as reason:
        text = f"skip  {time.monotonic() - begin:6.2f} s  {name}: {reason}"
        failed = False
    except Failed as failure:
        text = f"FAIL  {time.monotonic() - begin:6.2f} s  {name}: {failure}"
        failed = True
    print(text, flush=True)
    return failed


def run_cases(cases, choice=(), at_once=1):
    """Runs (name, function) pairs and prints a line for each. Returns the exit status. `choice` has
    parts of the names of the cases to run. `at_once` cases run in parallel."""
    chosen = [case for case in cases if not choice or any(part in case[0] for part in choice)]
    if at_once == 1:
        return 1 if sum(run_case(*case) for case in chosen) else 0
    with futures.ThreadPoolExecutor(at_once) as pool:
        return 1 if sum(pool.map(lambda case: run_case(*case), chosen)) else 0

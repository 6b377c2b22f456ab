#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Runs vescomm-run on two and more emulated hosts: network namespaces that a switch connects.

    switch: a bridge ── veth ── host 0, 10.77.0.1
                    └── veth ── host 1, 10.77.0.2   ...

hosts_test.py WORKER VESCOMM_RUN [TRAIN_GPT] [--long] [CASE...]. Skipped (77) if namespaces are
forbidden. --long trains with every preset on two and three hosts.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import ranks
from ranks import PEER_FAILED, Job, expect, names_rank, run_cases

WORKER, RUN = sys.argv[1:3]
TRAIN_GPT = sys.argv[3] if len(sys.argv) > 3 else ""
PORT = 29700
SKIPPED = 77
# Largest difference of losses. Rounding errors depend on the order of sums, and grow over the steps.
TOLERANCE = 2e-4
# vescomm-run sends SIGTERM to the ranks of its host when one of them fails. The ranks of these
# tests ignore it, so that all of them print their errors.
IGNORE_TERM = ["sh", "-c", 'trap "" TERM; exec "$@"', "sh"]


def ip(*words, check=True):
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True, check=False)
    expect(done.returncode == 0 or not check, f"ip {' '.join(map(str, words))}: {done.stderr}")
    return done.stdout


class Hosts:
    """Network namespaces, one for each host. The exit always removes them."""

    def __init__(self, count):
        self.count = count
        prefix = f"vescomm-test-{os.getpid()}"
        self.switch = f"{prefix}-switch"
        self.names = [f"{prefix}-{i}" for i in range(count)]

    def __enter__(self):
        try:
            for name in (self.switch, *self.names):
                ip("netns", "add", name)
            ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
            ip("-n", self.switch, "link", "set", "bridge", "up")
            for number, name in enumerate(self.names):
                ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name",
                   f"port{number}", "netns", self.switch)
                ip("-n", self.switch, "link", "set", f"port{number}", "master", "bridge", "up")
                ip("-n", name, "address", "add", f"10.77.0.{number + 1}/24", "dev", "eth0")
                ip("-n", name, "link", "set", "lo", "up")
                ip("-n", name, "link", "set", "eth0", "up")
            ranks.expect_none_left(lambda: {n for n in self.names if not self.has_carrier(n)},
                                   "hosts without a network")
        except BaseException:
            self.__exit__()
            raise
        return self

    @staticmethod
    def has_carrier(name):
        (link,) = json.loads(ip("-n", name, "-json", "link", "show", "eth0"))
        return link["operstate"] == "UP"

    def processes(self, number):
        return [int(pid) for pid in ip("netns", "pids", self.names[number], check=False).split()]

    def __exit__(self, *_):
        for number, name in enumerate(self.names):
            for pid in self.processes(number):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            ip("netns", "delete", name, check=False)
        ip("netns", "delete", self.switch, check=False)


class HostsJob(Job):
    """One launcher for each host. `ranks` are the launchers, so lines and ends are theirs.

    `names`: the address of rank 0 as its name is resolved on each host; None: its number is used.
    """

    def __init__(self, hosts, counts, argv, environment=None, names=None):
        super().__init__(argv, sum(counts), environment=environment)
        self.hosts, self.counts, self.names = hosts, counts, names

    def __enter__(self):
        self.files_before = ranks.shared_memory_files()
        self.folder = tempfile.TemporaryDirectory(prefix="vescomm-hosts-")
        secret = Path(self.folder.name) / "secret"
        secret.write_text("a secret of the test\n", encoding="ascii")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("VESCOMM_")}
        environment["VESCOMM_TIMEOUT_SECONDS"] = str(ranks.HANG_SECONDS / 2)
        environment.update(self.environment)
        first = 0
        for host, count in enumerate(self.counts):
            rank_0 = "first-host" if self.names else "10.77.0.1"
            self.spawn(host, ["ip", "netns", "exec", self.hosts.names[host], *self.resolving(host),
                              RUN, "-n", count, "--ranks", self.count, "--first-rank", first,
                              "--no-prefix", "--address", f"{rank_0}:{PORT}",
                              "--secret-file", secret, *self.argv], environment)
            first += count
        return self

    def resolving(self, host):
        """Words of a command that runs the rest with the name of rank 0 in /etc/hosts. The mount is
        visible only in the mount namespace that `ip netns exec` makes."""
        if self.names is None:
            return []
        file = Path(self.folder.name) / f"hosts-{host}"
        file.write_text(f"127.0.0.1 localhost\n{self.names[host]} first-host\n", encoding="ascii")
        return ["sh", "-c", 'mount --bind "$1" /etc/hosts; shift; exec "$@"', "sh", file]

    def __exit__(self, *error):
        super().__exit__(*error)
        self.folder.cleanup()

    def host_of(self, rank):
        for host, count in enumerate(self.counts):
            if rank < count:
                return host
            rank -= count
        raise IndexError(rank)

    def until_all_said(self, text):
        def said(rank):
            return any(line.startswith(f"rank {rank}: {text}")
                       for line in self.ranks[self.host_of(rank)].lines)
        self.until(lambda: all(said(r) for r in range(self.count)) or
                   any(r.ended_at for r in self.ranks.values()), f'"{text}"')
        expect(not any(r.ended_at for r in self.ranks.values()),
               f'a host ended before "{text}"\n{self.transcript()}')

    def process_of(self, rank):
        for pid in self.hosts.processes(self.host_of(rank)):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            program = os.readlink(f"/proc/{pid}/exe")
            if f"VESCOMM_RANK={rank}".encode() in variables and program == os.path.realpath(WORKER):
                return pid
        raise ranks.Failed(f"there is no process of rank {rank}")

    def expect_blame(self, survivors, culprits):
        """Expects that each survivor has printed an error that names a culprit."""
        for rank in survivors:
            lines = [line.partition(": ")[2] for line in self.ranks[self.host_of(rank)].lines
                     if line.startswith(f"rank {rank}: peer failed: ")]
            expect(lines, f"rank {rank} did not report a failed peer\n{self.transcript()}")
            expect(any(names_rank(lines[0], culprit) for culprit in culprits),
                   f"rank {rank} does not name {culprits}: {lines[0]}\n{self.transcript()}")


def collectives(counts, environment=None):
    with Hosts(len(counts)) as hosts:
        argv = [WORKER, "collectives", "--iterations", 40]
        with HostsJob(hosts, counts, argv, environment) as job:
            job.expect_success()
            said = [line for rank in job.ranks.values() for line in rank.lines
                    if "verified" in line]
            expect(len(said) == sum(counts), job.transcript())
        for number in range(len(counts)):
            expect(not hosts.processes(number), f"processes are left on host {number}")


# A process of another user on a host. It sends garbage to every listening port of the host, and
# prints the addresses of these ports.
UNAUTHENTICATED_PEER = r"""
import os, random, socket, struct, sys
import encodings.ascii, encodings.idna  # another user may not be able to read these files
os.setgroups([]); os.setgid(65534); os.setuid(65534)
noise, kept, seen = random.Random(1).randbytes(100_000), [], set()
print("ready", flush=True)
while True:
    for line in open("/proc/net/tcp", encoding="ascii").readlines()[1:]:
        words = line.split()
        if words[3] != "0A":
            continue
        address, port = words[1].split(":")
        host = socket.inet_ntoa(struct.pack("<I", int(address, 16)))
        if (host, port) not in seen:
            seen.add((host, port))
            print(host, flush=True)
        try:
            connection = socket.create_connection((host, int(port, 16)), timeout=1)
            connection.setblocking(False)
            size = random.choice([0, 13, 100, 100_000])
            connection.send(noise[:size])
        except OSError:
            continue
        if size == 0:
            kept = kept[-50:] + [connection]
"""


def unauthenticated_peers(counts, environment=None):
    """Unauthenticated peers connect to a listening port of the job. The job must not be affected,
    and must listen only on the interface between the hosts."""
    with Hosts(len(counts)) as hosts:
        users = [subprocess.Popen(["ip", "netns", "exec", name, sys.executable, "-c",
                                   UNAUTHENTICATED_PEER],
                                  stdout=subprocess.PIPE, text=True) for name in hosts.names]
        try:
            for user in users:
                expect(user.stdout.readline() == "ready\n", "an unauthenticated peer did not start")
            for _ in range(3):
                argv = [WORKER, "collectives", "--iterations", 5]
                with HostsJob(hosts, counts, argv, environment) as job:
                    job.expect_success()
        finally:
            for user in users:
                user.kill()
        seen = {line.strip() for user in users for line in user.stdout}
        expect(seen, "no process listened")
        expect(all(host.startswith("10.77.0.") for host in seen), f"listeners on {seen}")


def train(launch, folder, name, options=()):
    """Trains for a few steps. Returns the losses and the number of nodes."""
    results = Path(folder) / f"{name}.json"
    text = Path(folder) / "text"
    text.write_text("".join(f"line {i} says {i * i % 97}\n" for i in range(2000)), encoding="ascii")
    launch([TRAIN_GPT, "--layers", 2, "--dim", 36, "--heads", 3, "--context", 32, "--batch", 3,
            "--steps", 8, "--sample", 0, "--held-out-every", 0, "--dtype", "f32", "--quiet",
            "--data", text, "--json", results, *options])
    said = json.loads(results.read_text(encoding="utf-8"))
    return said["loss"], said["nodes"]


def training(counts, options=""):
    """The losses on several hosts are those of one process without the options."""

    def on_hosts(argv):
        with Hosts(len(counts)) as hosts, HostsJob(hosts, counts, argv) as job:
            job.expect_success()

    def alone(argv):
        done = subprocess.run(list(map(str, argv)), capture_output=True, text=True,
                              timeout=ranks.HANG_SECONDS, check=False)
        expect(done.returncode == 0, done.stdout + done.stderr)

    with tempfile.TemporaryDirectory(prefix="vescomm-hosts-") as folder:
        here, one = train(alone, folder, "one")
        options = options.replace("FOLDER", folder).split()
        there, several = train(on_hosts, folder, "several", options)
    expect((one, several) == (1, len(counts)), f"{one} and {several} nodes")
    expect(len(here) == len(there) >= 8, f"{len(here)} and {len(there)} losses")
    worst = max(abs(a - b) for a, b in zip(here, there))
    expect(worst <= TOLERANCE, f"losses differ by {worst}: {here} and {there}")
    return f"losses differ by {worst:.1e} at most"


def named_rank_0(counts, number):
    """The host of rank 0 resolves its own name to a loopback address, as Debian does."""
    names = [number, *["10.77.0.1"] * (len(counts) - 1)]
    argv = [WORKER, "collectives", "--iterations", 5]
    with Hosts(len(counts)) as hosts, HostsJob(hosts, counts, argv, names=names) as job:
        job.expect_success()


def kill_on_another_host(counts, victim, phase):
    argv = [*IGNORE_TERM, WORKER, "phase", phase, "--victims", victim]
    with Hosts(len(counts)) as hosts, HostsJob(hosts, counts, argv) as job:
        job.until_all_said("ready")
        if phase != "sleep":
            job.until_all_said(f"{phase} 1")
        os.kill(job.process_of(victim), signal.SIGKILL)
        codes = job.finish(seconds=ranks.PROMISE_SECONDS)
        host = job.host_of(victim)
        expect(codes.pop(host) == 128 + signal.SIGKILL, f"host {host}\n{job.transcript()}")
        expect(set(codes.values()) == {PEER_FAILED}, f"codes {codes}\n{job.transcript()}")
        job.expect_blame([r for r in range(sum(counts)) if r != victim], [victim])


def cut(counts, host, phase):
    """A link goes down. No process ends and no connection is reset: only silence shows it."""
    argv = [*IGNORE_TERM, WORKER, "phase", phase]
    silence = 2
    environment = {"VESCOMM_SILENCE_SECONDS": str(silence)}
    with Hosts(len(counts)) as hosts, HostsJob(hosts, counts, argv, environment) as job:
        job.until_all_said(f"{phase} 1")
        ip("-n", hosts.switch, "link", "set", f"port{host}", "down")
        codes = job.finish(seconds=silence + ranks.PROMISE_SECONDS)
        expect(set(codes.values()) == {PEER_FAILED}, f"codes {codes}\n{job.transcript()}")
        away = [r for r in range(sum(counts)) if job.host_of(r) == host]
        rest = [r for r in range(sum(counts)) if job.host_of(r) != host]
        job.expect_blame(rest, away)
        job.expect_blame(away, rest)


CASES = [
    ("collectives on 2 + 1 ranks", lambda: collectives([2, 1])),
    ("collectives on 1 + 3 + 2 ranks", lambda: collectives([1, 3, 2])),
    ("collectives on 2 + 1 ranks, encrypted",
     lambda: collectives([2, 1], {"VESCOMM_ENCRYPTION": "yes"})),
    ("collectives on 1 + 1 + 1 + 1 + 1 + 1 ranks", lambda: collectives([1] * 6)),
    ("rank 0 of 2 + 1 ranks is 127.0.1.1 on its host", lambda: named_rank_0([2, 1], "127.0.1.1")),
    ("rank 0 of 3 + 2 + 1 ranks is 127.0.0.1 on its host",
     lambda: named_rank_0([3, 2, 1], "127.0.0.1")),
    ("unauthenticated peers on 2 + 1 ranks", lambda: unauthenticated_peers([2, 1])),
    ("kill rank 2 of 2 + 1 while it sleeps", lambda: kill_on_another_host([2, 1], 2, "sleep")),
    ("kill rank 0 of 1 + 2 in barrier", lambda: kill_on_another_host([1, 2], 0, "barrier")),
    ("kill rank 2 of 1 + 3 + 2 in gather", lambda: kill_on_another_host([1, 3, 2], 2, "gather")),
    ("cut host 1 of 2 + 1 in gather", lambda: cut([2, 1], 1, "gather")),
    ("cut host 0 of 1 + 2 in barrier", lambda: cut([1, 2], 0, "barrier")),
]
# Options of train_gpt, by ranks of each host.
TRAINED = [
    ([2, 1], ""),
    ([2, 1], "--preset hsdp:1 --accumulate 2"),
    ([1, 3, 2], ""),
    ([1, 3, 2], "--preset mics:3 --recompute"),
    ([1, 3, 2], "--preset hpz:2 --offload FOLDER --slots 1"),
]
TRAINED_LONG = [
    (counts, f"{preset} {more}")
    for counts in ([2, 1], [1, 3, 2])
    for preset in (
        "--preset ddp", "--preset zero1", "--preset zero2", "--preset zero3",
        *(f"--preset {kind}:{size}" for kind in ("hsdp", "mics", "hpz")
          for size in (1, 2, 3) if sum(counts) % size == 0),
    )
    for more in ("", "--accumulate 3 --recompute", "--slots 1 --offload FOLDER",
                 "--order recorded --slots 3", "--order explicit --reshard no")
    # Secondary copies are of units that are released after their forward pass.
    if not ("hpz" in preset and "--reshard no" in more)
]


def cases_of(trained):
    return [(f"training on {' + '.join(map(str, counts))} ranks {options}".strip(),
             lambda counts=counts, options=options: training(counts, options))
            for counts, options in trained]


def main():
    if os.geteuid() != 0:
        print("skipped: network namespaces need root")
        return SKIPPED
    try:
        with Hosts(1):
            pass
    except (ranks.Failed, FileNotFoundError) as failure:
        print(f"skipped: this machine does not permit network namespaces: {failure}")
        return SKIPPED
    # SIGTERM raises SystemExit, so that namespaces are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    long = "--long" in sys.argv
    cases = CASES
    if TRAIN_GPT:
        cases = cases_of(TRAINED_LONG) if long else CASES + cases_of(TRAINED)
    return run_cases(cases, [word for word in sys.argv[4:] if word != "--long"])


if __name__ == "__main__":
    sys.exit(main())

# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the ranks of a test as forked processes: torch is imported once."""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback

os.environ.setdefault("OMP_NUM_THREADS", "1")

try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    print(f"skipped: {error}; pip install torch", file=sys.stderr)
    sys.exit(77)

try:
    import vescomm.torch
except ImportError as error:
    print(f"skipped: the Python package vescomm is not built: {error}", file=sys.stderr)
    sys.exit(77)

torch.set_num_threads(1)
vescomm.torch.register()

_context = multiprocessing.get_context("fork")

# True: a test runs all of its cases, for suite slow.
ALL = "--all" in sys.argv
if ALL:
    sys.argv.remove("--all")

# Consecutive ranks are on this number of emulated nodes, one after another.
NODES = int(os.environ.get("VESCOMM_TEST_NODES", "1"))

# Seconds after which a job of ranks is ended: far more than any test takes.
LIMIT = 120


class Failed(AssertionError):
    """Ranks raised exceptions, or ended in another way. str() has their tracebacks."""


def import_before_fork():
    """Imports what FSDP2, DTensor and others import on their first use, which takes seconds."""
    import torch._dynamo
    import torch.distributed._functional_collectives
    import torch.distributed.checkpoint
    import torch.distributed.fsdp
    import torch.distributed.tensor.parallel  # noqa: F401


def node(number):
    """The variable that puts a process on an emulated node."""
    return {"VESCOMM_NODE": f"emulated {number}"}


def nodes_of(group):
    """The number of nodes of a group with backend vescomm."""
    return group._get_backend(torch.device("cpu")).link.comm._info()["nodes"]


def run(
    ranks, function, *arguments, backend="vescomm", timeout=60, killed=(), group=True, nodes=None
):
    """Calls function(*arguments) on each rank of a process group. Returns the results by rank.

    Args:
        killed: ranks that must end by SIGKILL; the others must return.
        group: False: ranks create the process group themselves.
        nodes: number of the emulated node of each rank; None: as the environment asks for.
    """
    with tempfile.TemporaryDirectory(prefix="vescomm-torch-") as folder:
        job = Job(ranks, folder, function, arguments, backend, timeout, group, nodes)
        job.start()
        return job.join(set(killed))


class Job:
    def __init__(
        self,
        ranks,
        folder,
        function,
        arguments,
        backend="vescomm",
        timeout=60,
        group=True,
        nodes=None,
    ):
        self.ranks = ranks
        self._nodes = [rank % NODES for rank in range(ranks)] if nodes is None else nodes
        self._folder = folder
        self._function = function
        self._arguments = arguments
        self._backend = backend
        self._timeout = timeout
        self._group = group
        self.processes = []
        self._results = []

    def start(self):
        for rank in range(self.ranks):
            ours, theirs = _context.Pipe(duplex=False)
            process = _context.Process(target=self._run, args=(rank, theirs))
            process.start()
            theirs.close()
            self.processes.append(process)
            self._results.append(ours)

    def _run(self, rank, results):
        import datetime

        try:
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(self.ranks), LOCAL_RANK=str(rank))
            if max(self._nodes) > 0:
                os.environ.update(node(self._nodes[rank]))
            if self._group:
                dist.init_process_group(
                    self._backend,
                    init_method=f"file://{self._folder}/store",
                    rank=rank,
                    world_size=self.ranks,
                    timeout=datetime.timedelta(seconds=self._timeout),
                )
                self._require_nodes()
            results.send((True, self._function(*self._arguments)))
            if self._group and dist.is_initialized():
                dist.destroy_process_group()
        except BaseException:
            results.send((False, traceback.format_exc()))
            raise

    def _require_nodes(self):
        if self._backend == "vescomm":
            found = nodes_of(dist.group.WORLD)
            assert found == len(set(self._nodes)), f"the ranks are on {found} nodes"

    def join(self, killed=frozenset()):
        end = time.monotonic() + LIMIT
        answers = [None] * self.ranks
        for rank, results in enumerate(self._results):
            try:
                if results.poll(max(0, end - time.monotonic())):
                    answers[rank] = results.recv()
            except EOFError:
                pass
        late = []
        for rank, process in enumerate(self.processes):
            process.join(max(0, end - time.monotonic()))
            if process.exitcode is None:
                late.append(rank)
                process.kill()
                process.join()
        problems = [f"rank {rank} did not end within {LIMIT} s" for rank in late]
        for rank, process in enumerate(self.processes):
            answer = answers[rank]
            if rank in killed:
                if process.exitcode != -signal.SIGKILL:
                    problems.append(f"rank {rank} ended with {process.exitcode}, not by SIGKILL")
            elif answer is None:
                problems.append(f"rank {rank} ended with {process.exitcode} and gave no result")
            elif not answer[0]:
                problems.append(f"rank {rank}:\n{answer[1]}")
        if problems:
            raise Failed("\n".join(problems))
        return [answer and answer[1] for answer in answers]


_SCRIPT = """
import sys
import torch, torch.distributed as dist
import vescomm.torch
vescomm.torch.register()
rank, size = int(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("vescomm", init_method="file://" + sys.argv[3], rank=rank, world_size=size)
dist.all_reduce(torch.ones(3))
{end}
"""


def run_scripts(end, size=2):
    """(exit code, standard error) of each process of a program that no helper starts or ends."""
    script = _SCRIPT.format(end=end)
    with tempfile.TemporaryDirectory(prefix="vescomm-torch-") as folder:
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", script, str(rank), str(size), folder + "/store"],
                env={**os.environ, **(node(rank % NODES) if NODES > 1 else {})},
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(size)
        ]
        try:
            end = time.monotonic() + LIMIT
            texts = [p.communicate(timeout=max(0, end - time.monotonic()))[1] for p in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        return [(process.returncode, text) for process, text in zip(processes, texts)]

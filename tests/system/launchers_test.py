#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of the pages on launchers. launchers_test.py BUILD_ROOT TRAINER [CASE...]

A launcher that is missing here is emulated by its variables, or its case is skipped. TRAINER is
docs/examples/trainer.c. VESCOMM_TEST_PYTHON is a Python that has Ray."""

import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from consumers import EXAMPLES, SOURCE, blocks_of, expect_equal, losses_in, need
from installation import option
from ranks import HANG_SECONDS, Skipped, expect, run_cases

BUILD, TRAINER = (Path(arg).resolve() for arg in sys.argv[1:3])
RANKS = 3
SECRET = "a secret of the test of launchers"

# Starts the tasks of a step as srun does, on emulated nodes with one task each.
SRUN = f"""#!{sys.executable}
import os, subprocess, sys
command = [word for word in sys.argv[1:] if not word.startswith("--")]
tasks = []
for task in range({RANKS}):
    variables = dict(SLURM_PROCID=str(task), SLURM_LOCALID="0", SLURM_NTASKS="{RANKS}",
                     SLURM_STEP_NUM_TASKS="{RANKS}", SLURM_STEP_ID="0", SLURM_NNODES="{RANKS}",
                     SLURM_STEP_NUM_NODES="{RANKS}", SLURM_JOB_ID=str(os.getpid()),
                     SLURM_JOB_NODELIST="localhost", SLURM_STEP_NODELIST="localhost",
                     VESCOMM_NODE=str(task))
    tasks.append(subprocess.Popen(command, env=dict(os.environ, **variables)))
sys.exit(max(task.wait() for task in tasks))
"""


class Folder:
    """A folder with the trainer, in which commands run without variables of a launcher."""

    def __init__(self, path):
        self.path = Path(path)
        (self.path / "trainer").symlink_to(TRAINER)
        (self.path / "bin").mkdir()
        (self.path / "bin/vescomm-run").symlink_to(BUILD / "libvescomm/tools/vescomm-run")
        prefixes = ("VESCOMM_", "SLURM_", "PET_", "PMI", "OMPI_", "RAY_", "MASTER_", "TORCH")
        self.environment = {
            **{key: value for key, value in os.environ.items()
               if not key.startswith(prefixes) and key not in ("RANK", "WORLD_SIZE")},
            "PATH": f"{self.path / 'bin'}:{os.environ['PATH']}",
            "VESCOMM_TIMEOUT_SECONDS": str(HANG_SECONDS / 2),
            "VESCOMM_MACHINE": "defaults"}

    def start(self, script, **variables):
        return subprocess.Popen(["sh", "-ec", script], cwd=self.path, text=True,
                                env={**self.environment, **variables}, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, script, variables_of_each=({},), expected=0, **variables):
        """Runs a script once with each set of variables, at the same time. Returns all output."""
        started = [self.start(script, **variables, **each) for each in variables_of_each]
        try:
            text = "".join(process.communicate(timeout=HANG_SECONDS)[0] for process in started)
        finally:
            for process in started:
                process.kill()
        codes = [process.returncode for process in started]
        expect(all((code != 0) == bool(expected) for code in codes), f"exit codes {codes}\n{text}")
        return text

    def trains(self, script, variables_of_each=({},), **variables):
        """The losses must be those of vescomm-run."""
        reference = losses_in(self.run(f"vescomm-run -n {RANKS} ./trainer"))
        found = losses_in(self.run(script, variables_of_each, **variables))
        expect_equal(reference, found, "losses of vescomm-run and of this launcher")


def free_port():
    """A port outside of the range of which the system chooses ports by itself."""
    for port in random.SystemRandom().sample(range(10000, 20000), 100):
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
    raise Skipped("there is no free port")


def of_mpirun(folder):
    need("mpirun")
    folder.trains(blocks_of("launching-mpi.md", "sh")[0], **MPI)


MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
       "OMPI_MCA_rmaps_base_oversubscribe": "1",
       "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}


def of_a_program_with_mpi(folder):
    need("mpirun", "mpicc", "pkg-config")
    if option(BUILD, "b_sanitize") != "none":
        raise Skipped("MPI and sanitizers do not go together")
    shutil.copy(EXAMPLES / "with_mpi.c", folder.path)
    text = folder.run(blocks_of("launching-mpi.md", "sh")[1], **MPI,
                      PKG_CONFIG_PATH=str(BUILD / "meson-uninstalled"),
                      C_INCLUDE_PATH=str(SOURCE / "libvescomm/include"),
                      LD_LIBRARY_PATH=str(BUILD / "libvescomm"))
    for rank in range(3):
        expect(f"rank {rank} of 3: 6 and 6\n" in text, text)


def of_torchrun(folder):
    need("torchrun")
    page = (EXAMPLES.parent / "launching.md").read_text(encoding="utf-8")
    line = "torchrun --no-python --nproc-per-node 4 ./program"
    expect(f"    {line}\n" in page, f"docs/launching.md has no line {line}")
    folder.trains(line.replace("4 ./program", f"{RANKS} ./trainer"))


def of_slurm(folder):
    """The batch script, with a program that starts tasks as srun does."""
    (folder.path / "bin/srun").write_text(SRUN, encoding="utf-8")
    (folder.path / "bin/srun").chmod(0o755)
    folder.trains(blocks_of("launching-slurm.md", "sh")[0])


def of_pods_with_one_rank(folder):
    expect('command: ["./trainer"]' in blocks_of("launching-kubernetes.md", "yaml")[0],
           "the page has another command")
    port = free_port() - 1
    folder.trains("exec ./trainer", [
        {"RANK": str(pod), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "localhost",
         "MASTER_PORT": str(port), "PET_NNODES": str(RANKS), "PET_NODE_RANK": str(pod),
         "VESCOMM_NODE": str(pod)} for pod in range(RANKS)], VESCOMM_SECRET=SECRET)


def of_pods_with_several_ranks(folder):
    """The numbers of ranks are those of the training operator, and then those of its successor."""
    script = blocks_of("launching-kubernetes.md", "sh")[0]
    for prefix in ("", "PET_"):
        port = free_port() - 1
        pods = [{"PET_NNODES": "2", "PET_NPROC_PER_NODE": "2", "PET_NODE_RANK": str(pod),
                 f"{prefix}MASTER_ADDR": "localhost", f"{prefix}MASTER_PORT": str(port),
                 "VESCOMM_NODE": str(pod)} for pod in range(2)]
        if not prefix:
            for pod, variables in enumerate(pods):
                variables.update(RANK=str(pod), WORLD_SIZE="4")
        folder.trains(script, pods, VESCOMM_SECRET=SECRET)


def of_indexed_jobs(folder):
    text = blocks_of("launching-kubernetes.md", "yaml")[1]
    for name in ("VESCOMM_RANK", "VESCOMM_RANKS", "VESCOMM_ADDRESS", "VESCOMM_SECRET"):
        expect(f"name: {name}\n" in text or f"name: {name}," in text, f"the page has no {name}")
    address = f"localhost:{free_port()}"
    folder.trains("exec ./trainer", [
        {"VESCOMM_RANK": str(pod), "VESCOMM_RANKS": str(RANKS), "VESCOMM_ADDRESS": address,
         "VESCOMM_NODE": str(pod)} for pod in range(RANKS)], VESCOMM_SECRET=SECRET)


def of_ray(folder):
    pythons = [os.environ.get("VESCOMM_TEST_PYTHON"), shutil.which("python3"), "/usr/bin/python3"]
    for python in filter(None, pythons):
        if subprocess.run([python, "-c", "import ray"], capture_output=True, check=False).returncode == 0:
            break
    else:
        raise Skipped("no Python has Ray: pip install ray, and set VESCOMM_TEST_PYTHON")
    # Ray stores files and sockets below these folders; the path of a socket is limited.
    private = {"HOME": str(folder.path), "RAY_TMPDIR": str(folder.path / "r")}
    shutil.copy(EXAMPLES / "ray_job.py", folder.path)
    (folder.path / "bin/python").write_text(f'#!/bin/sh\nexec "{python}" "$@"\n', encoding="utf-8")
    (folder.path / "bin/python").chmod(0o755)
    script = blocks_of("launching-ray.md", "sh")[0]
    folder.trains(script, **private)
    # The ranks make different numbers of steps, so some wait for a rank that has ended.
    text = folder.run(script.replace("./trainer", "sh -c './trainer $((VESCOMM_RANK * 50))'"),
                      expected=1, **private)
    expect("rank 1 ended with 1" in text and "rank 2 ended with 1" in text, text)


def main():
    cases = (of_mpirun, of_a_program_with_mpi, of_torchrun, of_slurm, of_pods_with_one_rank,
             of_pods_with_several_ranks, of_indexed_jobs, of_ray)

    def in_a_folder(case):
        with tempfile.TemporaryDirectory(prefix="vescomm-") as path:
            return case(Folder(path))

    return run_cases([(f"ranks {case.__name__.replace('_', ' ')}", lambda c=case: in_a_folder(c))
                      for case in cases], sys.argv[3:])


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/torch.md, and how torch finds the backend.

    examples_test.py               ranks are forked
    examples_test.py --torchrun    ranks are started as the page says
"""

import contextlib
import io
import os
import pathlib
import re
import runpy
import socket
import subprocess
import sys
import tempfile
import unittest

import ranks

TORCHRUN = "--torchrun" in sys.argv
ROOT = pathlib.Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "docs" / "examples"
PAGE = ROOT / "docs" / "torch.md"
ENTRY = "[torch.distributed.backends]\nvescomm = vescomm.torch:register\n"


def run(path, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(path), run_name="__main__")
    return printed.getvalue()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextlib.contextmanager
def installed():
    """The environment of a process in which the package is installed."""
    package = pathlib.Path(ranks.vescomm.__file__).parents[1]
    with tempfile.TemporaryDirectory() as folder:
        info = pathlib.Path(folder) / "vescomm-0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vescomm\nVersion: 0\n")
        (info / "entry_points.txt").write_text(ENTRY)
        yield dict(os.environ, PYTHONPATH=f"{package}:{folder}", OMP_NUM_THREADS="1")


class Examples(unittest.TestCase):
    def test_programs_of_the_page(self):
        page = PAGE.read_text(encoding="utf-8")
        for path in sorted(EXAMPLES.glob("torch_*.py")):
            with self.subTest(path.name):
                wanted = re.search(rf"{path.name}\n\s+loss ([0-9.]+)", page)
                self.assertIsNotNone(wanted, "the page does not show the output of the program")
                if TORCHRUN:
                    with installed() as environment:
                        output = subprocess.run(
                            [sys.executable, "-m", "torch.distributed.run"]
                            + ["--nproc-per-node", "2", "--master-port", str(free_port()), str(path)],
                            env=environment,
                            stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE,
                            text=True,
                            check=True,
                        ).stdout
                else:
                    outputs = ranks.run(2, run, path, free_port(), group=False)
                    self.assertEqual(outputs[1], "")
                    output = outputs[0]
                self.assertAlmostEqual(float(output.split()[1]), float(wanted[1]), delta=0.02)

    def test_entry_point(self):
        """Torch finds the backend by its name, without an import."""
        program = """
import torch, torch.distributed as dist
dist.init_process_group("vescomm", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(1))
print(dist.group.WORLD.name())
"""
        with installed() as environment:
            done = subprocess.run(
                [sys.executable, "-c", program],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        self.assertEqual((done.stdout, done.stderr), ("vescomm\n", ""))
        project = ROOT / "pyproject.toml"
        if project.exists():
            self.assertIn('vescomm = "vescomm.torch:register"', project.read_text(encoding="utf-8"))


if __name__ == "__main__":
    if TORCHRUN:
        sys.argv.remove("--torchrun")
    unittest.main(verbosity=2, warnings="ignore")

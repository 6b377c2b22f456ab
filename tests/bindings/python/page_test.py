# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of docs/python.md, and the example that it and README.md name."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from job import DEADLINE

ROOT = Path(__file__).resolve().parents[3]


def run(program, ranks):
    """Runs a program of Python by vescomm-run. Returns its output."""
    done = subprocess.run(
        [os.environ.get("VESCOMM_TEST_RUN", "vescomm-run"), "-n", str(ranks), sys.executable, "-B", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(done.stdout)
    return done.stdout


class Page(unittest.TestCase):
    def test_the_code_of_the_page_runs(self):
        page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
        code = "\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
        self.assertGreater(code.count("\n"), 30)
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "page.py"
            program.write_text(code, encoding="utf-8")
            output = run(str(program), 2)
        self.assertEqual(sorted(set(re.findall(r"rank (\d) owns", output))), ["0", "1"])

    def test_the_example_prints_what_the_page_of_c_says(self):
        output = run(str(ROOT / "docs/examples/gather_reduce.py"), 3)
        lines = sorted(line.split("] ", 1)[-1] for line in output.splitlines())
        self.assertEqual(
            lines, ["0 1 1 2 2 2 | rank 0: 0", "0 1 1 2 2 2 | rank 1: 3", "0 1 1 2 2 2 | rank 2: 6"]
        )

    def test_readme_shows_the_example(self):
        example = (ROOT / "docs/examples/gather_reduce.py").read_text(encoding="utf-8")
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        shown = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
        for block in shown:
            self.assertIn(block, example)
        self.assertTrue(shown)


if __name__ == "__main__":
    unittest.main()

# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Tests perf/train_compare.py with programs that only write their results."""

import argparse
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PERF = Path(__file__).resolve().parents[2] / "perf"
sys.path.insert(0, str(PERF))
import train_compare  # noqa: E402

# Stands for vescomm-run and for a Python with torch: writes the results, and its arguments.
PROGRAM = """#!{python}
import json, sys
words = sys.argv[1:]
value = lambda name: words[words.index("--" + name) + 1]
if "--quiet" in words:
    report = {{"step_ms": {{"p50": 10}}, "memory": {{"node_pss": 90 << 20, "node_pss_before": 20 << 20}}}}
elif value("fsdp") == "fsdp2":
    report = {{"step_ms_median": 25, "node_pss": 400 << 20, "node_pss_before": 300 << 20}}
else:
    report = {{"step_ms_median": 15, "node_pss": 500 << 20, "node_pss_before": 360 << 20}}
if value("dtype") == "bf16":
    sys.exit("no bf16 here")
with open(value("json"), "w") as file:
    json.dump(report, file)
"""


class TrainCompare(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name in ("libvescomm/tools/vescomm-run", "python"):
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(PROGRAM.format(python=sys.executable), encoding="utf-8")
            path.chmod(0o700)

    def compare(self, *arguments):
        return subprocess.run(
            [sys.executable, str(PERF / "train_compare.py"), "--build", str(self.folder),
             "--python", str(self.folder / "python"), *arguments],
            capture_output=True, text=True, timeout=120, check=False, env=dict(os.environ))

    def test_prints_a_row_for_each_program_and_a_verdict(self):
        done = self.compare("--dtypes", "f32", "--ranks", "1", "2", "--shapes", "2x64x2x32",
                            "--rounds", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [[cell.strip() for cell in line.strip("|").split("|")]
                for line in done.stdout.splitlines() if line.startswith("| 2x64x2x32")]
        # 2 sequences of 32 tokens for each rank in 10, 25 and 15 ms.
        self.assertEqual(
            [row[2:] for row in rows],
            [
                ["1", "vescomm", "6400", "70.0", "", ""],
                ["1", "eager", "4267", "140.0", "1.50 x", "0.50 x"],
                ["2", "vescomm", "12800", "70.0", "", ""],
                ["2", "FSDP2, gloo", "5120", "100.0", "2.50 x", "0.70 x"],
                ["2", "DDP, gloo", "8533", "140.0", "1.50 x", "0.50 x"],
            ])
        self.assertIn("against FSDP2, 1 of 1 cases", done.stdout)
        self.assertIn("round 2 of 2", done.stderr)

    def test_has_all_cases_by_default(self):
        done = self.compare("--dtypes", "f32", "--rounds", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        # Three shapes, three numbers of ranks, three programs.
        self.assertEqual(sum(line.startswith("| ") for line in done.stdout.splitlines()), 1 + 27)
        self.assertIn("of 9 cases", done.stdout)

    def test_names_the_program_that_fails(self):
        done = self.compare("--dtypes", "bf16", "--ranks", "2", "--rounds", "1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("train_gpt", done.stderr)
        self.assertIn("no bf16 here", done.stderr)

    def test_refuses_wrong_shapes(self):
        for text in ("6x256x4", "6x256x4x", "axbxcxd", "6x256x3x256", "0x256x4x256"):
            with self.assertRaises(argparse.ArgumentTypeError):
                train_compare.parse_shape(text)
        self.assertEqual(train_compare.parse_shape("1x2x2x3").dim, 2)


if __name__ == "__main__":
    unittest.main()

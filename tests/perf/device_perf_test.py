# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Tests vescomm_perf --memory device on the test double of CUDA and NCCL. VESCOMM_TEST_PERF is the
path of the program, VESCOMM_TEST_PERF_SCHEMA that of the schema, GPU_DOUBLE_FOLDER that of the
double's libraries, GPU_DOUBLE_RUN the program that starts ranks which are processes. No test depends
on measured times."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from json_schema import violations  # noqa: E402

PERF = os.environ["VESCOMM_TEST_PERF"]
SCHEMA = os.environ["VESCOMM_TEST_PERF_SCHEMA"]
DOUBLE = os.environ["GPU_DOUBLE_FOLDER"]
# The build may have found no nvcc.
KERNELS = str(Path(__file__).resolve().parents[1] / "gpu/double/kernels.txt")
# Limits the tests on a machine that hangs.
TIMEOUT_SECONDS = 120
FAILED, NOT_IMPLEMENTED, USAGE, RESULTS = 3, 5, 6, 7
SMALL = ("-n", 3, "-w", 1, "--rounds", 3)
NAMES = ["vescomm", "nccl", "nccl-padded", "nccl-grouped"]
ALL = ",".join(NAMES)


def run(*arguments, **more):
    """Returns exit code, output and errors. A broken rule of the double is a failure."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("VESCOMM_")}
    kept.update(LD_LIBRARY_PATH=DOUBLE, VESCOMM_GPU_KERNELS=KERNELS, GPU_DOUBLE_STRICT="1", **more)
    done = subprocess.run(
        [PERF, "--memory", "device", *map(str, arguments)],
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
        text=True,
        env=kept,
    )
    return done.returncode, done.stdout, done.stderr


def rows(output):
    return [line.split() for line in output.splitlines() if not line.startswith("#")]


class Table(unittest.TestCase):
    def check(self, ranks, *arguments):
        code, out, err = run("--ranks", ranks, "-t", ranks, *arguments, *SMALL)
        self.assertEqual((code, err), (0, ""), out + err)
        self.assertIn("# Out of bounds values : 0 OK\n", out)
        table = rows(out)
        self.assertEqual({row[8] for row in table}, {"0"}, out)
        return table, out

    def test_has_the_columns_of_nccl_tests_in_and_out_of_place(self):
        table, out = self.check(2, "-b", 4000, "--impl", ALL)
        heads = next(line for line in out.splitlines() if "redop" in line).lstrip("#").split()
        self.assertEqual(
            heads,
            "size count type redop root time algbw busbw #wrong min p99 place impl ratio".split(),
        )
        self.assertEqual(
            [(row[11], row[12]) for row in table],
            [(place, name) for place in ("out", "in") for name in NAMES],
        )
        for size, count, kind, op, root, time, algbw, busbw in (row[:8] for row in table):
            self.assertEqual((size, count, kind, op, root), ("4000", "1000", "f32", "none", "-1"))
            self.assertGreater(float(time), 0)
            self.assertAlmostEqual(float(busbw), float(algbw) / 2, delta=0.06)
        self.assertIn("NCCL 2.28.9", out)

    def test_ragged_shards_are_verified_at_1_2_and_3_ranks(self):
        for ranks in (1, 2, 3):
            for shape in ("linear", "one-owner:1"):
                equal = ranks == 1
                table, out = self.check(
                    ranks, "-b", 4000, "-e", 40000, "-f", 10, "--ragged", shape, "--impl", ALL,
                    "--collective", "all_gather_v,reduce_scatter_v", "-d", "f32,bf16", "-o", "sum",
                )  # fmt: skip
                # Collectives, types, sizes, places; NCCL itself has equal shards only.
                self.assertEqual(len(table), 2 * 2 * 2 * 2 * (4 if equal else 3), out)
                if not equal:
                    self.assertIn("# nccl is left out here: NCCL has no all_gather_v with unequal", out)

    @unittest.skipUnless(os.environ["GPU_DOUBLE_RUN"], "a build with a sanitizer")
    def test_ranks_may_be_processes(self):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("VESCOMM_")}
        kept.update(VESCOMM_GPU_KERNELS=KERNELS, GPU_DOUBLE_NCCL="23203")
        done = subprocess.run(
            [os.environ["GPU_DOUBLE_RUN"], PERF, "--memory", "device", "--ranks", "3", "-b", "4000",
             "--ragged", "linear", "--collective", "all_gather_v,reduce_scatter_v", "--impl",
             "vescomm,vescomm-buffers,vescomm-peer,nccl-padded,nccl-grouped", *map(str, SMALL)],
            capture_output=True, timeout=TIMEOUT_SECONDS, text=True, env=kept,
        )  # fmt: skip
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        table = rows(done.stdout)
        self.assertEqual(len(table), 2 * (3 * 2 + 2), done.stdout)
        self.assertEqual({row[8] for row in table}, {"0"}, done.stdout)

    def test_device_buffers_are_measured_in_place(self):
        for name, version in (("vescomm-buffers", "22809"), ("vescomm-peer", "23203"), ("vescomm-copies", "23203")):
            with self.subTest(name):
                code, out, err = run(
                    "--ranks", 3, "-t", 3, "-b", 4000, "--ragged", "linear", "--impl", name,
                    "--collective", "all_gather_v,reduce_scatter_v", "-d", "bf16", *SMALL,
                    GPU_DOUBLE_NCCL=version,
                )  # fmt: skip
                self.assertEqual((code, err), (0, ""), out)
                table = rows(out)
                self.assertEqual([row[11] for row in table], ["in", "in"], out)
                self.assertEqual({row[8] for row in table}, {"0"}, out)

    def test_other_collectives_types_and_operators_are_verified(self):
        for ranks in (1, 3):
            table, out = self.check(
                ranks, "-b", 4000, "--collective", "all_reduce,broadcast,reduce", "-d", "f32,i8",
                "-o", "sum,prod,min,max,avg", "-r", ranks - 1, "--impl", "nccl,vescomm",
            )  # fmt: skip
            # all_reduce: NCCL averages i8, vescomm does not; broadcast: 2 types, NCCL in both
            # places, vescomm in place; reduce: NCCL.
            self.assertEqual(len(table), (10 + 9) * 2 + 2 * 3 + 10 * 2, out)
            self.assertIn("vescomm_gpu_broadcast() works in place", out)
        table, out = self.check(3, "-b", 4000, "-d", "c128,bool,f8e4m3", "--ragged", "linear",
                                "--impl", ALL)  # fmt: skip
        self.assertEqual(len(table), 3 * 2 * 3, out)

    def test_blocks_go_to_every_rank(self):
        table, out = self.check(3, "-b", 4000, "--collective", "all_to_all_v", "-d", "f32,c128,f8e4m3",
                                "--place", "out", "--ragged", "linear", "--impl", "nccl,vescomm")  # fmt: skip
        self.assertEqual(len(table), 3 * 2, out)

    def test_operations_of_an_iteration_queue_on_the_stream(self):
        table, out = self.check(3, "-b", 4000, "-m", 5, "--place", "out", "--collective",
                                "all_gather_v,reduce_scatter_v,all_reduce", "--impl", ALL,
                                "--ragged", "random:1", "--sources", "kept")  # fmt: skip
        self.assertEqual(len(table), 3 + 3 + 2, out)
        self.assertEqual({row[11] for row in table}, {"out"})

    def test_results_follow_the_schema(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run.json"
            self.check(2, "-b", 4000, "--ragged", "linear", "--impl", "vescomm,nccl-padded", "-J", path)
            said = json.loads(path.read_text(encoding="utf-8"))
        schema = json.loads(Path(SCHEMA).read_text(encoding="utf-8"))
        self.assertEqual(violations(said, schema, schema), [])
        self.assertEqual(
            [(one["memory"], one["place"], one["impl"]) for one in said["results"]],
            [("device", place, name) for place in ("out", "in") for name in ("vescomm", "nccl-padded")],
        )
        ours = said["results"][0]
        self.assertIn(ours["algorithm"], ("padded", "rooted", "messages"))
        self.assertGreater(ours["predicted_us"], 0)

    def test_wrong_data_is_detected(self):
        for name in ("vescomm", "nccl-grouped"):
            code, out, err = run("--ranks", 2, "-t", 2, "-b", 4000, "--impl", name, *SMALL,
                                 VESCOMM_PERF_FAULT=f"corrupt:{name}:1")  # fmt: skip
            self.assertEqual((code, err), (RESULTS, ""), out)
            self.assertIn("# Out of bounds values : 6 FAILED", out)

    def test_a_failure_of_one_thread_ends_the_process(self):
        code, _, err = run("--ranks", 3, "-t", 3, "-b", 4000, *SMALL,
                           VESCOMM_PERF_FAULT="die:vescomm:1")  # fmt: skip
        self.assertEqual(code, FAILED, err)
        self.assertRegex(err, "rank [012] ended with signal 9")


class Missing(unittest.TestCase):
    def expect(self, sentence, *arguments, **more):
        code, out, err = run("-b", 64, *arguments, *SMALL, **more)
        self.assertEqual((code, out), (NOT_IMPLEMENTED, ""), err)
        self.assertIn("no implementation is left to measure: vescomm: ", err)
        self.assertIn(sentence, err)

    def test_what_is_missing_is_stated(self):
        for sentence, variable, value in (
            ("there is no NVIDIA driver", "GPU_DOUBLE_DRIVER", "0"),
            ("shows no GPU to this process", "GPU_DOUBLE_DEVICES", "0"),
            ("NCCL 2.27.3", "GPU_DOUBLE_NCCL", "22703"),
        ):
            self.expect(sentence, **{variable: value})
            self.expect(sentence, "--impl", ALL, "--ranks", 2, **{variable: value})

    def test_ranks_without_a_gpu_of_their_own_are_refused(self):
        self.expect("NCCL 2.28.9 permits one rank on each; 2.30.3 and later permit several",
                    "--ranks", 3, GPU_DOUBLE_DEVICES="2")  # fmt: skip
        self.expect("which NCCL permits to processes only", "--ranks", 2, "-t", 2,
                    GPU_DOUBLE_DEVICES="1", GPU_DOUBLE_NCCL="23003")  # fmt: skip

    def test_implementations_on_host_memory_are_left_out(self):
        code, out, err = run("--ranks", 1, "-b", 64, "--impl", "vescomm,limit", *SMALL)
        self.assertEqual((code, err), (0, ""), out)
        self.assertIn("# limit is left out: it moves host memory only", out)


class UsageErrors(unittest.TestCase):
    def expect(self, *arguments, says):
        code, out, err = run(*arguments)
        self.assertEqual((code, out), (USAGE, ""), err)
        self.assertIn(says, err)
        self.assertEqual(err.count("\n"), 1, err)

    def test_usage_errors_are_one_sentence_and_code_6(self):
        self.expect("--shared", says="--memory device: --shared shares host memory")
        self.expect("--f32-output", "--collective", "reduce_scatter_v", says="--f32-output")
        self.expect("--tensors", 2, says="--tensors")
        self.expect("--overlap", says="--overlap")
        self.expect("--hosts", 2, "--ranks", 2, says="leave out --hosts")
        self.expect("--place", "above", says="--place above: there is out and in")
        self.expect("--ranks", 3, "-t", 2, says="--nthreads 2: give --ranks, a multiple of it")
        self.expect("-m", 2, "--collective", "all_reduce", says="give --op max, or --place out")
        self.expect("--impl", "smoke", says="there is vescomm, vescomm-buffers, vescomm-peer, vescomm-copies, nccl")

    def test_ranks_of_a_launcher_are_refused(self):
        code, out, err = run("-b", 64, VESCOMM_RANK="0", VESCOMM_RANKS="1")
        self.assertEqual((code, out), (USAGE, ""), err)
        self.assertIn("under a launcher only host memory is measured; give --ranks", err)


if __name__ == "__main__":
    unittest.main()

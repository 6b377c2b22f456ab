# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the program vescomm_perf. VESCOMM_TEST_PERF is the path of the program,
VESCOMM_TEST_PERF_SCHEMA the path of the schema, VESCOMM_TEST_PERF_REPORT the path of perf/report.
No test depends on measured times."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from json_schema import violations  # noqa: E402

PERF = os.environ["VESCOMM_TEST_PERF"]
SCHEMA = os.environ["VESCOMM_TEST_PERF_SCHEMA"]
REPORT = os.environ["VESCOMM_TEST_PERF_REPORT"]
# Limits the tests on a machine that hangs.
TIMEOUT_SECONDS = 120
FAILED, TIMEOUT, NOT_IMPLEMENTED, USAGE, RESULTS = 3, 4, 5, 6, 7
SMALL = ("-n", 3, "-w", 1, "--rounds", 3)


def environment(**more):
    """Returns the environment without variables of a launcher of the tests."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("VESCOMM_") or k == "VESCOMM_LOG"}
    return {**kept, **more}


def run(*arguments, **more):
    """Returns exit code, output and errors."""
    done = subprocess.run(
        [PERF, *map(str, arguments)],
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
        text=True,
        env=environment(**more),
    )
    return done.returncode, done.stdout, done.stderr


def rows(output):
    return [line.split() for line in output.splitlines() if not line.startswith("#")]


def processes_of(marker):
    """Returns all processes whose environment has this marker."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes()
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        if f"VESCOMM_TEST_MARKER={marker}".encode() in variables and state[0] != "Z":
            found.append(int(pid))
    return found


def has_matplotlib():
    return (
        subprocess.run(["/usr/bin/python3", "-c", "import matplotlib"], capture_output=True).returncode
        == 0
    )


class Table(unittest.TestCase):
    def check(self, *arguments):
        code, out, err = run(*arguments, *SMALL)
        self.assertEqual((code, err), (0, ""), out + err)
        self.assertIn("# Out of bounds values : 0 OK\n", out)
        self.assertRegex(out, r"(?m)^# Avg bus bandwidth    : [0-9.e+-]+$")
        return rows(out), out

    def test_has_the_columns_of_nccl_tests_and_additional_ones(self):
        table, out = self.check("--ranks", 2, "-b", 64, "-e", "64K", "-f", 32)
        heads = next(line for line in out.splitlines() if "redop" in line)
        self.assertEqual(
            heads.lstrip("#").split(),
            "size count type redop root time algbw busbw #wrong min p99 impl".split(),
        )
        self.assertEqual([row[0] for row in table], ["64", "2048", "65536"])
        for size, count, kind, op, root, t, algbw, busbw, wrong, low, p99, impl in table:
            self.assertEqual(int(size), 4 * int(count))
            self.assertEqual((kind, op, root, wrong, impl), ("f32", "none", "-1", "0", "vescomm"))
            self.assertLessEqual(float(low), float(t))
            self.assertLessEqual(float(t), float(p99))
            # The columns are rounded to two decimals.
            self.assertAlmostEqual(float(busbw), float(algbw) / 2, delta=0.06)

    def test_every_collective_is_verified_at_1_2_and_3_ranks(self):
        for ranks in (1, 2, 3):
            table, out = self.check(
                "--ranks", ranks, "-b", 4000, "-e", 4000, "-d", "f32,bf16", "-o", "sum,avg",
                "--collective", "all_gather_v,all_reduce,broadcast,barrier", "--impl",
                "vescomm,limit",
            )  # fmt: skip
            self.assertEqual(len(table), 2 * (2 + 4 + 2 + 1), out)
            self.assertTrue(all(row[8] == "0" for row in table), out)
            for shape in ("equal", "linear", "zipf:2", "one-owner:1", "random:3"):
                table, out = self.check(
                    "--ranks", ranks, "-b", 4000, "--collective", "reduce_scatter_v", "-d",
                    "f32,bf16", "--f32-output", "--ragged", shape, "--tensors", 3, "--block", 16,
                    "--impl", "vescomm,limit",
                )  # fmt: skip
                self.assertEqual([row[8] for row in table], ["0"] * 4, out)

    def test_every_collective_on_arrays_is_verified(self):
        for ranks in (1, 2, 3):
            for shape in ("linear", "one-owner:1"):
                table, out = self.check(
                    "--ranks", ranks, "-b", 4000, "--ragged", shape, "--tensors", 3, "--collective",
                    "all_gather_v,reduce_scatter_v,all_reduce,broadcast,reduce,gather_v,scatter_v,"
                    "all_to_all_v,send_receive", "--impl", "vescomm,vescomm-arrays", "-r", ranks - 1,
                )  # fmt: skip
                self.assertEqual(len(table), 18, out)
                self.assertTrue(all(row[8] == "0" for row in table), out)

    def test_every_type_and_operation_is_verified(self):
        for ranks in (2, 3):
            table, out = self.check(
                "--ranks", ranks, "-b", 4000, "-d", "f64,f32,bf16,f16,f8e4m3,f8e5m2,i8,u8,i16,u16,"
                "i32,u32,i64,u64", "-o", "sum,prod,min,max,avg", "--collective",
                "all_reduce,all_gather_v", "--impl", "vescomm,vescomm-arrays",
            )  # fmt: skip
            self.assertEqual(len(table), 2 * 14 * (5 + 1), out)
            self.assertTrue(all(row[8] == "0" for row in table), out)
            # Bool has no average, complex numbers only sum, prod and avg.
            table, out = self.check(
                "--ranks", ranks, "-b", 4000, "-d", "i8,u64,bool,c64,c128", "-o",
                "sum,prod,min,max,avg,band,bor,bxor,land,lor,lxor", "--collective", "all_reduce",
                "--impl", "vescomm,vescomm-arrays",
            )  # fmt: skip
            self.assertEqual(len(table), 2 * (2 * 11 + 10 + 2 * 3), out)
            self.assertTrue(all(row[8] == "0" for row in table), out)

    def test_all_to_all_and_send_receive_of_limit_are_verified(self):
        for ranks in (1, 2, 3):
            table, out = self.check("--ranks", ranks, "-b", 4000, "-e", "4M", "-f", 1000,
                                    "--ragged", "one-owner:0.9", "--impl", "vescomm,limit",
                                    "--collective", "alltoall,sendrecv", "-m", 3)  # fmt: skip
            self.assertEqual(len(table), 8, out)
        table, out = self.check("--ranks", 2, "-b", 4000, "--impl", "vescomm,limit", "-d", "c128",
                                "--collective", "alltoall,sendrecv", "-m", 3)  # fmt: skip
        self.assertEqual(len(table), 4, out)

    def test_shared_results_with_a_late_rank(self):
        table, out = self.check("--ranks", 3, "-b", "100K", "--shared", "--ragged", "linear",
                                "--impl", "vescomm,limit", "--skew", "300:0", "-m", 2)  # fmt: skip
        self.assertEqual([row[8] for row in table], ["0", "0"])
        self.assertIn("one result for each node: rho 1.5", out)
        self.assertIn("rank 0 comes 300 us late", out)

    def test_optional_columns(self):
        table, out = self.check("--ranks", 2, "-b", 64, "-I", 1, "-C", 1, "-S", 1, "-c", 0,
                                "--impl", "vescomm,limit")  # fmt: skip
        heads = next(line for line in out.splitlines() if "redop" in line).lstrip("#").split()
        self.assertEqual(heads[11:], ["max", "cv", "register", "create", "start", "impl", "ratio"])
        self.assertEqual(len(table[0]), len(heads) + 2)
        self.assertEqual(table[0][8], "N/A")
        self.assertEqual(table[1][13:16], ["-", "-", "-"])

    def test_rows_state_whether_cores_are_near_or_far(self):
        _, out = self.check("--ranks", 2, "-b", 4000)
        bound = len(os.sched_getaffinity(0)) > 1
        stated = re.findall(r"(?m)^# cores (near|far|near and far): a cache line takes [0-9]+ ns$", out)
        self.assertEqual(len(stated), 1 if bound else 0, out)
        _, out = self.check("--ranks", 2, "-b", 4000, "--bind", "none")
        self.assertNotIn("# cores", out)
        _, out = self.check("--ranks", 1, "-b", 4000)
        self.assertNotIn("# cores", out)

    def test_kept_sources_are_verified_too(self):
        for collective in ("all_gather_v", "reduce_scatter_v", "all_to_all_v", "broadcast", "gather_v"):
            table, out = self.check("--ranks", 3, "-b", 4000, "--sources", "kept", "--ragged", "linear",
                                    "--collective", collective, "--impl", "vescomm,vescomm-arrays")
            self.assertIn(", sources kept;", out)
            self.assertEqual([row[8] for row in table], ["0", "0"], out)

    def test_overlap_has_columns_and_leaves_out_blocking_implementations(self):
        table, out = self.check("--ranks", 2, "-b", 4000, "--overlap", "--impl",
                                "vescomm,vescomm-arrays,limit", "--tensors", 2, "--collective",
                                "all_gather_v,all_to_all_v,send_receive")  # fmt: skip
        heads = next(line for line in out.splitlines() if "redop" in line).lstrip("#").split()
        self.assertEqual(heads[11:], ["compute", "total", "hidden", "impl", "ratio"])
        self.assertEqual(len(table), 6, out)
        self.assertIn("# limit is left out here: it has only operations that return when", out)

    def test_non_blocking_variants_of_mpi_and_ucc_are_correct(self):
        for name, collectives in (("mpi", "all_gather_v,reduce_scatter_v,all_reduce,broadcast,reduce,"
                                   "gather_v,scatter_v,all_to_all_v,send_receive,barrier"),
                                  ("ucc", "all_gather_v,all_to_all_v,barrier")):  # fmt: skip
            code, out, err = run("--ranks", 2, "-b", 4000, "--ragged", "linear", "--overlap",
                                 "--tensors", 2, "--collective", collectives, "--impl",
                                 f"vescomm,{name}", *SMALL)  # fmt: skip
            if f"# {name} is left out:" in out:
                continue
            self.assertEqual((code, err), (0, ""), out)
            self.assertEqual(len(rows(out)), 2 * len(collectives.split(",")), out)

    def test_unavailable_implementations_are_named_and_left_out(self):
        table, out = self.check("--ranks", 2, "-b", 64, "--impl", "vescomm,nccl")
        self.assertEqual(len(table), 1)
        self.assertRegex(out, r"(?m)^# nccl is left out: it moves the memory of GPUs: give --memory device$")

    def test_available_libraries_are_correct(self):
        for name in ("mpi", "mpich", "gloo", "ucc"):
            code, out, err = run("--ranks", 2, "-b", 4000, "--ragged", "linear", "--collective",
                                 "all_gather_v,reduce_scatter_v,all_reduce,broadcast,all_to_all_v,"
                                 "barrier", "--impl", f"vescomm,{name}", *SMALL)  # fmt: skip
            if f"# {name} is left out:" in out:
                continue
            self.assertEqual((code, err), (0, ""), out)
            self.assertEqual(len(rows(out)), 12, out)
            code, out, err = run("--ranks", 2, "-b", 4000, "--collective", "all_reduce", "-d",
                                 "f32,f64,i32,u16", "-o", "prod,min,max,avg", "--impl",
                                 f"vescomm,{name}", *SMALL)  # fmt: skip
            self.assertEqual((code, err), (0, ""), out)

    def test_collectives_of_mpi_only_are_correct(self):
        for name in ("mpi", "mpich"):
            code, out, err = run("--ranks", 2, "-b", 4000, "--ragged", "linear", "--tensors", 3,
                                 "--collective", "reduce,gather_v,scatter_v,all_to_all_v,"
                                 "send_receive", "-r", 1, "--impl", f"vescomm,{name}",
                                 *SMALL)  # fmt: skip
            if f"# {name} is left out:" in out:
                continue
            self.assertEqual((code, err), (0, ""), out)
            self.assertEqual(len(rows(out)), 10, out)

    def test_ranks_of_a_launcher_take_part(self):
        launcher = os.environ.get("VESCOMM_TEST_RUN", "")
        done = subprocess.run(
            [launcher, "-n", "3", "--no-prefix", PERF, "-b", "4000", *map(str, SMALL)],
            capture_output=True, timeout=TIMEOUT_SECONDS, text=True, env=environment(),
        )  # fmt: skip
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertEqual(len(rows(done.stdout)), 1)
        self.assertIn("3 ranks on 1 node", done.stdout)


class Json(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "run.json")

    def test_reductions_follow_the_schema(self):
        code, out, err = run("--ranks", 2, "-b", 1000, "--impl", "vescomm", "--collective",
                             "all_reduce", "-d", "i32,bool,c128", "-o", "sum,bor,lxor", "-J",
                             self.path, *SMALL)  # fmt: skip
        self.assertEqual((code, err), (0, ""), out)
        said = json.loads(Path(self.path).read_text(encoding="utf-8"))
        schema = json.loads(Path(SCHEMA).read_text(encoding="utf-8"))
        self.assertEqual(violations(said, schema, schema), [])
        self.assertEqual({one["op"] for one in said["results"]}, {"sum", "bor", "lxor"})

    def test_predictions_are_microseconds(self):
        for size, least, most in ((1000, 0.01, 100), (64_000_000, 1000, 1_000_000)):
            for impl in ("vescomm", "vescomm-arrays"):
                code, out, err = run("--ranks", 2, "-b", size, "--impl", impl, "--collective",
                                     "all_gather_v", "-J", self.path, *SMALL)  # fmt: skip
                self.assertEqual((code, err), (0, ""), out)
                said = json.loads(Path(self.path).read_text(encoding="utf-8"))
                predicted = said["results"][0]["predicted_us"]
                self.assertTrue(least < predicted < most, f"{impl}, {size} bytes: {predicted}")

    def test_follows_its_schema(self):
        code, out, err = run("--ranks", 2, "-b", 1000, "-e", 3000, "-i", 1000, "--ragged",
                             "one-owner:0.75", "--impl", "vescomm,limit,nccl", "--collective",
                             "all_gather_v,all_to_all_v,send_receive,barrier", "-J", self.path,
                             *SMALL,
                             VESCOMM_SECRET="hidden")  # fmt: skip
        self.assertEqual((code, err), (0, ""), out)
        text = Path(self.path).read_text(encoding="utf-8")
        self.assertNotIn("hidden", text)
        said = json.loads(text)
        schema = json.loads(Path(SCHEMA).read_text(encoding="utf-8"))
        self.assertEqual(violations(said, schema, schema), [])
        self.assertEqual([one["impl"] for one in said["left_out"]], ["nccl"])
        self.assertEqual(len(said["results"]), 20)
        for one in said["results"]:
            self.assertEqual((one["ranks"], one["nodes"], one["wrong"]), (2, 1, 0))
            self.assertEqual(one["iterations"], 3)
            largest = one["shard_bytes"]["max"]
            busiest = {
                "all_gather_v": one["bytes"] - one["shard_bytes"]["min"],
                "all_to_all_v": largest * (one["ranks"] - 1),
                "send_receive": largest * one["ranks"],
                "barrier": 0,
            }[one["collective"]]
            self.assertAlmostEqual(one["busbw"], busiest / one["time_us"]["p50"] / 1000)
            if one["collective"] != "barrier":
                self.assertEqual(one["rho"], 2 * largest / one["bytes"])
                self.assertAlmostEqual(one["algbw"], one["bytes"] / one["time_us"]["p50"] / 1000)

    def test_reports_the_hidden_part(self):
        code, out, err = run("--ranks", 2, "-b", 4000, "--overlap", "-J", self.path, *SMALL)
        self.assertEqual((code, err), (0, ""), out)
        said = json.loads(Path(self.path).read_text(encoding="utf-8"))
        schema = json.loads(Path(SCHEMA).read_text(encoding="utf-8"))
        self.assertEqual(violations(said, schema, schema), [])
        self.assertLessEqual(said["results"][0]["overlap"]["hidden_percent"], 100)

    def test_a_pipe_is_written_to_and_stays(self):
        os.mkfifo(self.path)
        # A reader that does not wait for a writer, nor the writer for a reader.
        reader = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        code, out, err = run("--ranks", 1, "-b", 64, "-J", self.path, *SMALL)
        self.assertEqual((code, err), (0, ""), out)
        self.assertTrue(Path(self.path).is_fifo())
        self.assertEqual(json.loads(os.read(reader, 1 << 20))["schema"], "vescomm-perf/1")

    def test_unwritable_files_are_code_1(self):
        code, out, err = run("--ranks", 1, "-b", 64, "-J", "/nowhere/a.json", *SMALL)
        self.assertEqual((code, out), (1, ""), "nothing is measured before")
        self.assertIn("/nowhere/a.json", err)

    @unittest.skipUnless(has_matplotlib(), "/usr/bin/python3 has no matplotlib")
    def test_report_makes_a_self_contained_page(self):
        code, out, _ = run("--ranks", 2, "-b", 64, "-e", "4K", "-f", 8, "--impl", "vescomm,limit",
                           "--collective", "all_gather_v,barrier", "-J", self.path, *SMALL)  # fmt: skip
        self.assertEqual(code, 0, out)
        page = os.path.join(self.folder.name, "page.html")
        done = subprocess.run(["/usr/bin/python3", REPORT, self.path, self.path, "-o", page],
                              capture_output=True, timeout=TIMEOUT_SECONDS, text=True)  # fmt: skip
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        html = Path(page).read_text(encoding="utf-8")
        self.assertIn("all_gather_v", html)
        self.assertGreaterEqual(html.count("<svg"), 1)
        self.assertIn("time as a multiple of that of vescomm in its file", html)
        # The page loads nothing from other places.
        self.assertEqual(re.findall(r"(?:src|href)=[\"']?(?:http|//)", html), [])
        bad = os.path.join(self.folder.name, "bad.json")
        Path(bad).write_text('{"schema": "other/1"}', encoding="utf-8")
        done = subprocess.run(["/usr/bin/python3", REPORT, bad, "-o", page], capture_output=True,
                              timeout=TIMEOUT_SECONDS, text=True)  # fmt: skip
        self.assertEqual(done.returncode, 2)
        self.assertIn("vescomm-perf/1", done.stderr)


class UsageErrors(unittest.TestCase):
    def expect(self, *arguments, says):
        code, out, err = run(*arguments)
        self.assertEqual((code, out), (USAGE, ""), err)
        self.assertIn(says, err)
        self.assertEqual(err.count("\n"), 1, err)

    def test_usage_errors_are_one_sentence_and_code_6(self):
        self.expect("--collective", "gossip", says="there is all_gather_v")
        self.expect("-d", "f7", says="there is f32")
        self.expect("-o", "xor", says="there is sum, prod, min, max, avg")
        self.expect("--collective", "all_reduce", "-o", "bor",
                    says="--op bor: f32 has no such operator")
        self.expect("--ranks", "0", says="0 not in range 1 to")
        self.expect("--impl", "smoke", says="there is vescomm")
        self.expect("--impl", "limit,limit", says="named twice")
        self.expect("-b", "x", says="--minbytes \"x\"")
        self.expect("-b", "2M", "-e", "1M", says="is more than")
        self.expect("-b", "1", "-e", "2", "-f", "0.5", says="--stepfactor 0.5")
        self.expect("-b", "1", "-e", "2", "-f", "2", "-i", "1", says="exclude each other")
        self.expect("--ragged", "odd", says="there is equal")
        self.expect("--ragged", "zipf:x", says="is no number")
        self.expect("--ragged", "one-owner:2", says="a share from 0 to 1")
        self.expect("--ragged", "file:/nowhere", says="cannot be read")
        self.expect("--shared", "--collective", "broadcast", says="has a result for each rank")
        self.expect("--shared", "--private", says="exclude each other")
        self.expect("--ranks", 2, "-r", 2, says="there are 2 ranks")
        self.expect("--skew", "a", says="give microseconds")
        self.expect("--ranks", 2, "--skew", "5:7", says="rank 7 of 2 ranks")
        self.expect("--rounds", 2, says="from 3 to")
        self.expect("-a", 4, says="from 0 to 3")
        self.expect("-m", 2, "--collective", "all_reduce", says="works in place")
        self.expect("-m", 2, "--collective", "all_reduce", "--op", "max,sum", says="works in place")
        self.expect("--hosts", 3, "--ranks", 2, says="at least as many")
        self.expect("--sources", "old", says="--sources old: there is new and kept")
        self.expect("--sources", "kept", "--collective", "all_reduce",
                    says="all_reduce works in place, and overwrites its source")
        self.expect("--overlap", "--skew", 5, says="exclude each other")
        self.expect("--link", 1, says="give --hosts")
        self.expect("--link", -1, "--hosts", 2, "--ranks", 2, says="--link -1")
        self.expect("--bind", "tight", says="there is core and none")
        self.expect("--typo", says="--typo")
        self.expect("--memory", "tape", says="--memory tape: there is host and device")
        self.expect("--place", "in", says="give --memory device")
        for option, value in (("-G", 1), ("-z", 1), ("-y", 1), ("-R", 2), ("-t", 2), ("-g", 8)):
            self.expect(option, value, says=option)

    def test_options_without_meaning_accept_their_default(self):
        code, _, err = run("--ranks", 1, "-b", 64, "-g", 1, "-t", 1, "-z", 0, "-G", 0, *SMALL)
        self.assertEqual((code, err), (0, ""))

    def test_help_names_groups_units_collectives_and_examples(self):
        code, out, err = run("--help")
        self.assertEqual((code, err), (0, ""))
        for part in ("Sizes:", "Participants:", "Examples:", "BYTES", "reduce_scatter_v", "gloo",
                     "one-owner:F", "VESCOMM_PERF_MIN_BW", "Exit code"):  # fmt: skip
            self.assertIn(part, out)
        self.assertLessEqual(max(map(len, out.splitlines())), 110)


class Failures(unittest.TestCase):
    def test_wrong_data_is_detected_and_is_code_7(self):
        for collective in ("all_gather_v", "reduce_scatter_v", "all_reduce", "broadcast",
                           "all_to_all_v", "send_receive"):  # fmt: skip
            code, out, err = run("--ranks", 2, "-b", 4000, "--collective", collective, *SMALL,
                                 VESCOMM_PERF_FAULT="corrupt:vescomm:1")  # fmt: skip
            self.assertEqual((code, err), (RESULTS, ""), out)
            self.assertIn("# Out of bounds values : 3 FAILED", out)
            self.assertRegex(out, r"(?m)^# vescomm, rank 1: element \d+ is .*, not ")
            self.assertEqual(rows(out)[0][8], "3")

    def test_bandwidth_below_the_floor_is_code_7(self):
        code, out, _ = run("--ranks", 2, "-b", 64, *SMALL, VESCOMM_PERF_MIN_BW="1e9")
        self.assertEqual(code, RESULTS)
        self.assertRegex(out, r"(?m)^# Avg bus bandwidth    : \S+ FAILED$")
        code, out, _ = run("--ranks", 2, "-b", 64, *SMALL, VESCOMM_PERF_MIN_BW="0")
        self.assertEqual(code, 0)
        self.assertRegex(out, r"(?m)^# Avg bus bandwidth    : \S+ OK$")
        code, _, err = run("--ranks", 2, "-b", 64, *SMALL, VESCOMM_PERF_MIN_BW="much")
        self.assertEqual(code, USAGE)
        self.assertIn("VESCOMM_PERF_MIN_BW=much", err)

    def expect_failure(self, code, says, *arguments, **more):
        marker = f"{os.getpid()}-{says.replace(' ', '-')}"
        got, out, err = run(*arguments, *SMALL, VESCOMM_TEST_MARKER=marker, **more)
        self.assertEqual(got, code, out + err)
        self.assertIn(says, out + err)
        self.assertEqual(processes_of(marker), [])
        return out

    def test_a_worker_that_dies_is_named_and_nothing_is_left(self):
        self.expect_failure(FAILED, "rank 1 ended with signal 9", "--ranks", 3, "-b", 64,
                            VESCOMM_PERF_FAULT="die:vescomm:1")  # fmt: skip

    def test_a_worker_that_hangs_ends_at_the_timeout(self):
        self.expect_failure(TIMEOUT, "seconds were over", "--ranks", 2, "-b", 64, "-T", 2,
                            VESCOMM_PERF_FAULT="hang:vescomm:0")  # fmt: skip

    def test_a_failed_implementation_does_not_stop_the_others(self):
        out = self.expect_failure(FAILED, "limit is left out from here on", "--ranks", 2, "-b", 64,
                                  "-e", 128, "-f", 2, "--impl", "vescomm,limit",
                                  VESCOMM_PERF_FAULT="die:limit:0")  # fmt: skip
        self.assertEqual([row[-2] for row in rows(out)], ["vescomm", "vescomm"])

    def test_nothing_is_left_after_an_interrupt_or_a_kill(self):
        folder = tempfile.TemporaryDirectory(prefix="perf-")
        self.addCleanup(folder.cleanup)
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)):
            marker = f"{os.getpid()}-interrupt-{int(number)}"
            process = subprocess.Popen(
                [PERF, "--ranks", "2", "-b", "64", "-n", "1000000", "-T", "1000"],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                env=environment(VESCOMM_TEST_MARKER=marker, TMPDIR=folder.name),
            )  # fmt: skip
            self.assertTrue(process.stdout.readline().startswith(b"# vescomm_perf"))
            process.send_signal(number)
            self.assertEqual(process.wait(timeout=TIMEOUT_SECONDS), code)
            process.stdout.close()
            limit = time.monotonic() + TIMEOUT_SECONDS
            while processes_of(marker) and time.monotonic() < limit:
                os.sched_yield()
            self.assertEqual(processes_of(marker), [])
        self.assertEqual(os.listdir(folder.name), [])


def namespaces():
    done = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True)
    return {line.split()[0] for line in done.stdout.splitlines() if "vescomm-perf" in line}


def may_make_namespaces():
    if os.geteuid() != 0:
        return False
    name = f"vescomm-try-{os.getpid()}"
    try:
        made = subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode == 0
        subprocess.run(["ip", "netns", "delete", name], capture_output=True)
    except FileNotFoundError:
        return False
    return made


@unittest.skipUnless(may_make_namespaces(), "network namespaces cannot be made here")
class SeveralHosts(unittest.TestCase):
    def test_ranks_are_distributed_over_hosts_that_are_removed_afterwards(self):
        before = namespaces()
        code, out, err = run("--ranks", 3, "--hosts", 2, "-b", 4000, "--impl", "vescomm,nccl",
                             *SMALL)  # fmt: skip
        if "UCX" in err and code == FAILED:
            self.skipTest("this build has no UCX: " + err)
        self.assertEqual((code, err), (0, ""), out)
        self.assertIn("3 ranks on 2 nodes", out)
        self.assertIn("# nccl is left out: ", out)
        self.assertEqual(namespaces() - before, set())

    def test_limit_and_open_mpi_are_correct_between_hosts(self):
        code, out, err = run("--ranks", 3, "--hosts", 3, "-b", 4, "-e", 400000, "-f", 300,
                             "--ragged", "linear", "--collective",
                             "all_gather_v,reduce_scatter_v,all_reduce,barrier",
                             "--impl", "limit,mpi", *SMALL)  # fmt: skip
        self.assertEqual((code, err), (0, ""), out)
        self.assertIn("# Out of bounds values : 0 OK", out)

    def test_hosts_are_removed_after_a_failure(self):
        before = namespaces()
        code, _, err = run("--ranks", 2, "--hosts", 2, "-b", 64, *SMALL,
                           VESCOMM_PERF_FAULT="die:vescomm:1")  # fmt: skip
        self.assertEqual(code, FAILED, err)
        self.assertEqual(namespaces() - before, set())


if __name__ == "__main__":
    unittest.main()

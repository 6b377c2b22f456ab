# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the program vescomm-info.

VESCOMM_TEST_INFO holds its path, VESCOMM_TEST_SOURCE the path of the sources."""

import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

INFO = os.environ["VESCOMM_TEST_INFO"]
RUN = os.environ["VESCOMM_TEST_RUN"]
SOURCE = Path(os.environ["VESCOMM_TEST_SOURCE"])


def run(*arguments, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("VESCOMM_")}
    done = subprocess.run(
        [INFO, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False,
        env={**environment, "VESCOMM_MACHINE": "defaults", **variables},
    )
    return done.returncode, done.stdout, done.stderr


class Variables(unittest.TestCase):
    def test_markdown_equals_the_documentation(self):
        code, table, err = run("--markdown")
        self.assertEqual((code, err), (0, ""))
        page = (SOURCE / "docs/configuration.md").read_text(encoding="utf-8")
        self.assertIn(table, page, "put the output of vescomm-info --markdown into the page")

    def test_table_has_every_variable_of_the_sources(self):
        _, table, _ = run("--markdown")
        known = re.findall(r"^\| `(VESCOMM_\w+)`", table, re.MULTILINE)
        prefixes = tuple(name for name in known if name.endswith("_"))
        read = set()
        for folder in ("libvescomm", "planner", "fsdp", "perf"):
            for path in (SOURCE / folder).rglob("*"):
                if path.suffix in (".cc", ".c", ".h", ".py"):
                    read |= set(re.findall(r'"(VESCOMM_[A-Z_]+)"',
                                           path.read_text(encoding="utf-8")))
        self.assertIn("VESCOMM_RANK", read)
        # "VESCOMM_" is the common prefix of all names, not a variable.
        unknown = {name for name in read - set(known) - {"VESCOMM_"}
                   if not name.startswith(prefixes)}
        self.assertEqual(unknown, set())

    def test_values_are_shown(self):
        code, out, err = run(VESCOMM_TIMEOUT_SECONDS="7.5", VESCOMM_SECRET="swordfish")
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"VESCOMM_TIMEOUT_SECONDS .*\n.*Default: 300 s\.\n +Set to 7\.5\.")
        self.assertNotIn("swordfish", out)

    def test_mistakes_are_reported(self):
        code, out, err = run(VESCOMM_PROGRESS="sometimes", VESCOMM_TIMEOUT_SECOND="5")
        self.assertEqual(code, 2)
        self.assertIn("did you mean VESCOMM_TIMEOUT_SECONDS?", out)
        self.assertEqual(err, "vescomm-info: VESCOMM_PROGRESS=sometimes is none of its values; "
                              "there is: auto, thread, inline\n")


class DeviceMemory(unittest.TestCase):
    """With the test double of the CUDA runtime and NCCL, which is found as the real ones are."""

    def part(self, **variables):
        _, out, _ = run(LD_LIBRARY_PATH=os.environ["GPU_DOUBLE_FOLDER"], **variables)
        return re.search(r"device memory\n((?:  .*\n)+)", out).group(1)

    def test_all_parts_are_usable(self):
        text = self.part()
        self.assertRegex(text, r"CUDA +13\.0, .*/libcudart\.so\.13\n")
        self.assertRegex(text, r"GPUs +16, driver for CUDA 13\.0\n")
        self.assertRegex(text, r"NCCL +2\.28\.9, .*/libnccl\.so\.2\n")
        self.assertIn("(gpu.h) are available", text)

    def test_missing_parts_are_named(self):
        text = self.part(GPU_DOUBLE_DRIVER="0")
        self.assertRegex(text, r"GPUs +not usable: there is no NVIDIA driver")
        self.assertIn("Nothing else depends on this", text)
        self.assertRegex(self.part(GPU_DOUBLE_NCCL="22703"), r"NCCL +not usable: NCCL 2\.27\.3 ")
        self.assertRegex(self.part(VESCOMM_GPU_KERNELS="/nonexistent"),
                         r"kernels not usable: .* /nonexistent, .* cannot be read")


    def test_gpus_and_network_cards_are_a_table(self):
        _, out, _ = run(LD_LIBRARY_PATH=os.environ["GPU_DOUBLE_FOLDER"],
                        HWLOC_XMLFILE=os.path.join(SOURCE, "tests/topology/eight_gpus.xml"))
        text = re.search(r"GPUs and network cards\n((?:  .*\n)+)", out).group(1)
        self.assertIn("  GPU7: a double, 0000:46:00.0\n", text)
        self.assertRegex(text, r"(?m)^  GPU0 +-( +NV18){7} +switch +bridge( +node){2}( +system){4}$")


class Flight(unittest.TestCase):
    def test_malformed_files_give_one_sentence_and_code_2(self):
        for files, says in ((["/nonexistent/0"], "cannot read /nonexistent/0"),
                            ([INFO], "give files that a flight recorder wrote"),
                            (["/dev/null"], "/dev/null is empty"), ([SOURCE], "cannot read")):
            with self.subTest(files=files):
                code, out, err = run("--flight", *files)
                self.assertEqual((code, out), (2, ""))
                self.assertIn(says, err)
                self.assertEqual(err.count("\n"), 1)


class Measure(unittest.TestCase):
    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "there is one core")
    def test_writes_a_file_that_explain_reads(self):
        with tempfile.TemporaryDirectory() as folder:
            name = f"{folder}/cache/machine"
            done = subprocess.run([RUN, "-n", "2", INFO, "--measure"], capture_output=True,
                                  text=True, check=False, env={**os.environ, "VESCOMM_MACHINE": name})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"written to {name}", done.stdout)
            text = Path(name).read_text(encoding="utf-8")
            self.assertTrue(text.startswith("vescomm machine 1\nprocessor "), text)
            self.assertNotIn("links", text)
            self.assertEqual(run("--explain", "barrier", VESCOMM_MACHINE=name)[0], 0)
            Path(name).write_text(text.replace("flag_seconds", "flag"), encoding="utf-8")
            code, out, err = run("--explain", "barrier", VESCOMM_MACHINE=name)
            self.assertEqual((code, out), (2, ""))
            self.assertIn('it must be "flag_seconds VALUE"', err)

    def test_needs_a_core_for_each_rank(self):
        ranks = 1 + len(os.sched_getaffinity(0))
        done = subprocess.run([RUN, "-n", str(ranks), INFO, "--measure"], capture_output=True,
                              text=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("there are more ranks than cores", done.stderr)


class Explain(unittest.TestCase):
    def explain(self, *arguments):
        """Rows of the candidates: (mark, seconds or None, name)."""
        links = [] if "--links" in arguments else ["--links", "rdma"]
        code, out, err = run("--explain", *arguments, *links)
        self.assertEqual((code, err), (0, ""))
        units = {"us": 1e-6, "ms": 1e-3, "s": 1}
        rows = re.findall(r"^([* -]) +(?:(\S+) (us|ms|s))?  (\w+): ", out, re.MULTILINE)
        return [(mark, float(time) * units[unit] if time else None, name)
                for mark, time, unit, name in rows], out

    def test_refuses_sizes_that_no_array_can_have(self):
        code, _, err = run("--explain", "all_gather_v", "--bytes", "8EiB", "--nodes", 4)
        self.assertNotEqual(code, 0)
        self.assertIn("--bytes", err)

    def test_shows_the_fastest_candidate_first(self):
        rows, out = self.explain("all_gather_v", "--bytes", "1MiB", "--nodes", "4,4")
        self.assertEqual([(mark, name) for mark, _, name in rows],
                         [("*", "direct"), (" ", "ring"), (" ", "bruck"), ("-", "slab"),
                          ("-", "inline"), ("-", "staged")])
        self.assertLess(rows[0][1], rows[1][1])
        self.assertIn("1048576 bytes over 8 ranks on 2 nodes, one slab for each rank", out)
        self.assertIn("because it is predicted to take", out)
        self.assertRegex(out, r"rank \d, which completes last, spends its time: copies \d+ %")

    def test_predicts_ten_thousand_ranks(self):
        rows, out = self.explain("all_gather_v", "--bytes", "1GiB", "--ranks", 10000, "--nodes",
                                 1250, "--per-node")
        self.assertEqual(rows[0][0], "*")
        self.assertEqual(rows[0][2], "slab")
        self.assertIn("10000 ranks on 1250 nodes, one slab for each node", out)

    def test_ranks_without_nodes_are_on_one(self):
        for ranks, said in ((8, "8 ranks on 1 node,"), (2, "2 ranks on 1 node,"),
                            (1, "1 rank on 1 node,")):
            self.assertIn(said, self.explain("all_gather_v", "--ranks", ranks)[1])
        self.assertIn("4 ranks on 1 node,", self.explain("all_gather_v")[1])

    def test_bytes_have_decimal_and_binary_units(self):
        for size, said in (("64kB", " 64000 bytes"), ("64KiB", " 65536 bytes")):
            self.assertIn(said, self.explain("all_gather_v", "--bytes", size)[1])

    def test_assumes_a_slab_for_each_rank_as_a_buffer_does(self):
        arguments = ("all_gather_v", "--nodes", "4,4")
        self.assertEqual(self.explain(*arguments), self.explain(*arguments, "--per-rank"))
        self.assertNotEqual(self.explain(*arguments), self.explain(*arguments, "--per-node"))

    def test_shows_the_ways_through_the_staging_buffer(self):
        rows, out = self.explain("all_gather_v", "--bytes", "4KiB", "--ranks", 4, "--nodes", 1)
        self.assertIn("staged", [name for mark, _, name in rows if mark != "-"])
        self.assertRegex(out, r"(?m)^. .* us  staged: .*; through the staging buffer$")
        self.assertRegex(out, r"chosen, because .*inline through the staging buffer takes")
        # A copy of 4 MiB costs more than the waits.
        _, out = self.explain("all_gather_v", "--bytes", "4MiB", "--ranks", 4, "--nodes", 1)
        self.assertNotIn("; through", out)
        rows, _ = self.explain("all_gather_v", "--bytes", "4MiB", "--ranks", 4, "--nodes", 1,
                               "--algorithm", "staged")
        self.assertIn(("*", "staged"), [(mark, name) for mark, _, name in rows])

    def test_knows_every_collective(self):
        for name in ("all_gather_v", "reduce_scatter_v", "all_reduce", "broadcast", "reduce",
                     "gather_v", "scatter_v", "all_to_all_v", "barrier"):
            for more in ([], ["--arrays"], ["--ragged", "linear"]):
                with self.subTest(name=name, more=more):
                    rows, _ = self.explain(name, "--ranks", 6, "--nodes", 2, *more)
                    self.assertEqual([mark for mark, _, _ in rows].count("*"), 1)

    def test_chooses_by_size(self):
        for size, best in (("64", "inline"), ("64KiB", "two_phase")):
            rows, _ = self.explain("all_reduce", "--bytes", size, "--nodes", 8, "--arrays")
            self.assertEqual(rows[0][2], best)
            self.assertEqual(rows[0][0], "*")

    def test_ragged_shards_take_longer(self):
        arguments = ("all_gather_v", "--bytes", "64MiB", "--ranks", 64, "--nodes", 8)
        times = [self.explain(*arguments, "--ragged", ragged)[0][0][1]
                 for ragged in ("equal", "linear", "zipf:1", "one-owner:0.9")]
        self.assertEqual(times, sorted(times))

    def test_shards_may_come_from_a_file(self):
        arguments = ("reduce_scatter_v", "--bytes", "64MiB", "--ranks", 64, "--nodes", 8)
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(" ".join(map(str, range(1, 65))))
            file.flush()
            from_file = self.explain(*arguments, "--ragged", f"file:{file.name}")
        self.assertEqual(from_file, self.explain(*arguments, "--ragged", "linear"))

    def test_the_machine_file_of_gpus_predicts_ten_thousand_of_them(self):
        machine = SOURCE / "perf/machines/h100x8"
        for collective in ("all_gather_v", "reduce_scatter_v"):
            code, out, err = run("--explain", collective, "--bytes", "2GiB", "--nodes", 8, "--table",
                                 "8,64,10000", "--ragged", "linear", "--links", "rdma", "--json",
                                 VESCOMM_MACHINE=str(machine))  # fmt: skip
            self.assertEqual((code, err), (0, ""))
            rows = [row for row in json.loads(out)["rows"] if row["chosen"]]
            self.assertEqual([row["ranks"] for row in rows], [8, 64, 10000])
            # No rank receives, or reads, faster than its NVLinks permit.
            self.assertTrue(all(row["us"] > 2**31 * 7 / 8 / 400e3 for row in rows), rows)

    def test_the_largest_receiver_of_an_exchange_is_last(self):
        for ragged, last in (("linear", 3), ("one-owner:0.9", 0)):
            _, out = self.explain("all_to_all_v", "--ranks", 4, "--nodes", 2, "--ragged", ragged)
            self.assertIn(f"rank {last}, which completes last, ", out)

    def test_algorithm_option_forces_an_algorithm(self):
        rows, out = self.explain("all_gather_v", "--nodes", "4,4", "--algorithm", "ring")
        self.assertIn(("*", "ring"), [(mark, name) for mark, _, name in rows])
        self.assertIn("the caller asked for it by name", out)

    def test_algorithm_option_goes_before_the_environment(self):
        arguments = ("--explain", "all_gather_v", "--nodes", "4,4")
        _, out, _ = run(*arguments, VESCOMM_ALGORITHM="all_gather_v=ring")
        self.assertRegex(out, r"(?m)^\* .* us  ring: ")
        self.assertIn("VESCOMM_ALGORITHM asked for it by name", out)
        _, out, _ = run(*arguments, "--algorithm", "direct", VESCOMM_ALGORITHM="all_gather_v=ring")
        self.assertRegex(out, r"(?m)^\* .* us  direct: ")
        self.assertIn("the caller asked for it by name", out)
        code, _, err = run("--explain", "all_gather_v", "--per-node",
                           VESCOMM_ALGORITHM="all_gather_v=ring")
        self.assertEqual(code, 2)
        self.assertIn('VESCOMM_ALGORITHM: there is no algorithm "ring" for all_gather_v on a '
                      "buffer of one slab for each node; there is: slab", err)

    def test_tables_of_ranks(self):
        arguments = ("--explain", "all_reduce", "--nodes", 8, "--table", "8,64,100000")
        code, out, _ = run(*arguments, "--json")
        self.assertEqual(code, 0)
        rows = json.loads(out)["rows"]
        self.assertEqual({row["ranks"] for row in rows}, {8, 64, 100000})
        self.assertEqual(sum(row["chosen"] for row in rows), 3)
        self.assertTrue(all(row["us"] > 0 for row in rows))
        code, out, _ = run(*arguments)
        self.assertEqual(len(out.splitlines()), 1 + len(rows))
        _, out, _ = run(*arguments, "--json", VESCOMM_ALGORITHM="all_reduce=two_phase")
        rows = json.loads(out)["rows"]
        self.assertEqual({row["algorithm"] for row in rows if row["chosen"]}, {"two_phase"})

    def test_knows_links_and_hosts_that_share_cores(self):
        arguments = ("broadcast", "--arrays", "--bytes", "4MiB", "--ranks", 8, "--nodes", 8)
        rows, _ = self.explain(*arguments, "--links", "rdma")
        self.assertEqual(rows[0][2], "pipeline")
        rows, _ = self.explain(*arguments, "--links", "tcp", "--cores", 2, "--nodes-per-host", 8)
        self.assertEqual(rows[0][2], "staged")

    def test_shows_steps(self):
        _, out = self.explain("barrier", "--nodes", "1,1", "--steps", 1)
        self.assertIn("rank 1, offsets in f32 elements:\nlane 0\n", out)

    def test_mistakes_give_one_sentence_and_code_2(self):
        for arguments, says in (
            (["--explain", "all_gather"], "there is no collective"),
            (["--explain", "gossip"], "gather_v, reduce, reduce_scatter_v, scatter_v"),
            (["--explain", "barrier", "--nodes", "0"], "at least 1"),
            (["--explain", "barrier", "--ranks", 4, "--nodes", "5"], "1 to 4 nodes"),
            (["--explain", "barrier", "--ranks", 4, "--nodes", "2,2"], "one number"),
            (["--explain", "all_reduce", "--ragged", "zipf"], "--ragged zipf"),
            (["--explain", "all_reduce", "--ragged", "one-owner:2"], "--ragged one-owner:2"),
            (["--explain", "all_reduce", "--ragged", "file:/none"], "file:/none: it cannot be read"),
            (["--explain", "all_reduce", "--ragged", "file:/dev/null"], "a number of at least 0"),
            (["--explain", "barrier", "--algorithm", "ring"], "there is: dissemination"),
            (["--explain", "barrier", "--steps", 9], "ranks are 0 to 3"),
            (["--nonsense"], "vescomm-info: "),
            (["--explain", "barrier", "--links", "moon"], "see vescomm-info --help"),
        ):
            with self.subTest(arguments=arguments):
                code, out, err = run(*arguments)
                self.assertEqual(code, 2)
                self.assertIn(says, err)
                self.assertEqual(err.count("\n"), 1)


if __name__ == "__main__":
    unittest.main()

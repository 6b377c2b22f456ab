# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the program vescomm-plan. VESCOMM_TEST_PLAN is the path of the program,
VESCOMM_TEST_PLAN_SCHEMA the path of the schema."""

import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
from json_schema import violations  # noqa: E402

PLAN = os.environ["VESCOMM_TEST_PLAN"]
SCHEMA = os.environ["VESCOMM_TEST_PLAN_SCHEMA"]
# Limits the tests on a machine that hangs.
TIMEOUT_SECONDS = 120


def run(*arguments):
    """Returns exit code, output and errors."""
    done = subprocess.run(
        [PLAN, *map(str, arguments)], capture_output=True, timeout=TIMEOUT_SECONDS, text=True
    )
    return done.returncode, done.stdout, done.stderr


def plan(*arguments):
    code, out, err = run(*arguments, "--json", "-")
    if (code, err) != (0, ""):
        raise AssertionError(f"exit code {code}: {err}")
    return json.loads(out)


def has_matplotlib():
    return (
        subprocess.run(
            ["/usr/bin/python3", "-c", "import matplotlib"], capture_output=True
        ).returncode
        == 0
    )


def write_safetensors(path, tensors, data=None, length=None):
    """tensors: name -> (dtype, shape, bytes). The data is a sparse hole, which is never read."""
    header, offset = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text) if length is None else length) + text)
        file.truncate(8 + len(text) + (offset if data is None else data))


class Usage(unittest.TestCase):
    def expect_usage_error(self, *arguments, says):
        code, out, err = run(*arguments)
        self.assertEqual((code, out), (2, ""), err)
        self.assertIn(says, err)
        self.assertTrue(err.startswith("vescomm-plan: "), err)
        self.assertEqual(err.count("\n"), 1, err)

    def test_usage_errors_are_one_sentence_and_code_2(self):
        model = ("--model", "llama-3-8b")
        eight = (*model, "--ranks", 8)
        self.expect_usage_error("--ranks", 8, says="give --model, --safetensors or --tensors")
        self.expect_usage_error(*eight, "--tensors", "x", says="give only one of")
        self.expect_usage_error(*model, says="--ranks COUNT is missing")
        for ranks in ("0", "-1", "3000000000", "99999999999999999999", "1e3", "8.5", "1,00", "x"):
            self.expect_usage_error(
                *model, "--ranks", ranks, says=": give a whole number from 1 to 10,000,000"
            )
        self.expect_usage_error(*eight, "--ranks", 9, says="--ranks is given more than once")
        self.expect_usage_error(*model, "--ranks", says="--ranks needs a value")
        self.expect_usage_error(*eight, "--json", "", says="--json is followed by nothing")
        self.expect_usage_error(*model, "--rank", 8, says="no option --rank (did you mean --ranks?)")
        self.expect_usage_error(*eight, "balanced", says="balanced belongs to no option")
        self.expect_usage_error("--model", "nobody", "--ranks", 8, says="there is: llama-3-8b")
        self.expect_usage_error(*eight, "--mode", "even", says="--mode even: there is ragged")
        self.expect_usage_error(*eight, "--block-rows", 0, says="--block-rows 0")
        self.expect_usage_error(*eight, "--block-rows", "9" * 20, says="give a whole number from 1")
        self.expect_usage_error(*eight, "--block", "mlp", says="there is no =")
        self.expect_usage_error(*eight, "--block", "(=3", says="no regular expression")
        self.expect_usage_error(*eight, "--block", "nowhere=3", says="no tensor's name matches")
        self.expect_usage_error(*eight, "--unit", "nowhere", says="no tensor's name matches")
        self.expect_usage_error(*eight, "--align-start", "3", says="--align-start 3: give at most 1GiB")
        self.expect_usage_error(*eight, "--align-cut", "big", says="--align-cut \"big\"")
        self.expect_usage_error(*eight, "--align-start", "0", says="--align-start 0")
        self.expect_usage_error(*eight, "--align-start", "3GiB", says="--align-start 3221225472")
        self.expect_usage_error(*eight, "--weights", "1,1", says="--weights has 2 weights for 8 ranks")
        self.expect_usage_error(*eight, "--weights", "1,x", says="\"x\" is no weight")
        self.expect_usage_error(*eight, "--weights", "2x4,1x4", "--mode", "uniform", says="weight")
        self.expect_usage_error(*eight, "--search-steps", -1, says="--search-steps -1")
        self.expect_usage_error(*eight, "--memory", "80GiB", says="--memory is only for --advise")
        self.expect_usage_error(*eight, "--slots", "2,2", says="--slots is only for --advise")
        self.expect_usage_error(*eight, "--advise", "--memory", "0", says="--memory 0")
        self.expect_usage_error(*eight, "--node-bandwidth", "0", says="--node-bandwidth \"0\"")
        self.expect_usage_error(*eight, "--network-bandwidth", "50Gb", says="bytes in a second")
        self.expect_usage_error(*eight, "--ranks-per-node", 0, says="--ranks-per-node 0")
        self.expect_usage_error(*eight, "--advise", "--owned-bytes", "4,-8,4", says='--owned-bytes "4,-8,4": give 3')
        self.expect_usage_error(*eight, "--advise", "--slots", "0,2", says='--slots "0,2": give 2')
        self.expect_usage_error(*eight, "--advise", "--slots", "2", says='--slots "2": give 2')
        self.expect_usage_error(*eight, "--advise", "--slots", "2,1.5", says="give whole numbers")
        self.expect_usage_error(*eight, "--no-cuts", says="--no-cuts is only for --json")
        self.expect_usage_error(*eight, "--picture", "a.pdf", says="ends in .svg or .png")
        self.expect_usage_error(*eight, "--typo", says="--typo")
        self.expect_usage_error("--safetensors", "/nowhere", "--ranks", 8, says="\"/nowhere\"")
        self.expect_usage_error("--tensors", "/nowhere", "--ranks", 8, says="\"/nowhere\"")

    def test_help_names_units_modes_models_and_examples(self):
        code, out, err = run("--help")
        self.assertEqual((code, err), (0, ""))
        for part in ("Examples:", "80GiB", "BYTES", "balanced", "kimi-k2", "Exit code", "ROWS"):
            self.assertIn(part, out)
        self.assertLessEqual(max(map(len, out.splitlines())), 100)

    def test_unwritable_files_are_code_1(self):
        for option in ("--json", "--picture"):
            code, _, err = run("--model", "llama-3-8b", "--ranks", 2, option, "/nowhere/a.png")
            self.assertEqual(code, 1)
            self.assertIn("/nowhere/a.png", err)


class Text(unittest.TestCase):
    def test_fits_a_terminal_and_reports_the_widest_gap(self):
        for mode in ("ragged", "balanced", "uniform", "owner", "auto"):
            code, out, err = run(
                "--model", "deepseek-v3", "--ranks", 1000, "--block-rows", 128, "--mode", mode
            )
            self.assertEqual((code, err), (0, ""))
            self.assertLessEqual(max(map(len, out.splitlines())), 100, out)
            for part in ("45,395 tensors", "who owns what", "widest gap", "model.layers.3..60"):
                self.assertIn(part, out)

    def test_comparison_has_the_published_figures_of_other_systems(self):
        code, out, _ = run("--model", "gpt-oss-120b", "--ranks", 256, "--compare")
        self.assertEqual(code, 0)
        lines = {line[:34].strip(): line.split() for line in out.splitlines()}
        self.assertIn("98.22", lines["FSDP2, rows of each tensor"])
        self.assertIn("31.85", lines["Megatron-FSDP, LCM grid of rows"])
        self.assertIn("0.05", lines["vescomm uniform"])
        self.assertIn("0.00", lines["vescomm ragged"])

    def test_advises_how_many_ranks_share_a_copy(self):
        code, out, _ = run(
            "--model", "llama-3-70b", "--ranks", 64, "--advise", "--memory", "80GiB"
        )
        self.assertEqual(code, 0)
        self.assertRegex(out, r"(?m)^\* +16 +4 ")
        self.assertIn("advice: 16 ranks a group, 4 copies", out)
        self.assertIn("assumed:", out)
        # Eight-bit states need fewer ranks.
        _, out, _ = run(
            "--model", "llama-3-70b", "--ranks", 64, "--advise", "--memory", "80GiB",
            "--owned-bytes", "2,2,2",
        )  # fmt: skip
        self.assertIn("advice: 8 ranks a group, 8 copies", out)


class Json(unittest.TestCase):
    def check(self, result):
        with open(SCHEMA, encoding="utf-8") as file:
            schema = json.load(file)
        self.assertEqual(violations(result, schema, schema), [])
        for unit in result["units"]:
            cuts = unit["cuts"]
            self.assertEqual(len(cuts), result["ranks"] + 1)
            self.assertEqual((cuts[0], cuts[-1]), (0, unit["elements"]))
            shards = [b - a for a, b in zip(cuts, cuts[1:])]
            self.assertEqual(max(shards), unit["largest_shard"])
            self.assertGreaterEqual(unit["largest_shard"], unit["lower_bound"])
            tensors = {tensor["name"]: tensor for tensor in unit["tensors"]}
            self.assertEqual(sorted(tensors), sorted(unit["order"]))
            whole = sum(tensor["elements"] for tensor in unit["tensors"])
            self.assertEqual(whole + unit["padding_elements"], unit["elements"])
            end = 0
            for name in unit["order"]:
                self.assertGreaterEqual(tensors[name]["offset"], end)
                if tensors[name]["elements"]:
                    end = tensors[name]["offset"] + tensors[name]["elements"]

    def test_follows_its_schema_in_every_mode(self):
        for mode in ("ragged", "balanced", "uniform", "owner", "auto"):
            result = plan("--model", "gpt-oss-20b", "--ranks", 24, "--mode", mode)
            self.check(result)
            self.assertEqual(result["schema"], "vescomm-plan/1")
            self.assertEqual(result["totals"]["elements"], 20914757184)
            self.assertNotEqual(result["mode"], "auto")

    def test_cuts_can_be_left_out_and_a_file_can_be_written(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.json")
            code, out, _ = run(
                "--model", "llama-3-8b", "--ranks", 4, "--json", path, "--no-cuts"
            )
            self.assertEqual(code, 0)
            self.assertIn("who owns what", out)
            with open(path, encoding="utf-8") as file:
                self.assertNotIn("cuts", json.load(file)["units"][0])

    def test_has_stable_keys(self):
        result = plan("--model", "llama-3-8b", "--ranks", 2)
        unit = result["units"][0]
        for value, names in (
            (result, "schema ranks mode seconds units totals"),
            (unit, "name dtype elements order tensors cuts padding_elements padding_ratio"),
            (unit, "largest_shard mean_shard imbalance lower_bound gap optimal"),
            (unit["tensors"][0], "name shape offset elements block_elements batch_dims"),
            (result["totals"], "elements padding_ratio peak_memory_over_mean wire_bytes_per_step"),
        ):
            self.assertEqual([name for name in names.split() if name not in value], [])
        self.assertNotIn("comparison", result)
        self.assertNotIn("advice", result)

    def test_has_the_requested_comparison_and_advice(self):
        result = plan(
            "--model", "llama-3-70b", "--ranks", 64, "--compare", "--advise", "--memory", "80GiB",
            "--network-bandwidth", "400Gbit/s",
        )  # fmt: skip
        self.check(result)
        lines = {line["name"]: line for line in result["comparison"]}
        ragged = lines["vescomm ragged"]
        self.assertEqual(ragged["wire_bytes_per_step"], result["totals"]["wire_bytes_per_step"])
        self.assertFalse(lines["FSDP2, rows of each tensor"]["keeps_blocks"])
        advice = result["advice"]
        self.assertEqual(advice["recommended_group"], 16)
        self.assertEqual([choice["group"] for choice in advice["choices"]], [1, 2, 4, 8, 16, 32, 64])
        self.assertEqual(advice["assumed"]["network_bytes_per_second"], 50e9)

    def test_bandwidths_determine_the_time_of_a_step(self):
        def seconds(*arguments):
            result = plan("--model", "llama-3-8b", "--mode", "uniform", *arguments)
            return result["totals"]["seconds_per_step"]

        slow = seconds("--ranks", 16, "--network-bandwidth", "10GB")
        fast = seconds("--ranks", 16, "--network-bandwidth", "100GB/s")
        self.assertAlmostEqual(slow / fast, 10, places=0)
        inside = seconds("--ranks", 16, "--ranks-per-node", 16, "--node-bandwidth", "10GB")
        self.assertEqual(inside, slow)

    def test_weights_shift_elements(self):
        result = plan("--model", "llama-3-8b", "--ranks", 4, "--weights", "3,1x3")
        cuts = result["units"][1]["cuts"]
        self.assertAlmostEqual((cuts[1] - cuts[0]) / cuts[-1], 0.5, places=2)

    def test_gap_refers_to_the_minimised_quantity(self):
        even = plan("--model", "llama-3-8b", "--ranks", 12, "--block-rows", 128)["units"][1]
        self.assertAlmostEqual(even["gap"], even["largest_shard"] / even["lower_bound"] - 1)
        shard, mean = even["largest_shard"], even["mean_shard"]
        self.assertAlmostEqual(even["largest_over_share"], shard / mean)
        # The largest shard is half of the buffer, which is exactly its rank's share.
        unit = plan("--model", "llama-3-8b", "--ranks", 4, "--weights", "3,1x3")["units"][1]
        self.assertGreater(unit["imbalance"], 0.9)
        self.assertLess(unit["largest_over_share"], 1.001)
        self.assertLess(unit["gap"], 0.001)


class Inputs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def expect_refusal(self, path, says):
        code, _, err = run("--safetensors", path, "--ranks", 4)
        self.assertEqual(code, 2, err)
        self.assertIn(says, err)
        self.assertEqual(err.count("\n"), 1, err)

    def test_alignment_is_in_elements_of_the_smallest_type(self):
        path = self.path("complex.safetensors")
        write_safetensors(path, {"w": ("C128", [4, 4], 256)})
        code, _, err = run("--safetensors", path, "--ranks", 2, "--align-start", 8)
        self.assertNotEqual(code, 0)
        self.assertIn("which have 16 bytes", err)
        plan("--safetensors", path, "--ranks", 2, "--align-start", 16)

    def test_plans_a_model_of_140_gigabytes_from_its_headers(self):
        side = 1 << 14
        for file in range(7):
            tensors = {
                f"model.layers.{file * 6 + i}.mlp.weight": ("BF16", [6 * side, side], 12 * side**2)
                for i in range(6)
            }
            write_safetensors(self.path(f"model-{file}.safetensors"), tensors)
        result = plan("--safetensors", self.folder.name, "--ranks", 64)
        self.assertEqual(result["totals"]["bytes"], 42 * 12 * side**2)
        self.assertEqual(
            [unit["name"] for unit in result["units"]], [f"model.layers.{i}" for i in range(42)]
        )

    def test_the_index_selects_the_files(self):
        write_safetensors(self.path("a.safetensors"), {"w": ("F32", [4], 16)})
        write_safetensors(self.path("copy.safetensors"), {"w": ("F32", [4], 16)})
        self.expect_refusal(self.folder.name, "is in both")
        index = self.path("model.safetensors.index.json")
        with open(index, "w", encoding="utf-8") as file:
            json.dump({"weight_map": {"w": "a.safetensors"}}, file)
        self.assertEqual(plan("--safetensors", self.folder.name, "--ranks", 2)["ranks"], 2)
        with open(index, "w", encoding="utf-8") as file:
            json.dump({"weight_map": {"w": "../a.safetensors"}}, file)
        self.expect_refusal(self.folder.name, "a file in the same folder")

    def test_damaged_files_are_refused(self):
        path = self.path("a.safetensors")
        good = {"w": ("BF16", [4, 4], 32)}
        self.expect_refusal(self.folder.name, "has no *.safetensors files")
        with open(path, "wb") as file:
            file.write(b"\1\2")
        self.expect_refusal(path, "has 2 bytes")
        write_safetensors(path, good, length=1 << 60)
        self.expect_refusal(path, "it is no safetensors file")
        write_safetensors(path, good, length=5000)
        self.expect_refusal(path, "is cut short")
        write_safetensors(path, good, data=31)
        self.expect_refusal(path, "the file is cut short")
        write_safetensors(path, good, data=40)
        self.expect_refusal(path, "belong to no tensor")
        write_safetensors(path, {"w": ("BF16", [4, 4], 30)})
        self.expect_refusal(path, "do not hold the 32 bytes")

    def test_types_smaller_than_a_byte_are_planned_as_bytes(self):
        path = self.path("mx.safetensors")
        tensors = {
            "w": ("F4", [64, 64], 2048),
            "v": ("F6_E2M3", [64, 64], 3072),
            "scale": ("F8_E8M0", [64, 2], 128),
        }
        write_safetensors(path, tensors)
        unit = plan("--safetensors", path, "--ranks", 2)["units"][0]
        self.assertEqual((unit["dtype"], unit["elements"]), ("u8", 2048 + 3072 + 128))
        write_safetensors(path, {"w": ("F4", [64, 3], 96)})
        self.expect_refusal(path, "do not end with a byte")
        write_safetensors(path, {"w": ("X64", [4], 32)})
        self.expect_refusal(path, "dtype \"X64\" is none that vescomm has")

    def test_bool_and_complex_tensors_are_planned(self):
        path = self.path("complex.safetensors")
        write_safetensors(path, {"w": ("C64", [64, 4], 2048), "mask": ("BOOL", [64], 64)})
        units = plan("--safetensors", path, "--ranks", 2)["units"]
        self.assertEqual({(unit["dtype"], unit["elements"]) for unit in units},
                         {("c64", 256), ("bool", 64)})

    def test_names_cannot_move_the_cursor(self):
        path = self.path("t.json")
        tensors = [{"name": "a\x1b[2J\n", "shape": [64, 64], "unit": "u\x1b[2J"}]
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"tensors": tensors}, file)
        _, out, _ = run("--tensors", path, "--ranks", 4, "--compare", "--advise")
        self.assertNotIn("\x1b", out)
        self.assertIn("A a?[2J?", out)

    def test_a_list_of_tensors_can_come_from_a_pipe(self):
        done = subprocess.run(
            [PLAN, "--tensors", "/dev/stdin", "--ranks", "2"],
            input='{"tensors": [{"name": "a", "shape": [64, 64]}]}',
            capture_output=True, timeout=TIMEOUT_SECONDS, text=True,
        )  # fmt: skip
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_list_of_tensors_is_explicit(self):
        path = self.path("t.json")
        tensors = [
            {"name": "a", "shape": [1000, 64], "block_rows": 10, "unit": "one"},
            {"name": "b", "shape": [64, 64], "block": "tensor", "unit": "one"},
            {"name": "c", "shape": [3], "dtype": "f32", "unit": "one"},
        ]
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"tensors": tensors}, file)
        units = plan("--tensors", path, "--ranks", 4)["units"]
        self.assertEqual([(unit["name"], unit["dtype"]) for unit in units], [("one", "bf16"), ("one", "f32")])  # fmt: skip
        blocks = [tensor["block_elements"] for tensor in units[0]["tensors"]]
        self.assertEqual(blocks, [640, 4096])

    def test_a_model_without_tensors_or_elements_is_planned(self):
        path = self.path("t.json")
        for tensors in ([], [{"name": "a", "shape": [0, 4]}]):
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"tensors": tensors}, file)
            code, _, err = run("--tensors", path, "--ranks", 4, "--compare", "--advise")
            self.assertEqual((code, err), (0, ""))


@unittest.skipUnless(has_matplotlib(), "/usr/bin/python3 has no matplotlib")
class Pictures(unittest.TestCase):
    def test_are_drawn_for_few_and_many_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            for ranks, mode, name, magic in (
                (8, "uniform", "a.png", b"\x89PNG"),
                (1000, "ragged", "b.png", b"\x89PNG"),
                (1, "owner", "c.svg", b"<?xml"),
            ):
                path = os.path.join(folder, name)
                code, _, err = run(
                    "--model", "gpt-oss-20b", "--ranks", ranks, "--mode", mode, "--picture", path
                )
                self.assertEqual(code, 0, err)
                with open(path, "rb") as file:
                    self.assertEqual(file.read(len(magic)), magic)


if __name__ == "__main__":
    unittest.main()

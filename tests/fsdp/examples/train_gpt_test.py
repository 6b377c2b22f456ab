#!/usr/bin/python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the program train_gpt: equal loss curves on any number of ranks, and its output.

TRAIN_GPT and VESCOMM_TEST_RUN are the paths of the two programs.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

TRAIN_GPT = os.environ.get("TRAIN_GPT", "train_gpt")
RUN = os.environ.get("VESCOMM_TEST_RUN", "vescomm-run")

STEPS = 12
BATCH = 3  # fewer sequences than the largest number of ranks
RANKS = (1, 2, 3, 5)
# With a dim of 36 the last block has 4 rows, so that shards are ragged.
MODEL = (
    f"--layers 2 --dim 36 --heads 3 --context 32 --batch {BATCH} --steps {STEPS} "
    "--sample 20 --held-out-every 6 --lr 0.003"
).split()
# Rounding differences grow over the steps. Differences from a wrong gradient are thousands of times
# larger from the second step on.
TOLERANCE = {"f32": 2e-4, "bf16": 2e-2, "f16": 3e-3}

FIELDS = {
    "schema": str,
    "ranks": int,
    "nodes": int,
    "parameters": int,
    "dtype": str,
    "master_dtype": str,
    "rounding": str,
    "preset": str,
    "report": dict,
    "measured": dict,
    "summary": dict,
    "batch": int,
    "context": int,
    "step_ms": dict,
    "tokens_per_second": float,
    "exposed_communication_ms": float,
    "loss": list,
    "heldout_loss": float,
    "recoveries": int,
    "recovery": list,
    "memory": dict,
}
MEMORY_FIELDS = ("shards", "slabs", "gradients", "optimizer", "peak_rank", "node_pss",
                 "node_pss_before")


def launch(ranks, arguments, nodes=""):
    """Runs train_gpt on a number of ranks. One rank needs no launcher. nodes: ranks of each emulated node."""
    launcher = [RUN, "-n", str(ranks), *(["--nodes", nodes] if nodes else [])] if ranks > 1 else []
    return subprocess.run(
        [*launcher, TRAIN_GPT, *arguments], capture_output=True, text=True, timeout=300, check=False
    )


class TrainGpt(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="train_gpt_test.")
        cls.addClassCleanup(cls.folder.cleanup)
        # A text with something to learn that is the same on every machine.
        cls.text = cls.path("text")
        with open(cls.text, "w", encoding="ascii") as file:
            for i in range(2000):
                file.write(f"line {i} says {i * i % 97} and {'yes' if i % 3 else 'no'}\n")
        cls.results = {}

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder.name, name)

    def run_model(self, ranks, *arguments):
        """Trains the small model. Results are cached."""
        key = (ranks, *arguments)
        if key not in self.results:
            name = self.path(f"results{len(self.results)}.json")
            done = launch(ranks, [*MODEL, "--data", self.text, "--json", name, *arguments])
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(name, encoding="utf-8") as file:
                self.results[key] = (json.load(file), done)
        return self.results[key]

    def expect_close(self, actual, expected, tolerance, what):
        self.assertEqual(len(actual), len(expected))
        for step, (a, b) in enumerate(zip(actual, expected)):
            self.assertLess(abs(a - b), tolerance * abs(b), f"{what}, step {step}: {a}, not {b}")

    def expect_same_curves(self, dtype, *arguments, alone_with=()):
        alone, _ = self.run_model(1, "--dtype", dtype, *alone_with)
        for ranks in RANKS[1:]:
            with self.subTest(ranks=ranks, arguments=arguments):
                together, _ = self.run_model(ranks, "--dtype", dtype, *arguments)
                self.assertEqual(together["ranks"], ranks)
                self.expect_close(together["loss"], alone["loss"], TOLERANCE[dtype], "loss")
                # With Adam a wrong scale of the gradients affects their norm but not the losses.
                self.expect_close(
                    together["gradient_norm"],
                    alone["gradient_norm"],
                    10 * TOLERANCE[dtype],
                    "gradient norm",
                )
                self.expect_close(
                    [loss for _, loss in together["heldout_curve"]],
                    [loss for _, loss in alone["heldout_curve"]],
                    TOLERANCE[dtype],
                    "held-out loss",
                )

    def test_has_the_same_curve_on_any_number_of_ranks_in_f32(self):
        self.expect_same_curves("f32")

    def test_has_the_same_curve_on_any_number_of_ranks_in_bf16(self):
        self.expect_same_curves("bf16")

    def test_has_the_same_curve_on_any_number_of_ranks_in_f16(self):
        self.expect_same_curves("f16")
        self.expect_same_curves("f16", "--accumulate", "3", "--preset", "zero1")
        # The curve is that of f32: no gradient is lost.
        exact, _ = self.run_model(1, "--dtype", "f32")
        half, _ = self.run_model(1, "--dtype", "f16")
        self.expect_close(half["loss"], exact["loss"], 3e-3, "loss")
        self.expect_close(half["gradient_norm"], exact["gradient_norm"], 3e-2, "gradient norm")

    def test_trains_with_masters_in_bf16_and_f16(self):
        for dtype in ("bf16", "f16"):
            for rounding in ("nearest", "stochastic"):
                options = ("--master-dtype", dtype, "--rounding", rounding)
                self.expect_same_curves(dtype, *options, alone_with=options)
                results, _ = self.run_model(1, "--dtype", dtype, *options)
                self.assertEqual((results["master_dtype"], results["rounding"]), (dtype, rounding))

    def test_finds_a_loss_scale_for_f16(self):
        for ranks in RANKS:
            # The scale is halved until no gradient overflows, and doubled after every 3 steps.
            results, _ = self.run_model(ranks, "--dtype", "f16", "--loss-scale", "16777216",
                                        "--loss-scale-interval", "3")
            scales = results["loss_scale"]
            norms = results["gradient_norm"]
            skipped = [norm is None for norm in norms]
            self.assertEqual(results["skipped_steps"], sum(skipped))
            self.assertTrue(skipped[0], norms)
            self.assertFalse(all(skipped), norms)
            self.assertIn(True, [b > a for a, b in zip(scales, scales[1:])], scales)
            good = 0
            for step in range(STEPS - 1):
                good = 0 if skipped[step] else good + 1
                factor = 0.5 if skipped[step] else 1
                if good == 3:
                    good, factor = 0, 2
                self.assertEqual(scales[step + 1], scales[step] * factor, scales)
        self.assertLess(results["loss"][-1], results["loss"][0])
        # Other types have no loss scale.
        results, _ = self.run_model(1, "--dtype", "bf16")
        self.assertEqual(set(results["loss_scale"]), {1})
        self.assertEqual(results["skipped_steps"], 0)

    def test_goes_on_with_the_loss_scale_of_a_checkpoint(self):
        folder = self.path("scaled")
        options = ("--dtype", "f16", "--loss-scale", "16777216", "--loss-scale-interval", "3")
        whole, _ = self.run_model(2, *options)
        done = launch(2, [*MODEL, "--data", self.text, "--quiet", *options, "--save", folder,
                          "--save-every", str(STEPS // 2)])
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(folder, "latest"), encoding="utf-8") as file:
            latest = json.load(file)
        latest["save"] = sorted(os.listdir(folder))[1]
        with open(os.path.join(folder, "latest"), "w", encoding="utf-8") as file:
            json.dump(latest, file)
        for ranks in (2, 3):
            loaded, _ = self.run_model(ranks, "--load", folder, *options)
            self.assertEqual(len(loaded["loss"]), STEPS - STEPS // 2)
            # Later scales depend on rounding: a gradient may be just above the largest f16.
            self.assertEqual(loaded["loss_scale"][0], whole["loss_scale"][STEPS // 2])
            self.expect_close(
                loaded["loss"][:1], whole["loss"][STEPS // 2 :][:1], TOLERANCE["f16"], "loss"
            )

    def test_has_the_same_curve_with_parameters_in_8_bits(self):
        exact, _ = self.run_model(1, "--dtype", "f32")
        for gather, error in (("int8", 2e-3), ("f8", 1e-2)):
            options = ("--gather-dtype", gather)
            # Blocks do not depend on ranks, so the curves differ by rounding alone.
            self.expect_same_curves("f32", *options, alone_with=options)
            rounded, _ = self.run_model(1, "--dtype", "f32", *options)
            self.expect_close(rounded["loss"], exact["loss"], error, gather)
            self.assertNotEqual(rounded["loss"], exact["loss"])
        options = ("--gather-dtype", "f8", "--gather-block", "36")
        self.expect_same_curves("bf16", *options, "--preset", "zero1", alone_with=options)

    def test_has_almost_the_same_curve_with_gradients_in_8_bits(self):
        exact, _ = self.run_model(1, "--dtype", "f32")
        for dtype, reduce in (("f32", "int8"), ("bf16", "f8")):
            for ranks in RANKS:
                # Each rank rounds its own contribution, so the curves differ.
                rounded, _ = self.run_model(ranks, "--dtype", dtype, "--reduce-dtype", reduce)
                self.expect_close(rounded["loss"], exact["loss"], 2e-2, f"{reduce}, {ranks}")
                self.assertNotEqual(rounded["loss"], exact["loss"])
                self.expect_close(
                    rounded["gradient_norm"], exact["gradient_norm"], 0.1, f"norm, {ranks} ranks"
                )

    def test_has_the_same_curve_with_uniform_shards(self):
        self.expect_same_curves("f32", "--uniform")

    def test_has_the_same_curve_with_other_slots_and_blocks(self):
        self.expect_same_curves(
            "f32", "--slots", "1", "--gradient-slots", "1", "--block-rows", "1"
        )
        self.expect_same_curves("f32", "--large-unit-bytes", "40000")

    def test_has_the_same_curve_with_every_preset(self):
        for preset in ("ddp", "zero1", "zero2", "hsdp:1"):
            self.expect_same_curves("f32", "--preset", preset)
        alone, _ = self.run_model(1, "--dtype", "f32")
        together, _ = self.run_model(4, "--dtype", "f32", "--preset", "hsdp:2")
        self.expect_close(together["loss"], alone["loss"], TOLERANCE["f32"], "loss")

    def test_has_the_curve_of_zero3_with_secondary_copies(self):
        for ranks, size in ((2, 1), (4, 2), (6, 3)):
            for more in ((), ("--accumulate", "2", "--recompute", "--slots", "1")):
                sharded, _ = self.run_model(ranks, "--dtype", "bf16", *more)
                for option in (("--preset", f"hpz:{size}"), ("--reshard", str(size))):
                    copied, _ = self.run_model(ranks, "--dtype", "bf16", *more, *option)
                    self.assertEqual(copied["loss"], sharded["loss"])
                    self.assertEqual(copied["heldout_loss"], sharded["heldout_loss"])
                    self.assertGreater(copied["report"]["secondary"], 0)

    def test_has_the_same_curve_with_micro_batches_and_recomputation(self):
        self.expect_same_curves("f32", "--accumulate", "2", "--recompute")
        self.expect_same_curves("f32", "--accumulate", "5", "--preset", "zero1")
        self.expect_same_curves("bf16", "--accumulate", "3")

    def test_has_the_same_curve_in_every_order(self):
        for order in ("recorded", "explicit"):
            self.expect_same_curves("f32", "--order", order, "--slots", "3")
        self.expect_same_curves("f32", "--reshard", "no", "--recompute")

    def test_sends_and_allocates_what_it_reports(self):
        for arguments in (
            (),
            ("--preset", "zero1"),
            ("--accumulate", "2"),
            ("--slots", "1"),
            ("--gather-dtype", "int8"),
            ("--master-dtype", "bf16"),
            ("--reduce-dtype", "int8", "--accumulate", "2"),
            ("--preset", "hpz:1", "--accumulate", "2"),
            ("--large-unit-bytes", "40000"),
            ("--held-out-every", "11"),  # an evaluation before the last step
        ):
            with self.subTest(arguments=arguments):
                results, _ = self.run_model(3, "--dtype", "bf16", *arguments)
                report, measured = results["report"], results["measured"]
                self.assertEqual(measured.pop("deviations"), 0)
                self.assertEqual({name: report[name] for name in measured}, measured)

    def test_allocates_what_it_reports_on_several_nodes(self):
        for nodes in ("1,1", "2,2", "1,2"):
            for arguments in (
                ("--dtype", "f32"),
                ("--dtype", "bf16"),
                ("--dtype", "bf16", "--accumulate", "2"),
                ("--dtype", "bf16", "--elastic", "--partner-copy", "yes"),
                ("--dtype", "bf16", "--preset", "hsdp:1"),
                ("--dtype", "bf16", "--preset", "hsdp:2"),
                ("--dtype", "bf16", "--preset", "hpz:1"),
                ("--dtype", "bf16", "--preset", "zero1"),
            ):
                ranks = sum(map(int, nodes.split(",")))
                if "hsdp:2" in arguments and ranks % 2 != 0:
                    continue
                with self.subTest(nodes=nodes, arguments=arguments):
                    name = self.path("on_nodes.json")
                    done = launch(ranks, [*MODEL, "--dim", "96", "--steps", "3", "--data", self.text, "--json", name,
                                          *arguments], nodes)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    with open(name, encoding="utf-8") as file:
                        results = json.load(file)
                    report, measured = results["report"], results["measured"]
                    self.assertEqual(results["nodes"], nodes.count(",") + 1)
                    self.assertEqual(report["peak"], measured["peak"])
                    if "hsdp" not in str(arguments):
                        self.assertGreater(report["partial_sums"], 0)

    def test_measures_no_gathers_if_every_step_follows_an_evaluation(self):
        for arguments in (("--steps", "1"), ("--held-out-every", "1")):
            with self.subTest(arguments=arguments):
                results, _ = self.run_model(3, "--dtype", "bf16", *arguments)
                report, measured = results["report"], results["measured"]
                self.assertEqual(measured.pop("deviations"), 0)
                for name, value in measured.items():
                    self.assertEqual(value, None if "gather" in name else report[name], name)

    def test_goes_on_from_a_checkpoint_on_any_number_of_ranks(self):
        folder = self.path("checkpoints")
        whole, _ = self.run_model(5)
        half = STEPS // 2
        done = launch(5, [*MODEL, "--data", self.text, "--quiet", "--save", folder, "--save-every",
                          str(half), "--export", self.path("model")])
        self.assertEqual(done.returncode, 0, done.stderr)
        saves = sorted(os.listdir(folder))
        self.assertEqual(len(saves), 3, saves)  # latest and two saves
        index = os.path.join(self.path("model"), "model.safetensors.index.json")
        with open(index, encoding="utf-8") as file:
            self.assertIn("model-00001-of-00001.safetensors", json.load(file)["weight_map"].values())
        # The save in the middle becomes the latest one.
        with open(os.path.join(folder, "latest"), encoding="utf-8") as file:
            latest = json.load(file)
        latest["save"] = saves[1]
        with open(os.path.join(folder, "latest"), "w", encoding="utf-8") as file:
            json.dump(latest, file)
        for ranks, *options in ((1,), (2,), (3, "--preset", "ddp"), (7,), (8, "--uniform")):
            loaded, _ = self.run_model(ranks, "--load", folder, *options)
            self.expect_close(loaded["loss"], whole["loss"][half:], TOLERANCE["f32"],
                              f"{ranks} ranks")

    def test_goes_on_after_a_shorter_run_as_if_it_had_not_ended(self):
        folder, third = self.path("continued"), STEPS // 3
        whole, _ = self.run_model(2)
        self.run_model(3, "--steps", str(third), "--save", folder)
        self.run_model(1, "--steps", str(2 * third), "--save", folder, "--load", folder)
        last, _ = self.run_model(2, "--load", folder)
        self.expect_close(last["loss"], whole["loss"][2 * third :], TOLERANCE["f32"], "losses")

    def test_exports_without_a_checkpoint(self):
        model = self.path("exported") + "/"
        results, _ = self.run_model(2, "--export", model)
        self.assertEqual(len(results["loss"]), STEPS)
        self.assertIn("model.safetensors.index.json", os.listdir(model))
        beside = os.listdir(os.path.dirname(os.path.dirname(model)))
        self.assertFalse([name for name in beside if name.startswith("exported.")], beside)
        done = launch(2, [*MODEL, "--data", self.text, "--quiet", "--export", model])
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"--export {model} exists and is not an empty folder", done.stderr)

    def test_exports_a_checkpoint_without_training(self):
        folder = self.path("complete")
        self.run_model(3, "--save", folder, "--export", self.path("expected"))
        files = [self.path("new.json"), self.path("old.trace")]
        with open(files[1], "w", encoding="ascii") as file:
            file.write("of another run")
        outputs = ("--json", files[0], "--trace", files[1])
        done = launch(2, [*MODEL, "--data", self.text, "--load", folder, *outputs])
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"has done {STEPS} steps", done.stderr)
        self.assertIn("--export", done.stderr)
        self.expect_unchanged(*files)
        for ranks, steps in (2, STEPS), (1, STEPS - 1):
            with self.subTest(ranks=ranks, steps=steps):
                model = self.path(f"exported-{ranks}")
                done = launch(ranks, [*MODEL, "--data", self.text, "--steps", str(steps), "--load",
                                      folder, "--export", model, *outputs])
                self.assertEqual(done.returncode, 0, done.stderr)
                self.expect_unchanged(*files)
                self.assertIn(f"exported to {model}, without training", done.stdout)
                self.assertEqual(self.tensors_of(model), self.tensors_of(self.path("expected")))
                self.assertNotIn(f"exported-{ranks}.checkpoint", os.listdir(self.folder.name))

    def expect_unchanged(self, new, old):
        self.assertFalse(os.path.exists(new))
        with open(old, encoding="ascii") as file:
            self.assertEqual(file.read(), "of another run")

    def tensors_of(self, model):
        """The bytes of an exported model."""
        with open(os.path.join(model, "model-00001-of-00001.safetensors"), "rb") as file:
            return file.read()

    def test_has_the_same_curve_with_files_instead_of_memory(self):
        for offload in (("--offload", self.path("files")), ("--offload",)):
            self.expect_same_curves("f32", *offload)

    def test_learns(self):
        results, _ = self.run_model(1, "--dtype", "f32")
        self.assertLess(abs(results["loss"][0] - 5.545), 0.2)  # ln 256: an untrained model
        self.assertLess(results["loss"][-1], results["loss"][0] - 1)
        self.assertLess(results["heldout_loss"], results["loss"][0] - 1)

    def test_writes_every_field_of_its_schema(self):
        results, _ = self.run_model(3, "--dtype", "f32")
        for name, kind in FIELDS.items():
            self.assertIsInstance(results.get(name), kind, name)
        for name in MEMORY_FIELDS:
            self.assertIsInstance(results["memory"].get(name), int, name)
            self.assertGreater(results["memory"][name], 0, name)
        self.assertEqual(results["schema"], "train-gpt/1")
        self.assertEqual(results["dtype"], "f32")
        self.assertEqual(results["nodes"], 1)
        self.assertEqual((results["batch"], results["context"]), (BATCH, 32))
        self.assertEqual(len(results["loss"]), STEPS)
        self.assertEqual([step for step, _ in results["heldout_curve"]], [0, 6, 12])
        self.assertEqual(results["heldout_curve"][-1][1], results["heldout_loss"])
        self.assertLessEqual(results["step_ms"]["min"], results["step_ms"]["p50"])
        # Every parameter is on one rank, and there is little padding.
        shards = results["memory"]["shards_by_rank"]
        self.assertEqual(len(shards), 3)
        self.assertGreaterEqual(sum(shards), 4 * results["parameters"])
        self.assertLess(sum(shards), 4 * results["parameters"] * 1.1)

    def test_prints_header_and_summary_on_rank_0(self):
        _, done = self.run_model(2, "--dtype", "f32")
        for words in ("parameters in 4 units", "2 on 1 node", "held out", "replicated", "sample:"):
            self.assertIn(words, done.stdout)
        self.assertEqual(done.stdout.count("memory, of the largest"), 1)  # only rank 0 prints

    def test_prints_the_parts_of_the_time_of_a_step(self):
        results, done = self.run_model(2, "--dtype", "f32", "--summary")
        for words in ("a step of rank 0, mean over", "gathers of parameters: waits", "optimizer"):
            self.assertIn(words, done.stdout)
        summary = results["summary"]
        self.assertEqual(summary["steps"], STEPS - 1)
        # A step gathers its first units before it ends.
        self.assertEqual(summary["early_gathers"], results["slots"])
        self.assertEqual(summary["reduce_bytes"], results["report"]["reduce_bytes_per_step"])
        parts = ("program_ms", "gather_ms", "reduce_ms", "agree_ms", "norm_ms", "update_ms")
        for part in parts:
            self.assertGreater(summary[part], 0)
        self.assertLessEqual(sum(summary[part] for part in parts), summary["step_ms"] * 1.001)

    def test_recommends_a_preset(self):
        results, done = self.run_model(2, "--dtype", "f32", "--recommend", "1024")
        self.assertIn("recommended: ", done.stdout)
        self.assertIn(" of 5 presets that fit (5 exist)", done.stdout)
        for phase in ("forward", "backward", "step"):
            self.assertLessEqual(results["report"][phase], results["report"]["peak"])
        _, done = self.run_model(2, "--dtype", "f32", "--recommend", "0.001")
        self.assertRegex(done.stdout, r"recommended: none: .* needs least, \d+ bytes")

    def test_prints_nothing_when_quiet(self):
        _, done = self.run_model(2, "--dtype", "f32", "--quiet", "--recommend", "1024")
        self.assertEqual((done.stdout, done.stderr), ("", ""))

    def test_traces_compute_of_every_unit_on_every_rank(self):
        name = self.path("trace.json")
        self.run_model(2, "--dtype", "f32", "--trace", name)
        with open(name, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        compute = {
            (event["pid"], event["tid"])
            for event in events
            if event["name"] == "thread_name" and event["args"]["name"] == "compute"
        }
        for rank in range(2):
            names = [
                event["name"]
                for event in events
                if event["ph"] == "X" and (event["pid"], event["tid"]) in compute
                if event["pid"] == rank
            ]
            for unit in ("embedding", "block.0", "block.1", "head"):
                self.assertEqual(names.count(f"backward {unit}"), STEPS)
                self.assertGreater(names.count(f"forward {unit}"), STEPS)  # and held-out ones
            # Gathers and sums of the engine, which has a communicator of its own.
            others = [
                event["name"]
                for event in events
                if event["ph"] == "X" and (event["pid"], event["tid"]) not in compute
                if event["pid"] == rank
            ]
            self.assertTrue(any("block.0" in name for name in others), set(others))
            for unit in ("embedding", "block.0", "block.1", "head"):
                self.assertEqual(others.count(f"update {unit}"), STEPS)

    def test_draws_a_picture_or_reports_the_cause(self):
        name = self.path("loss.svg")
        _, done = self.run_model(1, "--dtype", "f32", "--picture", name)
        if "matplotlib" in done.stderr:
            self.assertIn("was not drawn", done.stderr)
            return
        with open(name, encoding="utf-8") as file:
            self.assertIn("<svg", file.read())

    def expect_refused(self, status, sentence, *arguments, ranks=1):
        done = launch(ranks, arguments)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertIn(sentence, done.stderr)

    def test_refuses_invalid_options(self):
        usage = (
            ("--dim 30 is not a multiple of --heads 4; --dim 32 is", "--dim", "30"),
            ("--batch is 0; it must be at least 1", "--batch", "0"),
            ("--dtype f8 is neither f32, bf16 nor f16", "--dtype", "f8"),
            ("--gather-dtype f16 is neither f8 nor int8", "--gather-dtype", "f16"),
            ("--reduce-dtype f16 is neither f8 nor int8", "--reduce-dtype", "f16"),
            ("--gather-block is 0; it must be at least 1", "--gather-block", "0"),
            ("--loss-scale is 0; it must be a number from 1", "--loss-scale", "0"),
            ("--order random is neither", "--order", "random"),
            ("--save-every needs --save", "--save-every", "3"),
            ("--save names no folder", "--save", ""),
            ("--load names no folder", "--load", ""),
            ("--export names no folder", "--export", ""),
            ("--reshard maybe is neither yes, no nor a number of ranks", "--reshard", "maybe"),
            ("--reshard 0 is neither yes, no nor a number of ranks", "--reshard", "0"),
            ("--accumulate is 0", "--accumulate", "0"),
            ("--clip is -1", "--clip", "-1"),
            ("--block-rows is 0; it must be at least 1, or -1", "--block-rows", "0"),
            ("--picture loss.pdf ends in neither .png nor .svg", "--picture", "loss.pdf"),
            ("--lr is nan", "--lr", "nan"),
            ("--nonsense", "--nonsense"),
            ("--steps", "--steps", "many"),
            ("--seed: -1 is no number from 0 to 2^64 - 1", "--seed", "-1"),
            ("--seed: 18446744073709551616 is no number", "--seed", "18446744073709551616"),
            ("--block-rows: 9223372036854775808 is no number from -2^63", "--block-rows",
             "9223372036854775808"),
            ("--large-unit-bytes: -9223372036854775809 is no", "--large-unit-bytes",
             "-9223372036854775809"),
            ('there is no preset "zero4"; use ddp, zero1', "--preset", "zero4"),
            ('there is no preset "ZERO3"', "--preset", "ZERO3"),
            ('preset "hsdp:1x" needs a number of ranks', "--preset", "hsdp:1x"),
        )
        for sentence, *arguments in usage:
            with self.subTest(arguments=arguments):
                self.expect_refused(2, sentence, *arguments)

    def test_refuses_a_preset_that_does_not_divide_the_ranks(self):
        wrong = "the axes need a multiple of 2 ranks, and there are 1"
        self.expect_refused(1, wrong, "--data", self.text, "--preset", "hsdp:2")

    def test_takes_the_largest_seed(self):
        results, _ = self.run_model(1, "--seed", str(2**64 - 1), "--steps", "1")
        self.assertEqual(results["seed"], 2**64 - 1)

    def test_reports_errors_of_files(self):
        small = self.path("small")
        with open(small, "w", encoding="ascii") as file:
            file.write("too short")
        missing = "train_gpt: rank 0: the text --data /no/such/text cannot be read: No such file"
        self.expect_refused(1, missing, "--data", "/no/such/text")
        self.expect_refused(1, "has 9 bytes; with a context of 256", "--data", small)
        self.expect_refused(1, "--offload /proc/x: No such file", "--offload", "/proc/x",
                            "--data", self.text)
        self.expect_refused(1, "--kill-after 2:1: there are 1 ranks", "--kill-after", "2:1",
                            "--data", self.text)
        unwritable = "--json /no/such/folder/x cannot be written: No such file or directory"
        self.expect_refused(1, unwritable, "--json", "/no/such/folder/x")

    def test_stops_every_rank_when_one_fails(self):
        unwritable = "train_gpt: rank 0: --json /no/such/folder/x cannot be written"
        self.expect_refused(1, unwritable, "--json", "/no/such/folder/x", ranks=3)

    def test_prints_help(self):
        done = launch(1, ["--help"])
        self.assertEqual(done.returncode, 0)
        for words in ("--block-rows", "exposed", "milliseconds a step", "vescomm-run -n 4"):
            self.assertIn(words, done.stdout)


if __name__ == "__main__":
    sys.exit(unittest.main())

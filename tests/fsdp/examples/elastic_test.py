#!/usr/bin/python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks of train_gpt --elastic die of SIGKILL: the others go on, with the loss curve of one rank.

TRAIN_GPT and VESCOMM_TEST_RUN are the paths of the two programs. VESCOMM_TEST_REPETITIONS is the
number of deaths at random moments.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import tempfile
import threading
import time
import unittest

TRAIN_GPT = os.environ.get("TRAIN_GPT", "train_gpt")
RUN = os.environ.get("VESCOMM_TEST_RUN", "vescomm-run")
REPETITIONS = int(os.environ.get("VESCOMM_TEST_REPETITIONS", "4"))
MAX_RECOVERY_MS = 5000

STEPS = 12
MODEL = (
    f"--layers 2 --dim 36 --heads 3 --context 32 --batch 3 --steps {STEPS} --sample 20 "
    "--held-out-every 6 --lr 0.003"
).split()
TOLERANCE = 2e-4


def kill_rank(launcher, rank):
    """Kills a rank of a job, unless it has ended."""
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        with open(f"/proc/{launcher}/task/{launcher}/children", encoding="ascii") as file:
            processes = file.read().split()
        for process in processes:
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                with open(f"/proc/{process}/environ", "rb") as file:
                    if f"VESCOMM_RANK={rank}".encode() in file.read().split(b"\0"):
                        os.kill(int(process), signal.SIGKILL)


class Elastic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="elastic_test.")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.text = os.path.join(cls.folder, "text")
        with open(cls.text, "w", encoding="ascii") as file:
            for i in range(2000):
                file.write(f"line {i} says {i * i % 97} and {'yes' if i % 3 else 'no'}\n")
        cls.alone, _ = cls.train(1)

    @classmethod
    def train(cls, ranks, *arguments, deaths=()):
        """Trains. Rank r kills itself after step s for each (s, r) of deaths."""
        output = os.path.join(cls.folder, "results.json")
        launcher = [RUN, "-n", str(ranks), "--min-ranks", "1"] if ranks > 1 else []
        kills = [part for step, rank in deaths for part in ("--kill-after", f"{step}:{rank}")]
        job = subprocess.run(
            [*launcher, TRAIN_GPT, *MODEL, "--data", cls.text, "--json", output, *arguments, *kills],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if job.returncode != 0:
            raise AssertionError(f"exit code {job.returncode}: {job.stdout}")
        with open(output, encoding="utf-8") as file:
            return json.load(file), job.stdout

    def train_and_kill(self, ranks, victim, moment, *arguments):
        """Trains, and kills a rank from outside, `moment` seconds after the program has printed
        what it trains, unless it has ended by then."""
        output = os.path.join(self.folder, "results.json")
        with contextlib.suppress(FileNotFoundError):
            os.remove(output)
        with subprocess.Popen(
            [RUN, "-n", str(ranks), "--min-ranks", "1", TRAIN_GPT, *MODEL, "--data", self.text,
             "--json", output, "--elastic", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) as job:
            first = job.stdout.readline()
            timer = threading.Timer(moment, kill_rank, (job.pid, victim))
            timer.start()
            text = first + job.stdout.read()
            job.wait()
            timer.cancel()
            timer.join()
        self.assertEqual(job.returncode, 0, text)
        with open(output, encoding="utf-8") as file:
            return json.load(file), text

    def expect_curve(self, results):
        for name in ("loss", "gradient_norm"):
            self.assertEqual(len(results[name]), STEPS)
            for step, (a, b) in enumerate(zip(results[name], self.alone[name])):
                self.assertLess(abs(a - b), 10 * TOLERANCE * abs(b), f"{name} of step {step}")
        for (step, a), (other, b) in zip(results["heldout_curve"], self.alone["heldout_curve"]):
            self.assertEqual(step, other)
            self.assertLess(abs(a - b), TOLERANCE * abs(b), f"held-out loss after step {step}")
        self.assertEqual(results["recoveries"], len(results["recovery"]))
        for recovery in results["recovery"]:
            self.assertLess(recovery["ms"], MAX_RECOVERY_MS)

    def test_any_rank_may_die(self):
        for rank in range(3):
            with self.subTest(rank=rank):
                results, text = self.train(3, "--elastic", deaths=[(4, rank)])
                self.expect_curve(results)
                self.assertEqual((results["ranks"], results["recoveries"]), (2, 1), text)
                self.assertEqual(results["recovery"][0]["from"], "the survivors")
                # The others lose the step of the death at most: rank 0, 1 or 2 may be ahead by one.
                self.assertGreaterEqual(results["recovery"][0]["step"], 3)

    def test_one_rank_after_another_may_die(self):
        results, text = self.train(4, "--elastic", deaths=[(2, 0), (5, 3), (8, 1)])
        self.expect_curve(results)
        self.assertEqual((results["ranks"], results["recoveries"]), (1, 3), text)

    def test_without_copies_the_checkpoint_serves(self):
        folder = os.path.join(self.folder, "checkpoints")
        results, text = self.train(
            3, "--elastic", "--partner-copy", "no", "--save", folder, "--save-every", "3",
            deaths=[(7, 1)],
        )
        self.expect_curve(results)
        self.assertEqual(results["recovery"][0]["from"], "the last checkpoint", text)
        self.assertIn(results["recovery"][0]["step"], (3, 6))

    def test_checkpoint_of_an_earlier_training_is_not_used(self):
        folder = os.path.join(self.folder, "earlier")
        self.train(1, "--save", folder)
        results, text = self.train(
            3, "--elastic", "--partner-copy", "no", "--save", folder, deaths=[(5, 2)]
        )
        self.expect_curve(results)
        self.assertEqual(results["recovery"][0]["from"], "the beginning", text)

    def test_without_copies_and_checkpoint_training_begins_again(self):
        results, text = self.train(3, "--elastic", "--partner-copy", "no", deaths=[(5, 2)])
        self.expect_curve(results)
        self.assertEqual(results["recovery"][0]["from"], "the beginning", text)

    def test_groups_that_do_not_divide_the_survivors_become_one(self):
        results, _ = self.train(4, "--elastic", "--preset", "hsdp:2", deaths=[(5, 2)])
        self.expect_curve(results)
        self.assertEqual(results["recovery"][0]["from"], "the survivors")

    def test_shards_in_files_are_recovered(self):
        results, _ = self.train(3, "--elastic", "--offload", self.folder, deaths=[(5, 1)])
        self.expect_curve(results)
        self.assertEqual(results["recovery"][0]["from"], "the survivors")
        self.assertGreater(results["report"]["file"], 0)

    def test_survivors_have_one_loss_scale(self):
        # The scale changes in most steps, and a step with different ones on two ranks is an error.
        options = ("--dtype", "f16", "--loss-scale", "16777216", "--loss-scale-interval", "1")
        for step in range(2, 6):
            with self.subTest(step=step):
                results, text = self.train(4, "--elastic", *options, deaths=[(step, step % 4)])
                self.assertEqual((len(results["loss"]), results["recoveries"]), (STEPS, 1), text)
                skipped = [norm is None for norm in results["gradient_norm"]]
                self.assertEqual(results["skipped_steps"], sum(skipped))
                scales = results["loss_scale"]
                for before, after, was_skipped in zip(scales, scales[1:], skipped):
                    self.assertEqual(after, min(before * (0.5 if was_skipped else 2), 2**24))

    def test_without_elastic_the_job_fails(self):
        with self.assertRaisesRegex(AssertionError, "exit code 137"):
            self.train(2, deaths=[(4, 1)])

    def test_deaths_at_random_steps(self):
        draw = random.Random(1)
        for number in range(REPETITIONS):
            ranks = draw.randint(2, 5)
            death = (draw.randint(1, STEPS - 2), draw.randrange(ranks))
            preset = draw.choice(["zero3", "zero1", "zero2", "ddp"])
            with self.subTest(number=number, ranks=ranks, death=death, preset=preset):
                results, _ = self.train(ranks, "--elastic", "--preset", preset, deaths=[death])
                self.expect_curve(results)
                self.assertEqual(results["recoveries"], 1)
                self.assertEqual(results["recovery"][0]["from"], "the survivors")

    def test_deaths_at_random_moments(self):
        # Also while the first values are exchanged, in a forward pass, in an update, in an evaluation
        # and while results are written.
        begin = time.monotonic()
        self.train_and_kill(3, 0, 1000)
        whole = time.monotonic() - begin
        draw = random.Random(2)
        for number in range(2 * REPETITIONS):
            ranks = draw.randint(2, 5)
            victim = draw.randrange(ranks)
            moment = draw.uniform(0, 1.5 * whole)
            preset = draw.choice(["zero3", "zero1", "zero2", "ddp"])
            # An export begins with a save, and ends with the removal of that.
            model = os.path.join(self.folder, f"model {number}") if number % 2 else None
            export = ["--export", model] if model else []
            with self.subTest(number=number, ranks=ranks, victim=victim, moment=moment, preset=preset):
                results, text = self.train_and_kill(
                    ranks, victim, moment, "--preset", preset, *export
                )
                if model:
                    self.assertIn("model.safetensors.index.json", os.listdir(model), text)
                    self.assertFalse(os.path.exists(model + ".checkpoint"), text)
                self.expect_curve(results)
                self.assertLessEqual(results["recoveries"], 1, text)
                self.assertEqual(results["ranks"], ranks - results["recoveries"], text)


if __name__ == "__main__":
    unittest.main(verbosity=2)

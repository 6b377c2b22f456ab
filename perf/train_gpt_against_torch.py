#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Compares train_gpt with the same model in PyTorch (baselines/train_gpt_torch.py), in turns.

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch numpy
    perf/train_gpt_against_torch.py --python /tmp/torch/bin/python --build build

Each round runs every case once. The time of a case is the median over rounds of the median step.
The batch is per rank, so with perfect scaling on C cores the step time is constant up to C ranks.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def ours(options, ranks, dtype, path):
    command = [
        os.path.join(options.build, "libvescomm/tools/vescomm-run"), "-n", str(ranks),
        "--no-prefix", os.path.join(options.build, "fsdp/examples/train_gpt/train_gpt"),
        "--batch", str(options.batch * ranks), "--held-out-every", "0", "--sample", "0", "--quiet",
    ]
    return command + shape(options, dtype, path)


def torch(options, ranks, dtype, path, fsdp):
    command = [
        options.python, os.path.join(HERE, "baselines/train_gpt_torch.py"),
        "--batch", str(options.batch), "--ranks", str(ranks), "--fsdp", fsdp,
    ]
    return command + shape(options, dtype, path)


def shape(options, dtype, path):
    return [
        "--layers", str(options.layers), "--dim", str(options.dim), "--heads", str(options.heads),
        "--context", str(options.context), "--steps", str(options.steps), "--dtype", dtype,
        "--json", path,
    ]


def step_ms(command, path):
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    return report["step_ms"]["p50"] if "step_ms" in report and isinstance(
        report["step_ms"], dict) else report["step_ms_median"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, help="a Python that has torch")
    parser.add_argument("--build", default="build", help="a build folder of vescomm")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--dtypes", nargs="+", default=["f32", "bf16"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--batch", type=int, default=2, help="sequences per rank")
    options = parser.parse_args()

    cases = []
    for dtype in options.dtypes:
        for ranks in options.ranks:
            if ranks == 1:
                peers = [("eager", dtype, "none")]
                if dtype == "bf16":
                    peers.append(("eager, pure", "bf16-pure", "none"))
            else:
                peers = [("FSDP2", dtype, "fsdp2")]
            cases.append((ranks, dtype, peers))
    times = {}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.json")
        for done in range(options.rounds):
            for ranks, dtype, peers in cases:
                key = (ranks, dtype)
                times.setdefault((key, "vescomm"), []).append(
                    step_ms(ours(options, ranks, dtype, path), path))
                for name, peer_dtype, fsdp in peers:
                    times.setdefault((key, name), []).append(
                        step_ms(torch(options, ranks, peer_dtype, path, fsdp), path))
            print(f"round {done + 1} of {options.rounds}", flush=True)
    print("\n| ranks | dtype | vescomm, ms | peer | ms | vescomm / peer |\n|---|---|---|---|---|---|")
    for ranks, dtype, peers in cases:
        mine = statistics.median(times[((ranks, dtype), "vescomm")])
        for name, _, _ in peers:
            theirs = statistics.median(times[((ranks, dtype), name)])
            print(f"| {ranks} | {dtype} | {mine:.1f} | {name} | {theirs:.1f} "
                  f"| {mine / theirs:.2f} |")


if __name__ == "__main__":
    main()

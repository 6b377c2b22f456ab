#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Prints the table of predictions in docs/performance.md: ragged collectives of a layer of large
models, on nodes of 8 GPUs with NVLink and a network card for each GPU. The planner makes the
shards, the simulator the times. Nothing is measured.

    perf/gpu_predictions.py --build build
"""

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

MACHINE = Path(__file__).resolve().parent / "machines" / "h100x8"
OF_A_NODE = 8
# Model, rows of a block.
MODELS = [("llama-3-70b", 1), ("gpt-oss-120b", 1), ("deepseek-v3", 32)]
RANKS = [8, 64, 512, 1024, 4096, 10000]
COLLECTIVES = ["all_gather_v", "reduce_scatter_v"]
BYTES = 2  # of an element of bf16


def layer_of(plan, model, rows, ranks):
    """Returns the sizes of the shards of a layer in the middle of the model, in elements."""
    text = subprocess.run(
        [plan, "--model", model, "--block-rows", str(rows), "--ranks", str(ranks), "--json", "-"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    units = json.loads(text)["units"]
    cuts = units[len(units) // 2]["cuts"]
    return [end - begin for begin, end in zip(cuts, cuts[1:])]


def predict(info, collective, shards):
    """Returns {algorithm: seconds}, and the algorithm that the library chooses."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(map(str, shards)))
        file.flush()
        text = subprocess.run(
            [info, "--explain", collective, "--bytes", str(BYTES * sum(shards)), "--nodes",
             str(OF_A_NODE), "--links", "rdma", "--ragged", f"file:{file.name}", "--table",
             str(len(shards)), "--json"],
            check=True, capture_output=True, text=True,
            env={**os.environ, "VESCOMM_MACHINE": str(MACHINE)},
        ).stdout  # fmt: skip
    rows = json.loads(text)["rows"]
    times = {row["algorithm"]: row["us"] / 1e6 for row in rows if row["us"] is not None}
    return times, next(row["algorithm"] for row in rows if row["chosen"])


def cell(size, times, chosen):
    text = f"{size / times[chosen] / 1e9:.0f} ({chosen})"
    if "ring" in times and chosen != "ring":
        text += f", ring {size / times['ring'] / 1e9:.0f}"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build", help="folder of the build")
    parser.add_argument("--ranks", type=int, nargs="*", default=RANKS)
    options = parser.parse_args()
    build = Path(options.build)
    plan, info = build / "planner/tools/vescomm-plan", build / "libvescomm/tools/vescomm-info"
    print("| layer of, rows of a block | ranks | bytes | rho | " +
          " | ".join(f"`{name}`" for name in COLLECTIVES) + " |")
    print("|---|---|---|---|" + "---|" * len(COLLECTIVES))
    for model, rows in MODELS:
        for ranks in options.ranks:
            shards = layer_of(plan, model, rows, ranks)
            size = BYTES * sum(shards)
            cells = [cell(size, *predict(info, name, shards)) for name in COLLECTIVES]
            rho = max(shards) * ranks / sum(shards)
            print(f"| {model}, {rows} | {ranks} | {size / 1e9:.2f} GB | {rho:.3g} | " +
                  " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()

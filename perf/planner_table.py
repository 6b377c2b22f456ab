#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Prints the table of docs/planner.md: padding and fullest rank by model, block rows and ranks.

    perf/planner_table.py --plan build/planner/tools/vescomm-plan
"""

import argparse
import json
import subprocess

CASES = [
    ("llama-3-70b", 1, 256),
    ("llama-3-70b", 32, 128),
    ("llama-3-70b", 32, 384),
    ("llama-3-70b", 128, 256),
    ("gpt-oss-120b", 1, 64),
    ("gpt-oss-120b", 1, 256),
    ("gpt-oss-120b", 128, 512),
    ("deepseek-v3", 16, 1024),
    ("deepseek-v3", 128, 1024),
    ("qwen3-235b-a22b", 128, 512),
    ("kimi-k2", 128, 1024),
]
PADDING = [
    "FSDP2, rows of each tensor",
    "Megatron-FSDP, LCM grid of rows",
    "veScale-FSDP, default order",
    "vescomm uniform",
]
FULLEST = ["vescomm ragged", "vescomm balanced"]


def compare(program, model, rows, ranks):
    """Returns a map from the name of a layout to its line of --compare."""
    text = subprocess.run(
        [program, "--model", model, "--block-rows", str(rows), "--ranks", str(ranks), "--compare",
         "--json", "-", "--no-cuts"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout  # fmt: skip
    return {line["name"]: line for line in json.loads(text)["comparison"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plan", default="build/planner/tools/vescomm-plan")
    program = parser.parse_args().plan
    print("| model, rows a block, ranks | FSDP2 | LCM grid | veScale | uniform | ragged | balanced |")
    print("|---|---|---|---|---|---|---|")
    for model, rows, ranks in CASES:
        layouts = compare(program, model, rows, ranks)
        cells = [f"{100 * layouts[name]['padding_ratio']:.2f} %" for name in PADDING]
        fullest = [layouts[name]["peak_memory_over_mean"] for name in FULLEST]
        cells += [f"{100 * (over - 1):.2f} %" for over in fullest]
        print(f"| {model}, {rows}, {ranks} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

#!/usr/bin/python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Draws predicted times of algorithms against ranks.

    vescomm-info --explain all_reduce --bytes 64KiB --nodes 8 --table 8,64,512,4096 --json >a.json
    perf/growth.py a.json -o all_reduce.svg
"""

import argparse
import json

import matplotlib

matplotlib.use("svg")
# pylint: disable=wrong-import-position
import matplotlib.pyplot as plt


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="output of vescomm-info --table --json")
    parser.add_argument("-o", "--output", default="growth.svg")
    options = parser.parse_args()
    with open(options.file, encoding="utf-8") as file:
        growth = json.load(file)
    rows = [row for row in growth["rows"] if row["us"] is not None]
    lines = {}
    for row in rows:
        lines.setdefault(row["algorithm"], []).append((row["ranks"], row["us"]))
    figure, axes = plt.subplots(figsize=(7, 4.5))
    for name, points in lines.items():
        axes.plot(*zip(*sorted(points)), marker="o", label=name)
    chosen = sorted((row["ranks"], row["us"]) for row in rows if row["chosen"])
    axes.plot(*zip(*chosen), linestyle="none", marker="o", markersize=12, fillstyle="none",
              color="black", label="chosen")
    axes.set(xscale="log", yscale="log", xlabel=f"ranks, {growth['of_a_node']} on a node",
             ylabel="predicted us", title=f"{growth['collective']}, {growth['bytes']} bytes")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(options.output)
    print(options.output)


if __name__ == "__main__":
    main()

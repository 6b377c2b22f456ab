#!/usr/bin/python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Prints a table of measured and predicted times from files that vescomm_perf wrote.

    vescomm_perf --ranks 4 --collective all_gather_v,all_reduce -b 64 -e 16M -f 16 -J run.json
    perf/predicted.py run.json

Each cell has the measured median and the ratio of the predicted time to it. Measure the machine
before (vescomm-run -n 2 --bind core vescomm-info --measure); otherwise the model uses constants.
"""

import argparse
import json
import statistics

from cells import round_up, size_text, time_text


def read(names):
    """Returns {row: {bytes: [(measured, predicted, algorithm)]}}."""
    rows = {}
    for name in names:
        with open(name, encoding="utf-8") as file:
            run = json.load(file)
        for result in run["results"]:
            if result.get("predicted_us") is None:
                continue
            arrays = ", arrays" if result["impl"] == "vescomm-arrays" else ""
            device = ", device memory" if result.get("memory") == "device" else ""
            row = f"`{result['collective']}`{arrays}{device}, {result['ranks']}"
            if result["nodes"] > 1:
                row += f" on {result['nodes']} hosts"
            size = round_up(result["bytes"])
            cell = rows.setdefault(row, {}).setdefault(size, [])
            cell.append((result["time_us"]["p50"], result["predicted_us"], result["algorithm"]))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="output files of vescomm_perf -J")
    parser.add_argument("--within", type=float, default=0.3,
                        help="tolerance of a correct prediction (0.3: from 1/1.3 to 1.3)")
    options = parser.parse_args()
    rows = read(options.files)
    sizes = sorted({size for cells in rows.values() for size in cells})
    print("| collective, ranks | " + " | ".join(map(size_text, sizes)) + " |")
    print("|---" * (len(sizes) + 1) + "|")
    right = total = 0
    for row, cells in rows.items():
        text = []
        for size in sizes:
            if size not in cells:
                text.append("")
                continue
            measured = statistics.median(cell[0] for cell in cells[size])
            ratio = cells[size][0][1] / measured
            total += 1
            right += 1 / (1 + options.within) <= ratio <= 1 + options.within
            text.append(f"`{cells[size][0][2]}` {time_text(measured)}, {ratio:.2f}")
        print(f"| {row} | " + " | ".join(text) + " |")
    print(f"\n{right} of {total} within {options.within:.0%}")


if __name__ == "__main__":
    main()

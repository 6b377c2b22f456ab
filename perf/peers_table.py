#!/usr/bin/python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Prints tables of vescomm beside other libraries from files that vescomm_perf wrote.

    vescomm_perf --ranks 2 --impl vescomm,vescomm-registered,vescomm-arrays,mpi,mpi-ucx -J run.json
    perf/peers_table.py run.json

Each cell has the time of the fastest other library, and the times of vescomm's implementations divided
by it (below 1: vescomm is faster). Near and far cores have tables of their own; results whose cores
moved during the rounds are in the table of those. Where ranks outnumber cores, they move anyway, and
--any-distance makes one table.
"""

import argparse
import collections
import json
import statistics

from cells import round_up, size_text, time_text

OURS = {"vescomm": "requests", "vescomm-registered": "registered", "vescomm-arrays": "private"}
NEAR_NS = 120  # as in vescomm_perf


def distance(result):
    line = result.get("line_ns")
    if line is None:
        return "not measured"
    if line["max"] < NEAR_NS:
        return "near"
    return "far" if line["min"] >= NEAR_NS else "near and far"


def read(names, any_distance):
    """Returns {distance: {(collective, ranks, nodes): {bytes: {impl: [median of a file]}}}}."""
    tables = {}
    for name in names:
        with open(name, encoding="utf-8") as file:
            run = json.load(file)
        for result in run["results"]:
            row = (result["collective"], result["ranks"], result["nodes"])
            size = round_up(result["bytes"])
            place = "near and far" if any_distance else distance(result)
            table = tables.setdefault(place, {})
            cell = table.setdefault(row, {}).setdefault(size, collections.defaultdict(list))
            cell[result["impl"]].append(result["time_us"]["p50"])
    return tables


def cell_text(cell, peers, ours):
    medians = {impl: statistics.median(times) for impl, times in cell.items()}
    others = [medians[impl] for impl in peers if impl in medians]
    if not others:
        return ""
    fastest = min(others)
    ratios = [f"{medians[impl] / fastest:.2f}" if impl in medians else "-" for impl in ours]
    return ", ".join([time_text(fastest)] + ratios)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="output files of vescomm_perf -J")
    parser.add_argument("--peers", default="mpi,mpi-ucx,mpich,ucc,gloo",
                        help="the other libraries, of which the fastest counts (default: %(default)s)")
    parser.add_argument("--any-distance", action="store_true",
                        help="do not distinguish near and far cores")
    options = parser.parse_args()
    peers = options.peers.split(",")
    for place, table in read(options.files, options.any_distance).items():
        there = {impl for cells in table.values() for cell in cells.values() for impl in cell}
        ours = [impl for impl in OURS if impl in there]
        sizes = sorted({size for cells in table.values() for size in cells})
        print(f"Cores: {place}. Each cell: {', '.join(p for p in peers if p in there)} (the fastest), "
              f"then {', '.join(OURS[impl] for impl in ours)} over it.\n")
        print("| collective, ranks | " + " | ".join(map(size_text, sizes)) + " |")
        print("|---" * (len(sizes) + 1) + "|")
        for (collective, ranks, nodes), cells in sorted(table.items()):
            hosts = f" on {nodes} hosts" if nodes > 1 else ""
            text = [cell_text(cells[size], peers, ours) if size in cells else "" for size in sizes]
            print(f"| `{collective}`, {ranks}{hosts} | " + " | ".join(text) + " |")
        print()


if __name__ == "__main__":
    main()

#!/usr/bin/python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Draws a plan: draw_plan.py PLAN.json|- PICTURE.png|.svg, PLAN.json from vescomm-plan --json"""

import json
import re
import sys

BYTES = {"c128": 16, "c64": 8, "f64": 8, "i64": 8, "u64": 8, "f32": 4, "i32": 4, "u32": 4}
BYTES |= {"bf16": 2, "f16": 2, "i16": 2, "u16": 2}
# The palette of Okabe and Ito, which is distinguishable with any kind of colour vision. Tensors
# beyond the palette are gray.
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442"]
OTHER = "#999999"
PADDING = {"facecolor": "white", "edgecolor": "#444444", "hatch": "////", "linewidth": 0.4}
MAX_BARS = 16  # one for each rank; more ranks are drawn as a profile
MAX_BINS = 200  # bars of a profile, a few pixels each
MAX_GROUPS = 10
MAX_BLOCKS = 150  # lines in one bar


def size_of(unit):
    return BYTES.get(unit["dtype"], 1)


def class_of(name, unit):
    """Returns the name without its unit and with * for indices: mlp.experts.*.up_proj.weight."""
    if name.startswith(unit + "."):
        name = name[len(unit) + 1 :]
    name = re.sub(r"[\x00-\x1f\x7f]", "?", name)
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", name)


def group_alike(units):
    """Returns lists of units that have the same tensors."""
    groups = {}
    for unit in units:
        key = (unit["dtype"], tuple(tuple(tensor["shape"]) for tensor in unit["tensors"]))
        groups.setdefault(key, []).append(unit)
    return list(groups.values())


def name_of(group, groups):
    first, last = group[0]["name"], group[-1]["name"]
    number = re.search(r"\d*$", last).group()
    name = first if len(group) == 1 else f"{first}..{number} ({len(group)} units)"
    # In a unit with several types only the rarer types are named.
    others = [other[0] for other in groups if other[0]["name"] == first and other is not group]
    larger = any(other["elements"] > group[0]["elements"] for other in others)
    return f"{name}, {group[0]['dtype']}" if larger else name


def excess(group):
    """Returns the bytes by which the largest shards exceed the mean."""
    return sum((unit["largest_shard"] - unit["mean_shard"]) * size_of(unit) for unit in group)


def scale_of(largest):
    for factor, name in ((1e9, "billions of "), (1e6, "millions of "), (1e3, "thousands of ")):
        if largest >= factor:
            return factor, name
    return 1, ""


def pieces_of(unit):
    """Returns (begin, end, class, block) of each tensor in order; gaps are padding."""
    pieces = [
        (
            tensor["offset"],
            tensor["offset"] + tensor["elements"],
            class_of(tensor["name"], unit["name"]),
            tensor["block_elements"],
        )
        for tensor in unit["tensors"]
        if tensor["elements"] > 0
    ]
    return sorted(pieces)


def colours_of(unit, pieces):
    sizes = {}
    for begin, end, name, _ in pieces:
        sizes[name] = sizes.get(name, 0) + end - begin
    largest = sorted(sizes, key=lambda name: -sizes[name])[: len(COLOURS)]
    # In order of the buffer, so that the legend has the order of the bars.
    ordered = [name for name in sizes if name in largest]
    return dict(zip(ordered, COLOURS))


def shares(unit, pieces, begin, end):
    """Yields (class or None, begin, end, block, begin of its tensor) for a part of the buffer."""
    import bisect

    cursor = begin
    at = bisect.bisect_right([piece[1] for piece in pieces], begin)
    while at < len(pieces) and pieces[at][0] < end:
        low, high, name, block = pieces[at]
        if low > cursor:
            yield None, cursor, low, 0, 0
        yield name, max(low, begin), min(high, end), block, low
        cursor = min(high, end)
        at += 1
    if cursor < end:
        yield None, cursor, end, 0, 0


def edges_of(ranks):
    """Returns the first rank of each bar of a profile, and the number of ranks."""
    together = -(-ranks // MAX_BINS)
    return list(range(0, ranks, together)) + [ranks]


def draw_bars(axes, unit, pieces, colours):
    """Draws a bar for each rank."""
    cuts = unit["cuts"]
    factor, scale = scale_of(unit["largest_shard"])
    for rank, (begin, end) in enumerate(zip(cuts, cuts[1:])):
        for name, low, high, block, start in shares(unit, pieces, begin, end):
            left, width = (low - begin) / factor, (high - low) / factor
            if name is None:
                axes.barh(rank, width, left=left, height=0.8, **PADDING)
                continue
            axes.barh(rank, width, left=left, height=0.8, color=colours.get(name, OTHER))
            if left > 0:
                axes.plot([left, left], [rank - 0.4, rank + 0.4], color="black", linewidth=0.8)
            if block > 1 and block * MAX_BLOCKS >= unit["largest_shard"]:
                first = start + -(-(low - start) // block) * block
                lines = [(at - begin) / factor for at in range(first, high, block)]
                axes.vlines(lines, rank - 0.4, rank + 0.4, color="white", linewidth=0.5)
    axes.axvline(unit["mean_shard"] / factor, color="black", linestyle="--", linewidth=1)
    axes.set_yticks(range(len(cuts) - 1))
    axes.set_ylabel("rank")
    axes.set_xlabel(f"{scale}elements that the rank owns".strip())
    axes.invert_yaxis()


def draw_profile(axes, unit, pieces, colours):
    """Draws the mean of each kind of tensor, with several ranks in a bar if there are many."""
    import numpy

    cuts = unit["cuts"]
    ranks = len(cuts) - 1
    edges = edges_of(ranks)
    bins = len(edges) - 1
    kinds = list(colours) + ["other", None]
    heights = numpy.zeros((len(kinds), bins))
    largest = numpy.zeros(bins)
    factor, scale = scale_of(unit["largest_shard"])
    for i, (first, last) in enumerate(zip(edges, edges[1:])):
        for name, low, high, _, _ in shares(unit, pieces, cuts[first], cuts[last]):
            kind = name if name in colours or name is None else "other"
            heights[kinds.index(kind), i] += (high - low) / (last - first) / factor
        largest[i] = max(cuts[k + 1] - cuts[k] for k in range(first, last)) / factor
    widths = numpy.diff(edges)
    below = numpy.zeros(bins)
    for kind, height in zip(kinds, heights):
        style = PADDING if kind is None else {"color": colours.get(kind, OTHER)}
        axes.bar(edges[:-1], height, width=widths, bottom=below, align="edge", **style)
        below += height
    axes.stairs(largest, edges, color="black", linewidth=0.9)
    axes.axhline(unit["mean_shard"] / factor, color="black", linestyle="--", linewidth=1)
    axes.set_xlim(0, ranks)
    axes.set_xlabel("rank" if bins == ranks else f"rank ({edges[1]} to a bar)")
    axes.set_ylabel(f"{scale}elements\nthat the rank owns".strip())


def add_legend(axes, unit, pieces, colours, profile):
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    blocks = {}
    for _, _, name, block in pieces:
        blocks[name] = max(block, blocks.get(name, 0))

    def label(name):
        text = name if len(name) <= 34 else ".." + name[-32:]
        return f"{text}, blocks of {blocks[name]:,}" if blocks[name] > 1 else text

    entries = [Patch(color=colour, label=label(name)) for name, colour in colours.items()]
    if len(blocks) > len(colours):
        entries.append(Patch(color=OTHER, label="smaller tensors"))
    if unit["padding_elements"] > 0:
        entries.append(Patch(label="padding", **PADDING))
    entries.append(Line2D([], [], color="black", linestyle="--", label="mean"))
    if profile:
        entries.append(Line2D([], [], color="black", label="largest of the ranks in a bar"))
    axes.legend(handles=entries, loc="upper left", bbox_to_anchor=(1.01, 1.03), fontsize=8)


def draw_ranks(axes, plan):
    """Draws the bytes of each rank in all buffers over the mean."""
    import numpy

    total = numpy.zeros(plan["ranks"])
    for unit in plan["units"]:
        total += numpy.diff(unit["cuts"]) * size_of(unit)
    mean = plan["totals"]["mean_rank_bytes"]
    over = 100 * (total / mean - 1) if mean > 0 else total
    ranks = plan["ranks"]
    edges = numpy.array(edges_of(ranks))
    bins = len(edges) - 1
    high = numpy.maximum.reduceat(over, edges[:-1])
    low = numpy.minimum.reduceat(over, edges[:-1])
    if bins == ranks:
        axes.bar(range(ranks), over, color=COLOURS[0])
        axes.set_xlim(-0.5, ranks - 0.5)
        if ranks <= MAX_BARS:
            axes.set_xticks(range(ranks))
    else:
        axes.stairs(high, edges, baseline=low, fill=True, color=COLOURS[0], alpha=0.35)
        axes.stairs(high, edges, baseline=None, color=COLOURS[0], linewidth=1.2, label="most")
        axes.stairs(low, edges, baseline=None, color=COLOURS[1], linewidth=1.2, label="least")
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.03), fontsize=8)
        axes.set_xlim(0, ranks)
    axes.axhline(0, color="black", linewidth=0.8)
    # Differences of a hundredth of a per cent are negligible and must not fill the picture.
    reach = max(0.5, 1.1 * float(numpy.abs(over).max()))
    axes.set_ylim(min(-0.1 * reach, 1.1 * float(over.min())), reach)
    axes.set_xlabel("rank" if bins == ranks else f"rank (the most and the least of {edges[1]})")
    axes.set_ylabel("over the mean (%)")
    axes.set_title(
        f"bytes of all buffers together: mean {mean / 2**20:,.1f} MiB a rank, "
        f"the fullest {over.max():+,.2f} %",
        fontsize=10,
        loc="left",
    )
    axes.grid(axis="y", alpha=0.3)


def draw_units(axes, groups):
    """Draws the imbalance and padding of the buffers of the largest groups."""
    groups = sorted(
        groups, key=lambda group: -sum(unit["elements"] * size_of(unit) for unit in group)
    )[:MAX_GROUPS]
    height = 0.27
    bars = (
        ("largest shard over the mean", lambda unit: unit["imbalance"], COLOURS[0]),
        ("of that, above the lower bound", lambda unit: unit["gap"], COLOURS[1]),
        ("padding over tensors", lambda unit: unit["padding_ratio"], COLOURS[2]),
    )
    largest = max([100 * max(value(unit) for group in groups for unit in group) for _, value, _ in bars])
    for i, (label, value, colour) in enumerate(bars):
        values = [100 * max(value(unit) for unit in group) for group in groups]
        places = [row + (i - 1) * height for row in range(len(groups))]
        axes.barh(places, values, height=height, color=colour, label=label)
        for place, number in zip(places, values):
            axes.annotate(f"{number:,.2f}", (number, place), (3, 0), textcoords="offset points",
                          va="center", fontsize=7)  # fmt: skip
    axes.set_yticks(range(len(groups)), [name_of(group, groups) for group in groups], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("per cent")
    if largest > 200:  # a buffer of few elements must not hide the others
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xlabel("per cent (in powers of ten from 1 on)")
    axes.set_xlim(0, max(1.0, (6 if largest > 200 else 1.12) * largest))
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.03), fontsize=8)


def draw(plan, path):
    import matplotlib

    matplotlib.use("Agg")  # no screen
    import matplotlib.pyplot as plt

    groups = group_alike(plan["units"])
    widest = max(groups, key=excess)
    unit = max(widest, key=lambda unit: unit["largest_shard"])
    pieces = pieces_of(unit)
    colours = colours_of(unit, pieces)
    profile = plan["ranks"] > MAX_BARS
    rows = min(len(groups), MAX_GROUPS)
    heights = [3.4 if profile else 1 + 0.22 * plan["ranks"], 2.2, 1 + 0.5 * rows]
    figure, (owners, ranks, units) = plt.subplots(
        3, 1, figsize=(12, sum(heights) + 1), height_ratios=heights, layout="constrained"
    )
    (draw_profile if profile else draw_bars)(owners, unit, pieces, colours)
    add_legend(owners, unit, pieces, colours, profile)
    owners.set_title(
        f"who owns what of {unit['name']}: largest shard {unit['largest_shard']:,} elements, "
        f"{100 * unit['imbalance']:,.2f} % over the mean",
        fontsize=10,
        loc="left",
    )
    draw_ranks(ranks, plan)
    draw_units(units, groups)
    units.set_title("buffers" if rows == len(groups) else f"largest {rows} kinds of buffers",
                    fontsize=10, loc="left")  # fmt: skip
    totals = plan["totals"]
    figure.suptitle(
        f"{plan['model']} on {plan['ranks']:,} rank{'s' if plan['ranks'] != 1 else ''}, "
        f"{plan['mode']}: {totals['elements'] / 1e9:,.2f} G elements, "
        f"padding {100 * totals['padding_ratio']:,.2f} %"
    )
    figure.savefig(path, dpi=120)


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    if sys.argv[1] == "-":
        plan = json.load(sys.stdin)
    else:
        with open(sys.argv[1], encoding="utf-8") as file:
            plan = json.load(file)
    units = plan["units"]
    if not any(unit["elements"] > 0 for unit in units) or "cuts" not in units[0]:
        print("draw_plan.py: the plan has no elements or no cuts to draw", file=sys.stderr)
        return 2
    try:
        draw(plan, sys.argv[2])
    except ImportError as error:
        print(
            f"draw_plan.py: {sys.executable} has no matplotlib ({error}); "
            "install it, on Debian as python3-matplotlib",
            file=sys.stderr,
        )
        return 3
    except OSError as error:
        print(f"draw_plan.py: {sys.argv[2]} cannot be written: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

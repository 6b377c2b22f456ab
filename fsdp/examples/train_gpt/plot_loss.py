#!/usr/bin/python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Draws the loss curve of a train_gpt run: plot_loss.py RESULTS.json PICTURE.png|.svg"""

import json
import math
import sys


def smoothed(values, window):
    """Returns the mean of each value and up to `window` values before it."""
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    return [
        (sums[i + 1] - sums[max(0, i + 1 - window)]) / (i + 1 - max(0, i + 1 - window))
        for i in range(len(values))
    ]


def draw(results, path):
    import matplotlib

    matplotlib.use("Agg")  # no screen
    import matplotlib.pyplot as plt

    losses = results["loss"]
    steps = range(1, len(losses) + 1)
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    axes.plot(steps, losses, color="tab:blue", alpha=0.3, linewidth=1, label="batch")
    axes.plot(
        steps,
        smoothed(losses, max(1, len(losses) // 20)),
        color="tab:blue",
        linewidth=2,
        label="batch, smoothed",
    )
    held_out = results.get("heldout_curve", [])
    axes.plot(
        [step for step, _ in held_out],
        [loss for _, loss in held_out],
        color="tab:orange",
        marker="o",
        label=f"held out, {results['heldout_loss']:.3f} in the end",
    )
    axes.axhline(math.log(256), color="gray", linestyle=":", linewidth=1, label="guessing, ln 256")
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats per byte)")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    axes.set_title(
        f"train_gpt: {results['parameters'] / 1e6:.1f} M parameters, {results['dtype']}, "
        f"{results['ranks']} rank{'s' if results['ranks'] != 1 else ''}, "
        f"{results['tokens_per_second']:.0f} tokens/s"
    )
    figure.savefig(path, dpi=150)


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    with open(sys.argv[1], encoding="utf-8") as file:
        results = json.load(file)
    try:
        draw(results, sys.argv[2])
    except ImportError as error:
        print(
            f"plot_loss.py: {sys.executable} has no matplotlib ({error}); "
            "install it, on Debian as python3-matplotlib",
            file=sys.stderr,
        )
        return 3
    except OSError as error:
        print(f"plot_loss.py: {sys.argv[2]} cannot be written: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Compares train_gpt with FSDP2 and DDP over gloo on the same model, in turns, and prints a table.

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch numpy
    perf/train_compare.py --python /tmp/torch/bin/python --build build

The PyTorch side is baselines/train_gpt_torch.py. Each rank has one thread. Each round runs every
program once; a speed is the median over rounds of the median step. The batch is per rank, so with
perfect scaling on C cores the step time is constant up to C ranks. One rank is compared with eager
mode without FSDP.

Memory is that of the node: the sum of the proportional set sizes of all ranks, without what they
had before the model was made, such as libraries. PyTorch has trained a tiny model before, because
it loads many libraries at the first use. Its memory is the larger one of those before and after the
update of a step.
"""

import argparse
import collections
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20
# The aims of the engine against FSDP2.
MIN_SPEED = 2.0
MAX_MEMORY = 0.7

Shape = collections.namedtuple("Shape", "layers dim heads context")
Case = collections.namedtuple("Case", "shape dtype ranks")
# One program in one case: `name` in the table, `fsdp` and `dtype` for PyTorch.
Program = collections.namedtuple("Program", "name fsdp dtype")
Result = collections.namedtuple("Result", "tokens_per_second bytes")
ENGINE = Program("vescomm", None, None)


def parse_shape(text):
    try:
        shape = Shape(*map(int, text.split("x")))
    except (TypeError, ValueError):
        raise argparse.ArgumentTypeError(
            f"{text} is not LAYERSxDIMxHEADSxCONTEXT, such as 6x256x4x256") from None
    if min(shape) < 1 or shape.dim % shape.heads != 0:
        raise argparse.ArgumentTypeError(
            f"{text}: numbers are at least 1, and DIM is a multiple of HEADS")
    return shape


def peers(case, chosen):
    if case.ranks == 1:
        eager = [Program("eager", "none", case.dtype)]
        if case.dtype == "bf16":
            eager.append(Program("eager, pure", "none", "bf16-pure"))
        return eager
    return [Program(f"{name.upper()}, gloo", name, case.dtype) for name in chosen]


def command(options, case, program, path):
    if program is ENGINE:
        words = [
            os.path.join(options.build, "libvescomm/tools/vescomm-run"), "-n", str(case.ranks),
            "--no-prefix", os.path.join(options.build, "fsdp/examples/train_gpt/train_gpt"),
            "--batch", str(options.batch * case.ranks), "--held-out-every", "0", "--sample", "0",
            "--quiet", "--preset", options.preset, "--dtype", case.dtype,
        ]
    else:
        words = [
            options.python, os.path.join(HERE, "baselines/train_gpt_torch.py"),
            "--batch", str(options.batch), "--ranks", str(case.ranks), "--fsdp", program.fsdp,
            "--dtype", program.dtype,
        ]
    for name, value in case.shape._asdict().items():
        words += [f"--{name}", str(value)]
    return words + ["--steps", str(options.steps), "--json", path]


def run(options, case, program, path):
    words = command(options, case, program, path)
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          env=environment, check=False)
    if done.returncode != 0:
        sys.exit(f"train_compare: {' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    if program is ENGINE:
        milliseconds = report["step_ms"]["p50"]
        memory = report["memory"]
    else:
        milliseconds = report["step_ms_median"]
        memory = report
    tokens = options.batch * case.ranks * case.shape.context
    return Result(1e3 * tokens / milliseconds, memory["node_pss"] - memory["node_pss_before"])


def median(results):
    return Result(*(statistics.median(values) for values in zip(*results)))


def table(cases, programs, results):
    """Returns the lines of the table and of the verdict."""
    yield ("| layers x dim x heads x context | dtype | ranks | program | tokens/s | MiB a node | "
           "vescomm: speed | vescomm: memory |")
    yield "|---|---|---|---|---|---|---|---|"
    reached = compared = 0
    for case in cases:
        mine = median(results[case, ENGINE])
        for program in programs[case]:
            one = median(results[case, program])
            ratios = ["", ""]
            if program is not ENGINE:
                speed = mine.tokens_per_second / one.tokens_per_second
                memory = mine.bytes / one.bytes if one.bytes > 0 else float("inf")
                ratios = [f"{speed:.2f} x", f"{memory:.2f} x"]
                if program.fsdp == "fsdp2":
                    compared += 1
                    reached += speed >= MIN_SPEED and memory <= MAX_MEMORY
            cells = ["x".join(map(str, case.shape)), case.dtype, str(case.ranks), program.name,
                     f"{one.tokens_per_second:.0f}", f"{one.bytes / MIB:.1f}", *ratios]
            yield "| " + " | ".join(cells) + " |"
    if compared > 0:
        yield ""
        yield (f"against FSDP2, {reached} of {compared} cases have at least {MIN_SPEED:g} times the "
               f"tokens/s and at most {MAX_MEMORY:g} times the memory")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="a Python that has torch")
    parser.add_argument("--build", default="build", help="a build folder of vescomm")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--dtypes", nargs="+", choices=["f32", "bf16"], default=["f32", "bf16"])
    parser.add_argument("--shapes", type=parse_shape, nargs="+", metavar="SHAPE",
                        default=[Shape(6, 256, 4, 256), Shape(4, 512, 8, 128),
                                 Shape(12, 256, 4, 128)],
                        help="LAYERSxDIMxHEADSxCONTEXT; default: 6x256x4x256 4x512x8x128 "
                        "12x256x4x128")
    parser.add_argument("--peers", nargs="+", choices=["fsdp2", "ddp"], default=["fsdp2", "ddp"])
    parser.add_argument("--preset", default="zero3", help="of train_gpt")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, default=2, help="sequences per rank")
    options = parser.parse_args()

    cases = [Case(*one) for one in itertools.product(options.shapes, options.dtypes, options.ranks)]
    programs = {case: [ENGINE, *peers(case, options.peers)] for case in cases}
    results = collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.json")
        for done in range(options.rounds):
            for case in cases:
                for program in programs[case]:
                    results[case, program].append(run(options, case, program, path))
            print(f"round {done + 1} of {options.rounds}", file=sys.stderr, flush=True)
    for line in table(cases, programs, results):
        print(line)


if __name__ == "__main__":
    main()

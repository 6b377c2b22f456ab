#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Steps of PyTorch with backend gloo, with backend vescomm, and with vescomm.torch.accelerate().

    perf/torch_steps.py --ranks 2,4
    perf/torch_steps.py --calls            # the cost of a call on 64 bytes instead

The variants are models in the same processes. They take their steps in turns, so what else the
machine does slows all of them alike. A time is the median over rounds of the slowest rank's step.
Communication is exposed as far as a step is longer than one of the variant "none", whose gathers
and reductions only copy within the rank, or do nothing (DDP): exposed = step - none.
"""

import argparse
import json
import multiprocessing
import os
import queue
import statistics
import sys
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

#        layers, width
SIZES = {"small": (4, 128), "medium": (6, 320), "large": (8, 640)}
VOCABULARY = 2000
TYPES = {"f32": None, "bf16": torch.bfloat16}
# Tokens of a rank in a step. Cores without instructions for bf16 compute ten times slower in it.
TOKENS = {"f32": 128, "bf16": 16}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.attention(self.norm(x)).unflatten(-1, (3, -1, 32)).unbind(-3)
        q, k, v = (each.transpose(-2, -3) for each in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(mixed.transpose(-2, -3).flatten(-2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, layers, width):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def local_comms():
    """Hooks of FSDP2 that copy within the rank: what a step takes without communication."""
    from torch.distributed.fsdp._fully_shard._fsdp_collectives import (
        DefaultAllGather,
        DefaultReduceScatter,
    )

    class Gather(DefaultAllGather):
        def __call__(self, output_tensor, input_tensor, group, async_op=False):
            for part in output_tensor.chunk(group.size()):
                if part.data_ptr() != input_tensor.data_ptr():
                    part.copy_(input_tensor)

    class Scatter(DefaultReduceScatter):
        def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
            output_tensor.copy_(input_tensor.chunk(group.size())[group.rank()])

    return Gather(), Scatter()


def make_fsdp2(variant, size, dtype, groups):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    torch.manual_seed(1)
    layers, width = SIZES[size]
    model = Model(layers, width)
    mesh = DeviceMesh.from_group(groups["gloo" if variant == "gloo" else "vescomm"], "cpu")
    policy = MixedPrecisionPolicy(param_dtype=TYPES[dtype])
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    if variant == "none":
        for module in model.modules():
            if isinstance(module, FSDPModule):
                gather, scatter = local_comms()
                module.set_custom_all_gather(gather)
                module.set_custom_reduce_scatter(scatter)
    if variant == "accelerate":
        import vescomm.torch

        vescomm.torch.accelerate(model)
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


def make_ddp(variant, size, dtype, groups):
    torch.manual_seed(1)
    layers, width = SIZES[size]
    model = Model(layers, width).to(TYPES[dtype])
    group = groups["gloo" if variant == "gloo" else "vescomm"]
    model = nn.parallel.DistributedDataParallel(model, process_group=group)
    if variant == "none":

        def skip(state, bucket):
            future = torch.futures.Future()
            future.set_result(bucket.buffer())
            return future

        model.register_comm_hook(None, skip)
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


def step(model, optimizer, tokens):
    begin = time.perf_counter()
    F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
    return time.perf_counter() - begin


def measure(rank, ranks, folder, options, results):
    import vescomm.torch

    torch.set_num_threads(1)
    vescomm.torch.register()
    dist.init_process_group("vescomm", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    groups = {"vescomm": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    for kind in options.kinds.split(","):
        for size in options.sizes.split(","):
            for dtype in options.types.split(","):
                variants = ["none", "gloo", "vescomm"] + ["accelerate"] * (kind == "fsdp2")
                make = {"fsdp2": make_fsdp2, "ddp": make_ddp}[kind]
                models = {variant: make(variant, size, dtype, groups) for variant in variants}
                tokens = torch.randint(VOCABULARY, (1, TOKENS[dtype] + 1))
                times = {variant: [] for variant in variants}
                for turn in range(options.rounds + options.warmup):
                    for variant in variants[turn % len(variants) :] + variants[: turn % len(variants)]:
                        dist.barrier()
                        took = torch.tensor([step(*models[variant], tokens)])
                        dist.all_reduce(took, dist.ReduceOp.MAX)
                        if turn >= options.warmup:
                            times[variant].append(took.item())
                parameters = sum(p.numel() for p in Model(*SIZES[size]).parameters())
                if rank == 0:
                    results.put((kind, size, dtype, parameters, times))
                del models
    dist.destroy_process_group()


def results_of(target, ranks, options):
    """Yields what rank 0 of `target` puts. Ends all ranks if one fails."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            context.Process(target=target, args=(rank, ranks, folder, options, results))
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        while any(process.exitcode is None for process in processes) or not results.empty():
            failed = [rank for rank, process in enumerate(processes) if process.exitcode]
            if failed:
                for process in processes:
                    process.kill()
                sys.exit(f"rank {failed[0]} failed; its error is above")
            try:
                yield results.get(timeout=0.2)
            except queue.Empty:
                pass


def steps(options):
    rows = []
    print("| | ranks | parameters | none ms | gloo ms | vescomm ms | accelerate ms | exposed / gloo's | vescomm | accelerate |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for ranks in map(int, options.ranks.split(",")):
        for kind, size, dtype, parameters, times in results_of(measure, ranks, options):
            rows.append({"kind": kind, "size": size, "type": dtype, "ranks": ranks, "times": times})
            print_row(kind, size, dtype, ranks, parameters, times)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file)


def print_row(kind, size, dtype, ranks, parameters, times):
    median = {variant: statistics.median(values) * 1e3 for variant, values in times.items()}
    gloo, none = median["gloo"], median["none"]
    accelerated = median.get("accelerate")
    exposed = (median["vescomm"] - none) / (gloo - none) if gloo > none else float("nan")
    print(
        f"| {kind} {size} {dtype} | {ranks} | {parameters / 1e6:.1f} M | {none:.1f} | {gloo:.1f} | "
        f"{median['vescomm']:.1f} | {f'{accelerated:.1f}' if accelerated else ''} | {exposed:.2f} | "
        f"{gloo / median['vescomm']:.2f}x | {f'{gloo / accelerated:.2f}x' if accelerated else ''} |",
        flush=True,
    )


def calls(rank, ranks, folder, options, results):
    import vescomm.torch
    from vescomm import _core

    torch.set_num_threads(1)
    vescomm.torch.register()
    dist.init_process_group("vescomm", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    gloo = dist.new_group(backend="gloo")
    comm = dist.group.WORLD._get_backend(torch.device("cpu")).link.comm
    tensor = torch.ones(16)
    address = tensor.data_ptr()
    gathered = torch.ones(16 * ranks)
    variants = {
        "C call": lambda: comm.all_reduce_at(address, address, 16, 1, 0),
        "all_reduce": lambda: dist.all_reduce(tensor, dist.ReduceOp.MAX),
        "all_reduce, async_op, wait": lambda: dist.all_reduce(tensor, async_op=True).wait(),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(gathered, tensor),
        "barrier": lambda: dist.barrier(),
        "gloo all_reduce": lambda: dist.all_reduce(tensor, dist.ReduceOp.MAX, group=gloo),
        "gloo all_gather_into_tensor": lambda: dist.all_gather_into_tensor(
            gathered, tensor, group=gloo
        ),
    }
    best = {}
    for _ in range(options.rounds):
        for name, call in variants.items():
            repeat = 100 if "gloo" in name else 1000
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(repeat):
                call()
            took = (time.perf_counter() - begin) / repeat * 1e6
            best[name] = min(best.get(name, took), took)
    if rank == 0:
        results.put(best)
    dist.destroy_process_group()


def small_calls(options):
    print("64 bytes, microseconds of one call, best of", options.rounds, "rounds")
    for ranks in map(int, options.ranks.split(",")):
        for best in results_of(calls, ranks, options):
            print(f"{ranks} ranks:", *(f"{name} {took:.2f};" for name, took in best.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--kinds", default="fsdp2,ddp")
    parser.add_argument("--sizes", default="small,medium,large")
    parser.add_argument("--types", default="f32,bf16")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--calls", action="store_true", help="small calls instead of steps")
    parser.add_argument("--json", help="file for all times")
    options = parser.parse_args()
    (small_calls if options.calls else steps)(options)


if __name__ == "__main__":
    sys.exit(main())

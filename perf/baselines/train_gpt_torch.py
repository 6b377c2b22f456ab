#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""The model of fsdp/examples/train_gpt in eager PyTorch, the reference for vescomm's training step.

    train_gpt_torch.py --layers 6 --dim 256 --heads 4 --context 256 --batch 2 --dtype f32
    train_gpt_torch.py ... --ranks 4 --fsdp fsdp2 --dtype bf16 --json out.json

Every rank is a process with one thread. PyTorch uses the fastest known settings of eager mode:
fused attention, multi-tensor clipping, and the faster of AdamW's two fast implementations, which is
determined before the measurement.

bf16        one process and DDP: f32 parameters under autocast; FSDP2: bf16 parameters, f32 reduction
bf16-pure   parameters in bf16 and a hand-written master copy in f32; one process only
"""

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed
import torch.multiprocessing
import torch.nn.functional as F
from torch import nn

VOCABULARY = 256


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x):
        batch, context, dim = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, context, 3, self.heads, dim // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(batch, context, dim))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, dim, heads, context):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, dim)
        self.position = nn.Embedding(context, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, VOCABULARY, bias=False)
        self.register_buffer("positions", torch.arange(context), persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                continue
            residual = name.endswith(("proj.weight", "down.weight"))
            deviation = 0.02 / (2 * layers) ** 0.5 if residual else 0.02
            nn.init.normal_(parameter, std=deviation)
        for module in self.modules():
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, inputs, targets):
        x = self.token(inputs) + self.position(self.positions)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


class Data:
    """Batches of [batch][context + 1] bytes: from random places of a file, or random."""

    def __init__(self, options, rank):
        self.options = options
        self.random = torch.Generator().manual_seed(1000 * options.seed + rank)
        self.bytes = None
        if options.data:
            self.bytes = torch.frombuffer(bytearray(open(options.data, "rb").read()),
                                          dtype=torch.uint8)

    def next(self):
        batch, length = self.options.batch, self.options.context + 1
        if self.bytes is None:
            rows = torch.randint(0, VOCABULARY, (batch, length), generator=self.random)
        else:
            starts = torch.randint(0, len(self.bytes) - length + 1, (batch,),
                                   generator=self.random)
            rows = torch.stack([self.bytes[s : s + length] for s in starts.tolist()]).long()
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


class Trainer:
    """One step: forward, backward, clip, AdamW."""

    def __init__(self, options):
        self.options = options
        torch.manual_seed(options.seed)
        self.model = Gpt(options.layers, options.dim, options.heads, options.context)
        self.elements = sum(p.numel() for p in self.model.parameters())
        self.pure = options.dtype == "bf16-pure"
        self.autocast = options.dtype == "bf16" and options.fsdp != "fsdp2"
        self.masters = None
        if self.pure:
            self.masters = [p.detach().clone() for p in self.model.parameters()]
            for master in self.masters:
                master.grad = torch.zeros_like(master)
            self.model.bfloat16()
        self.model = self.distribute(self.model)
        self.parameters = list(self.model.parameters())
        self.optimizer = None

    def distribute(self, model):
        if self.options.fsdp == "ddp":
            return nn.parallel.DistributedDataParallel(model)
        if self.options.fsdp == "fsdp2":
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

            settings = {"mesh": init_device_mesh("cpu", (self.options.ranks,))}
            if self.options.dtype == "bf16":
                settings["mp_policy"] = MixedPrecisionPolicy(
                    param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            for block in model.blocks:
                fully_shard(block, **settings)
            fully_shard(model, **settings)
        return model

    def use_optimizer(self, kind):
        self.optimizer = torch.optim.AdamW(self.masters or self.parameters, lr=3e-4,
                                           betas=(0.9, 0.95), weight_decay=0.1, **{kind: True})

    def compute(self, inputs, targets):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            loss = self.model(inputs, targets)
        loss.backward()
        return loss

    def update(self):
        if self.pure:
            torch._foreach_copy_([m.grad for m in self.masters],
                                 [p.grad for p in self.parameters])
        nn.utils.clip_grad_norm_(self.masters or self.parameters, 1.0, foreach=True)
        self.optimizer.step()
        if self.pure:
            torch._foreach_copy_([p.detach() for p in self.parameters], self.masters)
        for parameter in self.parameters:
            parameter.grad = None


def faster_optimizer(trainer, data, options):
    """Returns the faster optimizer, by the best of three updates each. Rank 0 decides for all."""
    if options.optimizer != "auto":
        return options.optimizer
    best = []
    for kind in ("foreach", "fused"):
        trainer.use_optimizer(kind)
        seconds = []
        for _ in range(4):
            trainer.compute(*data.next())
            start = time.perf_counter()
            trainer.update()
            seconds.append(time.perf_counter() - start)
        best.append((min(seconds[1:]), kind))
    choice = [min(best)[1]]
    if options.ranks > 1:
        torch.distributed.broadcast_object_list(choice)
    return choice[0]


def peak_bytes():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def proportional_bytes():
    """Returns the proportional set size of this process: shared pages count as a part."""
    for line in open("/proc/self/smaps_rollup"):
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def node_bytes(ranks):
    """Returns the memory of all ranks, which are on one node. None of them goes on meanwhile."""
    if ranks == 1:
        return proportional_bytes()
    torch.distributed.barrier()
    total = torch.tensor([proportional_bytes()], dtype=torch.int64)
    torch.distributed.all_reduce(total)
    return total.item()


def load_lazily(options, rank):
    """Trains a tiny model, so that PyTorch has loaded all modules and libraries that it uses."""
    tiny = argparse.Namespace(**{**vars(options), "layers": 1, "dim": 8 * options.heads,
                                 "context": 16, "batch": 1, "data": None})
    trainer = Trainer(tiny)
    data = Data(tiny, rank)
    for kind in ("foreach", "fused"):
        trainer.use_optimizer(kind)
        trainer.compute(*data.next())
        trainer.update()
    del trainer
    gc.collect()


def worker(rank, options, rendezvous):
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    if options.ranks > 1:
        # The ranks of this benchmark share a machine.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        torch.distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank,
                                             world_size=options.ranks)
    load_lazily(options, rank)
    node_before = node_bytes(options.ranks)
    trainer = Trainer(options)
    data = Data(options, rank)
    kind = faster_optimizer(trainer, data, options)
    trainer.use_optimizer(kind)

    step_ms, compute_ms, losses = [], [], []
    for step in range(options.warmup + options.steps):
        inputs, targets = data.next()
        start = time.perf_counter()
        loss = trainer.compute(inputs, targets)
        computed = time.perf_counter()
        trainer.update()
        end = time.perf_counter()
        losses.append(loss.item())
        if step >= options.warmup:
            step_ms.append(1e3 * (end - start))
            compute_ms.append(1e3 * (computed - start))

    # A step more, without its time: the gradients exist before the update.
    trainer.compute(*data.next())
    node_pss = node_bytes(options.ranks)
    trainer.update()
    node_pss = max(node_pss, node_bytes(options.ranks))

    if rank == 0:
        median = statistics.median(step_ms)
        report = {
            "framework": f"PyTorch {torch.__version__}",
            **{name: getattr(options, name) for name in
               ("layers", "dim", "heads", "context", "batch", "ranks", "fsdp", "dtype", "seed")},
            "parameters": trainer.elements,
            "optimizer": kind,
            "steps": options.steps,
            "step_ms_median": median,
            "step_ms_min": min(step_ms),
            # With several ranks these include the communication that eager mode overlaps.
            "forward_backward_ms_median": statistics.median(compute_ms),
            "forward_backward_ms_min": min(compute_ms),
            "tokens_per_second": 1e3 / median * options.ranks * options.batch * options.context,
            "first_loss": losses[0],
            "last_loss": losses[-1],
            "peak_bytes_of_rank_0": peak_bytes(),
            "node_pss": node_pss,
            "node_pss_before": node_before,
        }
        for name, value in report.items():
            print(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}")
        if options.json:
            with open(options.json, "w") as file:
                json.dump(report, file, indent=1)
    if options.ranks > 1:
        torch.distributed.destroy_process_group()
        # PyTorch 2.15 aborts in one of ten runs while the interpreter of a rank ends.
        sys.stdout.flush()
        os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--batch", type=int, default=2, help="sequences of a rank")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--dtype", choices=["f32", "bf16", "bf16-pure"], default="f32")
    parser.add_argument("--optimizer", choices=["auto", "foreach", "fused"], default="auto")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--fsdp", choices=["none", "fsdp2", "ddp"], default="none")
    parser.add_argument("--data", help="file of bytes to train on; default: random bytes")
    parser.add_argument("--json", help="write the report here too")
    options = parser.parse_args()
    if options.ranks > 1 and options.fsdp == "none":
        parser.error("several ranks need --fsdp fsdp2 or ddp")
    if options.ranks == 1 and options.fsdp != "none":
        parser.error("--fsdp needs --ranks 2 or more")
    if options.dtype == "bf16-pure" and options.ranks > 1:
        parser.error("--dtype bf16-pure is for one process")

    if options.ranks == 1:
        worker(0, options, None)
        return
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(worker, (options, os.path.join(folder, "rendezvous")),
                                    nprocs=options.ranks)


if __name__ == "__main__":
    main()

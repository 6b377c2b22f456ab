#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Small training programs as users of PyTorch write them. They name a backend, and nothing else of it.

    torchrun --nproc-per-node 2 train.py ddp --backend vescomm

Rank 0 prints the loss of each step, averaged over the ranks.
"""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

VOCABULARY, WIDTH, LENGTH, BATCH = 61, 24, 12, 3


class Block(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    """The default sizes are odd: no shard of FSDP is as large as the next."""

    def __init__(self, layers=3, vocabulary=VOCABULARY, hidden=73, sparse=False):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH, sparse=sparse)
        self.blocks = nn.ModuleList(Block(WIDTH, hidden) for _ in range(layers))
        self.head = nn.Linear(WIDTH, vocabulary)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def make_model(**arguments):
    torch.manual_seed(1)
    return Model(**arguments)


def batch(step, rank):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    tokens = torch.randint(VOCABULARY - 1, (BATCH, LENGTH + 1), generator=generator)
    return tokens[:, :-1], tokens[:, 1:]


def loss_of(model, step, rank):
    tokens, targets = batch(step, rank)
    return F.cross_entropy(model(tokens).flatten(0, 1).float(), targets.flatten())


def mean(loss, group=None):
    loss = loss.detach().clone()
    dist.all_reduce(loss, group=group)
    return loss.item() / dist.get_world_size(group)


def fit(model, steps, optimizer=None, first=0, clip=None):
    """Trains, and returns the mean loss of every step."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(first, first + steps):
        loss = loss_of(model, step, dist.get_rank())
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(mean(loss))
    return losses


def ddp(steps):
    from torch.nn.parallel import DistributedDataParallel

    # Small buckets, so that there are several.
    model = DistributedDataParallel(make_model(), bucket_cap_mb=0.01)
    return fit(model, steps)


def ddp_static(steps):
    from torch.nn.parallel import DistributedDataParallel

    model = make_model(layers=2)
    model.unused = nn.Linear(3, 3)
    model = DistributedDataParallel(
        model, find_unused_parameters=True, gradient_as_bucket_view=True, bucket_cap_mb=0.01
    )
    losses = fit(model, steps)
    with model.no_sync():
        loss_of(model, 100, dist.get_rank()).backward()
    losses.append(mean(loss_of(model, 101, dist.get_rank())))
    return losses


def ddp_sparse(steps):
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(make_model(sparse=True))
    return fit(model, steps, torch.optim.SGD(model.parameters(), lr=0.1))


def ddp_uneven(steps, **options):
    """Ranks have different numbers of batches."""
    from torch.distributed.algorithms.join import Join
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(make_model(layers=1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Join([model], **options):
        for step in range(steps + dist.get_rank()):
            loss_of(model, step, dist.get_rank()).backward()
            optimizer.step()
            optimizer.zero_grad()
    return [mean(loss_of(model.module, 100, dist.get_rank()))]


def ddp_divided(steps):
    """As above; gradients are divided by the number of ranks that have batches left."""
    return ddp_uneven(steps, divide_by_initial_world_size=False)


def ddp_bf16_hook(steps):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(make_model(), bucket_cap_mb=0.01)
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    return fit(model, steps)


def ddp_power_sgd(steps):
    """A hook whose callbacks start collectives."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(make_model(), bucket_cap_mb=0.01)
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=1
    )
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    losses = fit(model, steps)
    mine = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    first = mine.clone()
    dist.broadcast(first, 0)
    assert torch.equal(mine, first), "the parameters of ranks differ"
    return losses


def fsdp1(steps):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    model = FullyShardedDataParallel(
        make_model(),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    return fit(model, steps)


def sharded(model, **arguments):
    from torch.distributed.fsdp import fully_shard

    for block in model.blocks:
        fully_shard(block, **arguments)
    return fully_shard(model, **arguments)


def fsdp2(steps):
    return fit(sharded(make_model()), steps, clip=1.0)


def fsdp2_mixed(steps):
    from torch.distributed.fsdp import MixedPrecisionPolicy

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    return fit(sharded(make_model(), mp_policy=policy), steps)


def fsdp2_memory(steps):
    """The buffers of FSDP2 come from the backend, where it has memory."""
    from torch.distributed.fsdp import FSDPModule

    model = sharded(make_model())
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    if backend.supports_tensor_alloc(torch.device("cpu")):
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_allocate_memory_from_process_group_for_comm(True)
    return fit(model, steps)


def fsdp2_divided(steps):
    """PREMUL_SUM where the backend has it."""
    model = sharded(make_model())
    if dist.get_backend() != "gloo":
        for module in model.modules():
            if hasattr(module, "set_gradient_divide_factor"):
                module.set_gradient_divide_factor(2.0 * dist.get_world_size())
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1 if dist.get_backend() == "gloo" else 0.2
    )
    return fit(model, steps, optimizer)


def hsdp(steps):
    from torch.distributed.device_mesh import init_device_mesh

    ranks = dist.get_world_size()
    rows = 2 if ranks % 2 == 0 else 1
    mesh = init_device_mesh("cpu", (rows, ranks // rows), mesh_dim_names=("replicate", "shard"))
    return fit(sharded(make_model(), mesh=mesh), steps)


def tensor_parallel(steps):
    """Tensor and sequence parallel."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tensor",))
    plan = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "blocks.*.norm": SequenceParallel(),
        "blocks.*.up": ColwiseParallel(input_layouts=Shard(1)),
        "blocks.*.down": RowwiseParallel(output_layouts=Shard(1)),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    model = parallelize_module(make_model(vocabulary=60, hidden=60), mesh, plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        loss = loss_of(model, step, 0)  # the same data on every rank
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def pipeline(steps):
    """Send and receive between layers: activations forward, gradients backward."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(2 + rank)
    layer = nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.05)
    losses = []
    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(BATCH, WIDTH, generator=generator)
        if rank > 0:
            x = torch.empty(BATCH, WIDTH)
            dist.recv(x, rank - 1, tag=step)
        x.requires_grad_()
        y = torch.tanh(layer(x))
        loss = torch.zeros(1)
        if rank < ranks - 1:
            dist.isend(y.detach(), rank + 1, tag=step).wait()
            gradient = torch.empty_like(y)
            dist.irecv(gradient, rank + 1, tag=step).wait()
            y.backward(gradient)
        else:
            loss = y.square().mean().view(1)
            loss.backward()
        if rank > 0:
            dist.send(x.grad, rank - 1, tag=step)
        optimizer.step()
        optimizer.zero_grad()
        dist.broadcast(loss := loss.detach(), ranks - 1)
        losses.append(loss.item())
    return losses


def save(path, steps):
    """Trains, and saves model and optimizer, asynchronously: on a group and a thread of their own."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model = sharded(make_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = fit(model, steps, optimizer)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    group = dist.new_group(backend=dist.get_backend())
    saving = dcp.async_save(
        {"model": model_state, "optimizer": optimizer_state}, checkpoint_id=path, process_group=group
    )
    losses += [mean(loss_of(model, 200 + i, 0)) for i in range(3)]
    saving.result()
    return losses


def load(path, steps):
    """Loads what save() has saved, with any number of ranks, and trains on the same data everywhere."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    model = sharded(make_model(layers=3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state}
    dcp.load(state, checkpoint_id=path)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )
    losses = []
    for step in range(steps):
        loss = loss_of(model, 300 + step, 0)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(mean(loss))
    return losses


PROGRAMS = {
    program.__name__: program
    for program in (
        ddp,
        ddp_static,
        ddp_sparse,
        ddp_uneven,
        ddp_divided,
        ddp_bf16_hook,
        fsdp1,
        fsdp2,
        fsdp2_mixed,
        fsdp2_memory,
        fsdp2_divided,
        hsdp,
        tensor_parallel,
        pipeline,
    )
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", choices=[*PROGRAMS, "save", "load"])
    parser.add_argument("--backend", default="vescomm")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--path", default=os.path.join(tempfile.gettempdir(), "checkpoint"))
    arguments = parser.parse_args()
    dist.init_process_group(arguments.backend)
    if arguments.program in PROGRAMS:
        losses = PROGRAMS[arguments.program](arguments.steps)
    else:
        losses = {"save": save, "load": load}[arguments.program](arguments.path, arguments.steps)
    if dist.get_rank() == 0:
        print(*[f"{loss:.6f}" for loss in losses])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

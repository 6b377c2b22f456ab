#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""vescomm.torch.accelerate() with groups of several backends, and forwards that end early."""

import unittest
import warnings

import ranks
import torch
import torch.distributed as dist
import train
import vescomm.torch
from accelerate_test import same
from torch.distributed.fsdp import fully_shard


def warned(function):
    """Calls, and returns the warnings of accelerate()."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [str(each.message) for each in caught if "accelerate" in str(each.message)]


def several_backends():
    """The group has another backend for another device, and is not one of vescomm then."""
    models = []
    for accelerated in (False, True):
        model = train.sharded(train.make_model())

        def fit():
            if accelerated:
                vescomm.torch.accelerate(model)
            train.fit(model, 3)

        assert not warned(fit)
        models.append(model)
    same(*models)
    state = models[1].blocks[0]._get_fsdp_state()
    assert state._states_to_forward_prefetch, "the model is not accelerated"


def separate_group(backend):
    """Gradients are reduced over a group of their own, which has the backend of the world."""
    mesh = None
    if backend == "gloo":
        group = dist.new_group(backend="vescomm")
        mesh = torch.distributed.device_mesh.DeviceMesh.from_group(group, "cpu")
    models = []
    for accelerated in (False, True):
        model = train.sharded(train.make_model(), **({"mesh": mesh} if mesh else {}))
        model.set_separate_reduce_scatter_group(True)

        def fit():
            if accelerated:
                vescomm.torch.accelerate(model)
            train.fit(model, 3)

        said = warned(fit)
        if accelerated and backend == "gloo" and dist.get_rank() == 0:
            assert len(said) == 1 and "a group of another backend" in said[0], said
        else:
            assert not said, said
        models.append(model)
    if backend == "vescomm":
        same(*models)


def replicated():
    from torch.distributed._composable.replicate_with_fsdp import replicate

    model = train.make_model(layers=1)
    for block in model.blocks:
        replicate(block)
    replicate(model)
    said = warned(lambda: vescomm.torch.accelerate(model))
    assert len(said) == (dist.get_rank() == 0), said
    assert not said or "not sharded" in said[0], said
    train.fit(model, 1)


class Layers(torch.nn.Module):
    """Linear layers, of which forward uses the first `depth`."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(4))
        self.depth = 4
        self.raises = False

    def forward(self, x):
        for layer in self.layers[: self.depth]:
            x = torch.tanh(layer(x))
        if self.raises:
            raise KeyError
        return x


class Job:
    """A model and its optimizer."""

    def __init__(self, accelerated, whole=True):
        self.model = Layers()
        for layer in self.model.layers:
            fully_shard(layer)
        if whole:
            fully_shard(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        if accelerated:
            vescomm.torch.accelerate(self.model)
        self.input = torch.full((2, 8), 1.0 + dist.get_rank())
        self.results = []

    def step(self):
        loss = self.model(self.input).sum()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.results.append(loss.item())

    def look(self):
        with torch.no_grad():
            self.results.append(self.model(self.input).sum().item())

    def change(self):
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.to_local().mul_(0.5)


def ends_early(how):
    """A forward prefetches parameters that it does not use, and then the parameters change."""
    jobs = []
    for accelerated in (False, True):
        job = Job(accelerated)
        job.step()
        job.step()
        job.model.depth = 2
        if how == "evaluation":
            job.look()
        elif how == "without backward":
            job.model(job.input)
        elif how == "training":
            job.step()
        elif how == "exception":
            job.model.raises = True
            try:
                job.look()
                raise AssertionError("no exception")
            except KeyError:
                job.model.raises = False
                job.model.reset_iter_state()
        job.change()
        job.model.depth = 4
        job.look()
        job.look()
        job.step()
        job.look()
        jobs.append(job)
    assert jobs[0].results == jobs[1].results, [job.results for job in jobs]


def part_of_a_model():
    """accelerate() is given a part of the model, whose forward is one of the whole model."""
    jobs = []
    for accelerated in (False, True):
        job = Job(False)
        if accelerated:
            vescomm.torch.accelerate(job.model.layers)
        job.step()
        job.step()
        job.model.depth = 2
        job.look()
        job.change()
        job.model.depth = 4
        job.look()
        job.step()
        jobs.append(job)
    assert jobs[0].results == jobs[1].results, [job.results for job in jobs]


class Uses(unittest.TestCase):
    def test_groups_of_several_backends(self):
        for backend in ("cpu:vescomm,cuda:gloo", "cpu:vescomm"):
            ranks.run(2, several_backends, backend=backend)

    def test_groups_of_reductions(self):
        for backend in ("vescomm", "gloo"):
            ranks.run(2, separate_group, backend, backend=backend)

    def test_replicated_modules(self):
        ranks.run(2, replicated)

    def test_forward_that_ends_early(self):
        for how in ("evaluation", "without backward", "training", "exception"):
            with self.subTest(how):
                ranks.run(2, ends_early, how)

    def test_part_of_a_model(self):
        ranks.run(2, part_of_a_model)


if __name__ == "__main__":
    ranks.import_before_fork()
    unittest.main(verbosity=2)

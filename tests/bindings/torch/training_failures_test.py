#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Failures in the middle of a step of DDP, of FSDP2, and of FSDP2 with accelerate(): every rank gets
an exception that names the rank and the reason, and every process ends.
"""

import os
import signal
import threading
import unittest

import failures_test
import ranks
import torch
import torch.distributed as dist
import train
from failures_test import meet, raises, until_failure

TRAINED = ("ddp", "fsdp2", "accelerate")


class Stopping(Exception):
    pass


def make_trained(how):
    """A model of train.py, with DDP, FSDP2, or FSDP2 and accelerate()."""
    if how == "ddp":
        return torch.nn.parallel.DistributedDataParallel(train.make_model(), bucket_cap_mb=0.01)
    model = train.sharded(train.make_model())
    return ranks.vescomm.torch.accelerate(model) if how == "accelerate" else model


def train_until_failure(model):
    while True:
        train.fit(model, 1)


def in_backward(model, call):
    """Calls a function in the middle of each backward pass."""
    model = getattr(model, "module", model)
    model.blocks[1].register_full_backward_hook(lambda *_: call())


def killed_in_training(how):
    """The last rank is killed in its second backward pass."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    model = make_trained(how)
    train.fit(model, 1)
    meet()
    if rank == last:
        in_backward(model, lambda: os.kill(os.getpid(), signal.SIGKILL))
    raises(lambda: train_until_failure(model), f"rank {last}")
    raises(lambda: train_until_failure(model), f"rank {last}")


def mismatched_in_training(how):
    """The last rank makes another call than those of a step."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    model = make_trained(how)
    train.fit(model, 1)
    meet()

    def reduce_doubles():
        while True:
            dist.all_reduce(torch.ones(7, dtype=torch.float64))

    step = reduce_doubles if rank == last else lambda: train_until_failure(model)
    raises(step, f"rank {last}", "all_reduce of ", "f64")


def interrupted_in_training(how):
    """Ctrl-C on the last rank, while it waits in a step for the others. It ends its process."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    store = dist.distributed_c10d._get_default_store()
    model = make_trained(how)
    train.fit(model, 1)
    meet()
    if rank != last:
        in_backward(model, lambda: store.wait(["interrupted"]))
        raises(lambda: train_until_failure(model), f"rank {last}", "KeyboardInterrupt")
        return
    comm = dist.group.WORLD._link.comm
    main = threading.main_thread().ident
    before = comm._counters()["sleeps"]

    def interrupt():
        while comm._counters()["sleeps"] <= before + 1:
            pass
        signal.pthread_kill(main, signal.SIGINT)
        store.clone().set("interrupted", "")

    threading.Thread(target=interrupt, daemon=True).start()
    train_until_failure(model)


def raised_in_hook(how):
    """The hook of one rank raises an exception in the backward pass of a model."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    model = make_trained(how)
    if how == "ddp":

        def hook(state, bucket):
            if rank == last:
                raise Stopping("in the hook")
            work = dist.all_reduce(bucket.buffer(), async_op=True)
            return work.get_future().then(lambda future: future.value()[0])

        model.register_comm_hook(None, hook)
    else:

        def hook():
            if rank == last:
                raise Stopping("in the hook")

        in_backward(model, hook)
    loss = train.loss_of(model, 0, rank)
    if rank == last:
        loss.backward()  # raises
    raises(lambda: (loss.backward(), until_failure()), f"rank {last}", "Stopping: in the hook")


class TrainingFailures(failures_test.FailuresTest):
    def test_exception_in_a_hook(self):
        for how in TRAINED:
            self.check(raised_in_hook, how, raises="in the hook")

    def test_killed_rank_in_training(self):
        for how in TRAINED:
            self.check(killed_in_training, how, kills=True)

    def test_mismatched_calls_in_training(self):
        for how in TRAINED:
            self.check(mismatched_in_training, how)

    def test_interrupt_in_training(self):
        for how in TRAINED:
            self.check(interrupted_in_training, how, raises="KeyboardInterrupt")


if __name__ == "__main__":
    ranks.import_before_fork()
    unittest.main(verbosity=2, warnings="ignore")

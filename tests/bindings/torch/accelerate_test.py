#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""vescomm.torch.accelerate(): the numbers of FSDP2, bit for bit.

    accelerate_test.py          with some features of FSDP2
    accelerate_test.py --all    with all of them
"""

import unittest
import warnings

import ranks
import torch
import torch.distributed as dist
import train
import vescomm.torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

MIXED = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
LOW = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)


def hsdp_mesh():
    size = dist.get_world_size()
    return init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicate", "shard"))


# A change of the model, and the words of the warning to which it leads on rank 0.
def plain():
    return train.sharded(train.make_model()), None


def mixed():
    return train.sharded(train.make_model(), mp_policy=MIXED), None


def low():
    return train.sharded(train.make_model(), mp_policy=LOW), "another type than they have"


def half():
    policy = MixedPrecisionPolicy(reduce_dtype=torch.float16)
    return train.sharded(train.make_model(), mp_policy=policy), "divided after"


def kept():
    return train.sharded(train.make_model(), reshard_after_forward=False), None


def replicated():
    warning = "replicas" if dist.get_world_size() > 2 else "not sharded over several ranks"
    return train.sharded(train.make_model(), mesh=hsdp_mesh()), warning


def divided():
    model = train.sharded(train.make_model())
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(3.0)
    return model, None


def summed():
    model = train.sharded(train.make_model())
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)
    return model, "divided after"


def hooked():
    model = train.sharded(train.make_model())
    model.head.weight.register_post_accumulate_grad_hook(lambda weight: weight.grad.mul_(0.5))
    return model, "post-accumulate-grad hook"


def reduced_by_hook():
    model = train.sharded(train.make_model())
    model.set_all_reduce_hook(lambda gradient: gradient.mul_(0.5))
    return model, "all-reduce hook"


def frozen():
    model = train.make_model()
    for parameter in model.blocks[1].parameters():
        parameter.requires_grad_(False)
    return train.sharded(model), None


FEATURES = [plain, low, replicated, divided]
if ranks.ALL:
    FEATURES += [mixed, half, kept, summed, hooked, reduced_by_hook, frozen]


def same(first, second):
    for (name, one), (_, other) in zip(first.named_parameters(), second.named_parameters()):
        assert torch.equal(one.to_local(), other.to_local()), name


def follow(feature):
    losses, models = [], []
    for accelerated in (False, True):
        model, warning = feature()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if accelerated:
                assert vescomm.torch.accelerate(model) is model
            losses.append(train.fit(model, 4, clip=1.0))
        said = [str(each.message) for each in caught if "accelerate" in str(each.message)]
        if not accelerated or warning is None or dist.get_rank() != 0:
            assert not said, said
        else:
            assert len(said) == 1 and warning in said[0], said
        models.append(model)
    assert losses[0] == losses[1], losses
    same(*models)


def accumulate():
    """Gradients of several batches, with and without their reduction in between."""
    for reduces in (True, False):
        models = []
        for accelerated in (False, True):
            model = train.sharded(train.make_model())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                if accelerated:
                    vescomm.torch.accelerate(model)
                for step in range(3):
                    for part in range(3):
                        model.set_requires_gradient_sync(reduces or part == 2)
                        train.loss_of(model, 3 * step + part, dist.get_rank()).backward()
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=step > 0)
            said = [str(each.message) for each in caught if "accumulated" in str(each.message)]
            assert len(said) == (accelerated and dist.get_rank() == 0), said
            models.append(model)
        same(*models)


def use_registered_memory():
    model = vescomm.torch.accelerate(train.sharded(train.make_model()))
    comm = dist.group.WORLD._get_backend(torch.device("cpu")).link.comm
    before = comm._counters()["bytes_registered"]
    train.fit(model, 3)
    if comm._info()["local_ranks"] > 1:
        assert comm._counters()["bytes_registered"] > before
    states = [module._get_fsdp_state() for module in model.modules() if isinstance(module, FSDPModule)]
    # In the order of forward: the root gathers first, then each block.
    assert [len(state._states_to_forward_prefetch) for state in states] == [1, 1, 1, 0]


def change_order():
    """Forward uses modules in another order than the first time, and leaves some out."""
    models = []
    for accelerated in (False, True):
        model = train.sharded(train.make_model(layers=4))
        if accelerated:
            vescomm.torch.accelerate(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step, order in enumerate(([0, 1, 2, 3], [3, 2, 1, 0], [1, 3], [0, 2, 1, 3], [2])):
            tokens, targets = train.batch(step, dist.get_rank())
            blocks = model.blocks
            model.blocks = torch.nn.ModuleList(blocks[k] for k in order)
            loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
            loss.backward()
            model.blocks = blocks
            optimizer.step()
            optimizer.zero_grad()
        models.append(model)
    same(*models)


def recompute():
    from torch.utils.checkpoint import checkpoint

    models = []
    for accelerated in (False, True):
        model = train.sharded(train.make_model())
        for block in model.blocks:
            block.forward = lambda x, run=block.forward: checkpoint(run, x, use_reentrant=False)
        if accelerated:
            vescomm.torch.accelerate(model)
        train.fit(model, 3)
        models.append(model)
    same(*models)


def decline():
    """Groups of other backends, and models that are not sharded."""
    try:
        vescomm.torch.accelerate(train.make_model())
    except ValueError as error:
        assert "fully_shard" in str(error)
    else:
        raise AssertionError("no error")
    gloo = dist.new_group(backend="gloo")
    mesh = torch.distributed.device_mesh.DeviceMesh.from_group(gloo, "cpu")
    model = train.sharded(train.make_model(), mesh=mesh)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        vescomm.torch.accelerate(model)
    said = [str(each.message) for each in caught if "accelerate" in str(each.message)]
    assert len(said) == (dist.get_rank() == 0), said
    assert not said or "backend vescomm" in said[0], said
    train.fit(model, 2)


def several_groups():
    """A module with parameters on two meshes has two parameter groups."""
    from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo

    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (size, 1), mesh_dim_names=("a", "b"))
    model = train.make_model(layers=1)
    try:
        from torch.distributed.fsdp._fully_shard._fsdp_common import ShardPlacementResult
        from torch.distributed.tensor import Shard
    except ImportError:
        return  # this torch has no such parameters

    other = FSDPMeshInfo(mesh["b"], shard_mesh_dim=0)

    def place(parameter):
        if parameter is model.head.weight:
            return ShardPlacementResult(placement=Shard(0), mesh_info=other)
        return Shard(0)

    fully_shard(model, mesh=mesh["a"], shard_placement_fn=place)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        vescomm.torch.accelerate(model)
    said = [str(each.message) for each in caught if "several parameter groups" in str(each.message)]
    assert len(said) == (dist.get_rank() == 0), said
    train.fit(model, 2)


class Stopping(Exception):
    pass


def backward_that_raises():
    """A backward pass raises an exception on all ranks, and training goes on."""
    models = []
    for accelerated in (False, True):
        model = train.sharded(train.make_model())
        if accelerated:
            vescomm.torch.accelerate(model)
        stops = []

        def hook(*arguments):
            if len(stops) == 1:
                stops.append(True)
                raise Stopping

        model.blocks[0].register_full_backward_hook(hook)
        train.fit(model, 1)
        stops.append(True)
        try:
            train.loss_of(model, 1, dist.get_rank()).backward()
        except Stopping:
            pass
        model.reset_iter_state()
        train.fit(model, 2)
        models.append(model)
    same(*models)


class Accelerate(unittest.TestCase):
    def check(self, function, *arguments, numbers=(2, 3) if ranks.ALL else (3,)):
        for number in numbers:
            with self.subTest(ranks=number, arguments=arguments):
                ranks.run(number, function, *arguments)

    def test_features(self):
        for feature in FEATURES:
            self.check(follow, feature, numbers=(2, 4) if feature is replicated else (3,))

    def test_one_rank(self):
        ranks.run(1, train.fsdp2, 2)

    def test_accumulation(self):
        self.check(accumulate)

    def test_registered_memory(self):
        self.check(use_registered_memory)

    def test_changing_order(self):
        self.check(change_order)

    def test_recomputation(self):
        self.check(recompute, numbers=(3,))

    def test_other_backends(self):
        self.check(decline, numbers=(2,))

    def test_backward_that_raises(self):
        self.check(backward_that_raises)

    def test_several_parameter_groups(self):
        self.check(several_groups, numbers=(2,))


if __name__ == "__main__":
    ranks.import_before_fork()
    unittest.main(verbosity=2)

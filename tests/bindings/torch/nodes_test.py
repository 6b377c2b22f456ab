#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""The training programs of train.py on two emulated nodes: the losses of backend gloo.

    nodes_test.py            a few programs
    nodes_test.py --all      every program, with other numbers of ranks on the nodes
"""

import tempfile
import unittest

import ranks
import train
from training_test import compare

STEPS = 4

# The node of each rank: one rank on each node, consecutive ranks on a node, cyclic placement, nodes
# of different sizes.
PLACES = [(0, 1), (0, 0, 1, 1), (0, 1, 0, 1), (0, 0, 1)] if ranks.ALL else [(0, 0, 1, 1)]
PROGRAMS = list(train.PROGRAMS) if ranks.ALL else ["ddp", "fsdp2", "hsdp"]


def accelerated(steps):
    """FSDP2 with accelerate(): the losses of FSDP2 without it."""
    model = train.sharded(train.make_model())
    ranks.vescomm.torch.accelerate(model)
    return train.fit(model, steps, clip=1.0)


def meshes_match_nodes():
    """In a mesh of whole nodes, the groups of one dimension have one node, those of the other two."""
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    for name, expected in (("replicate", 2), ("shard", 1)):
        found = ranks.nodes_of(mesh.get_group(name))
        assert found == expected, (name, found)


class Nodes(unittest.TestCase):
    def test_programs(self):
        for nodes in PLACES:
            for program in PROGRAMS:
                with self.subTest(program=program, nodes=nodes):
                    run = train.PROGRAMS[program]
                    theirs = ranks.run(len(nodes), run, STEPS, backend="gloo")[0]
                    ours = ranks.run(len(nodes), run, STEPS, nodes=nodes)[0]
                    compare(self, program, ours, theirs, len(nodes))

    def test_accelerate(self):
        for nodes in PLACES:
            with self.subTest(nodes=nodes):
                plain = ranks.run(len(nodes), train.fsdp2, STEPS, nodes=nodes)[0]
                ours = ranks.run(len(nodes), accelerated, STEPS, nodes=nodes)[0]
                self.assertEqual(ours, plain)

    def test_groups_of_a_mesh(self):
        ranks.run(4, meshes_match_nodes, nodes=(0, 0, 1, 1))

    def test_checkpoints(self):
        """Saved on two nodes, loaded on other numbers of ranks and nodes."""
        places = [(0, 0, 1), (0, 1, 0, 1), (0, 0), (0,)] if ranks.ALL else [(0, 0, 1)]
        with tempfile.TemporaryDirectory() as theirs, tempfile.TemporaryDirectory() as ours:
            expected = ranks.run(2, train.save, theirs, STEPS, backend="gloo")[0]
            compare(self, "save", ranks.run(2, train.save, ours, STEPS, nodes=(0, 1))[0], expected, 2)
            for nodes in places:
                with self.subTest(nodes=nodes):
                    size = len(nodes)
                    expected = ranks.run(size, train.load, theirs, STEPS, backend="gloo")[0]
                    loaded = ranks.run(size, train.load, ours, STEPS, nodes=nodes)[0]
                    compare(self, "load", loaded, expected, size)


if __name__ == "__main__":
    ranks.import_before_fork()
    unittest.main(verbosity=2, warnings="ignore")

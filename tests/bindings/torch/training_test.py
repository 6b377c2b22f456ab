#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""The training programs of train.py with backend vescomm: the losses of backend gloo.

    training_test.py            a few programs at two ranks
    training_test.py --all      every program at two, three and four ranks
"""

import tempfile
import unittest

import ranks
import train

PROGRAMS = list(train.PROGRAMS) if ranks.ALL else ["ddp", "ddp_divided", "fsdp2", "tensor_parallel"]
RANKS = (2, 3, 4) if ranks.ALL else (2,)
STEPS = 4


def compare(test, program, ours, theirs, number):
    """Compares losses: of two ranks the same bits, because the order of an addition has no effect."""
    limit = 2e-3 if "mixed" in program or "bf16" in program else 2e-5
    test.assertEqual(len(ours), len(theirs))
    for mine, other in zip(ours, theirs):
        if number == 2:
            test.assertEqual(mine, other)
        else:
            test.assertAlmostEqual(mine, other, delta=limit)


class Training(unittest.TestCase):
    def test_programs(self):
        for program in PROGRAMS:
            for number in RANKS:
                with self.subTest(program=program, ranks=number):
                    run = train.PROGRAMS[program]
                    theirs = ranks.run(number, run, STEPS, backend="gloo")[0]
                    ours = ranks.run(number, run, STEPS)[0]
                    compare(self, program, ours, theirs, number)

    def test_callbacks_that_start_collectives(self):
        """With gloo they start in different orders on the ranks. The results have the same bits each time."""
        for number in (2, 3):
            with self.subTest(ranks=number):
                first, second = (ranks.run(number, train.ddp_power_sgd, STEPS)[0] for _ in range(2))
                self.assertEqual(first, second)

    def test_checkpoints(self):
        """Saved on two ranks, loaded on others."""
        losses = {}
        for backend in ("gloo", "vescomm"):
            with tempfile.TemporaryDirectory() as folder:
                saved = ranks.run(2, train.save, folder, STEPS, backend=backend)[0]
                losses[backend] = {"saved": saved}
                for number in (1, 2, 3, 4) if ranks.ALL else (3,):
                    with self.subTest(ranks=number, backend=backend):
                        loaded = ranks.run(number, train.load, folder, STEPS, backend=backend)[0]
                        losses[backend][number] = loaded
        compare(self, "saved", losses["vescomm"].pop("saved"), losses["gloo"].pop("saved"), 2)
        for number, theirs in losses["gloo"].items():
            with self.subTest(ranks=number):
                compare(self, "loaded", losses["vescomm"][number], theirs, number)


if __name__ == "__main__":
    ranks.import_before_fork()
    unittest.main(verbosity=2, warnings="ignore")

#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""A gathered slab exists once on each node, measured as the sum of the proportional shares (PSS) of
all ranks after each has read every byte. slab_memory_test.py WORKER [CASE...]"""

import sys

import ranks
from ranks import Job, expect, run_cases

WORKER = sys.argv[1]
OVERHEAD_KILOBYTES = 2048  # for each rank: flags, doorbells and partly filled pages


def weigh(nodes, slabs):
    with Job([WORKER, "weigh"], len(nodes), nodes) as job:
        job.expect_success()
        said = [rank.lines[-1].split() for rank in job.ranks.values()]
    slab = int(said[0][said[0].index("slab") + 1])
    share = sum(int(words[words.index("share") + 1]) for words in said)
    grown = max(int(words[words.index("grown") + 1]) for words in said)
    expect(slabs * slab <= share <= slabs * slab + OVERHEAD_KILOBYTES * len(nodes),
           f"{slabs} slabs of {slab} kB weigh {share} kB")
    # No rank has a copy, or a staging buffer as large as its shard. Sanitizers use more memory.
    expect(ranks.SLOW or grown < slab / len(nodes) / 2, f"a rank grew by {grown} kB for a slab of {slab} kB")
    return f"{len(nodes)} ranks, slab {slab} kB, all shares {share} kB, grown {grown} kB at most"


def cases():
    yield "four ranks on one node share one slab", lambda: weigh([0, 0, 0, 0], 1)
    yield "three ranks, two nodes, two slabs", lambda: weigh([0, 1, 0], 2)


if __name__ == "__main__":
    sys.exit(run_cases(cases(), sys.argv[2:]))

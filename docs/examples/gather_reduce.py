# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
#
# Gathers ragged shards and sums ragged shards: vescomm-run -n 3 python gather_reduce.py
import vescomm

with vescomm.Communicator.from_environment() as comm:
    counts = [k + 1 for k in range(comm.ranks)]  # rank k owns k + 1 elements, all of them k
    buffer = vescomm.Buffer(comm, vescomm.Layout.from_counts(counts))
    data, shard = memoryview(buffer.data()), memoryview(buffer.shard())  # no copies

    gather = buffer.create_all_gather_v()
    for i in range(len(shard)):
        shard[i] = comm.rank
    gather.run()
    gathered = " ".join(f"{x:g}" for x in data)

    reduce = buffer.create_reduce_scatter_v()
    reduce.run()
    print(gathered, f"| rank {comm.rank}: {shard[0]:g}")

# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a vescomm program on a Ray cluster: one actor starts and watches each rank.

    python ray_job.py RANKS PROGRAM [ARGUMENT...]
"""

import os
import secrets
import socket
import subprocess
import sys

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote(num_cpus=1, max_restarts=0)
class Rank:
    def listen(self):
        """Opens the socket at which rank 0 listens. Returns its address."""
        host = ray.util.get_node_ip_address()
        self.listener = socket.create_server((host, 0))
        return f"{host}:{self.listener.getsockname()[1]}"

    def run(self, command, variables):
        """Returns the exit code of the program and its output."""
        passed = ()
        if variables["VESCOMM_RANK"] == "0":
            passed = (self.listener.fileno(),)
            variables = {**variables, "VESCOMM_LISTEN_DESCRIPTOR": str(passed[0])}
        process = subprocess.Popen(command, env={**os.environ, **variables}, pass_fds=passed,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if passed:
            self.listener.close()
        output, _ = process.communicate()
        return process.returncode, output


def main():
    ranks, command = int(sys.argv[1]), sys.argv[2:]
    # Without RAY_ADDRESS Ray starts on this machine.
    ray.init(**({} if "RAY_ADDRESS" in os.environ else {"num_cpus": ranks}))
    # All ranks get their place at once, or none.
    group = placement_group([{"CPU": 1}] * ranks, strategy="SPREAD")
    ray.get(group.ready(), timeout=300)
    actors = [Rank.options(scheduling_strategy=PlacementGroupSchedulingStrategy(
        group, placement_group_bundle_index=rank)).remote() for rank in range(ranks)]

    common = {"VESCOMM_RANKS": str(ranks), "VESCOMM_SECRET": secrets.token_hex(32),
              "VESCOMM_ADDRESS": ray.get(actors[0].listen.remote())}
    running = [actor.run.remote(command, {**common, "VESCOMM_RANK": str(rank)})
               for rank, actor in enumerate(actors)]
    failed = False
    for rank, (code, output) in enumerate(ray.get(running)):
        for line in output.splitlines():
            print(f"[{rank}] {line}")
        if code != 0:
            print(f"rank {rank} ended with {code}", file=sys.stderr)
            failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main()

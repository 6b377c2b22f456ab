#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own tests of torch.distributed, which are part of its wheel, with backend vescomm.

    upstream_test.py                         a part of them at three ranks
    upstream_test.py --all                   all at two, three and four ranks
    upstream_test.py --ranks 3 test_barrier  tests whose names contain a text
    upstream_test.py --nodes 2 --all         with the ranks on two emulated nodes, one after another
    upstream_test.py --backend gloo --all    another backend

The module decides at its import, by the name of the backend, which tests apply. Those of gloo do: it
is imported with that name, which is then replaced. Ranks are forked, so a test takes tenths of a
second. Tests that need accelerators are skipped.
"""

import argparse
import collections
import os
import subprocess
import sys
import tempfile
import unittest

# Tests of each part of the interface that take little time.
PART = [
    "test_all_gather_coalesced_with_empty",
    "test_all_reduce_coalesced_sum",
    "test_all_reduce_result_max",
    "test_barrier_timeout_group",
    "test_batch_isend_irecv_gloo_tags",
    "test_broadcast_object_list",
    "test_gather",
    "test_irecv",
    "test_isend_autograd_profiler",
    "test_monitored_barrier_failure_order",
    "test_monitored_barrier_wait_all_ranks",
    "test_new_subgroups_by_enumeration_input_rank_exceeds_world_size",
    "test_reduce_scatter_v",
    "test_scatter_complex",
    "test_send_recv_any_source",
    "test_sparse_all_reduce_sum",
    "test_ddp_logging_data_cpu",
]


def run_tests(backend, number, names, nodes):
    """Runs tests in this process, and prints one line for each. Returns the number of failures."""
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(number), MASTER_ADDR="127.0.0.1")
    os.environ.update(INIT_METHOD=f"file://{os.environ['TEMP_DIR']}/shared", OMP_NUM_THREADS="1")
    import torch
    import torch._dynamo  # before ranks are forked, as it takes seconds
    import torch.testing._internal.distributed.distributed_test as upstream

    torch.set_num_threads(1)
    if backend == "vescomm":
        import vescomm.torch

        vescomm.torch.register()
    # Else tests of sub-groups are skipped below eight ranks.
    if number > 2:
        os.environ["BACKEND"] = "mpi"

    class Name(str):
        """The name of the backend, to which conditions on gloo apply too."""

        __hash__ = str.__hash__

        def __eq__(self, other):
            return str(other) in (str.__str__(self), "gloo")

        def __ne__(self, other):
            return not self == other

    upstream.BACKEND = Name(backend)

    class Upstream(upstream.TestDistBackend, upstream.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        @classmethod
        def _run(cls, rank, *arguments, **named):
            if nodes > 1:
                os.environ["VESCOMM_NODE"] = f"emulated {rank % nodes}"
            super()._run(rank, *arguments, **named)

        def run_test(self, *arguments):
            require_nodes(min(nodes, number))
            super().run_test(*arguments)

    def require_nodes(expected):
        if backend == "vescomm":
            link = torch.distributed.group.WORLD._get_backend(torch.device("cpu")).link
            found = link.comm._info()["nodes"]
            assert found == expected, f"the ranks are on {found} nodes, not on {expected}"

    class Result(unittest.TextTestResult):
        def _line(self, test, outcome, why=""):
            print(f"{outcome:5} {test._testMethodName} {why}".rstrip(), flush=True)

        def addSuccess(self, test):
            self._line(test, "ok")

        def addSkip(self, test, reason):
            self._line(test, "skip", str(reason))

        def addError(self, test, error):
            super().addError(test, error)
            self._line(test, "FAIL")

        addFailure = addError

    loader = unittest.TestLoader()
    if names:
        loader.testNamePatterns = [f"*{name}*" for name in names]
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        runner = unittest.TextTestRunner(nowhere, resultclass=Result, warnings="ignore")
        result = runner.run(loader.loadTestsFromTestCase(Upstream))
    for _, text in result.errors + result.failures:
        print(text)
    return len(result.errors) + len(result.failures)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--backend", default="vescomm")
    parser.add_argument("--ranks", default="", help="numbers of ranks, as in 2,3")
    parser.add_argument("--nodes", type=int, default=1, help="emulated nodes for the ranks")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        return run_tests(options.backend, int(options.ranks), options.names, options.nodes) > 0
    try:
        import expecttest  # noqa: F401
        import hypothesis  # noqa: F401
        import numpy  # noqa: F401
        import torch.testing._internal.distributed.distributed_test as upstream  # noqa: F401
    except KeyError:
        pass  # it asks for BACKEND
    except ImportError as error:
        print(f"skipped: {error}; pip install torch numpy expecttest hypothesis", file=sys.stderr)
        return 77
    names = options.names or ([] if options.all else PART)
    numbers = options.ranks or ("2,3,4" if options.all else "3")
    failed = False
    for number in numbers.split(","):
        with tempfile.TemporaryDirectory(prefix="vescomm-upstream-") as folder:
            command = [sys.executable, __file__, "--here", "--ranks", number]
            command += ["--backend", options.backend, "--nodes", str(options.nodes), *names]
            done = subprocess.run(
                command,
                env=dict(os.environ, TEMP_DIR=folder),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                check=False,
            )
        outcomes = collections.Counter(
            line.split()[0] for line in done.stdout.splitlines() if line[:5].strip() in ("ok", "skip", "FAIL")
        )
        where = f" on {options.nodes} nodes" if options.nodes > 1 else ""
        print(f"{number} ranks{where}: {outcomes['ok']} passed, {outcomes['FAIL']} failed, {outcomes['skip']} skipped")
        if done.returncode != 0 or outcomes["ok"] == 0:
            failed = True
            print(done.stdout)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""all_reduce of sparse tensors: every rank gathers the entries of all ranks and adds them."""

import torch
from torch.distributed import ReduceOp

from .calls import Calls, Given, options, single
from .errors import BackendError
from .operation import Operation
from .work import Work


class _Complete:
    """A request that is complete."""

    def wait(self, seconds=None):
        return True

    def test(self):
        return True


class _Now(Given):
    asyncOp = False


class SparseReductions(Calls):
    # The sizes of the gathers are the results of other gathers, so the call returns only when it is
    # complete, also if its options ask for an asynchronous operation.
    def allreduce_sparse(self, tensors, opts=None):
        tensor = single(tensors, "allreduce of a sparse tensor")
        opts = options(opts)
        if opts.reduceOp.op != ReduceOp.SUM:
            raise ValueError(
                f"vescomm: cannot reduce sparse tensors with {opts.reduceOp.op}; use SUM"
            )
        if tensor.layout != torch.sparse_coo or not tensor.is_cpu:
            raise ValueError(
                f"vescomm: cannot reduce a {tensor.layout} tensor on {tensor.device}; use a "
                "sparse_coo tensor of device cpu"
            )
        coalesced = tensor.coalesce()
        tensor.copy_(self._sum(coalesced))
        if not opts.asyncOp:
            return None
        operation = Operation(self._link, _Complete(), "all_reduce", None, [tensor])
        operation.test()
        return Work(operation)

    def _sum(self, mine):
        indices, values = mine.indices(), mine.values()
        shapes = self._shapes(mine)
        counts = [shape[0] for shape in shapes]
        rows = mine.sparse_dim()
        all_indices = [torch.empty((rows, count), dtype=torch.int64) for count in counts]
        all_values = [torch.empty((count, *values.shape[1:]), dtype=values.dtype) for count in counts]
        now = _Now()
        self.allgather([all_indices], [indices], now)
        self.allgather([all_values], [values], now)
        joined = torch.sparse_coo_tensor(
            torch.cat(all_indices, 1), torch.cat(all_values), mine.shape, check_invariants=False
        )
        return joined.coalesce()

    def _shapes(self, mine):
        """Number of entries, and shape, of every rank; the shapes must be equal."""
        shape = [mine._nnz(), mine.sparse_dim(), mine.dim(), *mine.shape]
        length = 16
        if len(shape) > length:
            raise ValueError(f"vescomm: a sparse tensor of {mine.dim()} dimensions has too many")
        given = torch.zeros(length, dtype=torch.int64)
        given[: len(shape)] = torch.tensor(shape)
        every = torch.empty((self._link.size, length), dtype=torch.int64)
        self.all_gather_single(every, given, _Now())
        for rank, other in enumerate(every.tolist()):
            if other[1:] != every[0].tolist()[1:]:
                raise BackendError(
                    f"vescomm: the sparse tensors of rank 0 and rank {rank} have different shapes: "
                    f"{every[0].tolist()[3:]} and {other[3:]}"
                )
        return every.tolist()

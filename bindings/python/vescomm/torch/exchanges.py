# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Calls that send different elements to different ranks, or those of one rank to all: broadcast,
scatter, all_to_all.
"""

import torch

from .. import _core
from .arrays import Copies, contiguous, sources
from .calls import Calls, options, require_equal, require_types, single
from .dtypes import moved

_broadcast = _core.Communicator.start_broadcast_at
_scatter_v = _core.Communicator.start_scatter_v_at
_all_to_all = _core.Communicator.start_all_to_all_at
_all_to_all_v = _core.Communicator.start_all_to_all_v_at


class Exchanges(Calls):
    def broadcast(self, tensors, opts=None, *more, **named):
        tensor = single(tensors, "broadcast")
        opts = options(opts, more, named)
        copies = Copies()
        root = opts.rootRank
        data = contiguous(tensor) if root == self._link.rank else copies.output(tensor)
        request = self._link.start(
            data, _broadcast, data.data_ptr(), data.numel(), moved(data.dtype), root
        )
        return self._end(request, opts, "broadcast", data, [tensor], data.nbytes, copies)

    def scatter(self, outputs, inputs, opts=None, *more, **named):
        if isinstance(outputs, torch.Tensor):
            inputs = [inputs] if inputs else []
        output = single(outputs, "scatter")
        opts = options(opts, more, named)
        parts = None
        if opts.rootRank == self._link.rank:
            parts = self._each(single(inputs, "scatter"), "scatter", "inputs")
            require_equal(parts, output, "scatter", "inputs", "output")
        request, kept, copies = self._start(self._scatter_call, output, parts, opts.rootRank)
        return self._end(request, opts, "scatter", kept, [output], output.nbytes, copies)

    def _scatter_call(self, output, parts, root, apart=False):
        counts = [output.numel()] * self._link.size
        address, offsets, source = 0, None, None
        if parts is not None:
            address, offsets, source = sources(parts, counts, apart)
        copies = Copies()
        target = copies.output(output)
        arguments = (address, target.data_ptr(), counts, offsets, moved(output.dtype), root)
        return (_scatter_v, *arguments), (source, target), copies

    def all_to_all_single(self, output, input, output_splits, input_splits, opts=None, *more, **named):
        opts = options(opts, more, named)
        require_types([output, input], "all_to_all")
        given = taken = None
        if output_splits or input_splits:
            given = self._splits(input, input_splits, "input")
            taken = self._splits(output, output_splits, "output")
        elif output.numel() != input.numel() or input.numel() % self._link.size:
            raise ValueError(
                f"vescomm: all_to_all without splits has {input.numel()} elements as input and "
                f"{output.numel()} as output; the numbers must be equal, and multiples of the "
                f"{self._link.size} ranks"
            )
        else:
            self._require_rows(input, "input")
            self._require_rows(output, "output")
        request, kept, copies = self._start(
            self._all_to_all_single_call, output, input, given, taken
        )
        nbytes = max(input.nbytes, output.nbytes)
        return self._end(request, opts, "all_to_all", kept, [output], nbytes, copies)

    def _require_rows(self, tensor, name):
        """A block of each rank must be whole rows."""
        if tensor.numel() and tensor.shape[0] % self._link.size:
            raise ValueError(
                f"vescomm: all_to_all without splits has {name} of shape {tuple(tensor.shape)}; "
                f"dimension 0 must be a multiple of the {self._link.size} ranks, or give splits"
            )

    def _all_to_all_single_call(self, output, input, given, taken, apart=False):
        copies = Copies()
        target = copies.output(output)
        source = contiguous(input, apart)
        number = moved(source.dtype)
        begin, end = source.data_ptr(), target.data_ptr()
        if given is None:
            call = (_all_to_all, begin, end, source.numel() // self._link.size, number)
        else:
            call = (_all_to_all_v, begin, given, None, end, taken, None, number)
        return call, (source, target), copies

    def alltoall(self, outputs, inputs, opts=None, *more, **named):
        opts = options(opts, more, named)
        outputs = self._each(outputs, "all_to_all", "outputs")
        inputs = self._each(inputs, "all_to_all", "inputs")
        require_types([*outputs, *inputs], "all_to_all")
        request, kept, copies = self._start(self._all_to_all_call, outputs, inputs)
        nbytes = max(sum(each.nbytes for each in inputs), sum(each.nbytes for each in outputs))
        return self._end(request, opts, "all_to_all", kept, list(outputs), nbytes, copies)

    def _all_to_all_call(self, outputs, inputs, apart=False):
        given = [input.numel() for input in inputs]
        taken = [output.numel() for output in outputs]
        source, source_offsets, kept_source = sources(inputs, given, apart)
        copies = Copies()
        target, target_offsets, kept_target = copies.outputs(outputs, taken, apart)
        number = moved(inputs[0].dtype)
        arguments = (source, given, source_offsets, target, taken, target_offsets, number)
        return (_all_to_all_v, *arguments), (kept_source, kept_target), copies

    def _splits(self, tensor, splits, name):
        """Elements for each rank, of splits of the first dimension."""
        rows = tensor.shape[0] if tensor.dim() else 1
        size = self._link.size
        if not splits:
            splits = [rows // size] * size
        if len(splits) != size or sum(splits) != rows:
            raise ValueError(
                f"vescomm: the splits of the {name} of all_to_all are {list(splits)}; give one for "
                f"each of the {size} ranks, with the sum {rows}, the size of dimension 0"
            )
        row = tensor.numel() // rows if rows else 0
        return [split * row for split in splits]

# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Reductions: all_reduce, reduce, reduce_scatter."""

import torch

from .. import _core
from .arrays import Copies, contiguous, is_plain, joined, overlap, tangled
from .calls import Calls, options, require_pairs, require_types, require_whole, single
from .dtypes import reduced

_all_reduce = _core.Communicator.start_all_reduce_at
_all_reduce_in_group = _core.Communicator.all_reduce_at
_reduce = _core.Communicator.start_reduce_at
_reduce_scatter = _core.Communicator.start_reduce_scatter_at
_reduce_scatter_in_group = _core.Communicator.reduce_scatter_at
_reduce_scatter_v = _core.Communicator.start_reduce_scatter_v_at


class Reductions(Calls):
    def allreduce(self, tensors, opts=None, *more, **named):
        tensor = single(tensors, "allreduce")
        opts = options(opts, more, named)
        if tensor.is_sparse:
            return self.allreduce_sparse([tensor], opts)
        copies = None
        data = tensor
        if not is_plain(tensor):
            copies = Copies()
            data = copies.in_place(tensor)
        data, number, operator, more = reduced(data, opts.reduceOp)
        address, count = data.data_ptr(), data.numel()
        request = self._link.start(
            data, _all_reduce, address, address, count, number, operator, *more
        )
        return self._end(request, opts, "all_reduce", data, [tensor], data.nbytes, copies)

    def allreduce_coalesced(self, tensors, opts=None):
        opts = options(opts)
        copies = Copies()
        calls, kept, nbytes = [], [], 0
        apart = tangled([((tensor,), ()) for tensor in tensors])
        for tensor in tensors:
            data, number, operator, more = reduced(copies.in_place(tensor, apart), opts.reduceOp)
            address = data.data_ptr()
            calls.append(
                (_all_reduce_in_group, address, address, data.numel(), number, operator, *more)
            )
            kept.append(data)
            nbytes += data.nbytes
        return self._end_group(calls, opts, "all_reduce", kept, list(tensors), nbytes, copies)

    def reduce(self, tensors, opts=None, *more, **named):
        tensor = single(tensors, "reduce")
        opts = options(opts, more, named)
        copies = Copies()
        root = opts.rootRank
        data = copies.in_place(tensor) if root == self._link.rank else contiguous(tensor)
        data, number, operator, more = reduced(data, opts.reduceOp)
        address = data.data_ptr()
        request = self._link.start(
            data, _reduce, address, address, data.numel(), number, operator, root, *more
        )
        return self._end(request, opts, "reduce", data, [tensor], data.nbytes, copies)

    def reduce_scatter_single(self, output, input, opts=None):
        opts = options(opts)
        request, kept, copies = self._start(
            self._reduce_scatter_call, _reduce_scatter, output, input, opts
        )
        return self._end(
            request, opts, "reduce_scatter", kept, [output], input.nbytes, copies
        )

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        opts = options(opts)
        require_pairs(outputs, inputs, "reduce_scatter")
        if len(outputs) == 1:
            return self.reduce_scatter_single(outputs[0], inputs[0], opts)
        copies = Copies()
        calls, kept, nbytes = [], [], 0
        all_apart = tangled([((output,), (input,)) for output, input in zip(outputs, inputs)])
        for output, input in zip(outputs, inputs):
            # A call that is refused breaks a group.
            own = output.data_ptr() - self._link.rank * output.nbytes
            call, keep, _ = self._reduce_scatter_call(
                _reduce_scatter_in_group,
                output,
                input,
                opts,
                copies,
                apart=all_apart or overlap([output], input, own),
                output_apart=all_apart,
            )
            calls.append(call)
            kept.append(keep)
            nbytes += input.nbytes
        return self._end_group(
            calls, opts, "reduce_scatter", kept, list(outputs), nbytes, copies
        )

    def _reduce_scatter_call(
        self, call, output, input, opts, copies=None, apart=False, output_apart=False
    ):
        if copies is None:
            copies = Copies()
        require_whole(input, output, self._link.size, "reduce_scatter", "input", "output")
        source = contiguous(input, apart)
        target = copies.output(output, output_apart)
        source, number, operator, more = reduced(source, opts.reduceOp)
        target = reduced(target, opts.reduceOp)[0]
        arguments = (source.data_ptr(), target.data_ptr(), target.numel(), number, operator, *more)
        return (call, *arguments), (source, target), copies

    def reduce_scatter(self, outputs, inputs, opts=None, *more, **named):
        if isinstance(outputs, torch.Tensor):
            inputs = [inputs]
        output = single(outputs, "reduce_scatter")
        opts = options(opts, more, named)
        parts = self._each(single(inputs, "reduce_scatter"), "reduce_scatter", "inputs")
        counts = [part.numel() for part in parts]
        if output.numel() != counts[self._link.rank]:
            raise ValueError(
                f"vescomm: the output of reduce_scatter has {output.numel()} elements on rank "
                f"{self._link.rank}, and the input for this rank {counts[self._link.rank]}; they "
                "must be equal"
            )
        require_types([output, *parts], "reduce_scatter")
        request, kept, copies = self._start(
            self._reduce_scatter_v_call, output, parts, counts, opts
        )
        nbytes = sum(counts) * output.element_size()
        return self._end(request, opts, "reduce_scatter", kept, [output], nbytes, copies)

    def _reduce_scatter_v_call(self, output, parts, counts, opts, apart=False):
        copies = Copies()
        target, number, operator, more = reduced(copies.output(output), opts.reduceOp)
        source = joined(parts, apart)
        if output.dtype == torch.complex32:
            counts = [2 * count for count in counts]
        arguments = (source.data_ptr(), target.data_ptr(), counts, number, operator, *more)
        return (_reduce_scatter_v, *arguments), (source, target), copies

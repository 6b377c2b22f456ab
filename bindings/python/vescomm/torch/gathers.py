# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Gathers: all_gather, gather."""

import torch

from .. import _core
from .arrays import Copies, contiguous, overlap, tangled
from .calls import Calls, options, require_equal, require_pairs, require_types, require_whole, single
from .dtypes import moved

_all_gather = _core.Communicator.start_all_gather_at
_all_gather_in_group = _core.Communicator.all_gather_at
_all_gather_v = _core.Communicator.start_all_gather_v_at
_all_gather_v_in_group = _core.Communicator.all_gather_v_at
_gather_v = _core.Communicator.start_gather_v_at


class Gathers(Calls):
    def all_gather_single(self, output, input, opts=None):
        opts = options(opts)
        request, kept, copies = self._start(self._all_gather_call, _all_gather, output, input)
        return self._end(request, opts, "all_gather", kept, [output], output.nbytes, copies)

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        opts = options(opts)
        require_pairs(outputs, inputs, "all_gather")
        if len(outputs) == 1:
            return self.all_gather_single(outputs[0], inputs[0], opts)
        copies = Copies()
        calls, kept, nbytes = [], [], 0
        all_apart = tangled([((output,), (input,)) for output, input in zip(outputs, inputs)])
        for output, input in zip(outputs, inputs):
            # A call that is refused breaks a group.
            own = output.data_ptr() + self._link.rank * input.nbytes
            apart = all_apart or overlap([output], input, own)
            call, keep, _ = self._all_gather_call(
                _all_gather_in_group, output, input, copies, apart, all_apart
            )
            calls.append(call)
            kept.append(keep)
            nbytes += output.nbytes
        return self._end_group(calls, opts, "all_gather", kept, list(outputs), nbytes, copies)

    def _all_gather_call(
        self, call, output, input, copies=None, apart=False, output_apart=False
    ):
        if copies is None:
            copies = Copies()
        require_whole(output, input, self._link.size, "all_gather", "output", "input")
        source = contiguous(input, apart)
        target = copies.output(output, output_apart)
        arguments = (source.data_ptr(), target.data_ptr(), source.numel(), moved(source.dtype))
        return (call, *arguments), (source, target), copies

    def allgather(self, outputs, inputs, opts=None, *more, **named):
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        input = single(inputs, "all_gather")
        opts = options(opts, more, named)
        parts = self._each(single(outputs, "all_gather"), "all_gather", "outputs")
        request, kept, copies = self._start(self._all_gather_v_call, _all_gather_v, parts, input)
        nbytes = sum(part.nbytes for part in parts)
        return self._end(request, opts, "all_gather", kept, list(parts), nbytes, copies)

    # outputs[k][i] gets the i-th tensor of rank k.
    def allgather_coalesced(self, outputs, inputs, opts=None):
        opts = options(opts)
        self._each(outputs, "all_gather", "lists of outputs")
        for parts in outputs:
            require_pairs(parts, inputs, "all_gather")
        copies = Copies()
        calls, kept, nbytes = [], [], 0
        lists = [[parts[i] for parts in outputs] for i in range(len(inputs))]
        all_apart = tangled([(parts, (input,)) for parts, input in zip(lists, inputs)])
        for parts, input in zip(lists, inputs):
            apart = all_apart or overlap(parts, input, parts[self._link.rank].data_ptr())
            call, keep, _ = self._all_gather_v_call(
                _all_gather_v_in_group, parts, input, copies, apart
            )
            calls.append(call)
            kept.append(keep)
            nbytes += sum(part.nbytes for part in parts)
        result = [part for parts in outputs for part in parts]
        return self._end_group(calls, opts, "all_gather", kept, result, nbytes, copies)

    def _all_gather_v_call(self, call, parts, input, copies=None, apart=False):
        if copies is None:
            copies = Copies()
        rank = self._link.rank
        require_types([input, *parts], "all_gather")
        counts = [part.numel() for part in parts]
        if input.numel() != counts[rank]:
            raise ValueError(
                f"vescomm: the input of all_gather has {input.numel()} elements on rank {rank}, and "
                f"the output for it {counts[rank]}; they must be equal"
            )
        source = contiguous(input, apart)
        address, offsets, kept = copies.outputs(parts, counts, apart)
        arguments = (source.data_ptr(), address, counts, offsets, moved(source.dtype))
        return (call, *arguments), (source, kept), copies

    def gather(self, outputs, inputs, opts=None, *more, **named):
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs] if outputs else [], [inputs]
        input = single(inputs, "gather")
        opts = options(opts, more, named)
        if opts.rootRank != self._link.rank:
            return self._gather(input, None, [], opts)
        parts = self._each(single(outputs, "gather"), "gather", "outputs")
        require_equal(parts, input, "gather", "outputs", "input")
        counts = [input.numel()] * self._link.size

        def outputs_of(copies, apart):
            return copies.outputs(parts, counts, apart)

        return self._gather(input, outputs_of, list(parts), opts)

    def gather_single(self, output, input, opts=None):
        opts = options(opts)
        if opts.rootRank != self._link.rank:
            return self._gather(input, None, [output], opts)
        require_whole(output, input, self._link.size, "gather", "output", "input")

        def outputs_of(copies, apart):
            target = copies.output(output)
            return target.data_ptr(), None, target

        return self._gather(input, outputs_of, [output], opts)

    def _gather(self, input, outputs_of, result, opts):
        """outputs_of: None, or on the root a function that returns what Copies.outputs() does."""
        request, kept, copies = self._start(self._gather_call, input, outputs_of, opts.rootRank)
        nbytes = input.nbytes * self._link.size
        return self._end(request, opts, "gather", kept, result, nbytes, copies)

    def _gather_call(self, input, outputs_of, root, apart=False):
        source = contiguous(input, apart)
        copies = Copies()
        address, offsets, target = 0, None, None
        if outputs_of is not None:
            address, offsets, target = outputs_of(copies, apart)
        counts = [source.numel()] * self._link.size
        arguments = (source.data_ptr(), address, counts, offsets, moved(source.dtype), root)
        return (_gather_v, *arguments), (source, target), copies

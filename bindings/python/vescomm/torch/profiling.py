# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Spans of collectives and messages in torch's profiler, such as vescomm:all_reduce.

A span of an asynchronous operation ends when the operation does. Its events have no shapes: torch
records shapes of synchronous spans only, for callers in Python.
"""

import functools

import torch

_enabled = torch.autograd._profiler_enabled

NAMES = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "allreduce_sparse": "all_reduce",
    "reduce": "reduce",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_single_coalesced": "reduce_scatter",
    "allgather": "all_gather",
    "allgather_coalesced": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_single_coalesced": "all_gather",
    "gather": "gather",
    "gather_single": "gather",
    "broadcast": "broadcast",
    "scatter": "scatter",
    "alltoall": "all_to_all",
    "all_to_all_single": "all_to_all",
    "send": "send",
    "recv": "recv",
    "recv_anysource": "recvAnySource",
    "barrier": "barrier",
}


def profiled(method, name):
    """The method with a span around it, if the profiler runs."""
    span = f"vescomm:{name}"

    @functools.wraps(method)
    def call(self, *arguments, **named):
        if not _enabled():
            return method(self, *arguments, **named)
        recorded = torch.autograd.profiler.record_function(span)
        recorded.__enter__()
        work = None
        try:
            work = method(self, *arguments, **named)
        finally:
            if work is None:
                recorded.__exit__(None, None, None)
        if work is not None:
            # A program may end the profiler as soon as its wait has returned. A span that another
            # thread ended after that would write into the profiler's freed memory.
            ended = torch.futures.Future()
            recorded._call_end_callbacks_on_future(ended)
            operation = work._operation
            operation.before_done(functools.partial(ended.set_result, None))
            operation.link.complete_in_thread(operation)
        return work

    return call

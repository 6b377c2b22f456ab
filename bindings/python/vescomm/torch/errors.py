# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Failures as the exceptions of torch.distributed."""

import torch.distributed as dist

from .. import errors

_Backend = getattr(dist, "DistBackendError", RuntimeError)


class BackendError(_Backend):
    """An operation failed, and its group is unusable. str() has the sentence of the library.

    Attributes:
        rank: group rank that the sentence blames, or None.
        status: number of the error, as in vescomm.h.
    """

    rank = None
    status = errors.InternalError.status


def failure_of(error, what):
    """The exception to raise for one that an operation raised."""
    if not isinstance(error, errors.Error) or isinstance(error, ValueError):
        return error
    timed_out = " Timed out in" if isinstance(error, errors.TimeoutError) else ""
    # The variable has no effect on groups of torch.
    text = str(error).replace("raise VESCOMM_TIMEOUT_SECONDS", "give the group a longer timeout")
    raised = BackendError(f"vescomm:{timed_out} {what}: {text}")
    raised.rank, raised.status = error.rank, error.status
    raised.__cause__ = error
    return raised


def is_of_overlap(error):
    """True: the library has refused a call because its arrays overlap, which it checks last."""
    return "arrays overlap" in str(error)


def timeout_of(what, seconds, then="it is still running and may be waited for again"):
    raised = BackendError(f"vescomm: Timed out in {what}: waited {seconds:g} s; {then}")
    raised.status = errors.TimeoutError.status
    return raised

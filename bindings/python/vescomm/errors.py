# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Exceptions of vescomm: one class for each error status of the library."""

import builtins
import re
from typing import Optional


class Error(RuntimeError):
    """A call of vescomm failed. str() is the sentence of the library: what failed, where, the values,
    and what to do.

    Attributes:
        status: number of the error, as in vescomm.h; negative.
        rank: the rank that the sentence blames, such as the one that did not respond in time; None
            if it names none, or several.

    Since: 0.1
    """

    status: int = -9
    rank: Optional[int] = None


class InvalidArgumentError(Error, ValueError):
    """An argument is wrong; nothing was created or started. Since: 0.1"""

    status = -1


class OutOfMemoryError(Error, MemoryError):
    """Memory or another resource of this machine ran out. Since: 0.1"""

    status = -2


class TimeoutError(Error, builtins.TimeoutError):
    """A peer did not respond before the deadline; the communicator is broken. Since: 0.1"""

    status = -3


class PeerFailedError(Error, ConnectionError):
    """A peer or the connection to it failed; the communicator is broken. Since: 0.1"""

    status = -4


class MismatchError(Error):
    """The ranks made different calls, or the same call with different arguments. Since: 0.1"""

    status = -5


class UnsupportedError(Error, NotImplementedError):
    """The feature exists, but not in this build, on this machine, or for these arguments. Since: 0.1"""

    status = -6


class OperatingSystemError(Error, OSError):
    """The operating system or a library failed. Since: 0.1"""

    status = -7


class AbortedError(Error):
    """A rank called abort(); the communicator is broken. Since: 0.1"""

    status = -8


class InternalError(Error):
    """A defect of vescomm itself; please report it. Since: 0.1"""

    status = -9


_classes = {
    each.status: each
    for each in (
        InvalidArgumentError,
        OutOfMemoryError,
        TimeoutError,
        PeerFailedError,
        MismatchError,
        UnsupportedError,
        OperatingSystemError,
        AbortedError,
        InternalError,
    )
}


def _blamed(status: int, sentence: str) -> Optional[int]:
    # Texts of the program are not searched: the reason of an abort, and names, which are in quotes.
    if status == AbortedError.status:
        sentence = sentence.partition(" aborted the communicator: ")[0]
    sentence = re.sub(r'"[^"]*("|$)', "", sentence)
    # A sentence begins with the rank that reports it.
    ranks = re.findall(r"\brank (\d+)\b(?!:)", sentence)
    return int(ranks[0]) if len(set(ranks)) == 1 else None


def from_status(status: int, sentence: str) -> Error:
    """Returns the exception of an error status; the extension module raises it.

    Args:
        status: negative.
        sentence: explains the error.

    Since: 0.1
    """
    error = _classes.get(status, Error)(sentence)
    if type(error) is Error:
        error.status = status
    error.rank = _blamed(status, sentence)
    return error

# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""What torch gets for an operation that is under way."""

import sys
from datetime import timedelta

from torch._C._distributed_c10d import Work as _Work

_NONE = timedelta(0)


class Work(_Work):
    """The Work of an operation. The operation goes on when the Work is dropped."""

    def __init__(self, operation):
        super().__init__()
        self._operation = operation

    # A default argument, because the globals of this module may be gone by then.
    def __del__(self, interpreter_ends=sys.is_finalizing):
        operation = getattr(self, "_operation", None)
        # A thread that starts while the interpreter ends never gets the GIL, and a wait for it to
        # start never returns.
        if operation is None or operation.done or interpreter_ends():
            return
        operation.link.complete_in_thread(operation)

    def wait(self, timeout=_NONE):
        seconds = timeout.total_seconds() if timeout else 0
        self._operation.wait(seconds if seconds > 0 else None)
        return True

    def synchronize(self):
        self._operation.wait()

    def get_future(self):
        return self._operation.future()

    def is_completed(self):
        return self._operation.test()

    def is_success(self):
        return self._operation.test() and self._operation.error is None

    def exception(self):
        return self._operation.error

    def result(self):
        self._operation.wait()
        return self._operation.result

    def source_rank(self):
        return self._operation.source()

    _source_rank = source_rank

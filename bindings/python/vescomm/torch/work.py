# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""What torch gets for an operation that is under way."""

import sys
import weakref
from datetime import timedelta

from torch._C._distributed_c10d import Reducer as _Reducer
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


_kept: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # by reducer


def keep_works_of_reducers():
    """Keeps the Work that a reducer of DDP waits for in its backward pass (`Join` with
    divide_by_initial_world_size=False). The reducer keeps the part of a Work that is C++ alone, whose
    wait never ends once the object of Python is gone.
    """
    given = _Reducer._set_forward_pass_work_handle

    def set_handle(self, work, *more, **named):
        if isinstance(work, Work):
            _kept[self] = work
        return given(self, work, *more, **named)

    _Reducer._set_forward_pass_work_handle = set_handle

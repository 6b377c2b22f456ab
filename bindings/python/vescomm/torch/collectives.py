# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""All calls of a group, also with the names that torch had for them before 2.15."""

from .barriers import Barriers
from .exchanges import Exchanges
from .gathers import Gathers
from .messages import Messages
from .profiling import NAMES, profiled
from .reductions import Reductions
from .sparse import SparseReductions

_OLD_NAMES = {
    "_allgather_base": "all_gather_single",
    "allgather_into_tensor_coalesced": "all_gather_single_coalesced",
    "gather_into_tensor": "gather_single",
    "_reduce_scatter_base": "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_single_coalesced",
    "alltoall_base": "all_to_all_single",
}


class Collectives(Reductions, Gathers, Exchanges, Messages, Barriers, SparseReductions):
    pass


for _method, _name in NAMES.items():
    setattr(Collectives, _method, profiled(getattr(Collectives, _method), _name))
for _old, _new in _OLD_NAMES.items():
    setattr(Collectives, _old, getattr(Collectives, _new))

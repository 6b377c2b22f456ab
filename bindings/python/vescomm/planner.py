# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""The planner: it places tensors in fused buffers and cuts these into shards. It only computes."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _core
from ._arguments import types_of
from .layout import Layout
from .types import Mode, Type, Work

__all__ = ["BufferPlan", "Figures", "ModelPlan", "PlannerTensor", "Totals", "plan", "plan_model"]


class PlannerTensor(NamedTuple):
    """One tensor to place.

    Attributes:
        name: unique within its buffer.
        shape: row-major extents, each at least 0.
        block_rows: rows of a block, which stays on one rank. 0 or 1: a cut may lie between any two
            rows. -1: the whole tensor is a block, or each sub-matrix.
        batch_dimensions: number of leading dimensions that index sub-matrices.
        alignment: the tensor starts at a multiple of this number of elements. 0: start_alignment.

    Since: 0.1
    """

    name: str
    shape: Sequence[int]
    block_rows: int = 0
    batch_dimensions: int = 0
    alignment: int = 0


class Figures(NamedTuple):
    """Quality of the layout of one buffer, in elements; see vescomm_planner_figures_t.

    Since: 0.1
    """

    optimal: bool
    elements: int
    padding: int
    largest_shard: int
    lower_bound: int
    mean_shard: float
    order: str
    largest_over_share: float
    lower_bound_over_share: float
    steps: int


class Totals(NamedTuple):
    """Quality of the layouts of all units together; see vescomm_planner_totals_t. Since: 0.1"""

    feasible: bool
    mode: int
    bytes: int
    padding_bytes: int
    largest_rank_bytes: int
    lower_bound_bytes: int
    mean_rank_bytes: float
    largest_over_share: float
    largest_rank_cost_over_mean: float
    lower_bound_cost_over_mean: float
    wire_bytes_per_step: float
    seconds_per_step: float


class BufferPlan(NamedTuple):
    """The plan of one buffer.

    Attributes:
        layout: None if no layout meets the options.
        figures: its quality.
        explanation: one sentence about the quality, or the reason why there is no layout.

    Since: 0.1
    """

    layout: Optional[Layout]
    figures: Figures
    explanation: str


class ModelPlan(NamedTuple):
    """The plan of a model.

    Attributes:
        units: the plan of each unit, in the order given.
        totals: the quality of all layouts together.
        explanation: one sentence about it.

    Since: 0.1
    """

    units: List[BufferPlan]
    totals: Totals
    explanation: str


TensorLike = Union[
    PlannerTensor,
    Tuple[str, Sequence[int]],
    Tuple[str, Sequence[int], int],
    Tuple[str, Sequence[int], int, int],
    Tuple[str, Sequence[int], int, int, int],
]


def _tensors(tensors: Sequence[TensorLike]) -> List[PlannerTensor]:
    return [PlannerTensor(*tensor) for tensor in tensors]


def _options(options: Dict[str, Any]) -> Dict[str, Any]:
    known: Dict[str, Any] = dict(
        mode=Mode.RAGGED,
        start_alignment=0,
        cut_alignment=0,
        shard_limit=0,
        search_steps=0,
        work=Work.MUON,
        unit_imbalance=0.0,
        bytes_per_second=0.0,
        seconds_per_collective=0.0,
        seconds_per_unequal=0.0,
    )
    unknown = options.keys() - known.keys()
    if unknown:
        raise TypeError(f"the planner has no option {sorted(unknown)[0]!r}; it has {', '.join(known)}")
    return {**known, **options}


def _buffer_plan(layout: Any, figures: Dict[str, Any], explanation: str) -> BufferPlan:
    return BufferPlan(
        None if layout is None else Layout._of(layout), Figures(**figures), explanation
    )


def plan(
    tensors: Sequence[TensorLike],
    ranks: int,
    *,
    weights: Optional[Sequence[int]] = None,
    **options: Any,
) -> BufferPlan:
    """Plans one buffer: finds its layout.

        plan = vescomm.plan([("w1", (4096, 1024)), ("bias", (1024,))], ranks=8)
        buffer = vescomm.Buffer(comm, plan.layout)

    Args:
        tensors: PlannerTensor, or tuples of its first members.
        ranks: number of shards, 1 to 10,000,000.
        weights: one for each rank: a rank with twice the weight of another takes twice the elements.
        options: mode, start_alignment, cut_alignment, shard_limit, search_steps, unit_imbalance,
            work, bytes_per_second, seconds_per_collective, seconds_per_unequal; see
            vescomm_planner_options_t in vescomm/planner.h.

    Raises:
        InvalidArgumentError: names the tensor or the option. OutOfMemoryError.

    Collective: no.  Blocking: no wait, but a computation of up to search_steps steps; signals such as
    Ctrl-C are handled after it.  Threads: safe.  Since: 0.1
    """
    return _buffer_plan(*_core.plan(_tensors(tensors), ranks, _options(options), weights))


def plan_model(
    units: Sequence[Tuple[str, Sequence[TensorLike]]],
    ranks: int,
    *,
    type: Union[int, Sequence[int]] = Type.BF16,
    weights: Optional[Sequence[int]] = None,
    **options: Any,
) -> ModelPlan:
    """Finds layouts for all units of a model, planned together.

    Args:
        units: name and tensors of each fused buffer.
        ranks: 1 to 10,000,000.
        type: of the elements of all units, or one for each unit.
        weights, options: as in plan().

    Raises:
        InvalidArgumentError: names the unit, the tensor or the option. OutOfMemoryError.

    Collective: no.  Blocking: no wait, but a computation of up to search_steps steps; signals such as
    Ctrl-C are handled after it.  Threads: safe.  Since: 0.1
    """
    types = types_of(type, len(units))
    if len(types) != len(units):
        raise ValueError(f"type has {len(types)} entries; give one, or one for each of {len(units)} units")
    given = [(name, each, _tensors(tensors)) for (name, tensors), each in zip(units, types)]
    totals, explanation, layouts = _core.plan_model(given, ranks, _options(options), weights)
    return ModelPlan([_buffer_plan(*unit) for unit in layouts], Totals(**totals), explanation)

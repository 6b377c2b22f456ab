// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Inputs and answers of the planner, as plain values.

use std::ptr::null;

use vescomm_sys as sys;

use crate::error::{invalid, text};
use crate::Result;

/// One tensor to place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tensor {
    /// Unique name.
    pub name: String,
    /// Row-major extents. Empty: a scalar.
    pub shape: Vec<i64>,
    /// Rows of a block, which stays on one rank. 0 or 1: a cut may lie between any two rows (in a
    /// vector: any two elements). -1: the whole tensor is a block, or each sub-matrix if there are
    /// several.
    pub block_rows: i64,
    /// Number of leading dimensions that index sub-matrices, such as 1 for the experts of
    /// [experts, rows, columns]. The grid of blocks restarts at each sub-matrix.
    pub batch_dimensions: i32,
    /// The tensor starts at a multiple of this number of elements, in addition to
    /// `start_alignment`. 0: only that applies.
    pub alignment: i64,
}

impl Tensor {
    /// A tensor that can be cut between any two rows.
    pub fn new(name: &str, shape: &[i64]) -> Tensor {
        Tensor { name: name.to_string(), shape: shape.to_vec(), ..Tensor::default() }
    }
}

/// How shards relate to one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// The largest shard is as small as possible. Padding only aligns starts.
    #[default]
    Ragged,
    /// All shards are equal, padding included, so that any equal-count library can move them.
    Uniform,
    /// Unequal shards. All ranks own about the same number of bytes of all units together; the
    /// largest shard of one unit may therefore exceed its minimum (`unit_imbalance`).
    Balanced,
    /// Every matrix is whole on one rank, for optimizers that need this. All ranks have about the
    /// same work of the optimizer.
    Owner,
    /// Ragged or uniform, whichever has the smaller estimated communication time.
    Automatic,
}

/// The optimizer's work on a matrix, by which [`Mode::Owner`] balances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Work {
    /// s * s * (2 * l + s), where s is the shorter and l the longer side; for a vector the number
    /// of its elements.
    #[default]
    Muon,
    /// The number of elements.
    Elements,
}

/// Options of the planner. A member that is 0 means its default.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Options {
    /// How shards relate to one another.
    pub mode: Mode,
    /// Every tensor starts at a multiple of this, and a uniform shard is a multiple of it. 0: 64.
    pub start_alignment: i64,
    /// Ragged cuts lie on multiples of this wherever blocks allow it. 0: 64.
    pub cut_alignment: i64,
    /// Maximum size of a shard. A layout with a larger shard is rejected. 0: no limit.
    pub shard_limit: i64,
    /// One weight for each rank: a rank with twice the weight of another takes twice the elements.
    /// Empty: all weights are equal.
    pub weights: Vec<i64>,
    /// Maximum number of steps, of about 10 ns each, to search for a better order of the tensors,
    /// or for the proof that there is none. 0: no search.
    pub search_steps: i64,
    /// Balanced: the fraction by which the largest shard of one unit may exceed its minimum. 0: a
    /// quarter. Negative: none.
    pub unit_imbalance: f64,
    /// Owner: the work that is balanced.
    pub work: Work,
    /// Cost model: bytes per second that a rank receives. 0: 50e9.
    pub bytes_per_second: f64,
    /// Cost model: fixed seconds of a collective. 0: 30e-6. Negative: no cost.
    pub seconds_per_collective: f64,
    /// Cost model: additional seconds of a collective with unequal shards. 0: 15e-6. Negative: no
    /// cost.
    pub seconds_per_unequal: f64,
}

/// Quality of the layout of one buffer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Figures {
    /// It is proved that no layout of this mode has a smaller largest shard.
    pub optimal: bool,
    /// Size of the whole buffer.
    pub elements: i64,
    /// Elements of the buffer that belong to no tensor.
    pub padding: i64,
    /// Size of the largest shard, padding included.
    pub largest_shard: i64,
    /// No layout of this mode has a smaller `largest_shard`.
    pub lower_bound: i64,
    /// Elements of tensors for each rank.
    pub mean_shard: f64,
    /// Name of the tensors' order, such as "default".
    pub order: String,
    /// The largest ratio of a shard to its rank's share.
    pub largest_over_share: f64,
    /// Search steps used.
    pub steps: i64,
    /// No layout of this mode has a smaller `largest_over_share`.
    pub lower_bound_over_share: f64,
}

/// Quality of the layouts of all units together.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Totals {
    /// Every unit has a layout. If not, all numbers but `lower_bound_bytes` are 0.
    pub feasible: bool,
    /// Mode of all units; never [`Mode::Automatic`].
    pub mode: Mode,
    /// Bytes of all buffers, padding included.
    pub bytes: i64,
    /// Part of `bytes` that belongs to no tensor.
    pub padding_bytes: i64,
    /// The most that one rank owns of all units, padding included.
    pub largest_rank_bytes: i64,
    /// No choice of cuts has a smaller largest rank.
    pub lower_bound_bytes: i64,
    /// Mean of what a rank owns, without padding.
    pub mean_rank_bytes: f64,
    /// The largest ratio of a rank's bytes to its share.
    pub largest_over_share: f64,
    /// Owner: work of the busiest rank over the mean.
    pub largest_rank_cost_over_mean: f64,
    /// Owner: no assignment of whole matrices has less.
    pub lower_bound_cost_over_mean: f64,
    /// Bytes that a rank receives in a training step: two gathers and a reduction of every unit.
    pub wire_bytes_per_step: f64,
    /// Estimated time of these collectives.
    pub seconds_per_step: f64,
}

impl Options {
    pub(super) fn to_raw(&self, ranks: usize) -> Result<sys::vescomm_planner_options_t> {
        if !self.weights.is_empty() && self.weights.len() != ranks {
            return Err(invalid(format!(
                "plan: there are {} weights for {ranks} ranks; give one for each",
                self.weights.len()
            )));
        }
        Ok(sys::vescomm_planner_options_t {
            mode: match self.mode {
                Mode::Ragged => sys::VESCOMM_PLANNER_RAGGED,
                Mode::Uniform => sys::VESCOMM_PLANNER_UNIFORM,
                Mode::Balanced => sys::VESCOMM_PLANNER_BALANCED,
                Mode::Owner => sys::VESCOMM_PLANNER_OWNER,
                Mode::Automatic => sys::VESCOMM_PLANNER_AUTOMATIC,
            },
            start_alignment: self.start_alignment,
            cut_alignment: self.cut_alignment,
            shard_limit: self.shard_limit,
            weights: if self.weights.is_empty() { null() } else { self.weights.as_ptr() },
            search_steps: self.search_steps,
            unit_imbalance: self.unit_imbalance,
            work: match self.work {
                Work::Muon => sys::VESCOMM_PLANNER_WORK_MUON,
                Work::Elements => sys::VESCOMM_PLANNER_WORK_ELEMENTS,
            },
            bytes_per_second: self.bytes_per_second,
            seconds_per_collective: self.seconds_per_collective,
            seconds_per_unequal: self.seconds_per_unequal,
            ..sys::vescomm_planner_options_init()
        })
    }
}

impl From<sys::vescomm_planner_figures_t> for Figures {
    fn from(raw: sys::vescomm_planner_figures_t) -> Figures {
        Figures {
            optimal: raw.optimal != 0,
            elements: raw.elements,
            padding: raw.padding,
            largest_shard: raw.largest_shard,
            lower_bound: raw.lower_bound,
            mean_shard: raw.mean_shard,
            order: text(raw.order),
            largest_over_share: raw.largest_over_share,
            steps: raw.steps,
            lower_bound_over_share: raw.lower_bound_over_share,
        }
    }
}

impl From<sys::vescomm_planner_totals_t> for Totals {
    fn from(raw: sys::vescomm_planner_totals_t) -> Totals {
        Totals {
            feasible: raw.feasible != 0,
            mode: match raw.mode {
                sys::VESCOMM_PLANNER_UNIFORM => Mode::Uniform,
                sys::VESCOMM_PLANNER_BALANCED => Mode::Balanced,
                sys::VESCOMM_PLANNER_OWNER => Mode::Owner,
                _ => Mode::Ragged,
            },
            bytes: raw.bytes,
            padding_bytes: raw.padding_bytes,
            largest_rank_bytes: raw.largest_rank_bytes,
            lower_bound_bytes: raw.lower_bound_bytes,
            mean_rank_bytes: raw.mean_rank_bytes,
            largest_over_share: raw.largest_over_share,
            largest_rank_cost_over_mean: raw.largest_rank_cost_over_mean,
            lower_bound_cost_over_mean: raw.lower_bound_cost_over_mean,
            wire_bytes_per_step: raw.wire_bytes_per_step,
            seconds_per_step: raw.seconds_per_step,
        }
    }
}

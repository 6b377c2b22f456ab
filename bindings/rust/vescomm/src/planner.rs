// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! The planner places tensors in fused buffers and cuts the buffers into shards. It only computes:
//! the same input gives the same answer on every machine. Sizes are in elements unless a name says
//! bytes.
//!
//! ```
//! # fn main() -> vescomm::Result<()> {
//! use vescomm::planner::{plan, Options, Tensor};
//! let tensors = [
//!     Tensor { block_rows: 32, ..Tensor::new("w", &[4096, 1024]) }, // 32 rows stay on one rank
//!     Tensor::new("norm", &[1024]),
//! ];
//! let planned = plan(&tensors, 3, &Options::default())?;
//! println!("{}", planned.explanation);
//! let layout = planned.layout.expect("there is a layout");
//! assert_eq!(layout.info()?.ranks, 3);
//! # Ok(())
//! # }
//! ```

use std::ffi::CString;
use std::fmt;
use std::ptr::null_mut;

use vescomm_sys as sys;

use crate::comm::number_of_ranks;
use crate::error::{c_string, call_explained, text};
use crate::layout::dimensions;
use crate::{Layout, Result, Type};

mod values;

pub use values::{Figures, Mode, Options, Tensor, Totals, Work};

/// The answer of [`plan()`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Planned {
    /// Its tensors are in order of offset; [`Layout::find()`] finds them. `None`: no layout meets
    /// the options, and `explanation` says why.
    pub layout: Option<Layout>,
    /// Quality of the layout. Without one, only `lower_bound` is set.
    pub figures: Figures,
    /// One sentence about the quality, or the reason why there is no layout.
    pub explanation: String,
}

/// One fused buffer of a model: tensors of one type that are gathered together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Type of the elements.
    pub element: Type,
    /// Used in sentences only.
    pub name: String,
    /// Tensors with unique names.
    pub tensors: Vec<Tensor>,
}

/// Makes a call of the planner, of which `vescomm_plan_explain()` has the sentence.
fn call(function: impl FnOnce() -> sys::vescomm_status_t) -> Result<()> {
    call_explained(function, explain).map(drop)
}

fn explain() -> String {
    // SAFETY: the string is valid until this thread's next call of the planner.
    text(unsafe { sys::vescomm_plan_explain() })
}

fn c_names<'a>(names: impl Iterator<Item = &'a String>) -> Result<Vec<CString>> {
    names.map(|name| c_string("the name", name)).collect()
}

fn raw_tensors(tensors: &[Tensor], names: &[CString]) -> Vec<sys::vescomm_planner_tensor_t> {
    let raw = |(tensor, name): (&Tensor, &CString)| sys::vescomm_planner_tensor_t {
        dimensions: dimensions(&tensor.shape),
        name: name.as_ptr(),
        shape: tensor.shape.as_ptr(),
        block_rows: tensor.block_rows,
        batch_dimensions: tensor.batch_dimensions,
        alignment: tensor.alignment,
        ..sys::vescomm_planner_tensor_init()
    };
    tensors.iter().zip(names).map(raw).collect()
}

/// Plans one buffer: finds its layout for a number of ranks.
pub fn plan(tensors: &[Tensor], ranks: usize, options: &Options) -> Result<Planned> {
    let names = c_names(tensors.iter().map(|tensor| &tensor.name))?;
    let raw = raw_tensors(tensors, &names);
    let options = options.to_raw(ranks)?;
    let ranks = number_of_ranks(ranks)?;
    let mut layout = null_mut();
    let mut figures = sys::vescomm_planner_figures_init();
    // SAFETY: all inputs live until the call returns, and have the sizes that are given.
    call(|| unsafe {
        sys::vescomm_plan(raw.as_ptr(), raw.len(), ranks, &options, &mut layout, &mut figures)
    })?;
    let explanation = explain();
    Ok(Planned { layout: Layout::owning(layout), figures: figures.into(), explanation })
}

/// The plan of a model: the layouts of all its units, planned together. Immutable.
///
/// ```
/// # fn main() -> vescomm::Result<()> {
/// use vescomm::planner::{Mode, Options, Plan, Tensor, Unit};
/// let unit = |name: &str, rows| Unit {
///     element: vescomm::Type::Bf16,
///     name: name.to_string(),
///     tensors: vec![Tensor { block_rows: -1, ..Tensor::new("w", &[rows, 512]) }],
/// };
/// let mut options = Options::default();
/// options.mode = Mode::Balanced;
/// let plan = Plan::new(&[unit("layer 0", 512), unit("layer 1", 512)], 2, &options)?;
/// assert_eq!(plan.totals()?.largest_rank_bytes, 512 * 512 * 2); // one layer for each rank
/// # Ok(())
/// # }
/// ```
pub struct Plan {
    raw: *mut sys::vescomm_plan_t,
    /// One sentence about the quality of all layouts, or the reason why a unit has none.
    explanation: String,
}

// SAFETY: a plan never changes, and planner.h calls its functions safe.
unsafe impl Send for Plan {}
unsafe impl Sync for Plan {}

impl Plan {
    /// Finds layouts for all units of a model. If a unit has none, the plan has no layouts, and
    /// [`Totals::feasible`] is false.
    pub fn new(units: &[Unit], ranks: usize, options: &Options) -> Result<Plan> {
        let unit_names = c_names(units.iter().map(|unit| &unit.name))?;
        let names: Vec<Vec<CString>> = units
            .iter()
            .map(|unit| c_names(unit.tensors.iter().map(|tensor| &tensor.name)))
            .collect::<Result<_>>()?;
        let tensors: Vec<_> = units
            .iter()
            .zip(&names)
            .map(|(unit, names)| raw_tensors(&unit.tensors, names))
            .collect();
        let raw: Vec<_> = units
            .iter()
            .zip(&unit_names)
            .zip(&tensors)
            .map(|((unit, name), tensors)| sys::vescomm_planner_unit_t {
                type_: unit.element as i32,
                name: name.as_ptr(),
                tensors: tensors.as_ptr(),
                count: tensors.len(),
                ..sys::vescomm_planner_unit_init()
            })
            .collect();
        let options = options.to_raw(ranks)?;
        let ranks = number_of_ranks(ranks)?;
        let mut plan = null_mut();
        // SAFETY: all inputs live until the call returns, and have the sizes that are given.
        call(|| unsafe {
            sys::vescomm_plan_create(raw.as_ptr(), raw.len(), ranks, &options, &mut plan)
        })?;
        Ok(Plan { raw: plan, explanation: explain() })
    }

    /// One sentence about the quality of all layouts, or the reason why a unit has none.
    pub fn explanation(&self) -> &str {
        &self.explanation
    }

    /// Number of units.
    pub fn units(&self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: the plan exists.
        call(|| unsafe { sys::vescomm_plan_get_units(self.raw, &mut count) })?;
        Ok(count)
    }

    /// Creates the layout of one unit. `None` for every unit if the plan is not feasible.
    pub fn layout(&self, unit: usize) -> Result<Option<Layout>> {
        let mut layout = null_mut();
        // SAFETY: the plan exists.
        call(|| unsafe { sys::vescomm_plan_create_layout(self.raw, unit, &mut layout) })?;
        Ok(Layout::owning(layout))
    }

    /// Returns the quality of the layout of one unit.
    pub fn figures(&self, unit: usize) -> Result<Figures> {
        let mut figures = sys::vescomm_planner_figures_init();
        // SAFETY: the plan exists; struct_size is set.
        call(|| unsafe { sys::vescomm_plan_get_figures(self.raw, unit, &mut figures) })?;
        Ok(figures.into())
    }

    /// Returns the quality of all layouts together.
    pub fn totals(&self) -> Result<Totals> {
        let mut raw = sys::vescomm_planner_totals_init();
        // SAFETY: the plan exists; struct_size is set.
        call(|| unsafe { sys::vescomm_plan_get_totals(self.raw, &mut raw) })?;
        Ok(raw.into())
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: nothing else has the pointer.
        unsafe { sys::vescomm_plan_free(self.raw) };
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Plan({})", self.explanation)
    }
}

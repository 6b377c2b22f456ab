// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

use vescomm_sys as sys;

use crate::error::invalid;
use crate::gpu::View;
use crate::Result;

/// Number of `i64` of an exact sum of squares.
pub const SUM_WORDS: usize = sys::VESCOMM_GPU_SUM_WORDS as usize;

/// Consecutive elements of slabs. The pieces of a call are in ascending order of `target`, and do not
/// overlap there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Piece {
    /// First element in the target.
    pub target: i64,
    /// First element in the source; not used without a source.
    pub source: i64,
    /// Number of elements.
    pub count: i64,
}

/// How a step changes gradients: device memory that [`clip_factor()`](super::clip_factor)
/// writes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Clip {
    /// Norm of all gradients multiplied by `scale` of the call.
    pub norm: f64,
    /// Multiplies the gradients.
    pub factor: f32,
    /// 1: the norm, the factor or a product is not finite; 0 otherwise.
    pub skip: i32,
}

// They are passed to the library as they are.
const _: () = assert!(
    std::mem::size_of::<Piece>() == std::mem::size_of::<sys::vescomm_gpu_piece_t>()
        && std::mem::size_of::<Clip>() == std::mem::size_of::<sys::vescomm_gpu_clip_t>()
);

/// Settings of an AdamW step.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct AdamW {
    /// Multiplies every gradient first, if the call has no clip.
    pub gradient_scale: f32,
    /// Finite, 0 or more.
    pub learning_rate: f64,
    /// 0 or more, below 1.
    pub beta1: f64,
    /// 0 or more, below 1.
    pub beta2: f64,
    /// Finite, 0 or more.
    pub epsilon: f64,
    /// Finite, 0 or more.
    pub weight_decay: f64,
    /// Counted from 1.
    pub step: i64,
    /// With parameters in bf16 or f16: they are rounded stochastically. `None`: to the nearest.
    pub random: Option<RandomBits>,
}

/// Random bits of the elements of an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RandomBits {
    /// Another one in each step, such as seed + step.
    pub stream: u64,
    /// Number of element 0 of the parameters in the stream.
    pub first: u64,
}

impl Default for AdamW {
    /// No scaling, learning rate 1e-3, betas 0.9 and 0.999, epsilon 1e-8, weight decay 1e-2, step 1.
    fn default() -> AdamW {
        let raw = sys::vescomm_gpu_adamw_options_init();
        AdamW {
            gradient_scale: raw.gradient_scale,
            learning_rate: raw.learning_rate,
            beta1: raw.beta1,
            beta2: raw.beta2,
            epsilon: raw.epsilon,
            weight_decay: raw.weight_decay,
            step: raw.step,
            random: None,
        }
    }
}

/// Checks that elements `first(piece)..first(piece) + count` are elements of the view. The library
/// refuses negative numbers.
fn check_pieces<T>(
    function: &str,
    name: &str,
    view: View<'_, T>,
    pieces: &[Piece],
    first: impl Fn(&Piece) -> i64,
) -> Result<()> {
    for piece in pieces.iter().filter(|piece| piece.count > 0 && first(piece) >= 0) {
        let end = (first(piece) as u64).saturating_add(piece.count as u64);
        if end > view.len() as u64 {
            return Err(invalid(format!(
                "gpu {function}: a piece has {} elements from {} on, and {name} has {}",
                piece.count,
                first(piece),
                view.len()
            )));
        }
    }
    Ok(())
}

pub(super) fn check_target<T>(
    function: &str,
    name: &str,
    view: View<'_, T>,
    pieces: &[Piece],
) -> Result<()> {
    check_pieces(function, name, view, pieces, |piece| piece.target)
}

pub(super) fn check_source<T>(
    function: &str,
    name: &str,
    view: View<'_, T>,
    pieces: &[Piece],
) -> Result<()> {
    check_pieces(function, name, view, pieces, |piece| piece.source)
}

pub(super) fn check_least<T>(
    function: &str,
    name: &str,
    view: View<'_, T>,
    least: usize,
) -> Result<()> {
    if view.len() >= least {
        return Ok(());
    }
    Err(invalid(format!(
        "gpu {function}: {name} has {} elements, and {least} are needed",
        view.len()
    )))
}

/// Elements of the scales of `elements` elements. The library refuses blocks of no elements.
pub(super) fn blocks(elements: usize, block: usize) -> usize {
    match (elements, block) {
        (0, _) | (_, 0) => 0,
        _ => (elements - 1) / block + 1,
    }
}

/// The pieces in C.
pub(super) fn raw(pieces: &[Piece]) -> (*const sys::vescomm_gpu_piece_t, i64) {
    (pieces.as_ptr().cast(), pieces.len() as i64)
}

/// The arrays of an AdamW step: the pieces have their target in `parameters` and in the moments, and
/// their source in `gradients`.
#[derive(Clone, Copy, Debug)]
pub struct AdamWViews<'a, P = f32> {
    /// Changed by the step: f32, bf16 or f16.
    pub parameters: View<'a, P>,
    /// Not changed.
    pub gradients: View<'a, f32>,
    /// First moments.
    pub m: View<'a, f32>,
    /// Second moments.
    pub v: View<'a, f32>,
}

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

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Operations on pieces of device memory, with the bits of the same operations on host memory:
//! gpu_kernels.h. They need CUDA and a build with kernels, and neither NCCL nor a communicator.
//!
//! Each function puts work on a stream of the current device, and returns before it is complete.
//! It compares pieces with the sizes of views. It is unsafe because nothing relates the current
//! device, on which kernels run, to the memory: the owner of a view waits for the work of its own
//! device only.

use std::os::raw::c_void;

use vescomm_sys as sys;

mod arguments;
mod optimizers;

pub use arguments::{Clip, Piece, SUM_WORDS};
pub use optimizers::{
    adam8bit, adamw, sgd, Adam8bitViews, AdamW, AdamWViews, RandomBits, Sgd, SgdViews, MOMENT_BLOCK,
};

use arguments::{blocks, check_least, check_source, check_target, raw};

use super::{Stream, View};
use crate::error::call;
use crate::{Element, Error, Result};

/// Tests whether the kernels can run on the current device, and loads them there. Call it before the
/// first capture of a graph.
pub fn check() -> Result<()> {
    // SAFETY: the function has no arguments.
    call(|| unsafe { sys::vescomm_gpu_check_kernels() }).map(drop)
}

/// Sets the elements of pieces to zero.
///
/// # Safety
///
/// The current device is that of the view and of the stream.
pub unsafe fn zero<T: Element>(
    target: View<'_, T>,
    pieces: &[Piece],
    stream: Stream,
) -> Result<()> {
    check_target("zero", "target", target, pieces)?;
    let (first, count) = raw(pieces);
    // SAFETY: promised by the caller; the pieces are elements of the view.
    call(|| unsafe {
        let (target, stream) = (target.as_void(), stream.as_raw());
        sys::vescomm_gpu_zero(target, T::TYPE as i32, first, count, stream)
    })
    .map(drop)
}

type Combine = unsafe extern "C" fn(
    *mut c_void,
    sys::vescomm_type_t,
    *const c_void,
    sys::vescomm_type_t,
    *const sys::vescomm_gpu_piece_t,
    i64,
    *mut c_void,
) -> sys::vescomm_status_t;

/// # Safety
///
/// As [`copy()`].
unsafe fn combine<T: Element, S: Element>(
    name: &str,
    function: Combine,
    (target, source): (View<'_, T>, View<'_, S>),
    pieces: &[Piece],
    stream: Stream,
) -> Result<()> {
    check_target(name, "target", target, pieces)?;
    check_source(name, "source", source, pieces)?;
    let ((first, count), stream) = (raw(pieces), stream.as_raw());
    let (to, from) = (target.as_void(), source.as_void());
    // SAFETY: promised by the caller; the pieces are elements of the views.
    call(|| unsafe { function(to, T::TYPE as i32, from, S::TYPE as i32, first, count, stream) })
        .map(drop)
}

/// Copies the elements of pieces, and converts them, rounded to nearest once. The types are equal;
/// or both are floats, and one of them is `f32` or `f64`. The source does not overlap the target.
///
/// # Safety
///
/// The current device is that of the views and of the stream.
pub unsafe fn copy<T: Element, S: Element>(
    target: View<'_, T>,
    source: View<'_, S>,
    pieces: &[Piece],
    stream: Stream,
) -> Result<()> {
    // SAFETY: promised by the caller.
    unsafe { combine("copy", sys::vescomm_gpu_copy, (target, source), pieces, stream) }
}

/// Adds the elements of the source to those of the target, which are floats of equal types, or one of
/// them `f32`. The source does not overlap the target, or is equal to it.
///
/// # Safety
///
/// The current device is that of the views and of the stream.
pub unsafe fn add<T: Element, S: Element>(
    target: View<'_, T>,
    source: View<'_, S>,
    pieces: &[Piece],
    stream: Stream,
) -> Result<()> {
    // SAFETY: promised by the caller.
    unsafe { combine("add", sys::vescomm_gpu_add, (target, source), pieces, stream) }
}

/// Multiplies the elements of pieces, which are floats, by a factor.
///
/// # Safety
///
/// The current device is that of the view and of the stream.
pub unsafe fn scale<T: Element>(
    target: View<'_, T>,
    factor: f64,
    pieces: &[Piece],
    stream: Stream,
) -> Result<()> {
    check_target("scale", "target", target, pieces)?;
    let (first, count) = raw(pieces);
    // SAFETY: promised by the caller; the pieces are elements of the view.
    call(|| unsafe {
        let (target, stream) = (target.as_void(), stream.as_raw());
        sys::vescomm_gpu_scale(target, T::TYPE as i32, factor, first, count, stream)
    })
    .map(drop)
}

/// Multiplies the elements of pieces, which are floats, by a factor. `overflow`, of one element,
/// becomes 1 if a product is not finite, and otherwise keeps its value.
///
/// # Safety
///
/// The current device is that of the views and of the stream.
pub unsafe fn unscale<T: Element>(
    target: View<'_, T>,
    factor: f64,
    overflow: View<'_, i32>,
    pieces: &[Piece],
    stream: Stream,
) -> Result<()> {
    check_target("unscale", "target", target, pieces)?;
    check_least("unscale", "overflow", overflow, 1)?;
    let (first, count) = raw(pieces);
    // SAFETY: promised by the caller; the pieces are elements of the view.
    call(|| unsafe {
        let (target, flag, stream) = (target.as_void(), overflow.as_mut_ptr(), stream.as_raw());
        sys::vescomm_gpu_unscale(target, T::TYPE as i32, factor, flag, first, count, stream)
    })
    .map(drop)
}

/// Adds the squares of the elements of pieces to an exact sum of [`SUM_WORDS`] words, which are zero
/// before the first call. The sums of ranks are added by an all_reduce.
///
/// # Safety
///
/// The current device is that of the views and of the stream.
pub unsafe fn add_squares<T: Element>(
    words: View<'_, i64>,
    source: View<'_, T>,
    pieces: &[Piece],
    stream: Stream,
) -> Result<()> {
    check_least("add_squares", "words", words, SUM_WORDS)?;
    check_target("add_squares", "source", source, pieces)?;
    let (first, count) = raw(pieces);
    // SAFETY: promised by the caller; the pieces are elements of the view.
    call(|| unsafe {
        let (words, source, stream) = (words.as_mut_ptr(), source.as_void(), stream.as_raw());
        sys::vescomm_gpu_add_squares(words, source, T::TYPE as i32, first, count, stream)
    })
    .map(drop)
}

/// Computes the norm of gradients, each multiplied by `scale`, and the factor that clips it.
/// `max_norm` of 0 or less: no clipping. `result` has one element.
///
/// # Safety
///
/// The current device is that of the views and of the stream.
pub unsafe fn clip_factor(
    words: View<'_, i64>,
    scale: f64,
    max_norm: f64,
    result: View<'_, Clip>,
    stream: Stream,
) -> Result<()> {
    check_least("clip_factor", "words", words, SUM_WORDS)?;
    check_least("clip_factor", "result", result, 1)?;
    // SAFETY: promised by the caller; the views have the elements that the call accesses.
    call(|| unsafe {
        let (result, stream) = (result.as_mut_ptr().cast(), stream.as_raw());
        sys::vescomm_gpu_clip_factor(words.as_mut_ptr(), scale, max_norm, result, stream)
    })
    .map(drop)
}

/// Writes a code of one byte, `i8` or [`F8E4M3`](crate::F8E4M3), for each element of `source`, and a
/// scale for each block of elements.
///
/// # Safety
///
/// The current device is that of the views and of the stream.
pub unsafe fn quantise<C: Element, T: Element>(
    codes: View<'_, C>,
    scales: View<'_, f32>,
    source: View<'_, T>,
    block: usize,
    stream: Stream,
) -> Result<()> {
    check_least("quantise", "codes", codes, source.len())?;
    check_least("quantise", "scales", scales, blocks(source.len(), block))?;
    let (code, of_source) = (C::TYPE as i32, T::TYPE as i32);
    let (count, block) = (source.len() as i64, block as i64);
    // SAFETY: promised by the caller; the views have the elements that the call accesses.
    call(|| unsafe {
        let (codes, scales) = (codes.as_void(), scales.as_mut_ptr());
        let (source, stream) = (source.as_void(), stream.as_raw());
        sys::vescomm_gpu_quantise(codes, scales, code, source, of_source, count, block, stream)
    })
    .map(drop)
}

/// Writes code times scale for each element of `target`.
///
/// # Safety
///
/// The current device is that of the views and of the stream.
pub unsafe fn dequantise<T: Element, C: Element>(
    target: View<'_, T>,
    codes: View<'_, C>,
    scales: View<'_, f32>,
    block: usize,
    stream: Stream,
) -> Result<()> {
    check_least("dequantise", "codes", codes, target.len())?;
    check_least("dequantise", "scales", scales, blocks(target.len(), block))?;
    let (of_target, code) = (T::TYPE as i32, C::TYPE as i32);
    let (count, block) = (target.len() as i64, block as i64);
    // SAFETY: promised by the caller; the views have the elements that the call accesses.
    call(|| unsafe {
        let (target, codes) = (target.as_void(), codes.as_void());
        let (scales, stream) = (scales.as_mut_ptr(), stream.as_raw());
        sys::vescomm_gpu_dequantise(target, of_target, codes, scales, code, count, block, stream)
    })
    .map(drop)
}

/// Contributions to a sum: the codes of source k begin at element k times `code_stride` of `codes`,
/// its scales at k times `scale_stride` of `scales`.
#[derive(Clone, Copy, Debug)]
pub struct QuantisedSources<'a, C> {
    /// Codes of one byte, `i8` or [`F8E4M3`](crate::F8E4M3).
    pub codes: View<'a, C>,
    /// Elements from the codes of a source to those of the next one.
    pub code_stride: usize,
    /// A scale for each block of each source.
    pub scales: View<'a, f32>,
    /// Elements from the scales of a source to those of the next one.
    pub scale_stride: usize,
    /// Number of sources, at least 1.
    pub count: usize,
    /// Elements with one scale.
    pub block: usize,
}

/// Sums contributions in their order, times `factor`, into all elements of `target`, or adds the sum
/// to them.
///
/// # Safety
///
/// The current device is that of the views and of the stream.
pub unsafe fn sum_quantised<C: Element>(
    target: View<'_, f32>,
    sources: QuantisedSources<'_, C>,
    factor: f32,
    add: bool,
    stream: Stream,
) -> Result<()> {
    let (count, block) = (target.len(), sources.block);
    // The elements from the first one of source 0 to the last one of the last source.
    let end = |stride: usize, last: usize| {
        let before = sources.count.saturating_sub(1).saturating_mul(stride);
        if count == 0 {
            0
        } else {
            before.saturating_add(last)
        }
    };
    check_least("sum_quantised", "codes", sources.codes, end(sources.code_stride, count))?;
    let of_scales = end(sources.scale_stride, blocks(count, block));
    check_least("sum_quantised", "scales", sources.scales, of_scales)?;
    let number = |name: &str, value: usize| {
        i32::try_from(value)
            .map_err(|_| Error::InvalidArgument(format!("sum_quantised: {name} is {value}")))
    };
    let (add, from) = (i32::from(add), number("count", sources.count)?);
    let (code_stride, scale_stride) = (sources.code_stride as i64, sources.scale_stride as i64);
    let (count, block, code) = (count as i64, block as i64, C::TYPE as i32);
    // SAFETY: promised by the caller; the views have the elements that the call accesses.
    call(|| unsafe {
        let (codes, scales) = (sources.codes.as_void(), sources.scales.as_mut_ptr());
        let (target, stream) = (target.as_mut_ptr(), stream.as_raw());
        sys::vescomm_gpu_sum_quantised(
            target,
            add,
            codes,
            code_stride,
            scales,
            scale_stride,
            from,
            code,
            count,
            block,
            factor,
            stream,
        )
    })
    .map(drop)
}

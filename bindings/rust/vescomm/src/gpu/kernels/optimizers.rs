// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Steps of optimizers.

use std::ptr::{null, null_mut};

use vescomm_sys as sys;

use super::arguments::{blocks, check_least, check_source, check_target, raw, Clip, Piece};
use crate::error::call;
use crate::gpu::{Stream, View};
use crate::{Element, Result};

/// Elements of a block of moments of [`adam8bit()`].
pub const MOMENT_BLOCK: usize = sys::VESCOMM_GPU_MOMENT_BLOCK as usize;

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

/// Settings of a step of stochastic gradient descent.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sgd {
    /// Multiplies every gradient first, if the call has no clip.
    pub gradient_scale: f32,
    /// Finite, 0 or more.
    pub learning_rate: f64,
    /// Finite, 0 or more; 0: none.
    pub momentum: f64,
    /// The momentum takes 1 - dampening of a gradient, but all of the first.
    pub dampening: f64,
    /// Finite, 0 or more; added to the gradient.
    pub weight_decay: f64,
    /// Nesterov momentum, which needs a momentum and no dampening.
    pub nesterov: bool,
    /// The weight decay is a factor of the parameter.
    pub decoupled: bool,
    /// Counted from 1.
    pub step: i64,
    /// With parameters in bf16 or f16: they are rounded stochastically. `None`: to the nearest.
    pub random: Option<RandomBits>,
}

impl Default for Sgd {
    /// No scaling, learning rate 1e-3, step 1, and nothing else.
    fn default() -> Sgd {
        let raw = sys::vescomm_gpu_sgd_options_init();
        Sgd {
            gradient_scale: raw.gradient_scale,
            learning_rate: raw.learning_rate,
            momentum: raw.momentum,
            dampening: raw.dampening,
            weight_decay: raw.weight_decay,
            nesterov: raw.nesterov != 0,
            decoupled: raw.decoupled != 0,
            step: raw.step,
            random: None,
        }
    }
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

/// The arrays of an AdamW step with moments in 8 bits; as [`AdamWViews`].
#[derive(Clone, Copy, Debug)]
pub struct Adam8bitViews<'a, P = f32> {
    /// Changed by the step: f32, bf16 or f16.
    pub parameters: View<'a, P>,
    /// Not changed.
    pub gradients: View<'a, f32>,
    /// Codes of the first moments.
    pub m: View<'a, u8>,
    /// Codes of the second moments.
    pub v: View<'a, u8>,
    /// One for each block of [`MOMENT_BLOCK`] elements of a piece, of all pieces in their order.
    pub m_scales: View<'a, f32>,
    /// As `m_scales`.
    pub v_scales: View<'a, f32>,
}

/// The arrays of a step of stochastic gradient descent; as [`AdamWViews`].
#[derive(Clone, Copy, Debug)]
pub struct SgdViews<'a, P = f32> {
    /// Changed by the step: f32, bf16 or f16.
    pub parameters: View<'a, P>,
    /// Not changed.
    pub gradients: View<'a, f32>,
    /// Not used, and may be `None`, if the momentum of the settings is 0.
    pub momentum: Option<View<'a, f32>>,
}

/// The members `stochastic`, `random_stream` and `random_first` of options.
fn rounding(random: Option<RandomBits>) -> (i32, u64, u64) {
    random.map_or((0, 0, 0), |random| (1, random.stream, random.first))
}

impl AdamW {
    fn raw<P: Element>(&self) -> sys::vescomm_gpu_adamw_options_t {
        let mut options = sys::vescomm_gpu_adamw_options_init();
        options.gradient_scale = self.gradient_scale;
        options.learning_rate = self.learning_rate;
        options.beta1 = self.beta1;
        options.beta2 = self.beta2;
        options.epsilon = self.epsilon;
        options.weight_decay = self.weight_decay;
        options.step = self.step;
        options.parameter_type = P::TYPE as i32;
        (options.stochastic, options.random_stream, options.random_first) = rounding(self.random);
        options
    }
}

impl Sgd {
    fn raw<P: Element>(&self) -> sys::vescomm_gpu_sgd_options_t {
        let mut options = sys::vescomm_gpu_sgd_options_init();
        options.gradient_scale = self.gradient_scale;
        options.learning_rate = self.learning_rate;
        options.momentum = self.momentum;
        options.dampening = self.dampening;
        options.weight_decay = self.weight_decay;
        options.step = self.step;
        options.nesterov = self.nesterov.into();
        options.decoupled = self.decoupled.into();
        options.parameter_type = P::TYPE as i32;
        (options.stochastic, options.random_stream, options.random_first) = rounding(self.random);
        options
    }
}

/// Checks the arrays that all optimizers have. Returns the address of `clip`.
fn check_step<P: Element>(
    function: &str,
    parameters: View<'_, P>,
    gradients: View<'_, f32>,
    clip: Option<View<'_, Clip>>,
    pieces: &[Piece],
) -> Result<*const sys::vescomm_gpu_clip_t> {
    check_target(function, "parameters", parameters, pieces)?;
    check_source(function, "gradients", gradients, pieces)?;
    let Some(clip) = clip else { return Ok(null()) };
    check_least(function, "clip", clip, 1)?;
    Ok(clip.as_mut_ptr().cast())
}

/// Makes one AdamW step on the elements of pieces. The factor of `clip` replaces `gradient_scale`;
/// with its `skip` nothing changes.
///
/// # Safety
///
/// The current device is that of the views and of the stream.
pub unsafe fn adamw<P: Element>(
    views: AdamWViews<'_, P>,
    settings: &AdamW,
    clip: Option<View<'_, Clip>>,
    pieces: &[Piece],
    stream: Stream,
) -> Result<()> {
    let clip = check_step("adamw", views.parameters, views.gradients, clip, pieces)?;
    for (name, view) in [("m", views.m), ("v", views.v)] {
        check_target("adamw", name, view, pieces)?;
    }
    let (options, (first, count)) = (settings.raw::<P>(), raw(pieces));
    // SAFETY: promised by the caller; the pieces are elements of the views.
    call(|| unsafe {
        let (parameters, gradients) = (views.parameters.as_void(), views.gradients.as_mut_ptr());
        let (m, v, stream) = (views.m.as_mut_ptr(), views.v.as_mut_ptr(), stream.as_raw());
        sys::vescomm_gpu_adamw(parameters, gradients, m, v, &options, clip, first, count, stream)
    })
    .map(drop)
}

/// Makes one AdamW step with moments in 8 bits on the elements of pieces. `clip` as in [`adamw()`].
/// A block of [`MOMENT_BLOCK`] elements of a piece, counted from its first element, has one scale
/// for each moment; so the same pieces are updated together in all steps.
///
/// # Safety
///
/// The current device is that of the views and of the stream.
pub unsafe fn adam8bit<P: Element>(
    views: Adam8bitViews<'_, P>,
    settings: &AdamW,
    clip: Option<View<'_, Clip>>,
    pieces: &[Piece],
    stream: Stream,
) -> Result<()> {
    let clip = check_step("adam8bit", views.parameters, views.gradients, clip, pieces)?;
    for (name, view) in [("m", views.m), ("v", views.v)] {
        check_target("adam8bit", name, view, pieces)?;
    }
    // The pieces are in the views, and the library refuses negative numbers.
    let count = |piece: &Piece| usize::try_from(piece.count).unwrap_or(0);
    let needed = pieces.iter().map(|piece| blocks(count(piece), MOMENT_BLOCK)).sum();
    for (name, view) in [("m_scales", views.m_scales), ("v_scales", views.v_scales)] {
        check_least("adam8bit", name, view, needed)?;
    }
    let (options, (first, count)) = (settings.raw::<P>(), raw(pieces));
    // SAFETY: promised by the caller; the pieces are elements of the views, and their blocks have
    // scales.
    call(|| unsafe {
        sys::vescomm_gpu_adam8bit(
            views.parameters.as_void(),
            views.gradients.as_mut_ptr(),
            views.m.as_mut_ptr(),
            views.v.as_mut_ptr(),
            views.m_scales.as_mut_ptr(),
            views.v_scales.as_mut_ptr(),
            &options,
            clip,
            first,
            count,
            stream.as_raw(),
        )
    })
    .map(drop)
}

/// Makes one step of stochastic gradient descent on the elements of pieces. `clip` as in
/// [`adamw()`].
///
/// # Safety
///
/// The current device is that of the views and of the stream.
pub unsafe fn sgd<P: Element>(
    views: SgdViews<'_, P>,
    settings: &Sgd,
    clip: Option<View<'_, Clip>>,
    pieces: &[Piece],
    stream: Stream,
) -> Result<()> {
    let clip = check_step("sgd", views.parameters, views.gradients, clip, pieces)?;
    if let Some(momentum) = views.momentum.filter(|_| settings.momentum != 0.0) {
        check_target("sgd", "momentum", momentum, pieces)?;
    }
    let (options, (first, count)) = (settings.raw::<P>(), raw(pieces));
    let momentum = views.momentum.map_or(null_mut(), View::as_mut_ptr);
    // SAFETY: promised by the caller; the pieces are elements of the views.
    call(|| unsafe {
        let (parameters, gradients) = (views.parameters.as_void(), views.gradients.as_mut_ptr());
        let stream = stream.as_raw();
        sys::vescomm_gpu_sgd(parameters, gradients, momentum, &options, clip, first, count, stream)
    })
    .map(drop)
}

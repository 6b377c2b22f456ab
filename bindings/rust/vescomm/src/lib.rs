// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Collectives over fused, ragged buffers, for training large models.
//!
//! | | |
//! |---|---|
//! | [`Communicator`] | the ranks that work together; its methods are calls on arrays |
//! | [`Layout`] | the places of tensors and shards in a fused buffer (a plain value) |
//! | [`Memory`], [`Buffer`], [`Part`] | the bytes, at addresses that never change |
//! | [`Request`] | a collective on a buffer, created once and started many times |
//! | [`call`] | collectives and messages on arrays, also in groups and in the background |
//! | [`RegisteredArray`] | an array that moves within a node without a copy |
//! | [`planner`] | computes layouts |
//! | [`gpu`] | device memory: collectives on CUDA streams |
//! | [`Handle`] | what any thread may do with a communicator: progress, abort, counters, traces |
//!
//! A *rank* is one process (or thread) of a job. *Collective* means: all ranks make these calls, in
//! the same order. The header vescomm.h describes everything in detail.
//!
//! # Safety
//!
//! No forgotten or dropped value lets the library write into memory that is used or freed:
//!
//! - calls that wait borrow their arrays;
//! - calls in the background borrow them in a [`scope()`](Communicator::scope), which waits, or own
//!   them ([`start()`](Communicator::start));
//! - a request on a buffer starts with a mutable borrow of it; until the request is complete the
//!   buffer gives no slice.
//!
//! Memory that is shared by the ranks of a node is safe if all of them keep to these rules; a rank
//! in another language could write anything. Device memory has rules of its own: [`gpu`].

#![deny(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_debug_implementations)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod array;
mod arrays;
mod background;
mod buffer;
pub mod call;
mod check_call;
mod comm;
mod element;
mod error;
pub mod gpu;
mod handle;
mod layout;
mod log;
mod memory;
mod op;
mod options;
pub mod planner;
mod raw_request;
mod request;
mod run_call;

pub use array::{Array, RegisteredArray};
pub use background::{Failed, Message, Pending, Scope, Started};
pub use buffer::{Buffer, Part};
pub use comm::Communicator;
pub use element::{Bf16, Bool, Element, Type, C128, C64, F16, F8E4M3, F8E5M2};
pub use error::{Error, Result};
pub use handle::{CommCounters, CommInfo, Handle};
pub use layout::{Layout, LayoutInfo, Piece, SubBox, Tensor};
pub use log::{log_to_standard_error, set_log, LogLevel};
pub use memory::{Memory, Owner, Sharing};
pub use op::Op;
pub use options::CommOptions;
pub use request::{Barrier, NewRequest, Request};

/// Returns the version of the library that is loaded, as "major.minor.patch".
pub fn version() -> &'static str {
    // SAFETY: the function returns a constant string.
    let version = unsafe { std::ffi::CStr::from_ptr(vescomm_sys::vescomm_get_version()) };
    version.to_str().unwrap_or("unknown")
}

/// Returns the time in seconds of the clock that the spans of a trace use. All processes of a
/// machine share it.
pub fn trace_seconds() -> f64 {
    // SAFETY: the function only reads a clock.
    unsafe { vescomm_sys::vescomm_trace_get_seconds() }
}

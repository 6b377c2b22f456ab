// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::null_mut;

use vescomm_sys as sys;

use crate::error::{call, text, without_library};
use crate::Result;

/// Importance of a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// Something is probably wrong.
    Warn,
    /// A notable event.
    Info,
    /// Details for finding defects.
    Debug,
}

unsafe extern "C" fn write_line<F: Fn(LogLevel, &str)>(
    context: *mut c_void,
    level: i32,
    line: *const c_char,
) {
    // SAFETY: `context` is the function that set_log() has leaked.
    let function = unsafe { &*context.cast::<F>() };
    let level = match level {
        0 => LogLevel::Error,
        1 => LogLevel::Warn,
        2 => LogLevel::Info,
        _ => LogLevel::Debug,
    };
    let line = text(line);
    // A panic must not pass the library. Its message is on standard error already.
    let result = catch_unwind(AssertUnwindSafe(|| without_library(|| function(level, &line))));
    if let Err(payload) = result {
        // Its destructor is the program's, and may panic too.
        std::mem::forget(payload);
    }
}

/// Redirects the log of this process to a function, which gets each line without a newline. The
/// variable VESCOMM_LOG selects what is logged.
///
/// The function may be called from any thread, also concurrently. It must not call vescomm: calls
/// within it return [`Error::InvalidArgument`](crate::Error::InvalidArgument). It stays in memory
/// until the process ends, because threads may still be in it after another one was set.
///
/// ```
/// # fn main() -> vescomm::Result<()> {
/// vescomm::set_log(|level, line| eprintln!("{level:?}: {line}"))?;
/// vescomm::log_to_standard_error()
/// # }
/// ```
pub fn set_log<F: Fn(LogLevel, &str) + Send + Sync + 'static>(function: F) -> Result<()> {
    let context: *mut F = Box::into_raw(Box::new(function));
    // SAFETY: the function is that of the type of the context, which lives until the process ends.
    call(|| unsafe { sys::vescomm_set_log(Some(write_line::<F>), context.cast()) }).map(drop)
}

/// Writes the log to standard error again, as at the start of the program.
pub fn log_to_standard_error() -> Result<()> {
    // SAFETY: NULL is permitted.
    call(|| unsafe { sys::vescomm_set_log(None, null_mut()) }).map(drop)
}

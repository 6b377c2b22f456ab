// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// A false report of clippy 1.63 about thread_local.
#![allow(clippy::declare_interior_mutable_const)]

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::fmt;
use std::os::raw::c_char;

use vescomm_sys as sys;

/// A call failed. The text is the library's sentence: what failed, where, the values, and what to
/// do. It is for people; programs use the variant.
///
/// A communicator is *broken* after a failure that ended it for all ranks. From then on every call
/// that creates, starts or waits returns the first error.
///
/// ```
/// use vescomm::{Communicator, Error, Op};
///
/// /// Sums on the ranks that are alive.
/// fn sum(comm: &mut Communicator, data: &mut [f32]) -> vescomm::Result<()> {
///     let mine = data.to_vec(); // a failed call leaves its output undefined
///     match comm.all_reduce(&mine, data, Op::Sum) {
///         Err(Error::PeerFailed(sentence)) => {
///             eprintln!("{sentence}"); // names the rank
///             *comm = comm.shrink(&[])?;
///             comm.all_reduce(&mine, data, Op::Sum)
///         }
///         result => result,
///     }
/// }
/// # let mut comm = Communicator::from_environment().unwrap();
/// # sum(&mut comm, &mut [1.0]).unwrap();
/// # comm.finalize().unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// An argument is wrong. Nothing was created or started. If a call that creates an object fails
    /// on some ranks but not on all, it also breaks the communicator.
    InvalidArgument(String),
    /// Memory or another resource of this machine ran out. Nothing was created or started.
    OutOfMemory(String),
    /// A peer did not respond before the deadline. The communicator is broken from now on.
    Timeout(String),
    /// A peer or the connection to it failed. The communicator is broken from now on.
    PeerFailed(String),
    /// The ranks made different calls, or the same call with different arguments.
    Mismatch(String),
    /// The feature exists, but not in this build, on this machine, or for these arguments.
    Unsupported(String),
    /// The operating system or a library failed; the sentence says which one and why.
    System(String),
    /// A rank aborted the communicator. The communicator is broken from now on.
    Aborted(String),
    /// A defect of vescomm itself; please report it.
    Internal(String),
    /// Another part of the process, such as an interpreter, has ended a wait for a request, which
    /// is still running.
    Interrupted(String),
    /// A status that a later version of the library has added.
    Other {
        /// The value of the status.
        status: i32,
        /// The sentence: what failed, where, the values, and what to do.
        sentence: String,
    },
}

/// Result of a call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(status: sys::vescomm_status_t, sentence: String) -> Error {
        match status {
            sys::VESCOMM_ERROR_INVALID_ARGUMENT => Error::InvalidArgument(sentence),
            sys::VESCOMM_ERROR_OUT_OF_MEMORY => Error::OutOfMemory(sentence),
            sys::VESCOMM_ERROR_TIMEOUT => Error::Timeout(sentence),
            sys::VESCOMM_ERROR_PEER_FAILED => Error::PeerFailed(sentence),
            sys::VESCOMM_ERROR_MISMATCH => Error::Mismatch(sentence),
            sys::VESCOMM_ERROR_UNSUPPORTED => Error::Unsupported(sentence),
            sys::VESCOMM_ERROR_SYSTEM => Error::System(sentence),
            sys::VESCOMM_ERROR_ABORTED => Error::Aborted(sentence),
            sys::VESCOMM_ERROR_INTERNAL => Error::Internal(sentence),
            status => Error::Other { status, sentence },
        }
    }

    /// Returns the status of the C interface, such as -3 for a timeout.
    pub fn status(&self) -> i32 {
        match self {
            Error::InvalidArgument(_) => sys::VESCOMM_ERROR_INVALID_ARGUMENT,
            Error::OutOfMemory(_) => sys::VESCOMM_ERROR_OUT_OF_MEMORY,
            Error::Timeout(_) => sys::VESCOMM_ERROR_TIMEOUT,
            Error::PeerFailed(_) => sys::VESCOMM_ERROR_PEER_FAILED,
            Error::Mismatch(_) => sys::VESCOMM_ERROR_MISMATCH,
            Error::Unsupported(_) => sys::VESCOMM_ERROR_UNSUPPORTED,
            Error::System(_) => sys::VESCOMM_ERROR_SYSTEM,
            Error::Aborted(_) => sys::VESCOMM_ERROR_ABORTED,
            Error::Internal(_) => sys::VESCOMM_ERROR_INTERNAL,
            Error::Interrupted(_) => sys::VESCOMM_IN_PROGRESS,
            Error::Other { status, .. } => *status,
        }
    }

    /// Returns the name of the status, such as "timeout".
    pub fn name(&self) -> &'static str {
        // SAFETY: the function returns a constant string for every value.
        let name = unsafe { CStr::from_ptr(sys::vescomm_status_get_name(self.status())) };
        name.to_str().unwrap_or("unknown status")
    }

    /// Returns the sentence, which [`Display`](fmt::Display) prints too.
    pub fn sentence(&self) -> &str {
        match self {
            Error::InvalidArgument(sentence)
            | Error::OutOfMemory(sentence)
            | Error::Timeout(sentence)
            | Error::PeerFailed(sentence)
            | Error::Mismatch(sentence)
            | Error::Unsupported(sentence)
            | Error::System(sentence)
            | Error::Aborted(sentence)
            | Error::Internal(sentence)
            | Error::Interrupted(sentence)
            | Error::Other { sentence, .. } => sentence,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.sentence())
    }
}

impl std::error::Error for Error {}

thread_local! {
    /// True while a function given to `set_log()` runs on this thread.
    static IN_LOG_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Runs a function that must not call the library.
pub(crate) fn without_library<R>(function: impl FnOnce() -> R) -> R {
    struct Ends;
    impl Drop for Ends {
        fn drop(&mut self) {
            IN_LOG_FUNCTION.with(|inside| inside.set(false));
        }
    }
    IN_LOG_FUNCTION.with(|inside| inside.set(true));
    let _ends = Ends;
    function()
}

/// Returns an error within a function given to `set_log()`: the library logs while it holds locks.
pub(crate) fn enter() -> Result<()> {
    if IN_LOG_FUNCTION.with(Cell::get) {
        return Err(invalid(
            "a function given to set_log() called vescomm, which waits for that function; pass the \
             line to another thread",
        ));
    }
    Ok(())
}

/// Makes a call of the library. Every call that can fail, free or log passes here.
pub(crate) fn call(function: impl FnOnce() -> sys::vescomm_status_t) -> Result<i32> {
    call_explained(function, || {
        // SAFETY: the string is valid until the next failing call of this thread.
        text(unsafe { sys::vescomm_get_last_error() })
    })
}

/// Makes a call of which `explain` returns the error sentence.
pub(crate) fn call_explained(
    function: impl FnOnce() -> sys::vescomm_status_t,
    explain: impl FnOnce() -> String,
) -> Result<i32> {
    enter()?;
    match function() {
        status if status >= 0 => Ok(status),
        status => Err(Error::new(status, explain())),
    }
}

pub(crate) fn invalid(sentence: impl Into<String>) -> Error {
    Error::InvalidArgument(sentence.into())
}

/// Copies a string of the library; NULL becomes an empty one.
pub(crate) fn text(string: *const c_char) -> String {
    if string.is_null() {
        return String::new();
    }
    // SAFETY: strings of the library end with a zero.
    unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned()
}

/// `what` names the string in the error.
pub(crate) fn c_string(what: &str, string: &str) -> Result<CString> {
    CString::new(string)
        .map_err(|_| invalid(format!("{what} {string:?} has a NUL character; remove it")))
}

pub(crate) fn pointer(string: &Option<CString>) -> *const c_char {
    string.as_ref().map_or(std::ptr::null(), |string| string.as_ptr())
}

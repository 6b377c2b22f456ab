// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

use std::ffi::CString;
use std::time::Duration;

use vescomm_sys as sys;

use crate::error::{c_string, pointer};
use crate::Result;

/// Options of a communicator.
///
/// ```
/// let mut options = vescomm::CommOptions::default();
/// options.timeout = Some(std::time::Duration::from_secs(30));
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CommOptions {
    /// Maximum duration of a wait for a peer; after it the wait fails. `None` or zero: the variable
    /// VESCOMM_TIMEOUT_SECONDS, or 300 s.
    pub timeout: Option<Duration>,
    /// Name of the node of this rank; ranks with the same name share memory. `None`: the variable
    /// VESCOMM_NODE, or the identity of host and network namespace.
    pub node: Option<String>,
    /// Sums are bit-identical for any algorithm and any placement of ranks on nodes. The same on
    /// every rank. False: the variable VESCOMM_REPRODUCIBLE, or no.
    pub reproducible: bool,
    /// Identifies a communicator when several threads create communicators of the same ranks at the
    /// same time: each thread passes its own tag, and the tag is the same on every rank. At most
    /// 255 bytes. `split()` and `dup()` do not use it.
    pub tag: Option<String>,
}

/// The options in C, with the strings that they point to.
pub(crate) struct RawCommOptions {
    pub(crate) raw: sys::vescomm_comm_options_t,
    _strings: [Option<CString>; 2],
}

impl CommOptions {
    pub(crate) fn to_raw(&self) -> Result<RawCommOptions> {
        let string = |what, given: &Option<String>| {
            given.as_deref().map(|string| c_string(what, string)).transpose()
        };
        let strings = [string("the name of the node", &self.node)?, string("the tag", &self.tag)?];
        let mut raw = sys::vescomm_comm_options_init();
        raw.timeout_seconds = self.timeout.map_or(0.0, |timeout| timeout.as_secs_f64());
        raw.node = pointer(&strings[0]);
        raw.reproducible = self.reproducible.into();
        raw.tag = pointer(&strings[1]);
        Ok(RawCommOptions { raw, _strings: strings })
    }
}

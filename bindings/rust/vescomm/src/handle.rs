// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

use std::ffi::CString;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use vescomm_sys as sys;

use crate::error::{c_string, call, invalid};
use crate::{Error, Result};

/// Ranks and nodes of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommInfo {
    /// Rank of the caller.
    pub rank: usize,
    /// Number of ranks.
    pub ranks: usize,
    /// Node of the caller; nodes are numbered in the order of their first rank.
    pub node: usize,
    /// Number of nodes.
    pub nodes: usize,
    /// Position of the caller among the ranks of its node.
    pub local_rank: usize,
    /// Number of ranks on the caller's node.
    pub local_ranks: usize,
    /// Longest time of a wait, as given or by default.
    pub timeout: Duration,
}

/// Counters of a communicator on this rank, since its creation: they never decrease.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct CommCounters {
    /// Operations started: requests, calls on arrays, barriers.
    pub operations: u64,
    /// Bytes that this rank's copies and conversions have written.
    pub bytes_written: u64,
    /// Bytes that this rank's reductions have read.
    pub bytes_reduced: u64,
    /// Bytes that this rank has sent to other nodes.
    pub bytes_sent: u64,
    /// Number of times that a waiting thread of this rank slept.
    pub sleeps: u64,
    /// Time in copies and reductions of 16 KiB and more.
    pub busy_seconds: f64,
    /// Time in waits that have ended, without the busy time in them. A wait that ends within its
    /// first polls is not timed.
    pub waiting_seconds: f64,
    /// Bytes that this rank's copies and reductions have read in registered arrays of other ranks.
    pub bytes_registered: u64,
}

/// Owns the communicator of the C interface.
pub(crate) struct OwnedComm {
    pub(crate) raw: *mut sys::vescomm_comm_t,
}

// SAFETY: `Handle`, which threads share, calls only functions that vescomm.h calls safe, and the
// last owner frees. `Communicator` calls the others and is not Sync.
unsafe impl Send for OwnedComm {}
unsafe impl Sync for OwnedComm {}

impl Drop for OwnedComm {
    fn drop(&mut self) {
        // Does not wait: `Communicator` has ended it before. An error means that the handle was
        // inherited by fork(), or is dropped by a function given to set_log(). It has no effect.
        // SAFETY: nothing else has the pointer.
        let _ = call(|| unsafe { sys::vescomm_comm_free(self.raw) });
    }
}

/// The part of a communicator that any thread may use at any time, also while another thread waits:
/// to make progress, to abort, to observe.
///
/// [`Communicator`](crate::Communicator) dereferences to it. A clone may outlive the communicator.
/// It still reads counters and recordings then, progress has no effect, and an array that it
/// registers is an ordinary array.
///
/// ```
/// # fn main() -> vescomm::Result<()> {
/// let comm = vescomm::Communicator::from_environment()?;
/// let handle = comm.handle();
/// std::thread::spawn(move || println!("{}", handle.metrics().unwrap())).join().unwrap();
/// # comm.finalize()
/// # }
/// ```
#[derive(Clone)]
pub struct Handle {
    pub(crate) owned: Arc<OwnedComm>,
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
}

impl Handle {
    /// Takes over the pointer.
    pub(crate) fn new(raw: *mut sys::vescomm_comm_t) -> Result<Handle> {
        let mut handle = Handle { owned: Arc::new(OwnedComm { raw }), rank: 0, ranks: 0 };
        let info = handle.info()?;
        handle.rank = info.rank;
        handle.ranks = info.ranks;
        Ok(handle)
    }

    pub(crate) fn raw(&self) -> *mut sys::vescomm_comm_t {
        self.owned.raw
    }

    /// Returns a handle that another thread can own.
    pub fn handle(&self) -> Handle {
        self.clone()
    }

    /// Rank of the caller.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Returns the caller's rank, node and local rank, the numbers of ranks, nodes and local
    /// ranks, and the timeout.
    pub fn info(&self) -> Result<CommInfo> {
        let mut info = sys::vescomm_comm_info_init();
        // SAFETY: struct_size is set.
        call(|| unsafe { sys::vescomm_comm_get_info(self.raw(), &mut info) })?;
        Ok(CommInfo {
            rank: info.rank as usize,
            ranks: info.ranks as usize,
            node: info.node as usize,
            nodes: info.nodes as usize,
            local_rank: info.local_rank as usize,
            local_ranks: info.local_ranks as usize,
            timeout: Duration::from_secs_f64(info.timeout_seconds.min(1e15)),
        })
    }

    /// Returns the counters of the communicator on this rank.
    pub fn counters(&self) -> Result<CommCounters> {
        let mut counters = sys::vescomm_comm_counters_init();
        // SAFETY: struct_size is set.
        call(|| unsafe { sys::vescomm_comm_get_counters(self.raw(), &mut counters) })?;
        Ok(CommCounters {
            operations: counters.operations,
            bytes_written: counters.bytes_written,
            bytes_reduced: counters.bytes_reduced,
            bytes_sent: counters.bytes_sent,
            sleeps: counters.sleeps,
            busy_seconds: counters.busy_seconds,
            waiting_seconds: counters.waiting_seconds,
            bytes_registered: counters.bytes_registered,
        })
    }

    /// Formats the counters and two gauges as text in the Prometheus format (0.0.4).
    pub fn metrics(&self) -> Result<String> {
        // The text may grow between two calls.
        let mut size = 4096;
        loop {
            let mut bytes = vec![0u8; size];
            // SAFETY: the capacity is that of the vector.
            call(|| unsafe {
                sys::vescomm_comm_get_metrics(
                    self.raw(),
                    bytes.as_mut_ptr().cast(),
                    bytes.len(),
                    &mut size,
                )
            })?;
            if size <= bytes.len() {
                bytes.truncate(size - 1); // the terminating zero
                return String::from_utf8(bytes)
                    .map_err(|_| Error::Internal("metrics that are no UTF-8".to_string()));
            }
        }
    }

    /// Makes progress on started requests without waiting. Call it regularly in long computations
    /// if the communicator has no progress thread. By default it has one if there are other nodes;
    /// the variable VESCOMM_PROGRESS changes that.
    pub fn progress(&self) -> Result<()> {
        // SAFETY: the communicator exists.
        call(|| unsafe { sys::vescomm_comm_progress(self.raw()) }).map(drop)
    }

    /// Breaks the communicator deliberately: the waits of all ranks return [`Error::Aborted`] with
    /// the reason. If it is broken already, its first error remains.
    pub fn abort(&self, reason: &str) -> Result<()> {
        let reason = c_string("the reason", reason)?;
        // SAFETY: the string lives until the call returns.
        call(|| unsafe { sys::vescomm_comm_abort(self.raw(), reason.as_ptr()) }).map(drop)
    }

    /// Starts recording spans (named intervals of time) on this rank: requests, waits, and spans of
    /// the caller.
    ///
    /// `spans` is the maximum number to keep; later ones are counted and dropped. 0: 1,000,000.
    pub fn trace_start(&self, spans: u64) -> Result<()> {
        // SAFETY: the communicator exists.
        call(|| unsafe { sys::vescomm_trace_start(self.raw(), spans) }).map(drop)
    }

    /// Records a span of the caller. Has no effect when no trace was started.
    ///
    /// `name` is the name of the span, such as "forward block.3", and `track` its row of the
    /// timeline, such as "compute". `begin` and `end` are times of
    /// [`trace_seconds()`](crate::trace_seconds).
    pub fn trace_add_span(&self, name: &str, track: &str, begin: f64, end: f64) -> Result<()> {
        let (name, track) = (c_string("the name", name)?, c_string("the track", track)?);
        // SAFETY: the strings live until the call returns.
        call(|| unsafe {
            sys::vescomm_trace_add_span(self.raw(), name.as_ptr(), track.as_ptr(), begin, end)
        })
        .map(drop)
    }

    /// Writes the last operations of this rank into a file; an existing file is replaced.
    ///
    /// In the path %r stands for this rank, %c for the number of the communicator in this process,
    /// %p for the process id, and %% for a %.
    pub fn flight_recorder_write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = c_path(path.as_ref())?;
        // SAFETY: the string lives until the call returns.
        call(|| unsafe { sys::vescomm_flight_recorder_write(self.raw(), path.as_ptr()) }).map(drop)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "rank {} of {}", self.rank, self.ranks)
    }
}

pub(crate) fn c_path(path: &Path) -> Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| invalid(format!("the path {path:?} has a NUL character; remove it")))
}

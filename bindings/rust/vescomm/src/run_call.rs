// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Passes calls on arrays to the library.

use std::ptr::{null, null_mut};

use vescomm_sys as sys;

use crate::call::{Call, Function, Kind, Raw};
use crate::check_call::Checked;
use crate::error::call;
use crate::{Communicator, Error, Result};

impl Raw<'_> {
    /// # Safety
    ///
    /// `checked` is the result of `check()`. The arrays stay until the operation is complete.
    unsafe fn submit(
        &self,
        comm: *mut sys::vescomm_comm_t,
        checked: &Checked,
        request: *mut *mut sys::vescomm_request_t,
    ) -> sys::vescomm_status_t {
        let (op, factor) = self.op.raw();
        let mut given = sys::vescomm_call_options_init();
        given.factor = factor;
        given.tag = self.tag;
        given.algorithm = crate::error::pointer(&checked.algorithm);
        let plain = factor == 0.0 && self.tag == 0 && checked.algorithm.is_none();
        let options = if plain { null() } else { &given as *const _ };
        let list = |list: Option<&[i64]>| list.map_or(null(), <[i64]>::as_ptr);
        let Checked { source, output, count, .. } = *checked;
        let element = self.element as i32;
        let rank = match self.any_source {
            true => sys::VESCOMM_ANY_SOURCE,
            false => self.rank as i32, // checked
        };
        let (counts, output_counts) = (self.counts.as_ptr(), self.output_counts.as_ptr());
        let (from, to) = (list(self.source_offsets), list(self.output_offsets));
        let (none, r) = (null_mut(), request);
        use Function::*;
        // SAFETY: promised by the caller; options live until the call returns.
        unsafe {
            match self.function {
                AllGatherV => sys::vescomm_all_gather_v(
                    comm, source, output, counts, to, element, options, none, r,
                ),
                AllGather => {
                    sys::vescomm_all_gather(comm, source, output, count, element, options, none, r)
                }
                ReduceScatterV => sys::vescomm_reduce_scatter_v(
                    comm, source, output, counts, element, op, options, none, r,
                ),
                ReduceScatter => sys::vescomm_reduce_scatter(
                    comm, source, output, count, element, op, options, none, r,
                ),
                AllReduce => sys::vescomm_all_reduce(
                    comm, source, output, count, element, op, options, none, r,
                ),
                Reduce => sys::vescomm_reduce(
                    comm, source, output, count, element, op, rank, options, none, r,
                ),
                Broadcast => {
                    sys::vescomm_broadcast(comm, output, count, element, rank, options, none, r)
                }
                GatherV => sys::vescomm_gather_v(
                    comm, source, output, counts, to, element, rank, options, none, r,
                ),
                ScatterV => sys::vescomm_scatter_v(
                    comm, source, output, counts, from, element, rank, options, none, r,
                ),
                AllToAllV => sys::vescomm_all_to_all_v(
                    comm,
                    source,
                    counts,
                    from,
                    output,
                    output_counts,
                    to,
                    element,
                    options,
                    none,
                    r,
                ),
                AllToAll => {
                    sys::vescomm_all_to_all(comm, source, output, count, element, options, none, r)
                }
                Send => sys::vescomm_send(comm, source, count, element, rank, options, none, r),
                Receive => {
                    sys::vescomm_receive(comm, output, count, element, rank, options, none, r)
                }
            }
        }
    }
}

/// Makes a call, and waits for it if `request` is null.
///
/// # Safety
///
/// The arrays that the call borrows stay, and nothing else accesses them, until the call has
/// returned or, with a request, until the request is complete or freed.
pub(crate) unsafe fn make(
    comm: &Communicator,
    calls: &Call<'_>,
    request: *mut *mut sys::vescomm_request_t,
) -> Result<()> {
    let check = |raw: &Raw<'_>| raw.check(comm.rank(), comm.ranks());
    match &calls.kind {
        Kind::One(raw) => {
            let checked = check(raw)?;
            // SAFETY: checked, and promised by the caller.
            call(|| unsafe { raw.submit(comm.raw(), &checked, request) }).map(drop)
        }
        Kind::Group(all) => {
            // All are checked before the first one is made: a group cannot be taken back.
            let checked: Vec<Checked> = all.iter().map(check).collect::<Result<_>>()?;
            // SAFETY: checked, and promised by the caller. No other call is made meanwhile.
            unsafe { make_group(comm, all.iter().zip(&checked), request) }
        }
    }
}

/// # Safety
///
/// As `make()`.
unsafe fn make_group<'a, 'b: 'a>(
    comm: &Communicator,
    calls: impl Iterator<Item = (&'a Raw<'b>, &'a Checked)>,
    request: *mut *mut sys::vescomm_request_t,
) -> Result<()> {
    // SAFETY: this thread alone uses the communicator.
    let end = |request| call(|| unsafe { sys::vescomm_group_end(comm.raw(), request) }).map(drop);
    // If the library refuses a call after others, or a group that it leaves open, the group ends
    // without being started: the communicator is broken first.
    let give_up = |error: Error| {
        let _ = comm.abort(&error.sentence().replace('\0', "?"));
        let _ = end(null_mut());
        error
    };
    // SAFETY: as above.
    call(|| unsafe { sys::vescomm_group_begin(comm.raw()) })?;
    for (raw, checked) in calls {
        // SAFETY: promised by the caller.
        call(|| unsafe { raw.submit(comm.raw(), checked, null_mut()) }).map_err(give_up)?;
    }
    end(request).map_err(|error| match error {
        Error::OutOfMemory(_) => give_up(error),
        other => other,
    })
}

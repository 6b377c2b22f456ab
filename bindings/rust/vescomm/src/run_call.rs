// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Checks the arguments of calls on arrays, and passes them to the library.

use std::ffi::CString;
use std::os::raw::c_void;
use std::ptr::{null, null_mut};

use vescomm_sys as sys;

use crate::call::{Argument, Call, Function, Kind, Raw};
use crate::comm::rank_number;
use crate::error::{c_string, call, invalid};
use crate::{Communicator, Error, Result};

/// A call of which the arrays have the elements that the library accesses.
struct Checked {
    source: *mut c_void,
    output: *mut c_void,
    /// Functions with one count.
    count: i64,
    algorithm: Option<CString>,
}

impl Argument {
    /// Address and number of elements.
    fn parts(self) -> (*mut c_void, usize) {
        match self {
            Argument::Given(data, elements) => (data, elements),
            Argument::Absent | Argument::InPlace => (null_mut(), 0),
        }
    }

    fn is_in_place(self) -> bool {
        matches!(self, Argument::InPlace)
    }
}

/// Elements of an array that has these blocks. No number is negative.
fn extent(counts: &[i64], offsets: Option<&[i64]>) -> usize {
    let elements = match offsets {
        None => counts.iter().fold(0, |sum: i64, count| sum.saturating_add(*count)),
        Some(offsets) => {
            let blocks = counts.iter().zip(offsets).filter(|(count, _)| **count > 0);
            blocks.map(|(count, offset)| offset.saturating_add(*count)).max().unwrap_or(0)
        }
    };
    elements as usize
}

/// First element of the block of a rank, in an array that has all blocks.
fn begin(counts: &[i64], offsets: Option<&[i64]>, rank: usize) -> usize {
    match offsets {
        Some(offsets) => offsets[rank] as usize,
        None => extent(&counts[..rank], None),
    }
}

impl Raw<'_> {
    fn name(&self) -> &'static str {
        match self.function {
            Function::AllGatherV => "all_gather_v",
            Function::AllGather => "all_gather",
            Function::ReduceScatterV => "reduce_scatter_v",
            Function::ReduceScatter => "reduce_scatter",
            Function::AllReduce => "all_reduce",
            Function::Reduce => "reduce",
            Function::Broadcast => "broadcast",
            Function::GatherV => "gather_v",
            Function::ScatterV => "scatter_v",
            Function::AllToAllV => "all_to_all_v",
            Function::AllToAll => "all_to_all",
            Function::Send => "send",
            Function::Receive => "receive",
        }
    }

    fn refuse<T>(&self, why: String) -> Result<T> {
        Err(invalid(format!("{}: {why}", self.name())))
    }

    fn require(&self, what: &str, there: usize, needed: usize) -> Result<()> {
        if there >= needed {
            return Ok(());
        }
        self.refuse(format!("{what} has {there} elements, and {needed} are needed"))
    }

    /// Checks a list that has a number for each rank.
    fn check_list(&self, what: &str, list: &[i64], ranks: usize) -> Result<()> {
        if list.len() != ranks {
            return self.refuse(format!(
                "there are {} {what} for {ranks} ranks; give one for each",
                list.len()
            ));
        }
        match list.iter().position(|number| *number < 0) {
            Some(k) => self.refuse(format!("{what}[{k}] is {}; it must be at least 0", list[k])),
            None => Ok(()),
        }
    }

    fn check_offsets(&self, ranks: usize) -> Result<()> {
        let (source, output) = match self.function {
            Function::AllToAllV => (true, true),
            Function::ScatterV => (true, false),
            Function::AllGatherV | Function::GatherV => (false, true),
            _ => (false, false),
        };
        for (given, used, what) in [
            (self.source_offsets, source, "source_offsets"),
            (self.output_offsets, output, "output_offsets"),
        ] {
            match given {
                Some(list) if used => self.check_list(what, list, ranks)?,
                Some(_) => return self.refuse(format!("takes no {what}")),
                None => {}
            }
        }
        Ok(())
    }

    fn check_rank(&self, ranks: usize) -> Result<()> {
        use Function::*;
        let what = match self.function {
            Send | Receive => "peer",
            Reduce | Broadcast | GatherV | ScatterV => "root",
            _ => return Ok(()),
        };
        if self.any_source || self.rank < ranks {
            return Ok(());
        }
        self.refuse(format!("{what} is {}, and there are ranks 0 to {}", self.rank, ranks - 1))
    }

    fn check_tag(&self) -> Result<()> {
        if self.tag < 0 {
            return self.refuse(format!("tag is {}; it must be at least 0", self.tag));
        }
        if self.tag != 0 && !matches!(self.function, Function::Send | Function::Receive) {
            return self.refuse("takes no tag".to_string());
        }
        Ok(())
    }

    /// Checks the arrays of a function that has counts for each rank. Returns the first element of
    /// the calling rank's block, if it is in place.
    fn check_blocks(&self, rank: usize, ranks: usize) -> Result<Option<usize>> {
        use Function::*;
        let counts = self.counts;
        self.check_list("counts", counts, ranks)?;
        let (_, in_source) = self.source.parts();
        let (_, in_output) = self.output.parts();
        let rooted = matches!(self.function, GatherV | ScatterV);
        let (source_in_place, output_in_place) =
            (self.source.is_in_place(), self.output.is_in_place());
        if rooted && rank != self.rank {
            if source_in_place || output_in_place {
                return self.refuse("only the root can be in place".to_string());
            }
            let (what, there) = match self.function {
                GatherV => ("source", in_source),
                _ => ("output", in_output),
            };
            return self.require(what, there, counts[rank] as usize).map(|()| None);
        }
        match self.function {
            AllGatherV | GatherV => {
                self.require("output", in_output, extent(counts, self.output_offsets))?;
                if source_in_place {
                    return Ok(Some(begin(counts, self.output_offsets, rank)));
                }
                self.require("source", in_source, counts[rank] as usize)?;
            }
            ReduceScatterV | ScatterV => {
                self.require("source", in_source, extent(counts, self.source_offsets))?;
                if output_in_place {
                    return Ok(Some(begin(counts, self.source_offsets, rank)));
                }
                self.require("output", in_output, counts[rank] as usize)?;
            }
            _ => {
                let output_counts = self.output_counts;
                self.check_list("output_counts", output_counts, ranks)?;
                self.require("source", in_source, extent(counts, self.source_offsets))?;
                self.require("output", in_output, extent(output_counts, self.output_offsets))?;
            }
        }
        Ok(None)
    }

    /// Checks the arrays of a function that has one count, and returns the count.
    fn check_count(&self, rank: usize, ranks: usize) -> Result<usize> {
        use Function::*;
        let (_, in_source) = self.source.parts();
        let (_, in_output) = self.output.parts();
        match self.function {
            AllReduce | Reduce if self.source.is_in_place() => return Ok(in_output),
            Broadcast | Receive => return Ok(in_output),
            ReduceScatter => {
                self.require("source", in_source, in_output.saturating_mul(ranks))?;
                return Ok(in_output);
            }
            AllToAll => {
                if in_source % ranks != 0 {
                    return self.refuse(format!(
                        "source has {in_source} elements, which is no multiple of {ranks} ranks"
                    ));
                }
                self.require("output", in_output, in_source)?;
                return Ok(in_source / ranks);
            }
            AllGather => self.require("output", in_output, in_source.saturating_mul(ranks))?,
            AllReduce => self.require("output", in_output, in_source)?,
            Reduce if rank == self.rank => self.require("output", in_output, in_source)?,
            _ => {}
        }
        Ok(in_source)
    }

    /// Checks everything that can be checked on one rank: the library must not access an element
    /// that an array does not have.
    fn check(&self, rank: usize, ranks: usize) -> Result<Checked> {
        use Function::*;
        self.check_offsets(ranks)?;
        self.check_rank(ranks)?;
        self.check_tag()?;
        if matches!(self.function, ReduceScatterV | ReduceScatter | AllReduce | Reduce) {
            self.op.check(self.name(), self.element)?;
        }
        let has_blocks =
            matches!(self.function, AllGatherV | ReduceScatterV | GatherV | ScatterV | AllToAllV);
        let (own_block, count) = match has_blocks {
            true => (self.check_blocks(rank, ranks)?, 0),
            false => (None, self.check_count(rank, ranks)?),
        };
        let (source, output) = (self.source.parts().0, self.output.parts().0);
        let own = |array: *mut c_void| {
            // An empty block may lie anywhere.
            let bytes = own_block.unwrap_or(0).wrapping_mul(self.element.bytes());
            array.cast::<u8>().wrapping_add(bytes).cast::<c_void>()
        };
        let algorithm =
            self.algorithm.map(|name| c_string("the name of an algorithm", name)).transpose()?;
        Ok(Checked {
            source: if self.source.is_in_place() { own(output) } else { source },
            output: if self.output.is_in_place() { own(source) } else { output },
            count: count as i64,
            algorithm,
        })
    }

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
            false => rank_number(self.rank),
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
        let error = comm.refuse(error);
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

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Checks the arguments of calls on arrays: the library must not access an element that an array
//! does not have, and cannot take back the calls of a group.

use std::ffi::CString;
use std::os::raw::c_void;
use std::ptr::null_mut;

use crate::call::{Argument, Function, Raw};
use crate::error::{c_string, invalid};
use crate::Result;

/// A call of which the arrays have the elements that the library accesses.
pub(crate) struct Checked {
    pub(crate) source: *mut c_void,
    pub(crate) output: *mut c_void,
    /// Functions with one count.
    pub(crate) count: i64,
    pub(crate) algorithm: Option<CString>,
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

/// The library refuses larger numbers of elements.
const MAX_ELEMENTS: i64 = 1 << 40;

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
        match list.iter().position(|number| !(0..=MAX_ELEMENTS).contains(number)) {
            Some(k) => self
                .refuse(format!("{what}[{k}] is {}; it must be from 0 to {MAX_ELEMENTS}", list[k])),
            None => Ok(()),
        }
    }

    fn check_counts(&self, what: &str, counts: &[i64], ranks: usize) -> Result<()> {
        self.check_list(what, counts, ranks)?;
        let sum = extent(counts, None);
        if sum > MAX_ELEMENTS as usize {
            return self.refuse(format!(
                "the sum of {what} is {sum}; it must be from 0 to {MAX_ELEMENTS}"
            ));
        }
        Ok(())
    }

    /// Checks that no block of an array shares elements with a block that the call writes: the one of
    /// rank `written`, or all of them.
    fn check_apart(
        &self,
        counts: &[i64],
        offsets: Option<&[i64]>,
        written: Option<usize>,
    ) -> Result<()> {
        let offsets = match offsets {
            Some(offsets) => offsets,
            None => return Ok(()),
        };
        let mut blocks: Vec<(i64, i64, bool)> = counts
            .iter()
            .zip(offsets)
            .enumerate()
            .filter(|(_, (count, _))| **count > 0)
            .map(|(k, (count, offset))| {
                (*offset, *offset + *count, written.map_or(true, |w| w == k))
            })
            .collect();
        blocks.sort_unstable();
        let (mut read_end, mut written_end) = (0, 0);
        for (begin, end, is_written) in blocks {
            if begin < written_end || (is_written && begin < read_end) {
                return self.refuse(format!(
                    "the block at offset {begin} overlaps another one, and the call writes one of \
                     them; give offsets of blocks that lie apart"
                ));
            }
            let last = if is_written { &mut written_end } else { &mut read_end };
            *last = end.max(*last);
        }
        Ok(())
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
        self.check_counts("counts", counts, ranks)?;
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
                self.check_apart(counts, self.output_offsets, None)?;
                if source_in_place {
                    return Ok(Some(begin(counts, self.output_offsets, rank)));
                }
                self.require("source", in_source, counts[rank] as usize)?;
            }
            ReduceScatterV | ScatterV => {
                self.require("source", in_source, extent(counts, self.source_offsets))?;
                if output_in_place {
                    self.check_apart(counts, self.source_offsets, Some(rank))?;
                    return Ok(Some(begin(counts, self.source_offsets, rank)));
                }
                self.require("output", in_output, counts[rank] as usize)?;
            }
            _ => {
                let output_counts = self.output_counts;
                self.check_counts("output_counts", output_counts, ranks)?;
                self.require("source", in_source, extent(counts, self.source_offsets))?;
                self.require("output", in_output, extent(output_counts, self.output_offsets))?;
                if counts[rank] != output_counts[rank] {
                    return self.refuse(format!(
                        "this rank sends itself {} elements and expects {}",
                        counts[rank], output_counts[rank]
                    ));
                }
                self.check_apart(output_counts, self.output_offsets, None)?;
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
    pub(crate) fn check(&self, rank: usize, ranks: usize) -> Result<Checked> {
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
}

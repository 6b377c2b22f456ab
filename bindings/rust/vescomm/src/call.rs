// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Calls on arrays, as values: collectives and messages that can be made now
//! ([`Communicator::run()`]), together ([`group()`]), or in the background
//! ([`Communicator::scope()`], [`Communicator::start()`]).
//!
//! [`Communicator`] has a method with the name of each function here, which makes the call and
//! waits for it. Counts and offsets are in elements. Blocks lie one after another, in the order of
//! ranks, unless [`Call::source_offsets()`] or [`Call::output_offsets()`] places them.
//!
//! Every function has arrays of one type of elements. Functions without counts take the count from
//! the length of the source, or of the only array; [`reduce_scatter()`] takes it from the output.
//! Other arrays may be longer than needed.
//!
//! [`Communicator`]: crate::Communicator
//! [`Communicator::run()`]: crate::Communicator::run
//! [`Communicator::scope()`]: crate::Communicator::scope
//! [`Communicator::start()`]: crate::Communicator::start

use std::marker::PhantomData;
use std::os::raw::c_void;

use crate::{Element, Op, Type};

/// A collective or a message on arrays, or a group of them, not yet made. It borrows its arrays.
///
/// ```compile_fail,E0505
/// # fn f(comm: &vescomm::Communicator) -> vescomm::Result<()> {
/// let mut data = vec![1.0f32];
/// let call = vescomm::call::all_reduce_in_place(&mut data, vescomm::Op::Sum);
/// drop(data);
/// comm.run(call)
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a call does nothing until a communicator makes it"]
pub struct Call<'a> {
    pub(crate) kind: Kind<'a>,
}

#[derive(Debug)]
pub(crate) enum Kind<'a> {
    One(Raw<'a>),
    Group(Vec<Raw<'a>>),
}

/// The functions of the C interface that make calls on arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    AllGatherV,
    AllGather,
    ReduceScatterV,
    ReduceScatter,
    AllReduce,
    Reduce,
    Broadcast,
    GatherV,
    ScatterV,
    AllToAllV,
    AllToAll,
    Send,
    Receive,
}

/// An array of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument {
    /// The call has no such array.
    Absent,
    /// Address and number of elements. Outputs were borrowed mutably.
    Given(*mut c_void, usize),
    /// The calling rank's block of the other array, or all of it where a rank has no block.
    InPlace,
}

/// The arguments of one call. They are checked when the call is made, because only a communicator
/// has the rank.
#[derive(Debug)]
pub(crate) struct Raw<'a> {
    pub(crate) function: Function,
    pub(crate) element: Type,
    pub(crate) source: Argument,
    pub(crate) output: Argument,
    pub(crate) counts: &'a [i64],
    pub(crate) output_counts: &'a [i64],
    pub(crate) source_offsets: Option<&'a [i64]>,
    pub(crate) output_offsets: Option<&'a [i64]>,
    pub(crate) op: Op,
    /// The root, or the peer of a message.
    pub(crate) rank: usize,
    /// A receive takes a message of any rank; `rank` has no meaning.
    pub(crate) any_source: bool,
    /// The tag of a message.
    pub(crate) tag: i32,
    pub(crate) algorithm: Option<&'a str>,
    _arrays: PhantomData<&'a mut ()>,
}

fn source<T>(array: &[T]) -> Argument {
    // The library only reads sources.
    Argument::Given(array.as_ptr() as *mut c_void, array.len())
}

fn output<T>(array: &mut [T]) -> Argument {
    Argument::Given(array.as_mut_ptr().cast(), array.len())
}

impl<'a> Call<'a> {
    fn new<T: Element>(function: Function, source: Argument, output: Argument) -> Call<'a> {
        Call {
            kind: Kind::One(Raw {
                function,
                element: T::TYPE,
                source,
                output,
                counts: &[],
                output_counts: &[],
                source_offsets: None,
                output_offsets: None,
                op: Op::Sum,
                rank: 0,
                any_source: false,
                tag: 0,
                algorithm: None,
                _arrays: PhantomData,
            }),
        }
    }

    fn with(mut self, mut change: impl FnMut(&mut Raw<'a>)) -> Call<'a> {
        match &mut self.kind {
            Kind::One(raw) => change(raw),
            Kind::Group(all) => all.iter_mut().for_each(change),
        }
        self
    }

    /// Places the blocks of the source of a [`scatter_v()`] or an [`all_to_all_v()`]: one offset
    /// for each rank, in elements.
    pub fn source_offsets(self, offsets: &'a [i64]) -> Call<'a> {
        self.with(|raw| raw.source_offsets = Some(offsets))
    }

    /// Places the blocks of the output of an [`all_gather_v()`], a [`gather_v()`] or an
    /// [`all_to_all_v()`]: one offset for each rank, in elements. Blocks must not overlap.
    pub fn output_offsets(self, offsets: &'a [i64]) -> Call<'a> {
        self.with(|raw| raw.output_offsets = Some(offsets))
    }

    /// Gives a message a tag, at least 0; without it the tag is 0. A receive takes the oldest message
    /// with its own tag.
    pub fn tag(self, tag: i32) -> Call<'a> {
        self.with(|raw| raw.tag = tag)
    }

    /// Uses the algorithm of this name instead of the library's choice.
    pub fn algorithm(self, name: &'a str) -> Call<'a> {
        self.with(|raw| raw.algorithm = Some(name))
    }
}

/// Gathers the sources of all ranks on all ranks: `counts[k]` elements of rank k.
pub fn all_gather_v<'a, T: Element>(from: &'a [T], to: &'a mut [T], counts: &'a [i64]) -> Call<'a> {
    Call::new::<T>(Function::AllGatherV, source(from), output(to)).with(|raw| raw.counts = counts)
}

/// As [`all_gather_v()`], of blocks that are in the output already.
pub fn all_gather_v_in_place<'a, T: Element>(data: &'a mut [T], counts: &'a [i64]) -> Call<'a> {
    Call::new::<T>(Function::AllGatherV, Argument::InPlace, output(data))
        .with(|raw| raw.counts = counts)
}

/// Gathers sources of equal size on all ranks.
pub fn all_gather<'a, T: Element>(from: &'a [T], to: &'a mut [T]) -> Call<'a> {
    Call::new::<T>(Function::AllGather, source(from), output(to))
}

/// Reduces the sources of all ranks and leaves each rank its own block of the result: `counts[k]`
/// elements for rank k.
pub fn reduce_scatter_v<'a, T: Element>(
    from: &'a [T],
    to: &'a mut [T],
    counts: &'a [i64],
    op: Op,
) -> Call<'a> {
    Call::new::<T>(Function::ReduceScatterV, source(from), output(to)).with(|raw| {
        raw.counts = counts;
        raw.op = op;
    })
}

/// As [`reduce_scatter_v()`], with the result in the calling rank's block of the source. The other
/// blocks are unchanged.
pub fn reduce_scatter_v_in_place<'a, T: Element>(
    data: &'a mut [T],
    counts: &'a [i64],
    op: Op,
) -> Call<'a> {
    Call::new::<T>(Function::ReduceScatterV, output(data), Argument::InPlace).with(|raw| {
        raw.counts = counts;
        raw.op = op;
    })
}

/// Reduces the sources of all ranks and leaves each rank a block of the result, of the size of the
/// output.
pub fn reduce_scatter<'a, T: Element>(from: &'a [T], to: &'a mut [T], op: Op) -> Call<'a> {
    Call::new::<T>(Function::ReduceScatter, source(from), output(to)).with(|raw| raw.op = op)
}

/// Reduces the sources of all ranks and leaves every rank the same result, bit for bit.
pub fn all_reduce<'a, T: Element>(from: &'a [T], to: &'a mut [T], op: Op) -> Call<'a> {
    Call::new::<T>(Function::AllReduce, source(from), output(to)).with(|raw| raw.op = op)
}

/// As [`all_reduce()`], with one array as source and output.
pub fn all_reduce_in_place<T: Element>(data: &mut [T], op: Op) -> Call<'_> {
    Call::new::<T>(Function::AllReduce, Argument::InPlace, output(data)).with(|raw| raw.op = op)
}

/// Reduces the sources of all ranks and leaves the root the result. The output is used on the root
/// only.
pub fn reduce<'a, T: Element>(from: &'a [T], to: &'a mut [T], op: Op, root: usize) -> Call<'a> {
    Call::new::<T>(Function::Reduce, source(from), output(to)).with(|raw| {
        raw.op = op;
        raw.rank = root;
    })
}

/// As [`reduce()`], with one array as source and output. The arrays of other ranks are unchanged.
pub fn reduce_in_place<T: Element>(data: &mut [T], op: Op, root: usize) -> Call<'_> {
    Call::new::<T>(Function::Reduce, Argument::InPlace, output(data)).with(|raw| {
        raw.op = op;
        raw.rank = root;
    })
}

/// Copies the data of the root to all ranks.
pub fn broadcast<T: Element>(data: &mut [T], root: usize) -> Call<'_> {
    Call::new::<T>(Function::Broadcast, Argument::Absent, output(data)).with(|raw| raw.rank = root)
}

/// Gathers the sources of all ranks on the root: `counts[k]` elements of rank k. The output is used
/// on the root only.
pub fn gather_v<'a, T: Element>(
    from: &'a [T],
    to: &'a mut [T],
    counts: &'a [i64],
    root: usize,
) -> Call<'a> {
    Call::new::<T>(Function::GatherV, source(from), output(to)).with(|raw| {
        raw.counts = counts;
        raw.rank = root;
    })
}

/// As [`gather_v()`] on the root, of which the block is in the output already. The other ranks call
/// [`gather_v()`].
pub fn gather_v_in_place<'a, T: Element>(
    data: &'a mut [T],
    counts: &'a [i64],
    root: usize,
) -> Call<'a> {
    Call::new::<T>(Function::GatherV, Argument::InPlace, output(data)).with(|raw| {
        raw.counts = counts;
        raw.rank = root;
    })
}

/// Scatters the source of the root: `counts[k]` elements for rank k. The source is used on the root
/// only.
pub fn scatter_v<'a, T: Element>(
    from: &'a [T],
    to: &'a mut [T],
    counts: &'a [i64],
    root: usize,
) -> Call<'a> {
    Call::new::<T>(Function::ScatterV, source(from), output(to)).with(|raw| {
        raw.counts = counts;
        raw.rank = root;
    })
}

/// As [`scatter_v()`] on the root, of which the block stays in the source. The other ranks call
/// [`scatter_v()`].
pub fn scatter_v_in_place<'a, T: Element>(
    data: &'a mut [T],
    counts: &'a [i64],
    root: usize,
) -> Call<'a> {
    Call::new::<T>(Function::ScatterV, output(data), Argument::InPlace).with(|raw| {
        raw.counts = counts;
        raw.rank = root;
    })
}

/// Sends one block from every rank to every rank: `source_counts[k]` elements to rank k, and
/// `output_counts[k]` from it.
pub fn all_to_all_v<'a, T: Element>(
    from: &'a [T],
    source_counts: &'a [i64],
    to: &'a mut [T],
    output_counts: &'a [i64],
) -> Call<'a> {
    Call::new::<T>(Function::AllToAllV, source(from), output(to)).with(|raw| {
        raw.counts = source_counts;
        raw.output_counts = output_counts;
    })
}

/// Sends one block of equal size from every rank to every rank. The source has such a block for
/// each rank.
pub fn all_to_all<'a, T: Element>(from: &'a [T], to: &'a mut [T]) -> Call<'a> {
    Call::new::<T>(Function::AllToAll, source(from), output(to))
}

/// Sends a message to one rank, which receives the same number and type of elements.
///
/// Two ranks that send to each other put their sends and receives in a [`group()`], or receive in
/// opposite order. Messages of one rank and [tag](Call::tag) are received in the order in which they
/// are sent.
pub fn send<T: Element>(data: &[T], peer: usize) -> Call<'_> {
    Call::new::<T>(Function::Send, source(data), Argument::Absent).with(|raw| raw.rank = peer)
}

/// Receives a message that one rank sends with [`send()`], of the size of the array.
pub fn receive<T: Element>(data: &mut [T], peer: usize) -> Call<'_> {
    Call::new::<T>(Function::Receive, Argument::Absent, output(data)).with(|raw| raw.rank = peer)
}

/// Receives a message that any rank sends to this one with [`send()`], of the size of the array.
///
/// [`Communicator::receive_any()`](crate::Communicator::receive_any),
/// [`Started::receive()`](crate::Started::receive) and
/// [`Pending::receive()`](crate::Pending::receive) return its sender.
pub fn receive_any<T: Element>(data: &mut [T]) -> Call<'_> {
    Call::new::<T>(Function::Receive, Argument::Absent, output(data))
        .with(|raw| raw.any_source = true)
}

/// Makes one call of many. Collectives that differ only in their arrays and counts become one
/// operation. Sends and receives run concurrently, so ranks that send to one another do not
/// deadlock. The calls have no order, except that messages between two ranks keep theirs.
///
/// ```
/// # fn main() -> vescomm::Result<()> {
/// use vescomm::{call, Communicator, Op};
/// let comm = Communicator::from_environment()?;
/// let mut gradients = vec![vec![1.0f32; 7]; 300];
/// let sums = gradients.iter_mut().map(|one| call::all_reduce_in_place(one, Op::Sum));
/// comm.run(call::group(sums))?;
///
/// let right = (comm.rank() + 1) % comm.ranks();
/// let left = (comm.rank() + comm.ranks() - 1) % comm.ranks();
/// let (mine, mut its) = ([comm.rank() as i32], [0]);
/// comm.run(call::group([call::send(&mine, right), call::receive(&mut its, left)]))?;
/// assert_eq!(its[0], left as i32);
/// # comm.finalize()
/// # }
/// ```
pub fn group<'a>(calls: impl IntoIterator<Item = Call<'a>>) -> Call<'a> {
    let mut all = Vec::new();
    for call in calls {
        match call.kind {
            Kind::One(raw) => all.push(raw),
            Kind::Group(more) => all.extend(more),
        }
    }
    Call { kind: Kind::Group(all) }
}

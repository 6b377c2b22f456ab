// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Range;
use std::ptr::null_mut;
use std::rc::Rc;

use vescomm_sys as sys;

use crate::error::{call, invalid};
use crate::{Communicator, Element, Error, Part, Result};

/// Number of slabs of a memory: one for each rank, or one for each node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// One slab for each rank.
    #[default]
    PerRank,
    /// One slab for each node: its ranks see the same bytes, so gathered data exists once. For
    /// all_gather_v and broadcast; reductions refuse it, because each rank needs its own
    /// contribution.
    PerNode,
}

impl Sharing {
    pub(crate) fn raw(self) -> sys::vescomm_sharing_t {
        match self {
            Sharing::PerRank => sys::VESCOMM_PER_RANK,
            Sharing::PerNode => sys::VESCOMM_PER_NODE,
        }
    }
}

/// The accesses that a memory permits now. A slab for each node is also written by other ranks, so
/// it permits less.
#[derive(Clone, Debug, PartialEq)]
enum Phase {
    /// PerRank: everything.
    Own,
    /// PerNode: nothing. Other ranks may write their shards.
    Released,
    /// PerNode: this rank may write its shard.
    Acquired,
    /// PerNode: everything may be read, and nothing changes until this rank releases the memory.
    Gathered,
    /// A request runs: nothing.
    Running,
    /// A request failed: nothing, because other ranks of the node may still write.
    Failed(Error),
}

/// The state of a memory that its buffers and requests share.
#[derive(Debug)]
pub struct MemoryState {
    sharing: Sharing,
    phase: RefCell<Phase>,
    /// Bytes of each buffer that was ever created in the memory.
    places: RefCell<Vec<Range<u64>>>,
    /// Some request writes the whole buffer of every rank.
    broadcasts: Cell<bool>,
}

impl MemoryState {
    pub(crate) fn new(sharing: Sharing) -> Rc<MemoryState> {
        let phase = match sharing {
            Sharing::PerRank => Phase::Own,
            Sharing::PerNode => Phase::Released,
        };
        Rc::new(MemoryState {
            sharing,
            phase: RefCell::new(phase),
            places: RefCell::new(Vec::new()),
            broadcasts: Cell::new(false),
        })
    }

    /// Checks that a new buffer lies over no slice of one slab for each node: another rank may write
    /// its shard of the new buffer.
    pub(crate) fn check_new_place(&self, name: &str, place: &Range<u64>) -> Result<()> {
        if *self.phase.borrow() == Phase::Acquired && self.overlapping(place) > 0 {
            return Err(invalid(format!(
                "buffer {name:?} cannot be created over another one while their memory is \
                 acquired; release it first"
            )));
        }
        Ok(())
    }

    /// Number of buffers of the memory that have bytes in a place.
    fn overlapping(&self, place: &Range<u64>) -> usize {
        let overlaps = |other: &&Range<u64>| other.start < place.end && place.start < other.end;
        self.places.borrow().iter().filter(overlaps).count()
    }

    pub(crate) fn add_place(&self, bytes: Range<u64>) {
        self.places.borrow_mut().push(bytes);
    }

    /// Checks that no slice of one slab for each node exists, and remembers that a broadcast may
    /// write it.
    pub(crate) fn will_broadcast(&self, name: &str) -> Result<()> {
        if *self.phase.borrow() == Phase::Acquired {
            return Err(invalid(format!(
                "a broadcast on buffer {name:?} cannot be created while its memory is acquired; \
                 release it first"
            )));
        }
        self.broadcasts.set(true);
        Ok(())
    }

    fn refusal(&self, name: &str, wanted: &str) -> Error {
        let why = match &*self.phase.borrow() {
            Phase::Failed(error) => return error.clone(),
            Phase::Running => "a request on its memory is running; wait for it first",
            Phase::Released => {
                "its memory, one slab for each node, is released: other ranks may write it; wait \
                 for a gather, or call acquire() to write the shard"
            }
            Phase::Acquired => "it is acquired: this rank may use its shard only, until a gather",
            Phase::Gathered => "the ranks of the node share it; call acquire() to write the shard",
            Phase::Own => "its memory belongs to this rank alone",
        };
        invalid(format!("buffer {name:?} cannot be {wanted}: {why}"))
    }

    /// Checks that this rank may read the whole buffer.
    pub(crate) fn check_read(&self, name: &str) -> Result<()> {
        match &*self.phase.borrow() {
            Phase::Own | Phase::Gathered => Ok(()),
            _ => Err(self.refusal(name, "read")),
        }
    }

    /// Checks that this rank may write the whole buffer.
    pub(crate) fn check_write(&self, name: &str) -> Result<()> {
        match &*self.phase.borrow() {
            Phase::Own => Ok(()),
            _ => Err(self.refusal(name, "written")),
        }
    }

    /// Checks that this rank may read its own shard.
    pub(crate) fn check_read_shard(&self, name: &str, place: &Range<u64>) -> Result<()> {
        match &*self.phase.borrow() {
            Phase::Own | Phase::Gathered => Ok(()),
            Phase::Acquired => self.check_alone(name, place),
            _ => Err(self.refusal(name, "read")),
        }
    }

    /// Checks that this rank may write its own shard.
    pub(crate) fn check_write_shard(&self, name: &str, place: &Range<u64>) -> Result<()> {
        match &*self.phase.borrow() {
            Phase::Own => Ok(()),
            Phase::Acquired => self.check_alone(name, place),
            _ => Err(self.refusal(name, "written")),
        }
    }

    /// Checks that no other rank may write this rank's shard: all ranks cut the bytes in one way.
    fn check_alone(&self, name: &str, place: &Range<u64>) -> Result<()> {
        if self.overlapping(place) > 1 {
            return Err(invalid(format!(
                "the shard of buffer {name:?} cannot be used in place: another buffer overlaps it \
                 in one slab for each node, and another rank may write that one; gather from a \
                 separate source"
            )));
        }
        if self.broadcasts.get() {
            return Err(invalid(format!(
                "the shard of buffer {name:?} cannot be used in place: a broadcast, in which \
                 another rank writes it, exists on its memory; gather from a separate source"
            )));
        }
        Ok(())
    }

    /// Checks that `acquire()` or `release()` may be called.
    pub(crate) fn check_idle(&self, name: &str, wanted: &str) -> Result<()> {
        match &*self.phase.borrow() {
            Phase::Running | Phase::Failed(_) => Err(self.refusal(name, wanted)),
            _ => Ok(()),
        }
    }

    pub(crate) fn acquired(&self) {
        if self.sharing == Sharing::PerNode {
            *self.phase.borrow_mut() = Phase::Acquired;
        }
    }

    pub(crate) fn released(&self) {
        let mut phase = self.phase.borrow_mut();
        if matches!(*phase, Phase::Gathered | Phase::Acquired) {
            *phase = Phase::Released;
        }
    }

    pub(crate) fn running(&self) {
        *self.phase.borrow_mut() = Phase::Running;
    }

    /// A request that ran is complete, or has failed.
    pub(crate) fn ended(&self, result: &Result<()>) {
        *self.phase.borrow_mut() = match (result, self.sharing) {
            (Err(error), _) => Phase::Failed(error.clone()),
            (Ok(()), Sharing::PerRank) => Phase::Own,
            (Ok(()), Sharing::PerNode) => Phase::Gathered,
        };
    }
}

mod sealed {
    use super::{MemoryState, Rc};

    pub trait Owner {
        #[doc(hidden)]
        fn state(&self) -> &Rc<MemoryState>;
    }
}

/// The owner of the memory on which a request runs: a [`Buffer`](crate::Buffer), or the [`Memory`]
/// of a [`Part`]. A request starts with a mutable borrow of it, so no slice of the memory exists
/// then; until the request is complete the memory gives none.
pub trait Owner: sealed::Owner {}

impl<T: sealed::Owner> Owner for T {}

pub(crate) use sealed::Owner as SealedOwner;

/// Bytes at a fixed address, mapped by the ranks of the node and registered with the transports
/// once, that several buffers use: side by side, or at the same place at different times (such as
/// the layers of a model). A [`Part`] is a buffer in a memory.
///
/// ```
/// # fn main() -> vescomm::Result<()> {
/// use vescomm::{Communicator, Layout, Memory, Op, Part, Sharing};
/// let comm = Communicator::from_environment()?;
/// let mut memory = Memory::new(&comm, 4096, Sharing::PerRank)?;
/// let layers = [Layout::from_counts(&[100])?, Layout::from_counts(&[300])?];
/// for layout in &layers {
///     let gradients = Part::<f32>::new(&memory, layout, 0, "gradients")?;
///     let mut sum = gradients.request().all_reduce(Op::Sum)?;
///     memory.data_mut(&gradients)?.fill(1.0);
///     sum.run(&mut memory)?;
///     assert_eq!(memory.data(&gradients)?[0], 1.0);
/// }
/// # comm.finalize()
/// # }
/// ```
pub struct Memory<'c> {
    pub(crate) comm: &'c Communicator,
    pub(crate) raw: *mut sys::vescomm_memory_t,
    pub(crate) state: Rc<MemoryState>,
    bytes: u64,
    sharing: Sharing,
}

impl<'c> Memory<'c> {
    /// Allocates memory, maps it on every rank of each node, and registers it with the transports.
    /// Every byte is zero. `bytes` is the size of a slab, the same on every rank. Collective.
    pub fn new(comm: &'c Communicator, bytes: u64, sharing: Sharing) -> Result<Memory<'c>> {
        let mut options = sys::vescomm_memory_options_init();
        options.bytes = bytes;
        options.sharing = sharing.raw();
        let mut raw = null_mut();
        // SAFETY: this thread alone uses the communicator; the options live until the call returns.
        call(|| unsafe { sys::vescomm_memory_create(comm.raw(), &options, &mut raw) })?;
        Ok(Memory { comm, raw, state: MemoryState::new(sharing), bytes, sharing })
    }

    /// Size of a slab in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of slabs.
    pub fn sharing(&self) -> Sharing {
        self.sharing
    }

    fn check<T: Element>(&self, part: &Part<'_, T>) -> Result<()> {
        part.check_memory(&self.state)
    }

    /// Returns all elements of a buffer. An error if a request runs, or if the memory is one slab
    /// for each node and not gathered.
    pub fn data<T: Element>(&self, part: &Part<'c, T>) -> Result<&[T]> {
        self.check(part)?;
        // SAFETY: the memory is borrowed, and mutable slices borrow it mutably.
        unsafe { part.data() }
    }

    /// Returns all elements of a buffer. An error for one slab for each node.
    pub fn data_mut<T: Element>(&mut self, part: &Part<'c, T>) -> Result<&mut [T]> {
        self.check(part)?;
        // SAFETY: the memory is borrowed mutably.
        unsafe { part.data_mut() }
    }

    /// Returns the calling rank's shard of a buffer.
    pub fn shard<T: Element>(&self, part: &Part<'c, T>) -> Result<&[T]> {
        self.check(part)?;
        // SAFETY: as data().
        unsafe { part.shard() }
    }

    /// Returns the calling rank's shard of a buffer. An error for one slab for each node that is
    /// not acquired, or in which another buffer overlaps this one.
    pub fn shard_mut<T: Element>(&mut self, part: &Part<'c, T>) -> Result<&mut [T]> {
        self.check(part)?;
        // SAFETY: as data_mut().
        unsafe { part.shard_mut() }
    }

    /// Returns one tensor of a buffer.
    pub fn tensor<T: Element>(&self, part: &Part<'c, T>, index: usize) -> Result<&[T]> {
        self.check(part)?;
        // SAFETY: as data().
        unsafe { part.tensor(index) }
    }

    /// Returns all tensors of a buffer, which do not overlap.
    pub fn tensors_mut<T: Element>(&mut self, part: &Part<'c, T>) -> Result<Vec<&mut [T]>> {
        self.check(part)?;
        // SAFETY: as data_mut().
        unsafe { part.tensors_mut() }
    }

    /// Waits until this rank may write its own shard of a buffer; see
    /// [`Buffer::acquire()`](crate::Buffer::acquire).
    pub fn acquire<T: Element>(&mut self, part: &Part<'c, T>) -> Result<()> {
        self.check(part)?;
        part.acquire()
    }

    /// Declares that this rank no longer reads the memory; see
    /// [`Buffer::release()`](crate::Buffer::release).
    pub fn release<T: Element>(&mut self, part: &Part<'c, T>) -> Result<()> {
        self.check(part)?;
        part.release()
    }
}

impl SealedOwner for Memory<'_> {
    fn state(&self) -> &Rc<MemoryState> {
        &self.state
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        // SAFETY: nothing else has the pointer; buffers keep the bytes alive.
        let _ = call(|| unsafe { sys::vescomm_memory_free(self.raw) });
    }
}

impl fmt::Debug for Memory<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Memory({} bytes, {:?})", self.bytes, self.sharing)
    }
}

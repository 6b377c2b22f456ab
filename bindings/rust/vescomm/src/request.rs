// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

use std::fmt;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::rc::Rc;

use vescomm_sys as sys;

use crate::array::Movable;
use crate::comm::rank_number;
use crate::error::{c_string, call, invalid};
use crate::memory::{MemoryState, Owner};
use crate::raw_request::{RawRequest, NOT_FREED};
use crate::{Array, Communicator, Element, Failed, Op, Part, Result};

/// The creation of a request on a buffer, from [`Buffer::request()`](crate::Buffer::request).
///
/// Creating a request is collective: all ranks make the same calls in the same order. On a
/// reduction into or a gather from a separate array, ranks may differ in the array and its type.
#[derive(Debug)]
#[must_use = "creates a request when a collective is named"]
pub struct NewRequest<'b, 'c, T> {
    part: &'b Part<'c, T>,
    algorithm: Option<String>,
}

type Create = unsafe extern "C" fn(
    *mut sys::vescomm_comm_t,
    *mut sys::vescomm_buffer_t,
    *const sys::vescomm_request_options_t,
    *mut *mut sys::vescomm_request_t,
) -> sys::vescomm_status_t;

impl<'b, 'c, T: Element> NewRequest<'b, 'c, T> {
    pub(crate) fn new(part: &'b Part<'c, T>) -> NewRequest<'b, 'c, T> {
        NewRequest { part, algorithm: None }
    }

    /// Uses the algorithm of this name instead of the library's choice.
    pub fn algorithm(mut self, name: &str) -> Self {
        self.algorithm = Some(name.to_string());
        self
    }

    fn root(&self, root: usize) -> Result<i32> {
        rank_number(root).map_err(|error| self.part.comm.refuse(error))
    }

    fn create(
        &self,
        create: Create,
        mut options: sys::vescomm_request_options_t,
    ) -> Result<*mut sys::vescomm_request_t> {
        let comm = self.part.comm;
        let algorithm = match &self.algorithm {
            None => None,
            Some(name) => Some(
                c_string("the name of an algorithm", name).map_err(|error| comm.refuse(error))?,
            ),
        };
        options.algorithm = crate::error::pointer(&algorithm);
        let mut raw = null_mut();
        // SAFETY: this thread alone uses the communicator; strings live until the call returns.
        call(|| unsafe { create(comm.raw(), self.part.raw, &options, &mut raw) })?;
        Ok(raw)
    }

    fn in_place(
        self,
        create: Create,
        options: sys::vescomm_request_options_t,
    ) -> Result<Request<'c>> {
        let raw = self.create(create, options)?;
        Ok(Request::new(self.part, raw, Movable::new(())))
    }

    fn with_array<A: Array>(
        self,
        create: Create,
        name: &str,
        options: sys::vescomm_request_options_t,
        array: Movable<A>,
    ) -> std::result::Result<Request<'c, A>, Failed<A>> {
        let check = self.part.shard_elements().and_then(|expected| {
            let elements = array.get().as_slice().len();
            if elements == expected {
                return Ok(());
            }
            Err(self.part.comm.refuse(invalid(format!(
                "{name}: the array has {elements} elements, and the shard of this rank in buffer \
                 {:?} has {expected}",
                self.part.name
            ))))
        });
        match check.and_then(|()| self.create(create, options)) {
            Ok(raw) => Ok(Request::new(self.part, raw, array)),
            Err(error) => Err(Failed { error, arrays: array.take() }),
        }
    }

    /// Gathers every rank's shard, which is in the buffer, into the whole buffer.
    pub fn all_gather_v(self) -> Result<Request<'c>> {
        self.in_place(sys::vescomm_all_gather_v_create, sys::vescomm_request_options_init())
    }

    /// Gathers every rank's shard from a separate array, which the request owns, into the whole
    /// buffer, and converts it to the type of the buffer. f32 and f64 convert to and from every
    /// float, other types only to themselves. [`Request::array_mut()`] gives access to the array.
    ///
    /// ```
    /// # fn main() -> vescomm::Result<()> {
    /// use vescomm::{Bf16, Buffer, Communicator, Layout};
    /// let comm = Communicator::from_environment()?;
    /// let layout = Layout::from_counts(&vec![1000; comm.ranks()])?;
    /// let mut weights = Buffer::<Bf16>::new(&comm, &layout, "weights")?;
    /// let masters = vec![1.0f32; 1000];
    /// let mut gather = weights.request().all_gather_v_from(masters)?;
    /// gather.array_mut()?[0] = 2.0; // the optimizer's step
    /// gather.run(&mut weights)?;
    /// assert_eq!(weights.data()?[0], Bf16::from_bits(0x4000));
    /// # comm.finalize()
    /// # }
    /// ```
    pub fn all_gather_v_from<A: Array>(
        self,
        source: A,
    ) -> std::result::Result<Request<'c, A>, Failed<A>> {
        let source = Movable::new(source);
        let mut options = sys::vescomm_request_options_init();
        options.type_ = A::Element::TYPE as i32;
        options.source = source.get().as_slice().as_ptr().cast();
        self.with_array(sys::vescomm_all_gather_v_create, "all_gather_v_from", options, source)
    }

    /// Reduces the buffers of all ranks and leaves each rank its own shard of the result, in the
    /// buffer. The rest of the buffer is unchanged.
    pub fn reduce_scatter_v(self, op: Op) -> Result<Request<'c>> {
        self.in_place(sys::vescomm_reduce_scatter_v_create, reduction(op))
    }

    /// Reduces the buffers of all ranks and leaves each rank its own shard of the result in a
    /// separate array, which the request owns, in the type of the buffer or, for floats of 16 and 8
    /// bits, in f32.
    pub fn reduce_scatter_v_into<A: Array>(
        self,
        output: A,
        op: Op,
    ) -> std::result::Result<Request<'c, A>, Failed<A>> {
        let mut output = Movable::new(output);
        let mut options = reduction(op);
        options.type_ = A::Element::TYPE as i32;
        options.output = output.get_mut().as_mut_slice().as_mut_ptr().cast();
        self.with_array(
            sys::vescomm_reduce_scatter_v_create,
            "reduce_scatter_v_into",
            options,
            output,
        )
    }

    /// Reduces the buffers of all ranks in place and leaves every rank the result, bit for bit.
    pub fn all_reduce(self, op: Op) -> Result<Request<'c>> {
        self.in_place(sys::vescomm_all_reduce_create, reduction(op))
    }

    /// Reduces the buffers of all ranks and leaves the root the result, in place. The buffers of
    /// the other ranks are unchanged.
    pub fn reduce(self, op: Op, root: usize) -> Result<Request<'c>> {
        let mut options = reduction(op);
        options.root = self.root(root)?;
        self.in_place(sys::vescomm_reduce_create, options)
    }

    /// Copies the root's buffer to the buffers of all ranks.
    pub fn broadcast(self, root: usize) -> Result<Request<'c>> {
        let may = self.part.state.will_broadcast(&self.part.name);
        may.map_err(|error| self.part.comm.refuse(error))?;
        let mut options = sys::vescomm_request_options_init();
        options.root = self.root(root)?;
        self.in_place(sys::vescomm_broadcast_create, options)
    }
}

fn reduction(op: Op) -> sys::vescomm_request_options_t {
    let mut options = sys::vescomm_request_options_init();
    let (op, factor) = op.raw();
    options.op = op;
    options.factor = factor;
    options
}

/// A collective on a buffer, created once and started many times.
///
/// Requests on one communicator may overlap in time; requests on one memory must not, and do not
/// start. If a running request is dropped, the drop waits until it is complete; if a panic drops it,
/// the communicator is aborted first. A forgotten one keeps its array and the elements of its buffer
/// inaccessible.
///
/// `A` is the array that the request owns; `()`: it has none.
pub struct Request<'c, A = ()> {
    request: RawRequest<'c>,
    memory: Rc<MemoryState>,
    name: String,
    /// None: given to the caller.
    array: Option<Movable<A>>,
    _one_thread: PhantomData<*mut ()>,
}

impl<'c, A> Request<'c, A> {
    fn new<T: Element>(
        part: &Part<'c, T>,
        raw: *mut sys::vescomm_request_t,
        array: Movable<A>,
    ) -> Request<'c, A> {
        Request {
            request: RawRequest::new(part.comm, raw, false),
            memory: part.state.clone(),
            name: part.name.clone(),
            array: Some(array),
            _one_thread: PhantomData,
        }
    }

    /// Starts the request. `owner` is the buffer that it was created on, or the memory of that
    /// [`Part`]. Collective, same order; does not block.
    pub fn start(&mut self, owner: &mut impl Owner) -> Result<()> {
        if !Rc::ptr_eq(&self.memory, owner.state()) {
            return Err(invalid(format!(
                "a request on buffer {:?} is started with another buffer or memory",
                self.name
            )));
        }
        self.memory.check_idle(&self.name, "used by another request")?;
        // SAFETY: the owner is borrowed mutably, so no slice of the memory exists. Until the
        // request has ended, the state refuses slices, and `array_mut()` the array.
        unsafe { self.request.start() }?;
        self.memory.running();
        Ok(())
    }

    /// Makes progress and returns true if the request is complete, or was never started.
    pub fn test(&mut self) -> Result<bool> {
        let was_running = self.request.running();
        let result = self.request.test();
        if was_running && !self.request.running() {
            self.memory.ended(&result.clone().map(drop));
        }
        result
    }

    /// Waits until the request is complete, at most the timeout.
    pub fn wait(&mut self) -> Result<()> {
        self.finish(|request| request.wait())
    }

    fn finish(&mut self, wait: impl FnOnce(&mut RawRequest<'c>) -> Result<()>) -> Result<()> {
        let was_running = self.request.running();
        let result = wait(&mut self.request);
        if was_running && !self.request.running() {
            self.memory.ended(&result);
        }
        result
    }

    /// As [`wait()`](Request::wait), and makes progress on other communicators meanwhile: for ranks
    /// that wait on several communicators in different orders, where each may need bytes that only
    /// the other can move. If one of `comms` is broken, its first error is returned, and
    /// the request goes on.
    pub fn wait_with(&mut self, comms: &[&Communicator]) -> Result<()> {
        self.finish(|request| request.wait_with(comms))
    }

    /// Starts the request and waits for it.
    pub fn run(&mut self, owner: &mut impl Owner) -> Result<()> {
        self.start(owner)?;
        self.wait()
    }

    /// Waits for the request if it is running, and frees it. Returns the result, and whether the
    /// library does not access the array any more.
    fn end(&mut self) -> (Result<()>, bool) {
        let result = if self.request.running() { self.wait() } else { Ok(()) };
        let interrupted = self.request.running();
        let freed = self.request.free();
        if interrupted && freed {
            self.memory.ended(&result);
        }
        (result, freed)
    }

    /// Describes how the request will run: its algorithm, the reason for the choice, and its steps
    /// on this rank.
    pub fn explain(&mut self) -> Result<String> {
        self.request.explain()
    }
}

impl<A: Array> Request<'_, A> {
    fn check_idle(&self) -> Result<()> {
        if !self.request.running() {
            return Ok(());
        }
        Err(invalid(format!(
            "the array of a request on buffer {:?} is in use: the request is running; wait for it \
             first",
            self.name
        )))
    }

    /// Returns the array that the request reads or writes. An error while the request runs.
    pub fn array(&self) -> Result<&[A::Element]> {
        self.check_idle()?;
        Ok(self.array.as_ref().map_or(&[], |array| array.get().as_slice()))
    }

    /// Returns the array that the request reads or writes. An error while the request runs.
    pub fn array_mut(&mut self) -> Result<&mut [A::Element]> {
        self.check_idle()?;
        Ok(self.array.as_mut().map_or(&mut [], |array| array.get_mut().as_mut_slice()))
    }

    /// Waits for the request if it is running, frees it, and returns the array.
    ///
    /// # Panics
    ///
    /// In a child of fork() and in a function given to `set_log()`, which cannot free the request.
    pub fn into_array(mut self) -> std::result::Result<A, Failed<A>> {
        let (result, freed) = self.end();
        if !freed {
            panic!("vescomm: the array of a request cannot be returned {NOT_FREED}");
        }
        match (self.array.take(), result) {
            (Some(array), Ok(())) => Ok(array.take()),
            (Some(array), Err(error)) => Err(Failed { error, arrays: array.take() }),
            (None, _) => unreachable!("the array is taken once"),
        }
    }
}

impl<A> Drop for Request<'_, A> {
    fn drop(&mut self) {
        self.request.abort_in_panic();
        // If not, the library may access the array, which stays.
        if self.end().1 {
            drop(self.array.take().map(Movable::take));
        }
    }
}

impl<A> fmt::Debug for Request<'_, A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.request.running() { "running" } else { "idle" };
        write!(formatter, "request on buffer {:?}, {state}", self.name)
    }
}

/// A barrier, created once and started many times: completes on each rank only after every rank has
/// started it. [`Communicator::barrier()`] is one that needs no creation.
pub struct Barrier<'c> {
    request: RawRequest<'c>,
}

impl<'c> Barrier<'c> {
    /// Creates a barrier. Collective.
    pub fn new(comm: &'c Communicator) -> Result<Barrier<'c>> {
        let options = sys::vescomm_request_options_init();
        let mut raw = null_mut();
        // SAFETY: this thread alone uses the communicator.
        call(|| unsafe { sys::vescomm_barrier_create(comm.raw(), &options, &mut raw) })?;
        Ok(Barrier { request: RawRequest::new(comm, raw, false) })
    }

    /// Starts it. Does not block.
    pub fn start(&mut self) -> Result<()> {
        // SAFETY: a barrier has no array and no memory.
        unsafe { self.request.start() }
    }

    /// Makes progress and returns true if it is complete, or was never started.
    pub fn test(&mut self) -> Result<bool> {
        self.request.test()
    }

    /// Waits until it is complete.
    pub fn wait(&mut self) -> Result<()> {
        self.request.wait()
    }

    /// As [`wait()`](Barrier::wait), and makes progress on other communicators meanwhile: for ranks
    /// that wait on several communicators in different orders, where each may need bytes that only
    /// the other can move. If one of `comms` is broken, its first error is returned, and
    /// the barrier goes on.
    pub fn wait_with(&mut self, comms: &[&Communicator]) -> Result<()> {
        self.request.wait_with(comms)
    }
}

impl Drop for Barrier<'_> {
    fn drop(&mut self) {
        self.request.abort_in_panic();
        let _ = self.request.free();
    }
}

impl fmt::Debug for Barrier<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Barrier")
    }
}

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Calls on arrays in the background. A forgotten request must not lead to writes into arrays that
//! are used or freed: either a scope waits for it, or the request owns its arrays.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, Write};
use std::marker::PhantomData;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::process;
use std::ptr::null_mut;

use crate::call::{self, Call};
use crate::raw_request::{RawRequest, NOT_FREED};
use crate::run_call::make;
use crate::{Communicator, Element, Error, Result};

/// A message that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Rank of the sender.
    pub source: usize,
    /// Tag of the message.
    pub tag: i32,
    /// Its elements.
    pub count: usize,
}

/// A call failed; with the arrays that it was given.
///
/// The contents of sources are unchanged, those of outputs are undefined. `?` makes an [`Error`] of
/// it and drops the arrays.
pub struct Failed<A> {
    /// Describes the failure.
    pub error: Error,
    /// The arrays.
    pub arrays: A,
}

impl<A> From<Failed<A>> for Error {
    fn from(failed: Failed<A>) -> Error {
        failed.error
    }
}

impl<A> fmt::Debug for Failed<A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(formatter)
    }
}

impl<A> fmt::Display for Failed<A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(formatter)
    }
}

impl<A> std::error::Error for Failed<A> {}

/// A call on arrays that runs in the background and owns its arrays; from
/// [`Communicator::start()`].
///
/// A drop waits for it; if a panic drops it, the communicator is aborted first. If it is forgotten,
/// its arrays stay allocated.
#[must_use = "a drop waits for the call"]
pub struct Pending<'c, A> {
    request: RawRequest<'c>,
    /// From a Box; the library accesses it until the request is freed. Null: given to the caller.
    arrays: *mut A,
}

impl<A> Pending<'_, A> {
    /// Makes progress and returns true if the call is complete.
    pub fn test(&mut self) -> Result<bool> {
        self.request.test()
    }

    /// Waits until the call is complete, and returns the arrays.
    ///
    /// # Panics
    ///
    /// In a child of fork() and in a function given to `set_log()`, which cannot free the request.
    pub fn wait(self) -> std::result::Result<A, Failed<A>> {
        self.finish(|request| request.wait()).map(|(arrays, ())| arrays)
    }

    /// As [`wait()`](Pending::wait), and makes progress on other communicators meanwhile: for ranks
    /// that wait on several communicators in different orders, where each may need bytes that only
    /// the other can move. If one of `comms` is broken, its first error is returned after the
    /// call is complete or its own communicator has failed.
    ///
    /// # Panics
    ///
    /// As [`wait()`](Pending::wait).
    pub fn wait_with(self, comms: &[&Communicator]) -> std::result::Result<A, Failed<A>> {
        self.finish(|request| request.wait_with(comms)).map(|(arrays, ())| arrays)
    }

    /// As [`wait()`](Pending::wait), of a receive: returns the message too. In a group it is that of
    /// the first receive.
    pub fn receive(self) -> std::result::Result<(A, Message), Failed<A>> {
        self.finish(|request| request.wait().and_then(|()| request.message()))
    }

    fn finish<R>(
        mut self,
        wait: impl FnOnce(&mut RawRequest<'_>) -> Result<R>,
    ) -> std::result::Result<(A, R), Failed<A>> {
        let result = wait(&mut self.request);
        if !self.request.free() {
            panic!("vescomm: the arrays of a call cannot be returned {NOT_FREED}");
        }
        let arrays = std::mem::replace(&mut self.arrays, null_mut());
        // SAFETY: the pointer is from a Box, and the library does not access the arrays any more.
        let arrays = *unsafe { Box::from_raw(arrays) };
        match result {
            Ok(result) => Ok((arrays, result)),
            Err(error) => Err(Failed { error, arrays }),
        }
    }
}

impl<A> Drop for Pending<'_, A> {
    fn drop(&mut self) {
        self.request.abort_in_panic();
        if self.request.free() && !self.arrays.is_null() {
            // SAFETY: as in wait().
            drop(unsafe { Box::from_raw(self.arrays) });
        }
    }
}

impl<A> fmt::Debug for Pending<'_, A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.request.running() { "running" } else { "complete" })
    }
}

/// The place of calls that run in the background on borrowed arrays; from
/// [`Communicator::scope()`].
pub struct Scope<'scope, 'env: 'scope> {
    comm: &'env Communicator,
    requests: RefCell<Vec<RawRequest<'env>>>,
    _scope: PhantomData<&'scope mut &'scope ()>,
    _env: PhantomData<&'env mut &'env ()>,
}

/// A call in the background of a [`Scope`]. If it is dropped, the end of the scope waits for it.
pub struct Started<'scope, 'env: 'scope> {
    scope: &'scope Scope<'scope, 'env>,
    index: usize,
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Starts a call. Its arrays are borrowed until the end of the scope. Collective as the call.
    pub fn start(&'scope self, call: Call<'scope>) -> Result<Started<'scope, 'env>> {
        // Nothing can fail between the start and the list.
        let mut requests = self.requests.borrow_mut();
        requests.reserve(1);
        let mut raw = null_mut();
        // SAFETY: the arrays are borrowed for 'scope, and the scope waits before that ends.
        unsafe { make(self.comm, &call, &mut raw) }?;
        requests.push(RawRequest::new(self.comm, raw, true));
        Ok(Started { scope: self, index: requests.len() - 1 })
    }

    /// Waits for all calls. Returns the first error.
    fn finish(&self) -> Result<()> {
        let mut result = Ok(());
        for mut request in self.requests.take() {
            if request.running() {
                result = result.and(request.wait());
            }
            if !request.free() {
                // The borrows end now, and the library may still write: there is no way to go on.
                // Without standard error the sentence is lost; a panic would end the borrows.
                let sentence = "vescomm: a scope cannot wait for its calls";
                let _ = writeln!(io::stderr(), "{sentence} {NOT_FREED}");
                process::abort();
            }
        }
        result
    }
}

impl Started<'_, '_> {
    /// Makes progress and returns true if the call is complete.
    pub fn test(&self) -> Result<bool> {
        self.scope.requests.borrow_mut()[self.index].test()
    }

    /// Waits until the call is complete. Its arrays stay borrowed until the end of the scope.
    pub fn wait(self) -> Result<()> {
        let request = &mut self.scope.requests.borrow_mut()[self.index];
        let result = request.wait();
        let _ = request.free(); // if not, the end of the scope tries again
        result
    }

    /// As [`wait()`](Started::wait), and makes progress on other communicators meanwhile: for ranks
    /// that wait on several communicators in different orders, where each may need bytes that only
    /// the other can move. If one of `comms` is broken, its first error is returned, and the
    /// end of the scope waits for the call.
    pub fn wait_with(self, comms: &[&Communicator]) -> Result<()> {
        let request = &mut self.scope.requests.borrow_mut()[self.index];
        request.wait_with(comms)?;
        let _ = request.free(); // as in wait()
        Ok(())
    }

    /// As [`wait()`](Started::wait), of a receive: returns the message. In a group it is that of the
    /// first receive.
    pub fn receive(self) -> Result<Message> {
        let request = &mut self.scope.requests.borrow_mut()[self.index];
        let result = request.wait().and_then(|()| request.message());
        let _ = request.free(); // as in wait()
        result
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "scope with {} calls", self.requests.borrow().len())
    }
}

impl fmt::Debug for Started<'_, '_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "call {} of a scope", self.index)
    }
}

impl Communicator {
    /// Makes a call on arrays, or a group of them, and waits until it is complete on this rank.
    ///
    /// A call with a wrong argument has no effect. In a group all calls are checked before the
    /// first one is made. Other failures of a group break the communicator.
    pub fn run(&self, call: Call<'_>) -> Result<()> {
        // SAFETY: the call borrows its arrays until this function returns.
        unsafe { make(self, &call, null_mut()) }
    }

    /// Receives a message with this tag that any rank sends, of the size of the array. Returns its
    /// sender.
    ///
    /// ```
    /// # fn main() -> vescomm::Result<()> {
    /// use vescomm::{call, Communicator};
    /// let comm = Communicator::from_environment()?;
    /// comm.run(call::send(&[7.0f32], comm.rank()).tag(3))?;
    /// let mut data = [0.0f32];
    /// let message = comm.receive_any(&mut data, 3)?;
    /// assert_eq!((data[0], message.source, message.tag), (7.0, comm.rank(), 3));
    /// # comm.finalize()
    /// # }
    /// ```
    pub fn receive_any<T: Element>(&self, data: &mut [T], tag: i32) -> Result<Message> {
        self.scope(|scope| scope.start(call::receive_any(data).tag(tag))?.receive())
    }

    /// Starts a call on arrays that the call owns until it is complete. `arrays` is any value; the
    /// function borrows from it what the call needs.
    ///
    /// ```
    /// # fn main() -> vescomm::Result<()> {
    /// use vescomm::{call, Communicator, Op};
    /// let comm = Communicator::from_environment()?;
    /// let arrays = (vec![1.0f32; 1000], vec![0.0f32; 1000]);
    /// let sum = comm.start(arrays, |(from, to)| call::all_reduce(from, to, Op::Sum))?;
    /// // ... compute ...
    /// let (_, total) = sum.wait()?;
    /// assert_eq!(total[0], comm.ranks() as f32);
    /// # comm.finalize()
    /// # }
    /// ```
    ///
    /// Borrowed arrays need a [`scope()`](Communicator::scope):
    ///
    /// ```compile_fail,E0597
    /// # fn f(comm: &vescomm::Communicator) -> vescomm::Result<()> {
    /// use vescomm::{call, Op};
    /// let mut data = vec![1.0f32];
    /// let sum = comm.start(&mut data[..], |data| call::all_reduce_in_place(data, Op::Sum))?;
    /// sum.wait()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn start<A, F>(&self, arrays: A, call: F) -> std::result::Result<Pending<'_, A>, Failed<A>>
    where
        A: 'static,
        F: for<'a> FnOnce(&'a mut A) -> Call<'a>,
    {
        let arrays = Box::into_raw(Box::new(arrays));
        let mut raw = null_mut();
        // SAFETY: the arrays stay in their box, or where they own memory, until the request is
        // freed: `Pending` does not give them away before that.
        match unsafe { make(self, &call(&mut *arrays), &mut raw) } {
            Ok(()) => Ok(Pending { request: RawRequest::new(self, raw, true), arrays }),
            // SAFETY: nothing has started.
            Err(error) => Err(Failed { error, arrays: *unsafe { Box::from_raw(arrays) } }),
        }
    }

    /// Lets calls on borrowed arrays run in the background of a function, as
    /// [`std::thread::scope()`] does with threads: it returns when all of them are complete.
    ///
    /// Returns the first error of the function or of a call that the function has not waited for.
    /// A panic of the function aborts the communicator, so that no call waits for other ranks.
    ///
    /// ```
    /// # fn main() -> vescomm::Result<()> {
    /// use vescomm::{call, Communicator, Op};
    /// let comm = Communicator::from_environment()?;
    /// let mut layers = vec![vec![1.0f32; 1000]; 4];
    /// comm.scope(|scope| {
    ///     for layer in layers.iter_mut().rev() {
    ///         layer[0] += 1.0; // compute the gradients
    ///         scope.start(call::all_reduce_in_place(layer, Op::Average))?;
    ///     }
    ///     Ok(())
    /// })?;
    /// assert_eq!(layers[3][0], 2.0);
    /// # comm.finalize()
    /// # }
    /// ```
    ///
    /// The arrays outlive the scope, and nothing else uses them meanwhile:
    ///
    /// ```compile_fail,E0499
    /// # fn f(comm: &vescomm::Communicator) -> vescomm::Result<()> {
    /// use vescomm::{call, Op};
    /// let mut data = vec![1.0f32];
    /// comm.scope(|scope| {
    ///     let sum = scope.start(call::all_reduce_in_place(&mut data, Op::Sum))?;
    ///     std::mem::forget(sum);
    ///     data[0] = 2.0;
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// ```compile_fail,E0597
    /// # fn f(comm: &vescomm::Communicator) -> vescomm::Result<()> {
    /// use vescomm::{call, Op};
    /// comm.scope(|scope| {
    ///     let mut data = vec![1.0f32];
    ///     scope.start(call::all_reduce_in_place(&mut data, Op::Sum))?;
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn scope<'env, R, F>(&'env self, function: F) -> Result<R>
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<R>,
    {
        let scope = Scope {
            comm: self,
            requests: RefCell::new(Vec::new()),
            _scope: PhantomData,
            _env: PhantomData,
        };
        let result = catch_unwind(AssertUnwindSafe(|| function(&scope)));
        if result.is_err() {
            let _ = self.abort("a panic ended a scope of calls; see the output of this rank");
        }
        let finished = scope.finish();
        match result {
            Err(panic) => resume_unwind(panic),
            Ok(result) => result.and_then(|value| finished.map(|()| value)),
        }
    }
}

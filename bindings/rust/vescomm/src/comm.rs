// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::raw::{c_int, c_void};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::path::Path;
use std::ptr::{null, null_mut};

use vescomm_sys as sys;

use crate::error::{c_string, call, invalid};
use crate::handle::{c_path, Handle};
use crate::{CommOptions, Error, Result};

/// The ranks that work together, and the connections between them.
///
/// A communicator can be moved to another thread, and is used by one thread at a time; memories,
/// buffers and requests borrow it and stay in its thread. [`Handle`], to which it dereferences, has
/// the functions that any thread may call.
///
/// [`from_environment()`](Communicator::from_environment), [`new()`](Communicator::new) and
/// [`from_all_gather()`](Communicator::from_all_gather) read VESCOMM_* and other variables. No thread
/// may change the environment meanwhile: `std::env::set_var()` does not exclude readers in C, and is
/// unsafe since the edition of 2024 for that reason.
///
/// End it by [`finalize_after()`](Communicator::finalize_after), or call
/// [`finalize()`](Communicator::finalize) on every rank before the communicator is dropped. Otherwise
/// the drop is collective: it waits for all ranks, and cannot report an error. If a panic drops the communicator, or a request that is running, the communicator is aborted instead, so that
/// no rank waits for another one.
///
/// ```
/// # fn main() -> vescomm::Result<()> {
/// use vescomm::{Communicator, Op};
/// let comm = Communicator::from_environment()?; // without a launcher: one rank
/// let mut loss = [2.5f32];
/// comm.all_reduce_in_place(&mut loss, Op::Average)?;
/// println!("rank {} of {}: {}", comm.rank(), comm.ranks(), loss[0]);
/// comm.finalize()
/// # }
/// ```
///
/// Threads cannot share it:
///
/// ```compile_fail,E0277
/// fn any_thread<T: Sync>(_: &T) {}
/// any_thread(&vescomm::Communicator::from_environment().unwrap());
/// ```
pub struct Communicator {
    handle: Handle,
    made_in_panic: bool,
    _one_thread_at_a_time: PhantomData<Cell<()>>,
}

/// An all-gather of the caller, and how its last call ended.
struct AllGather<F> {
    function: F,
    failure: Option<String>,
    panic: Option<Box<dyn Any + Send>>,
}

/// # Safety
///
/// `context` is an `AllGather<F>`, `mine` has `bytes` bytes, and `all` that number for each rank.
unsafe extern "C" fn all_gather<F: FnMut(&[u8], *mut u8) -> std::result::Result<(), String>>(
    context: *mut c_void,
    mine: *const c_void,
    bytes: usize,
    all: *mut c_void,
) -> c_int {
    // SAFETY: promised by the caller; the library calls from one thread.
    let (gather, mine) = unsafe {
        (&mut *context.cast::<AllGather<F>>(), std::slice::from_raw_parts(mine.cast(), bytes))
    };
    match catch_unwind(AssertUnwindSafe(|| (gather.function)(mine, all.cast()))) {
        Ok(Ok(())) => return 0,
        Ok(Err(failure)) => gather.failure = Some(failure),
        Err(panic) => gather.panic = Some(panic),
    }
    1
}

/// A rank. The library refuses those that do not exist, unless they do not fit in its type.
pub(crate) fn rank_number(rank: usize) -> Result<i32> {
    i32::try_from(rank).map_err(|_| invalid(format!("there is no rank {rank}")))
}

/// A number of ranks.
pub(crate) fn number_of_ranks(ranks: usize) -> Result<i32> {
    i32::try_from(ranks).map_err(|_| {
        invalid(format!("there are {ranks} ranks; their number must be from 1 to {}", i32::MAX))
    })
}

impl Communicator {
    /// Takes over the pointer.
    fn owning(raw: *mut sys::vescomm_comm_t) -> Result<Communicator> {
        Ok(Communicator {
            handle: Handle::new(raw)?,
            made_in_panic: std::thread::panicking(),
            _one_thread_at_a_time: PhantomData,
        })
    }

    fn create(
        make: impl FnOnce(*mut *mut sys::vescomm_comm_t) -> sys::vescomm_status_t,
    ) -> Result<Communicator> {
        let mut raw = null_mut();
        call(|| make(&mut raw))?;
        Communicator::owning(raw)
    }

    /// Creates a communicator of the ranks that a launcher started: vescomm-run, torchrun, mpirun,
    /// srun. Without a launcher it has one rank.
    ///
    /// Reads VESCOMM_RANK, VESCOMM_RANKS, VESCOMM_ADDRESS and VESCOMM_SECRET first, then the
    /// variables of the other launchers.
    pub fn from_environment() -> Result<Communicator> {
        Communicator::from_environment_with(&CommOptions::default())
    }

    /// As [`from_environment()`](Communicator::from_environment), with options.
    pub fn from_environment_with(options: &CommOptions) -> Result<Communicator> {
        let options = options.to_raw()?;
        // SAFETY: the options live until the call returns.
        Communicator::create(|made| unsafe {
            sys::vescomm_comm_create_from_environment(&options.raw, made)
        })
    }

    /// Creates a communicator from an explicit rank, number of ranks, address and secret.
    ///
    /// `address` is "host:port", on which rank 0 listens and which the others can reach. `secret`
    /// is the same on every rank, and has at least 16 characters, unless the address is a loopback
    /// address or VESCOMM_INSECURE is 1. With one rank both are ignored.
    pub fn new(
        rank: usize,
        ranks: usize,
        address: &str,
        secret: &str,
        options: &CommOptions,
    ) -> Result<Communicator> {
        let (address, secret) =
            (c_string("the address", address)?, c_string("the secret", secret)?);
        let options = options.to_raw()?;
        let (rank, ranks) = (rank_number(rank)?, number_of_ranks(ranks)?);
        // SAFETY: strings and options live until the call returns.
        Communicator::create(|made| unsafe {
            sys::vescomm_comm_create(
                rank,
                ranks,
                address.as_ptr(),
                secret.as_ptr(),
                &options.raw,
                made,
            )
        })
    }

    /// Creates a communicator with an all-gather of the caller (MPI, a store, sockets). Rank 0
    /// sends its address and a random secret through it.
    ///
    /// `all_gather(mine, all)` gathers the bytes of every rank, which have the same size, into
    /// `all`, by rank. It is called a few times, only during this call. If it fails, the error
    /// contains its reason.
    ///
    /// ```
    /// # fn main() -> vescomm::Result<()> {
    /// use vescomm::{CommOptions, Communicator};
    /// let alone = |mine: &[u8], all: &mut [u8]| -> Result<(), String> {
    ///     all.copy_from_slice(mine);
    ///     Ok(())
    /// };
    /// let comm = Communicator::from_all_gather(0, 1, alone, &CommOptions::default())?;
    /// # comm.finalize()
    /// # }
    /// ```
    pub fn from_all_gather<F, E>(
        rank: usize,
        ranks: usize,
        mut function: F,
        options: &CommOptions,
    ) -> Result<Communicator>
    where
        F: FnMut(&[u8], &mut [u8]) -> std::result::Result<(), E>,
        E: fmt::Display,
    {
        let options = options.to_raw()?;
        let (rank, ranks) = (rank_number(rank)?, number_of_ranks(ranks)?);
        let with_slices = |mine: &[u8], all: *mut u8| {
            let bytes = mine.len() * ranks as usize;
            // SAFETY: the library passes memory for the bytes of all ranks. It is zeroed first,
            // because the library need not have initialised it.
            let all = unsafe {
                std::ptr::write_bytes(all, 0, bytes);
                std::slice::from_raw_parts_mut(all, bytes)
            };
            function(mine, all).map_err(|error| error.to_string())
        };
        let mut gather = AllGather { function: with_slices, failure: None, panic: None };
        // SAFETY: `gather` and the options live until the call returns, and the function is that
        // of the type of `gather`.
        let made = Communicator::create(|made| unsafe {
            let (function, context) = typed(&mut gather);
            sys::vescomm_comm_create_from_all_gather(
                rank,
                ranks,
                function,
                context,
                &options.raw,
                made,
            )
        });
        if let Some(panic) = gather.panic {
            resume_unwind(panic);
        }
        made.map_err(|error| match gather.failure {
            Some(reason) => Error::new(error.status(), format!("{error}: {reason}")),
            None => error,
        })
    }

    /// Divides the ranks into new communicators, one for each color. This one is unchanged. The new
    /// ones share its connections.
    ///
    /// Ranks with the same color, which is at least 0, form one communicator; with `None` the rank is
    /// in none. `key` orders the ranks of a color; equal keys are ordered by rank in this
    /// communicator. Default options mean those of this communicator. Collective: all ranks call it,
    /// in the same order.
    pub fn split(
        &self,
        color: Option<i32>,
        key: i32,
        options: &CommOptions,
    ) -> Result<Option<Communicator>> {
        let options = options.to_raw().map_err(|error| self.refuse(error))?;
        if let Some(color) = color.filter(|color| *color < 0) {
            return Err(self.refuse(invalid(format!(
                "split: the color is {color}; it must be at least 0, or None for no communicator"
            ))));
        }
        let mut raw = null_mut();
        // SAFETY: the options live until the call returns.
        call(|| unsafe {
            sys::vescomm_comm_split(self.raw(), color.unwrap_or(-1), key, &options.raw, &mut raw)
        })?;
        if raw.is_null() {
            return Ok(None);
        }
        Communicator::owning(raw).map(Some)
    }

    /// Creates another communicator of the same ranks. Its calls are independent of those on this
    /// one, so another thread may use it. Default options mean those of this communicator.
    /// Collective.
    pub fn dup(&self, options: &CommOptions) -> Result<Communicator> {
        let options = options.to_raw().map_err(|error| self.refuse(error))?;
        // SAFETY: the options live until the call returns.
        Communicator::create(|made| unsafe {
            sys::vescomm_comm_dup(self.raw(), &options.raw, made)
        })
    }

    /// Creates a communicator of the ranks that survive a failure: all but those whose process has
    /// ended, and those in `failed`, which is the same on every rank. Ranks keep their order.
    ///
    /// This communicator, which the failure has usually broken, is broken on every rank afterwards.
    /// Collective for all ranks that are alive and not in `failed`. If more ranks die during the
    /// call, the others shrink again within it.
    pub fn shrink(&self, failed: &[usize]) -> Result<Communicator> {
        let failed = failed.iter().copied().map(rank_number).collect::<Result<Vec<i32>>>()?;
        // SAFETY: the list lives until the call returns.
        Communicator::create(|made| unsafe {
            sys::vescomm_comm_shrink(self.raw(), failed.as_ptr(), failed.len(), made)
        })
    }

    /// Waits until every rank has called it.
    pub fn barrier(&self) -> Result<()> {
        // SAFETY: this thread alone uses the communicator.
        call(|| unsafe { sys::vescomm_barrier(self.raw()) }).map(drop)
    }

    /// Ends the use of the communicator on all ranks. Requests of this rank that are running
    /// complete first.
    ///
    /// Afterwards nothing can be created or started, and the drop does not wait. Collective. Ok,
    /// also when an earlier call succeeded.
    pub fn finalize(&self) -> Result<()> {
        // SAFETY: this thread alone uses the communicator.
        call(|| unsafe { sys::vescomm_comm_finalize(self.raw()) }).map(drop)
    }

    /// Runs a program with the communicator, which ends with it: it is finalized after a success, and
    /// aborted after an error, with the error as the reason. The other ranks then fail at once and
    /// name this rank, and this function does not wait for them.
    ///
    /// A `?` in `main()` would drop the communicator instead. The drop waits for the other ranks, and
    /// the error is shown only afterwards.
    ///
    /// ```
    /// use vescomm::Communicator;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     Communicator::from_environment()?.finalize_after(|comm| {
    ///         let name = std::fs::read_to_string("/proc/self/comm")?;
    ///         println!("rank {}: {name}", comm.rank());
    ///         comm.barrier()?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn finalize_after<R, E: fmt::Display + From<Error>>(
        self,
        program: impl FnOnce(&Communicator) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        let result = program(&self);
        match &result {
            Ok(_) => self.finalize()?,
            Err(error) => {
                let reason = format!("its program ended with an error: {error}");
                let _ = self.abort(&reason.replace('\0', "?"));
            }
        }
        result
    }

    /// Writes the spans of all ranks into one file in the Chrome trace event format, which Perfetto
    /// opens. Rank 0 writes it; the paths of other ranks are not used. Collective.
    pub fn trace_write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = c_path(path.as_ref());
        // The library uses the path of rank 0, and refuses NULL there on all ranks.
        let in_c = path.as_ref().map_or(null(), |path| path.as_ptr());
        // SAFETY: the string lives until the call returns.
        let written = call(|| unsafe { sys::vescomm_trace_write(self.raw(), in_c) });
        match (written, path) {
            (Err(Error::InvalidArgument(_)), Err(error)) if self.rank() == 0 => Err(error),
            (written, _) => written.map(drop),
        }
    }

    /// Called before the wait of a drop: no rank waits for another one after a panic.
    pub(crate) fn abort_in_panic(&self) {
        if std::thread::panicking() && !self.made_in_panic {
            let _ =
                self.abort("a panic ended the program on this rank; see the output of that rank");
        }
    }

    /// Passes on an error that this crate has found in a collective creation. This rank takes part
    /// as with an argument that the library refuses: the communicator breaks with the sentence,
    /// unless all ranks refuse the call with the same one.
    pub(crate) fn refuse(&self, error: Error) -> Error {
        if let Ok(sentence) = c_string("the sentence", error.sentence()) {
            // SAFETY: this thread alone uses the communicator; the string lives until the call
            // returns. It returns the error that it is given.
            let _ = call(|| unsafe { sys::vescomm_comm_refuse(self.raw(), sentence.as_ptr()) });
        }
        error
    }
}

type AllGatherFunction = sys::vescomm_all_gather_function_t;

/// The function in C of this all-gather, and its context.
fn typed<F: FnMut(&[u8], *mut u8) -> std::result::Result<(), String>>(
    gather: &mut AllGather<F>,
) -> (AllGatherFunction, *mut c_void) {
    (Some(all_gather::<F>), (gather as *mut AllGather<F>).cast())
}

impl Deref for Communicator {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.abort_in_panic();
        // Ends it on all ranks now. The last owner of the handle frees it, at any time.
        let _ = self.finalize();
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(formatter)
    }
}

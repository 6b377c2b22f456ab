// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

use std::os::raw::c_char;
use std::ptr::{null, null_mut};

use vescomm_sys as sys;

use crate::error::{call, enter, text};
use crate::{Communicator, Error, Message, Result};

/// The reasons why `RawRequest::free()` returns false.
pub(crate) const NOT_FREED: &str = "in a child of fork(), or in a function given to set_log()";

/// A request of the C interface. The owner frees it, and knows the arrays that it writes.
pub(crate) struct RawRequest<'c> {
    comm: &'c Communicator,
    raw: *mut sys::vescomm_request_t,
    running: bool,
}

impl<'c> RawRequest<'c> {
    /// Takes over the pointer. `running`: the request has been started.
    pub(crate) fn new(
        comm: &'c Communicator,
        raw: *mut sys::vescomm_request_t,
        running: bool,
    ) -> RawRequest<'c> {
        RawRequest { comm, raw, running }
    }

    /// True: the library may access the arrays of the request.
    pub(crate) fn running(&self) -> bool {
        self.running
    }

    /// # Safety
    ///
    /// The arrays and the memory of the request stay until it is complete or freed, and nothing
    /// else accesses them.
    pub(crate) unsafe fn start(&mut self) -> Result<()> {
        // SAFETY: promised by the caller. After an error the request has not started.
        call(|| unsafe { sys::vescomm_request_start(self.raw, null_mut()) })?;
        self.running = true;
        Ok(())
    }

    /// Makes progress. True: complete, or never started.
    pub(crate) fn test(&mut self) -> Result<bool> {
        // SAFETY: the communicator is in this thread, which makes one call at a time.
        let result = call(|| unsafe { sys::vescomm_request_test(self.raw) });
        match result {
            Ok(status) => {
                let complete = status != sys::VESCOMM_IN_PROGRESS;
                self.running &= !complete;
                Ok(complete)
            }
            Err(error) => {
                self.running &= self.still_running();
                Err(error)
            }
        }
    }

    pub(crate) fn wait(&mut self) -> Result<()> {
        let raw = self.raw;
        // SAFETY: as test().
        self.end_wait(|| unsafe { sys::vescomm_request_wait(raw) })
    }

    /// Makes progress on other communicators meanwhile.
    pub(crate) fn wait_with(&mut self, comms: &[&Communicator]) -> Result<()> {
        let raw = self.raw;
        let comms: Vec<_> = comms.iter().map(|comm| comm.raw()).collect();
        // SAFETY: as test(); the communicators are in this thread too, and live until the end.
        self.end_wait(|| unsafe {
            sys::vescomm_request_wait_with(raw, comms.as_ptr(), comms.len())
        })
    }

    fn end_wait(&mut self, wait: impl FnOnce() -> sys::vescomm_status_t) -> Result<()> {
        match call(wait) {
            Ok(sys::VESCOMM_IN_PROGRESS) => Err(Error::Interrupted(
                "the wait for a request was interrupted; the request is still running".to_string(),
            )),
            Ok(_) => {
                self.running = false;
                Ok(())
            }
            Err(error) => {
                self.running &= self.still_running();
                Err(error)
            }
        }
    }

    /// Makes progress. After an error of test() or wait() the library has stopped the request, unless
    /// the call itself failed, such as for lack of memory or in a function given to set_log().
    fn still_running(&self) -> bool {
        // SAFETY: as test().
        match call(|| unsafe { sys::vescomm_request_test(self.raw) }) {
            Ok(status) => status == sys::VESCOMM_IN_PROGRESS,
            // The library was not asked, or could not answer.
            Err(Error::OutOfMemory(_)) => true,
            Err(_) => enter().is_err(),
        }
    }

    /// Called by drops, before they wait. Aborts the communicator if a panic drops the request while
    /// it is running.
    pub(crate) fn abort_in_panic(&self) {
        if self.running && std::thread::panicking() && self.still_running() {
            self.comm.abort_in_panic();
        }
    }

    pub(crate) fn explain(&mut self) -> Result<String> {
        let mut string: *const c_char = null();
        // SAFETY: as test(); the string is valid until the request is freed.
        call(|| unsafe { sys::vescomm_request_explain(self.raw, &mut string) })?;
        Ok(text(string))
    }

    /// The first message that the request has received. It is complete.
    pub(crate) fn message(&mut self) -> Result<Message> {
        let mut info = sys::vescomm_message_info_init();
        // SAFETY: as test().
        call(|| unsafe { sys::vescomm_request_get_message(self.raw, 0, &mut info) })?;
        Ok(Message { source: info.source as usize, tag: info.tag, count: info.count as usize })
    }

    /// Waits until the request is complete, and frees it. True: the library does not access the
    /// arrays any more. False: it may, because the request was inherited by fork(), or because this
    /// was called by a function given to set_log().
    #[must_use]
    pub(crate) fn free(&mut self) -> bool {
        let mut attempts = 0;
        // SAFETY: as test(). The library refuses to free a request that is running.
        while call(|| unsafe { sys::vescomm_request_free(self.raw) }).is_err() {
            attempts += 1;
            match attempts {
                1 | 2 => drop(self.wait()),
                3 => drop(self.comm.abort("a request that cannot complete is freed")),
                _ => return false,
            }
        }
        self.raw = null_mut();
        self.running = false;
        true
    }
}

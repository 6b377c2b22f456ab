// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Requests that a function given to `set_log()` uses, although it must not.

use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Mutex;

use vescomm::{Buffer, Communicator, Layout, Request};

use crate::support::job::{in_job, Job};
use crate::support::{open_ranks, options};

type OwnsArray = Request<'static, Vec<f32>>;

thread_local! {
    static RUNNING: RefCell<Option<OwnsArray>> = const { RefCell::new(None) };
    static IDLE: RefCell<Option<OwnsArray>> = const { RefCell::new(None) };
}

/// Aborts a communicator that nobody drops, so that no rank waits for one that has panicked.
struct AbortsInPanic(&'static Communicator);

impl Drop for AbortsInPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.abort("a panic");
        }
    }
}

/// Uses the requests of this thread, as a log function.
fn use_requests() -> Option<[bool; 4]> {
    let idle = IDLE.with(|request| request.take())?;
    let mut running = RUNNING.with(|request| request.take())?;
    let panic = catch_unwind(AssertUnwindSafe(|| drop(idle.into_array())));
    let sentence = panic.err().and_then(|panic| panic.downcast::<String>().ok());
    let seen = [
        running.test().is_err(),
        running.wait().is_err(),
        running.array_mut().is_err(),
        sentence.map_or(false, |sentence| sentence.contains("set_log()")),
    ];
    RUNNING.with(|request| request.replace(Some(running)));
    Some(seen)
}

#[test]
fn a_request_that_a_log_function_waits_for_keeps_running() {
    if !in_job() {
        let name = "log::a_request_that_a_log_function_waits_for_keeps_running";
        Job::of_test_with(name, 1, &[("VESCOMM_LOG", "info")]).outputs();
        return;
    }
    static SEEN: Mutex<Vec<[bool; 4]>> = Mutex::new(Vec::new());
    vescomm::set_log(|_, _| SEEN.lock().unwrap().extend(use_requests())).unwrap();
    open_ranks(2, |comm| {
        let comm: &'static Communicator = Box::leak(Box::new(comm));
        let _aborts = AbortsInPanic(comm);
        let layout = Layout::from_counts(&[4, 4]).unwrap();
        let mut buffer = Buffer::<f32>::new(comm, &layout, "x").unwrap();
        let mine = || vec![comm.rank() as f32; 4];
        let mut gather = buffer.request().all_gather_v_from(mine()).unwrap();
        let idle = buffer.request().all_gather_v_from(mine()).unwrap();
        let mut readable = false;
        if comm.rank() == 0 {
            gather.start(&mut buffer).unwrap();
            RUNNING.with(|request| request.replace(Some(gather)));
            IDLE.with(|request| request.replace(Some(idle)));
            // The failure of another communicator is a line of the log.
            let alone = Communicator::new(0, 1, "", "", &options()).unwrap();
            alone.abort("the test requests it").unwrap();
            gather = RUNNING.with(|request| request.take()).unwrap();
            readable = buffer.data().is_ok();
            comm.send(&[0u8], 1).unwrap();
        } else {
            comm.receive(&mut [0u8], 0).unwrap();
            gather.start(&mut buffer).unwrap();
        }
        gather.wait().unwrap();
        assert!(!readable, "the buffer of a running request was given to the program");
        assert_eq!(buffer.data().unwrap(), [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
        comm.finalize().unwrap();
    });
    assert_eq!(*SEEN.lock().unwrap(), [[true; 4]]);
    vescomm::log_to_standard_error().unwrap();
}

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Tests with several ranks: threads of this process, or processes that run this program again.

#![deny(unsafe_op_in_unsafe_fn)]
// Clippy 1.63 does not see that threads must all be started before one is joined.
#![allow(clippy::needless_collect)]

mod arrays;
mod background;
mod buffers;
mod communicators;
mod errors;
mod examples;
mod gpu;
mod gpu_failures;
mod log;
mod plain;
mod processes;
mod shared_memory;
mod support;

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! The calls on arrays that return when they are complete.

use crate::{call, Communicator, Element, Op, Result};

/// # Collectives and messages on arrays
///
/// Each function makes the call of the same name in [`call`], and returns when it is complete on
/// this rank.
impl Communicator {
    /// Gathers the sources of all ranks on all ranks: `counts[k]` elements of rank k.
    pub fn all_gather_v<T: Element>(
        &self,
        source: &[T],
        output: &mut [T],
        counts: &[i64],
    ) -> Result<()> {
        self.run(call::all_gather_v(source, output, counts))
    }

    /// As [`all_gather_v()`](Communicator::all_gather_v), of blocks that are in the output already.
    pub fn all_gather_v_in_place<T: Element>(&self, data: &mut [T], counts: &[i64]) -> Result<()> {
        self.run(call::all_gather_v_in_place(data, counts))
    }

    /// Gathers sources of equal size on all ranks.
    pub fn all_gather<T: Element>(&self, source: &[T], output: &mut [T]) -> Result<()> {
        self.run(call::all_gather(source, output))
    }

    /// Reduces the sources of all ranks and leaves each rank its own block of the result:
    /// `counts[k]` elements for rank k.
    pub fn reduce_scatter_v<T: Element>(
        &self,
        source: &[T],
        output: &mut [T],
        counts: &[i64],
        op: Op,
    ) -> Result<()> {
        self.run(call::reduce_scatter_v(source, output, counts, op))
    }

    /// As [`reduce_scatter_v()`](Communicator::reduce_scatter_v), with the result in the calling
    /// rank's block of the source.
    pub fn reduce_scatter_v_in_place<T: Element>(
        &self,
        data: &mut [T],
        counts: &[i64],
        op: Op,
    ) -> Result<()> {
        self.run(call::reduce_scatter_v_in_place(data, counts, op))
    }

    /// Reduces the sources of all ranks and leaves each rank a block of the result, of the size of
    /// the output.
    pub fn reduce_scatter<T: Element>(&self, source: &[T], output: &mut [T], op: Op) -> Result<()> {
        self.run(call::reduce_scatter(source, output, op))
    }

    /// Reduces the sources of all ranks and leaves every rank the same result, bit for bit.
    pub fn all_reduce<T: Element>(&self, source: &[T], output: &mut [T], op: Op) -> Result<()> {
        self.run(call::all_reduce(source, output, op))
    }

    /// As [`all_reduce()`](Communicator::all_reduce), with one array as source and output.
    pub fn all_reduce_in_place<T: Element>(&self, data: &mut [T], op: Op) -> Result<()> {
        self.run(call::all_reduce_in_place(data, op))
    }

    /// Reduces the sources of all ranks and leaves the root the result. The output is used on the
    /// root only.
    pub fn reduce<T: Element>(
        &self,
        source: &[T],
        output: &mut [T],
        op: Op,
        root: usize,
    ) -> Result<()> {
        self.run(call::reduce(source, output, op, root))
    }

    /// As [`reduce()`](Communicator::reduce), with one array as source and output.
    pub fn reduce_in_place<T: Element>(&self, data: &mut [T], op: Op, root: usize) -> Result<()> {
        self.run(call::reduce_in_place(data, op, root))
    }

    /// Copies the data of the root to all ranks.
    pub fn broadcast<T: Element>(&self, data: &mut [T], root: usize) -> Result<()> {
        self.run(call::broadcast(data, root))
    }

    /// Gathers the sources of all ranks on the root: `counts[k]` elements of rank k. The output is
    /// used on the root only.
    pub fn gather_v<T: Element>(
        &self,
        source: &[T],
        output: &mut [T],
        counts: &[i64],
        root: usize,
    ) -> Result<()> {
        self.run(call::gather_v(source, output, counts, root))
    }

    /// As [`gather_v()`](Communicator::gather_v) on the root, of which the block is in the output
    /// already. The other ranks call `gather_v()`.
    pub fn gather_v_in_place<T: Element>(
        &self,
        data: &mut [T],
        counts: &[i64],
        root: usize,
    ) -> Result<()> {
        self.run(call::gather_v_in_place(data, counts, root))
    }

    /// Scatters the source of the root: `counts[k]` elements for rank k. The source is used on the
    /// root only.
    pub fn scatter_v<T: Element>(
        &self,
        source: &[T],
        output: &mut [T],
        counts: &[i64],
        root: usize,
    ) -> Result<()> {
        self.run(call::scatter_v(source, output, counts, root))
    }

    /// As [`scatter_v()`](Communicator::scatter_v) on the root, of which the block stays in the
    /// source. The other ranks call `scatter_v()`.
    pub fn scatter_v_in_place<T: Element>(
        &self,
        data: &mut [T],
        counts: &[i64],
        root: usize,
    ) -> Result<()> {
        self.run(call::scatter_v_in_place(data, counts, root))
    }

    /// Sends one block from every rank to every rank: `source_counts[k]` elements to rank k, and
    /// `output_counts[k]` from it.
    pub fn all_to_all_v<T: Element>(
        &self,
        source: &[T],
        source_counts: &[i64],
        output: &mut [T],
        output_counts: &[i64],
    ) -> Result<()> {
        self.run(call::all_to_all_v(source, source_counts, output, output_counts))
    }

    /// Sends one block of equal size from every rank to every rank.
    pub fn all_to_all<T: Element>(&self, source: &[T], output: &mut [T]) -> Result<()> {
        self.run(call::all_to_all(source, output))
    }

    /// Sends a message to one rank, which receives the same number and type of elements.
    pub fn send<T: Element>(&self, data: &[T], peer: usize) -> Result<()> {
        self.run(call::send(data, peer))
    }

    /// Receives a message that one rank sends, of the size of the array.
    pub fn receive<T: Element>(&self, data: &mut [T], peer: usize) -> Result<()> {
        self.run(call::receive(data, peer))
    }
}

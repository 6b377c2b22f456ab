// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

pub mod cuda;
pub mod job;
pub mod numbers;

use std::ops::Range;
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Duration;

use vescomm::{CommOptions, Communicator};

/// Numbers of ranks that tests use.
pub const SIZES: [usize; 4] = [1, 2, 3, 5];

const DEADLINE: Duration = Duration::from_secs(100);

/// An all-gather among threads, with a deadline that only a hang reaches.
pub struct Exchange {
    ranks: usize,
    /// The contributions of each round so far.
    rounds: Mutex<Vec<Vec<Option<Vec<u8>>>>>,
    changed: Condvar,
}

impl Exchange {
    pub fn new(ranks: usize) -> Exchange {
        Exchange { ranks, rounds: Mutex::new(Vec::new()), changed: Condvar::new() }
    }

    pub fn all_gather(&self, rank: usize, mine: &[u8], all: &mut [u8]) -> Result<(), String> {
        let mut rounds = self.rounds.lock().unwrap();
        let first = rounds.iter().position(|given| given[rank].is_none());
        let round = first.unwrap_or(rounds.len());
        if round == rounds.len() {
            rounds.push(vec![None; self.ranks]);
        }
        rounds[round][rank] = Some(mine.to_vec());
        self.changed.notify_all();
        let incomplete = |rounds: &mut Vec<Vec<Option<Vec<u8>>>>| {
            rounds[round].iter().any(|given| given.is_none())
        };
        let (rounds, waited) =
            self.changed.wait_timeout_while(rounds, DEADLINE, incomplete).unwrap();
        if waited.timed_out() {
            return Err("a thread did not call".to_string());
        }
        let given: Vec<u8> = rounds[round].iter().flatten().flatten().copied().collect();
        all.copy_from_slice(&given);
        Ok(())
    }
}

/// Options with a deadline that only a hang reaches.
pub fn options() -> CommOptions {
    let mut options = CommOptions::default();
    options.timeout = Some(DEADLINE);
    options
}

/// Runs ranks as threads, without ending their communicators. Returns the results by rank.
pub fn open_ranks<R: Send>(ranks: usize, body: impl Fn(Communicator) -> R + Sync) -> Vec<R> {
    ranks_with(ranks, |_| options(), body)
}

/// As open_ranks(), with options for each rank.
pub fn ranks_with<R: Send>(
    ranks: usize,
    options: impl Fn(usize) -> CommOptions + Sync,
    body: impl Fn(Communicator) -> R + Sync,
) -> Vec<R> {
    let exchange = Exchange::new(ranks);
    let one = |rank| {
        let all_gather = |mine: &[u8], all: &mut [u8]| exchange.all_gather(rank, mine, all);
        let comm = Communicator::from_all_gather(rank, ranks, all_gather, &options(rank));
        // A rank that aborts at once must not end the creation on the others.
        exchange.all_gather(rank, &[], &mut []).unwrap();
        body(comm.expect("a communicator of threads"))
    };
    thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || one(rank))).collect();
        threads.into_iter().map(|rank| rank.join().expect("a rank panicked")).collect()
    })
}

/// Runs ranks as threads and finalizes their communicators. Returns the results by rank.
pub fn ranks<R: Send>(ranks: usize, body: impl Fn(&Communicator) -> R + Sync) -> Vec<R> {
    open_ranks(ranks, |comm| {
        let result = body(&comm);
        comm.finalize().expect("the end of a communicator");
        result
    })
}

/// Ragged and empty shards of `ranks` ranks.
pub fn shapes(ranks: usize) -> Vec<Vec<i64>> {
    let ranks = ranks as i64;
    vec![
        (0..ranks).map(|k| k + 1).collect(),
        (0..ranks).map(|k| if k % 2 == 0 { 0 } else { 5 * k }).collect(),
        vec![0; ranks as usize],
        (0..ranks).map(|k| if k == ranks - 1 { 70_001 } else { 3 }).collect(),
        vec![128; ranks as usize],
    ]
}

/// The elements of consecutive blocks.
pub fn blocks(counts: &[i64]) -> Vec<Range<usize>> {
    let mut end = 0;
    let block = |count: &i64| {
        let begin = end;
        end += *count as usize;
        begin..end
    };
    counts.iter().map(block).collect()
}

pub fn total(counts: &[i64]) -> usize {
    counts.iter().sum::<i64>() as usize
}

/// True if a sentence names a rank, alone or in a list.
pub fn names_rank(sentence: &str, rank: usize) -> bool {
    sentence.split("rank").skip(1).any(|rest| {
        let list = rest.trim_start_matches('s').trim_start();
        let end = list.find(|c: char| !c.is_ascii_digit() && !", and".contains(c));
        let numbers = list[..end.unwrap_or(list.len())].split(|c: char| !c.is_ascii_digit());
        numbers.filter_map(|number| number.parse().ok()).any(|number: usize| number == rank)
    })
}

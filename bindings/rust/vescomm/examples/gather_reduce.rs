// Gathers ragged shards and sums ragged shards: vescomm-run -n 3 ./gather_reduce
use vescomm::{Buffer, Communicator, Layout, Op};

fn gather_reduce(comm: &Communicator) -> vescomm::Result<()> {
    let counts: Vec<i64> = (1..=comm.ranks() as i64).collect(); // rank k owns k + 1 elements
    let mut buffer = Buffer::<f32>::new(comm, &Layout::from_counts(&counts)?, "buffer")?;

    let mut gather = buffer.request().all_gather_v()?;
    buffer.shard_mut()?.fill(comm.rank() as f32); // all of them k
    gather.run(&mut buffer)?;
    let gathered: Vec<String> = buffer.data()?.iter().map(|x| x.to_string()).collect();

    let mut reduce = buffer.request().reduce_scatter_v(Op::Sum)?;
    reduce.run(&mut buffer)?;
    println!("{} | rank {}: {}", gathered.join(" "), comm.rank(), buffer.shard()?[0]);
    Ok(())
}

fn main() -> vescomm::Result<()> {
    // Finalizes the communicator; an error aborts it, so that no rank waits for this one.
    Communicator::from_environment()?.finalize_after(gather_reduce)
}

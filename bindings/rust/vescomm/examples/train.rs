// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Data-parallel training of a small network: vescomm-run -n 3 ./train [--sharded] [--steps N]
//!
//! --replicated, the default: every rank has all parameters. An all_reduce on one fused buffer sums
//! the gradients of all layers.
//!
//! --sharded: every rank owns a shard of the parameters, and updates it. A reduce_scatter_v leaves
//! it the sum of its gradients; an all_gather_v collects the updated parameters.

use std::error::Error;

use vescomm::planner::{plan, Options, Tensor};
use vescomm::{Buffer, Communicator, Layout, Op};

const INPUTS: usize = 4;
const HIDDEN: usize = 32;
const SAMPLES: usize = 97; // no multiple of most numbers of ranks
const RATE: f32 = 0.1;

/// Numbers in [-1, 1), the same on every rank.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

struct Sample {
    input: [f32; INPUTS],
    target: f32,
}

fn samples() -> Vec<Sample> {
    let mut random = Random(1);
    let sample = |_| {
        let input: [f32; INPUTS] = std::array::from_fn(|_| random.next());
        let target = (2.0 * input[0]).sin() + input[1] * input[2] - 0.5 * input[3];
        Sample { input, target }
    };
    (0..SAMPLES).map(sample).collect()
}

/// Indices of the tensors in the layout, which the planner orders as it likes.
struct Model {
    w1: usize, // [HIDDEN, INPUTS]
    b1: usize, // [HIDDEN]
    w2: usize, // [HIDDEN]
    b2: usize, // [1]
}

impl Model {
    fn new(layout: &Layout) -> vescomm::Result<Model> {
        let find = |name| layout.find(name);
        Ok(Model { w1: find("w1")?, b1: find("b1")?, w2: find("w2")?, b2: find("b2")? })
    }

    fn initialise(&self, parameters: &mut [&mut [f32]]) {
        let mut random = Random(2);
        for tensor in [self.w1, self.w2] {
            parameters[tensor].fill_with(|| 0.5 * random.next());
        }
    }

    /// Adds the gradients of one sample, and returns its loss.
    fn backward(
        &self,
        sample: &Sample,
        parameters: &Buffer<f32>,
        gradients: &mut [&mut [f32]],
    ) -> vescomm::Result<f32> {
        let (w1, b1) = (parameters.tensor(self.w1)?, parameters.tensor(self.b1)?);
        let (w2, b2) = (parameters.tensor(self.w2)?, parameters.tensor(self.b2)?);
        let rows = w1.chunks_exact(INPUTS).zip(b1);
        let hidden: Vec<f32> = rows
            .map(|(row, bias)| {
                let dot: f32 = row.iter().zip(&sample.input).map(|(w, x)| w * x).sum();
                (dot + bias).tanh()
            })
            .collect();
        let output = b2[0] + hidden.iter().zip(w2).map(|(h, w)| h * w).sum::<f32>();
        let error = output - sample.target;
        gradients[self.b2][0] += error;
        for (unit, h) in hidden.iter().enumerate() {
            gradients[self.w2][unit] += error * h;
            let before_tanh = error * w2[unit] * (1.0 - h * h);
            gradients[self.b1][unit] += before_tanh;
            for (input, x) in sample.input.iter().enumerate() {
                gradients[self.w1][unit * INPUTS + input] += before_tanh * x;
            }
        }
        Ok(0.5 * error * error)
    }
}

fn descend(parameters: &mut [f32], gradients: &[f32]) {
    for (parameter, gradient) in parameters.iter_mut().zip(gradients) {
        *parameter -= RATE * gradient;
    }
}

fn train(comm: &Communicator, sharded: bool, steps: usize) -> Result<(), Box<dyn Error>> {
    let tensors = [
        Tensor { block_rows: 4, ..Tensor::new("w1", &[HIDDEN as i64, INPUTS as i64]) },
        Tensor::new("b1", &[HIDDEN as i64]),
        Tensor::new("w2", &[HIDDEN as i64]),
        Tensor::new("b2", &[1]),
    ];
    let planned = plan(&tensors, comm.ranks(), &Options::default())?;
    let layout = planned.layout.ok_or(planned.explanation)?;
    let model = Model::new(&layout)?;
    let mut parameters = Buffer::<f32>::new(comm, &layout, "parameters")?;
    let mut gradients = Buffer::<f32>::new(comm, &layout, "gradients")?;
    model.initialise(&mut parameters.tensors_mut()?);

    // The gradient of the mean over all samples: each rank contributes the sum over its own.
    let mean = Op::PremultipliedSum(1.0 / SAMPLES as f64);
    let mut reduce = match sharded {
        true => gradients.request().reduce_scatter_v(mean)?,
        false => gradients.request().all_reduce(mean)?,
    };
    let mut gather = parameters.request().all_gather_v()?;

    let samples = samples();
    for step in 0..=steps {
        gradients.data_mut()?.fill(0.0);
        let mut loss = [0.0f32];
        let mut sums = gradients.tensors_mut()?;
        for sample in samples.iter().skip(comm.rank()).step_by(comm.ranks()) {
            loss[0] += model.backward(sample, &parameters, &mut sums)?;
        }
        reduce.start(&mut gradients)?; // runs while the loss is summed
        comm.all_reduce_in_place(&mut loss, mean)?;
        reduce.wait()?;
        if sharded {
            descend(parameters.shard_mut()?, gradients.shard()?);
            gather.run(&mut parameters)?;
        } else {
            descend(parameters.data_mut()?, gradients.data()?);
        }
        if comm.rank() == 0 && (step % 10 == 0 || step == steps) {
            println!("step {step}: loss {}", loss[0]);
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut sharded, mut steps) = (false, 200);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--replicated" => sharded = false,
            "--sharded" => sharded = true,
            "--steps" => steps = arguments.next().ok_or("--steps needs a number")?.parse()?,
            other => return Err(format!("there is no option {other}").into()),
        }
    }
    Communicator::from_environment()?.finalize_after(|comm| train(comm, sharded, steps))
}

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The trainer of fsdp/training.h on the test double of CUDA: its kernels read parameters and write
// gradients on a stream of the rank's device.
#pragma once

#include "fsdp/training.h"
#include "gpu/double_ranks.h"

namespace vescomm::fsdp::testing {

vescomm_fsdp_spec_options_t on_device(
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init());

std::size_t bytes_of(const vescomm_fsdp_view_t &view);

// A view at the bytes that only work on streams may use.
vescomm_fsdp_view_t host_view(vescomm_fsdp_view_t view);

// A kernel of the trainer that reads all parameters of a unit.
void read_on_device(Engine &engine, const std::vector<std::uint64_t> &ids,
                    gpu_double::cuda::Stream stream);

void write_on_device(Engine &engine, const std::vector<std::uint64_t> &ids, int step, int part,
                     int parts, bool push, gpu_double::Device &device);

void micro_batch_on_device(Engine &engine, const std::vector<std::vector<std::uint64_t>> &ids,
                           const Training &training, int step, int part, int parts, bool last,
                           gpu_double::Device &device);

double step_on_device(Engine &engine, Communicator &comm, const Described &described,
                      const Training &training, int step, gpu_double::Device &device);

// Opens all units for evaluation and returns all parameters.
std::vector<float> read_all_on_device(Engine &engine,
                                      const std::vector<std::vector<std::uint64_t>> &ids,
                                      gpu_double::Device &device);

Outcome train_on_device(Communicator &comm, const Described &described, const Training &training);

// As train_on(), on device memory. Expects no violation of CUDA's rules.
Outcome train_on_devices(int ranks, const std::vector<UnitModel> &units, const std::string &preset,
                         vescomm_fsdp_spec_options_t options, const Training &training);

}  // namespace vescomm::fsdp::testing

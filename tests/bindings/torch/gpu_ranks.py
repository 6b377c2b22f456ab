# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""vescomm.gpu with torch on real GPUs: a rank of vescomm-run. Between a gather and the product that
reads its result there is no copy, and results are those of torch. Exits with 77 without a GPU."""

import sys

try:
    import torch
except ImportError:
    print("skipped: there is no torch")
    sys.exit(77)

import vescomm
from vescomm import gpu

try:
    NCCL = gpu.check_support()
except vescomm.UnsupportedError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ROWS, COLUMNS = 4096, 1024


def cuts_of(ranks):
    """Cuts a matrix of ROWS x COLUMNS at rows: rank r owns r + 1 parts."""
    parts = ranks * (ranks + 1) // 2
    return [ROWS * (rank * (rank + 1) // 2) // parts * COLUMNS for rank in range(ranks + 1)]


def kernels_of(profile):
    """The names of the kernels and copies of the GPU, in the order of their beginnings."""
    events = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    return [e.name for e in sorted(events, key=lambda e: e.time_range.start)]


def main():
    comm = vescomm.Communicator.from_environment()
    devices = torch.cuda.device_count()
    if comm.ranks > devices and NCCL < 23003:
        print(f"skipped: {devices} GPUs, and this NCCL permits one rank on each")
        sys.exit(77)
    torch.cuda.set_device(comm.rank % devices)
    cuts = cuts_of(comm.ranks)
    tensor = vescomm.Tensor("weight", (ROWS, COLUMNS))
    layout = vescomm.Layout([tensor], ROWS * COLUMNS, cuts)
    begin, end = cuts[comm.rank], cuts[comm.rank + 1]
    generator = torch.Generator().manual_seed(1)
    whole = torch.randn(ROWS, COLUMNS, generator=generator).bfloat16().cuda()
    x = torch.randn(256, COLUMNS, generator=generator).bfloat16().cuda()
    with gpu.Communicator(comm) as device:
        parameters = gpu.Buffer(device, layout, vescomm.BF16)
        gradients = gpu.Buffer(device, layout, vescomm.F32)
        weight = parameters.tensor("weight").torch()
        assert weight.is_cuda and weight.shape == (ROWS, COLUMNS)
        assert weight.data_ptr() == parameters.data().address

        def step():
            parameters.all_gather_v()
            return x @ weight.t()

        weight.view(-1)[begin:end] = whole.view(-1)[begin:end]
        for _ in range(3):
            step()
        device.wait()
        activities = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profile:
            y = step()
            device.wait()
        names = kernels_of(profile)
        print(f"rank {comm.rank}: {names}")
        assert torch.equal(weight, whole)
        assert torch.equal(y, x @ whole.t())
        copies = [name for name in names if "memcpy" in name.lower() or "copy" in name.lower()]
        assert not copies, copies

        # Sums of small integers are exact in any order.
        gradient = gradients.tensor("weight").torch()
        gradient.copy_(torch.arange(ROWS * COLUMNS).view(ROWS, COLUMNS) % 100 + comm.rank)
        gradients.reduce_scatter_v()
        device.wait()
        sums = torch.arange(ROWS * COLUMNS).cuda() % 100 * comm.ranks
        sums = (sums + comm.ranks * (comm.ranks - 1) // 2).float()
        assert torch.equal(gradients.shard().torch(), sums[begin:end])

        # Tensors of torch, on a stream of its own.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            mine = torch.full((1000,), float(comm.rank + 1), device="cuda")
            device.all_reduce(mine)
            device.wait()
        assert set(mine.tolist()) == {comm.ranks * (comm.ranks + 1) / 2}
        del weight, gradient
    comm.free()
    print("OK")


main()

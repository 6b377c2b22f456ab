# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
#
# torchrun --nproc-per-node 2 torch_ddp.py
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("vescomm")  # the only line that names the backend

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

torch.manual_seed(dist.get_rank())  # each rank has data of its own
for step in range(20):
    x = torch.randn(32, 16)
    loss = nn.functional.mse_loss(model(x), x.flip(1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

loss = loss.detach()
dist.all_reduce(loss, dist.ReduceOp.AVG)
if dist.get_rank() == 0:
    print(f"loss {loss:.3f}")
dist.destroy_process_group()

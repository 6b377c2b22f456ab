# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
#
# torchrun --nproc-per-node 2 torch_fsdp2.py
import torch
import torch.distributed as dist
import vescomm.torch
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("vescomm")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


torch.manual_seed(0)
model = nn.Sequential(*(Block() for _ in range(4)))
for block in model:
    fully_shard(block)
fully_shard(model)
vescomm.torch.accelerate(model)  # optional: registered memory, overlap
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

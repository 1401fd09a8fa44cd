"""A small PyTorch job of two ranks for the tests of the telemetry hook: every kind of collective, and DDP."""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
ones = torch.ones(16)
dist.all_reduce(ones)
dist.broadcast(ones, 0)
dist.reduce(ones, 0)
parts = [torch.zeros(16) for _ in range(2)]
dist.all_gather(parts, torch.full((16,), float(rank)))
dist.gather(ones, parts if rank == 0 else None, 0)
dist.scatter(ones, parts if rank == 0 else None, 0)
dist.barrier()
work = dist.all_reduce(ones, async_op=True)
work.wait()
if rank == 0:
    dist.send(torch.ones(3), 1)
else:
    dist.recv(torch.ones(3), 0)
pair = dist.new_group([0, 1])
dist.all_reduce(tensor=ones, group=pair)
objects = [None, None]
dist.all_gather_object(objects, {"rank": rank})
assert objects == [{"rank": 0}, {"rank": 1}]
if os.fork() == 0:
    os._exit(0 if dist.is_initialized() else 1)
assert os.wait()[1] == 0

for own_hook in (False, True):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 1))
    parallel = DistributedDataParallel(model)
    if own_hook:
        parallel.register_comm_hook(None, allreduce_hook)
    inputs = torch.randn(4, 3, generator=torch.Generator().manual_seed(rank))
    for _ in range(2):
        parallel(inputs).square().mean().backward()
    if rank == 0:
        print(*(value.hex() for each in model.parameters() for value in each.grad.flatten().tolist()))
print(f"{rank} done", file=sys.stderr)
dist.destroy_process_group()

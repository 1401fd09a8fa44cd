"""Data-parallel training with PyTorch: a plain script, nothing in it knows of Railbed.

Run it on every GPU of a fabric that is up:

    sudo ./railbed exec -- /usr/bin/python3 docs/examples/train_data_parallel.py --steps 20

Every rank learns on its own part of the data; gradients are averaged by an all-reduce (gloo) in each step. At the end
all ranks must hold the same parameters, and the loss must have fallen.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def arguments() -> argparse.Namespace:
    """What to train, from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20, help="training steps")
    parser.add_argument("--hidden", type=int, default=256, help="width of the hidden layer; sets the bytes of a step")
    parser.add_argument("--batch", type=int, default=32, help="samples per rank and step")
    return parser.parse_args()


def main() -> None:
    """Train, and check that all ranks agree."""
    options = arguments()
    dist.init_process_group("gloo")  # RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are in the environment
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, options.hidden), nn.ReLU(), nn.Linear(options.hidden, 1))
    gradient_bytes = sum(parameter.numel() * 4 for parameter in model.parameters())
    parallel = DistributedDataParallel(model)
    optimiser = torch.optim.SGD(parallel.parameters(), lr=0.02)
    inputs = torch.randn(options.batch, 64, generator=torch.Generator().manual_seed(1 + rank))  # this rank's part
    targets = inputs @ torch.randn(64, 1, generator=torch.Generator().manual_seed(0)) / 8
    first = loss = torch.zeros(())
    for step in range(options.steps):
        started_s = time.perf_counter()
        optimiser.zero_grad()
        loss = nn.functional.mse_loss(parallel(inputs), targets)
        loss.backward()
        optimiser.step()
        loss = loss.detach() / ranks
        dist.all_reduce(loss)
        first = loss if step == 0 else first
        if rank == 0:
            print(f"step {step}: loss {loss:.4f}, {time.perf_counter() - started_s:.3f} s", flush=True)
    checksum = torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).double().sum()
    lowest, highest = checksum.clone(), checksum.clone()
    dist.all_reduce(lowest, dist.ReduceOp.MIN)
    dist.all_reduce(highest, dist.ReduceOp.MAX)
    assert lowest == highest, "the ranks hold different parameters"
    assert loss < first, "nothing was learnt"
    if rank == 0:
        print(f"{ranks} ranks agree; {gradient_bytes} bytes of gradients a step; loss {first:.4f} -> {loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

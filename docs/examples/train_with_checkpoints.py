"""Data-parallel training that survives: it checkpoints, and goes on from its newest checkpoint when started again.

A plain PyTorch script; nothing in it knows of Railbed. On a fabric that is up, with one GPU kept as a spare:

    sudo ./railbed exec --spares 1 --restarts 1 -- \
        /usr/bin/python3 docs/examples/train_with_checkpoints.py --folder run1

Everything is deterministic: the loss of every step, which rank 0 writes to FOLDER/loss.txt, is the same to the last bit
with and without a restart.
"""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


def arguments() -> argparse.Namespace:
    """What to train, from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where checkpoint and losses are")
    parser.add_argument("--steps", type=int, default=40, help="training steps in all, over all starts")
    parser.add_argument("--every", type=int, default=5, help="steps from checkpoint to checkpoint")
    parser.add_argument("--hidden", type=int, default=256, help="width of the hidden layer; sets the bytes of a step")
    parser.add_argument("--compute", type=float, default=0.0, help="seconds that a step computes beside, for show")
    return parser.parse_args()


def data(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A rank's samples of a step: the same whenever they are asked for, on whatever GPU the rank is."""
    inputs = torch.randn(32, 64, generator=torch.Generator().manual_seed(1_000_000 * rank + step))
    return inputs, inputs @ torch.randn(64, 1, generator=torch.Generator().manual_seed(0)) / 8


def average_gradients(model: nn.Module) -> None:
    """Give every rank the mean of all ranks' gradients, added in an order that hangs on nothing but the model.

    DistributedDataParallel puts them in another order after the first step of each start. The last bits of the sums,
    and so the losses, would then hang on where a start began.
    """
    parameters = list(model.parameters())
    gradients = torch.cat([parameter.grad.flatten() for parameter in parameters])
    dist.all_reduce(gradients)
    gradients /= dist.get_world_size()
    parts = gradients.split([parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad.copy_(part.view_as(parameter))


def save(folder: Path, state: dict) -> None:
    """Write a checkpoint whole or not at all: a rank may be ended in the middle."""
    torch.save(state, folder / "checkpoint.new")
    os.replace(folder / "checkpoint.new", folder / "checkpoint.pt")


def main() -> None:
    """Train from the newest checkpoint to the last step."""
    options = arguments()
    options.folder.mkdir(parents=True, exist_ok=True)
    dist.init_process_group("gloo")  # RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are in the environment
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, options.hidden), nn.ReLU(), nn.Linear(options.hidden, 1))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    step, losses = 0, []
    if (options.folder / "checkpoint.pt").exists():
        state = torch.load(options.folder / "checkpoint.pt")
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        step, losses = state["step"], state["losses"]
        if rank == 0:
            print(f"going on from step {step}", flush=True)
    while step < options.steps:
        inputs, targets = data(rank, step)
        optimiser.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        average_gradients(model)
        optimiser.step()
        time.sleep(options.compute)
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(float(total) / dist.get_world_size())
        step += 1
        if rank == 0:
            print(f"step {step}: loss {losses[-1]:.6f}", flush=True)
            if step % options.every == 0 or step == options.steps:
                state = {
                    "model": model.state_dict(),
                    "optimiser": optimiser.state_dict(),
                    "step": step,
                    "losses": losses,
                }
                save(options.folder, state)
    if rank == 0:
        (options.folder / "loss.txt").write_text("".join(f"{loss!r}\n" for loss in losses))
        print(f"done: {options.steps} steps, loss {losses[0]:.6f} -> {losses[-1]:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

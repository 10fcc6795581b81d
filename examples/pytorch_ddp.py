"""Data-parallel PyTorch with the SDK: every rank leaves after the same step, and the loss after a resume is the same.

    trine submit examples/pytorch_ddp.yaml
    trine submit --gpus 2 -- torchrun examples/pytorch_ddp.py --steps 2000
    trine submit --gpus 2 --ranks gpu -- python examples/pytorch_ddp.py --steps 2000    # the same without a launcher
    python examples/pytorch_ddp.py --steps 50       # without trine: one process

trine starts one process per node and tells torchrun how many workers to start; with `--ranks gpu` it starts one per GPU
itself. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set either way. NCCL is used with GPUs, gloo without (on one
machine set GLOO_SOCKET_IFNAME=lo). Data are drawn by step and rank, so they do not depend on when a run was
interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import trine.sdk

FEATURES, CLASSES, BATCH = 64, 10, 32


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small network on all ranks of the job.")
    parser.add_argument("--steps", type=int, default=300, help="steps in all")
    parser.add_argument("--width", type=int, default=128, help="size of the hidden layers")
    parser.add_argument("--step-s", type=float, default=0.0, help="extra seconds per step, so that it lasts")
    return parser.parse_args()


def batch(step: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's share of the data of one step."""
    generator = torch.Generator().manual_seed(step * 100_003 + trine.sdk.rank())
    x = torch.randn(BATCH, FEATURES, generator=generator)
    y = torch.randint(0, CLASSES, (BATCH,), generator=generator)
    return x.to(device), y.to(device)


def any_rank(stop: bool, device: torch.device) -> bool:
    """True on all ranks if true on one; how the ranks agree to leave."""
    flag = torch.tensor([float(stop)], device=device)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item() > 0)


def network(width: int) -> nn.Sequential:
    hidden = (nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
    return nn.Sequential(*hidden, nn.Linear(width, CLASSES))


def train(given: argparse.Namespace, device: torch.device) -> float:
    torch.manual_seed(0)
    bare = network(given.width).to(device)
    gang = trine.sdk.world_size() > 1
    model: nn.Module = DistributedDataParallel(bare) if gang else bare
    optimizer = torch.optim.SGD(bare.parameters(), lr=0.05, momentum=0.9)
    loss = torch.tensor(float("nan"))
    if found := trine.sdk.restore():
        state = torch.load(found.path, map_location=device, weights_only=True)
        bare.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loss = state["loss"]

    def save(done: int) -> None:
        if trine.sdk.rank() == 0:
            state = {"model": bare.state_dict(), "optimizer": optimizer.state_dict(), "loss": loss}
            with trine.sdk.checkpoint(done) as path:
                torch.save(state, path)

    agree = (lambda stop: any_rank(stop, device)) if gang else None
    for step, _ in trine.sdk.steps(given.steps, save=save, agree=agree, agree_every=5):
        x, y = batch(step, device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        loss = loss.detach()
        time.sleep(given.step_s)
    return float(loss)


def main() -> None:
    given = options()
    torch.set_num_threads(1)
    gpus = torch.cuda.device_count()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % gpus) if gpus else torch.device("cpu")
    gang = trine.sdk.world_size() > 1
    if gang:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        loss = train(given, device)
    finally:  # also on the way out with exit code 85
        if gang:
            dist.destroy_process_group()
    if trine.sdk.rank() == 0:
        print(json.dumps({"steps": given.steps, "loss": loss}))


if __name__ == "__main__":
    main()

"""A real PyTorch training, gloo on two nodes of a real Slurm, preempted by jobs that go first and resumed on two other
nodes: its losses are those of the undisturbed run, step by step."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.live import Daemon, until
from tests.e2e.test_live import log, step_of
from tests.executor.slurm_cluster import slurm_cluster
from trine.client import Client

pytestmark = [pytest.mark.slurm, pytest.mark.training, pytest.mark.slow]
OPTIONS = ("--engine", "slurm", "--round", "1", "--policy", "srtf", "--set", "engine.poll_s=0.5")

TRAIN = """
import json, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
import trine.sdk

torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
bare = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
model = DistributedDataParallel(bare)
optimizer = torch.optim.SGD(bare.parameters(), lr=0.05, momentum=0.9)
if found := trine.sdk.restore():
    state = torch.load(found.path, weights_only=True)
    bare.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])

def save(done):
    if trine.sdk.rank() == 0:
        with trine.sdk.checkpoint(done) as path:
            torch.save({"model": bare.state_dict(), "optimizer": optimizer.state_dict()}, path)

def agree(stop):
    flag = torch.tensor([float(stop)])
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item())

for step, _ in trine.sdk.steps(100, save=save, agree=agree):
    generator = torch.Generator().manual_seed(step * 100_003 + trine.sdk.rank())
    x, y = torch.randn(8, 16, generator=generator), torch.randint(0, 4, (8,), generator=generator)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    print(json.dumps([step, loss.item()]), flush=True)
    time.sleep(0.15)
dist.destroy_process_group()
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed (make training)")
    with slurm_cluster(4, 1) as cluster:
        monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
        found = Daemon(tmp_path / "state", *OPTIONS)
        try:
            yield found
        finally:
            found.kill()
            cluster.cancel_all()


def curve(client: Client, job_id: str) -> list[tuple[int, float]]:
    """Step and loss in the order in which rank 0 wrote them, over all attempts."""
    return [tuple(json.loads(line)) for line in client.logs(job_id) if line.startswith("[")]


def nodes_of(client: Client, job_id: str) -> set[str]:
    return {part["node"] for part in client.job(job_id)["placement"]}


def test_a_training_that_is_preempted_goes_on_on_other_nodes_with_the_same_losses(site: Daemon, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    base: dict[str, Any] = {"run": [sys.executable, str(script)], "workdir": str(tmp_path), "gpus": 2, "nodes": 2}
    base["env"] = {"GLOO_SOCKET_IFNAME": "lo", "PATH": os.environ["PATH"]}  # all nodes of this cluster are one machine
    client = site.up()
    [calm] = client.submit({**base, "name": "calm"})
    assert client.wait(calm, 180)["state"] == "done", log(client, calm)
    undisturbed = curve(client, calm)
    assert [step for step, _ in undisturbed] == list(range(100))
    [moved] = client.submit({**base, "name": "moved", "priority": -1.0, "steps": 100})
    until(lambda: step_of(client, moved) > 10, "the first steps", 120)
    before = nodes_of(client, moved)
    client.submit({"run": ["sleep", "1"], "gpus": 4, "nodes": 4, "steps": 10})
    client.submit({"run": ["sleep", "40"], "gpus": 2, "nodes": 2, "steps": 20})
    until(lambda: client.job(moved)["attempt"] == 2 and nodes_of(client, moved), "the second start", 120)
    after = nodes_of(client, moved)
    assert len(before) == len(after) == 2 and not before & after
    ended = client.wait(moved, 240)
    assert (ended["state"], ended["preemptions"]) == ("done", 1), log(client, moved)
    assert curve(client, moved) == undisturbed

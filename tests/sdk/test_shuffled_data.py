"""Loaders that shuffle: an interrupted run sees the batches, and ends with the losses, of an undisturbed one."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

import trine.sdk
from tests.sdk.conftest import FakeJob, ended
from trine.sdk.batches import batches_from

torch = pytest.importorskip("torch", reason="these tests are about loaders of PyTorch", exc_type=ImportError)
pytestmark = pytest.mark.training

TRAIN = """
import json, os, random, signal, sys
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
import trine.sdk

workers, own_generator, stop_at, total = int(sys.argv[1]), sys.argv[2] == "own", int(sys.argv[3]), 37

class Noisy(Dataset):
    \"\"\"Transforms at random, with all three streams.\"\"\"
    def __len__(self):
        return 22
    def __getitem__(self, i):
        noise = random.random() + np.random.rand() + torch.rand(1).item()
        return torch.tensor([float(i), noise]), torch.tensor([i / 22])

torch.set_num_threads(1)
torch.manual_seed(7)
model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
generator = torch.Generator().manual_seed(5) if own_generator else None
loader = DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=workers, generator=generator)
if found := trine.sdk.restore():
    state = torch.load(found.path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])

def save(done):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state()}
    with trine.sdk.checkpoint(done) as path:
        torch.save(state, path)

for step, (x, y) in trine.sdk.steps(loader, total=total, save=save):
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(json.dumps([step, x.tolist(), loss.item()]), flush=True)
    if step == stop_at:
        os.kill(os.getpid(), signal.SIGTERM)
"""


def _said(out: str) -> dict[int, Any]:
    return {step: rest for step, *rest in map(json.loads, out.splitlines())}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("generator", ["none", "own"])
def test_an_interrupted_training_is_bit_for_bit_that_of_an_undisturbed_one(
    job: FakeJob, workers: int, generator: str
) -> None:
    """Six batches per pass, six passes; stopped in the middle of passes 0 and 2 and between passes 3 and 4."""
    (job.folder / "train.py").write_text(TRAIN)
    job.checkpoints = job.folder / "calm"
    code, out, err = ended(job.start("train.py", workers, generator, -1))
    assert code == 0, err
    calm = _said(out)
    orders = [[row for step in range(at, at + 5) for row in calm[step][0]] for at in range(0, 36, 6)]
    assert len({json.dumps([int(x) for x, _ in order]) for order in orders}) == 6, "every pass is shuffled anew"

    job.checkpoints, seen = job.folder / "disturbed", dict[int, Any]()
    for stop_at in (2, 14, 23, -1):
        job.begin()
        code, out, err = ended(job.start("train.py", workers, generator, stop_at))
        assert code == (0 if stop_at < 0 else 85), err
        assert "passed over" not in err
        seen |= _said(out)
    assert seen == calm


class Numbers(torch.utils.data.Dataset[int]):  # type: ignore[misc,name-defined]
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        return index


def loader(**options: Any) -> Any:
    options = {"batch_size": 2, "shuffle": "sampler" not in options, **options}
    return torch.utils.data.DataLoader(Numbers(), **options)


def order(source: Any, start: int = 0, total: int | None = 20, **options: Any) -> list[list[int]]:
    return [batch.tolist() for batch in batches_from(source, start, total, True, **options)]


def test_drawing_and_passing_over_data_leaves_the_streams_of_the_script_alone() -> None:
    torch.manual_seed(1)
    random.seed(1)
    before = torch.get_rng_state(), random.getstate()
    order(loader(), start=7)
    assert torch.equal(before[0], torch.get_rng_state()) and before[1] == random.getstate()


def test_data_depend_on_the_seed_of_the_script_and_on_that_of_the_loop() -> None:
    torch.manual_seed(1)
    first = order(loader())
    torch.rand(5)
    assert order(loader()) == first, "not on what was drawn before"
    torch.manual_seed(2)
    assert order(loader()) != first
    assert order(loader(), seed=3) == order(loader(), seed=3) != order(loader(), seed=4)
    own = [order(loader(generator=torch.Generator().manual_seed(seed))) for seed in (1, 1, 2)]
    assert own[0] == own[1] != own[2]


def test_a_loop_per_epoch_does_not_repeat_its_order() -> None:
    torch.manual_seed(1)
    same = loader()
    assert len({json.dumps(order(same, total=None)) for _ in range(4)}) == 4
    assert len({json.dumps(order(same, total=None, seed=epoch)) for epoch in (0, 1, 0, 1)}) == 2


class Rotating(torch.utils.data.Sampler[int]):  # type: ignore[misc,name-defined]
    """Keeps a state of its own from pass to pass."""

    def __init__(self) -> None:
        self.first = 0

    def __len__(self) -> int:
        return 10

    def __iter__(self) -> Iterator[int]:
        yield from [(self.first + i) % 10 for i in range(10)]
        self.first += 3


def test_a_sampler_with_a_state_of_its_own_is_taken_through_the_passes_before(capsys: Any) -> None:
    calm = order(loader(sampler=Rotating()))
    assert calm[0] == [0, 1] and calm[5] == [3, 4] and calm[10] == [6, 7]
    for start in (0, 3, 5, 8, 10, 17):
        assert order(loader(sampler=Rotating()), start) == calm[start:]
    assert capsys.readouterr().err == ""


class Shuffling:
    """A loader of somebody's own; nothing says what its order depends on."""

    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[int]:
        yield from random.sample(range(5), 5)


def test_what_cannot_be_promised_is_said_once_and_a_seed_helps(capsys: Any) -> None:
    random.seed(3)
    assert len(list(trine.sdk.steps(Shuffling(), start=0, total=15))) == 15
    assert capsys.readouterr().err == ""
    list(trine.sdk.steps(Shuffling(), start=11, total=15))
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "Shuffling" in said and "seed=" in said and "set_epoch" in said
    calm = list(trine.sdk.steps(Shuffling(), start=0, total=15, seed=1))
    random.seed(99)
    assert list(trine.sdk.steps(Shuffling(), start=11, total=15, seed=1)) == calm[11:]


def test_no_iterator_is_made_that_is_not_used() -> None:
    """Each starts the workers of a loader."""
    made = []

    class Counted:
        def __len__(self) -> int:
            return 2

        def __iter__(self) -> Iterator[str]:
            made.append(1)
            return iter("ab")

    assert len(list(trine.sdk.steps(Counted(), start=0, total=6))) == 6
    assert len(made) == 3

"""A training that needs nothing but Python, with the SDK: stopped and resumed it ends exactly as if undisturbed.

    trine submit examples/toy_sdk.yaml
    trine submit --gpus 1 -- python examples/toy_sdk.py --steps 2000
    python examples/toy_sdk.py --steps 200 --step-s 0     # without trine

It fits a line by gradient descent, one noisy sample per step. `chain` is a check sum over the steps in their order: one
step lost, repeated or swapped gives another value.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import time

import trine.sdk


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fit a line; say which steps were made.")
    parser.add_argument("--steps", type=int, default=600, help="steps in all")
    parser.add_argument("--step-s", type=float, default=0.01, help="seconds that a step takes")
    parser.add_argument("--save-every", type=int, default=100, help="steps between two checkpoints")
    return parser.parse_args()


def train_step(state: dict[str, float | str], step: int) -> None:
    """One sample, drawn by the number of the step: the data are the same after a restart."""
    rng = random.Random(step)
    x = rng.uniform(-1, 1)
    slope, offset = float(state["slope"]), float(state["offset"])
    error = slope * x + offset - (3 * x - 1 + rng.gauss(0, 0.1))
    state["slope"], state["offset"] = slope - 0.05 * error * x, offset - 0.05 * error
    state["chain"] = hashlib.sha256(f"{state['chain']} {step}".encode()).hexdigest()


def main() -> None:
    given = options()
    state: dict[str, float | str] = {"slope": 0.0, "offset": 0.0, "chain": ""}
    if found := trine.sdk.restore():
        state = found.read_json()

    def save(done: int) -> None:
        trine.sdk.save_json(done, state)

    for step, _ in trine.sdk.steps(given.steps, save=save, save_every=given.save_every):
        train_step(state, step)
        time.sleep(given.step_s)

    if trine.sdk.rank() == 0:
        print(json.dumps({"steps": given.steps, **state}))


if __name__ == "__main__":
    main()

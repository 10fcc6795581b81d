"""Hugging Face Trainer under trine: a callback that reports progress and, at a stop, lets the Trainer save and end.

    trine submit examples/huggingface_trainer.yaml
    python examples/huggingface_trainer.py --steps 50       # without trine

To use it in a script of your own: pass `callbacks=[TrineCallback()]` and `output_dir=checkpoint_folder()`, call
`trainer.train(resume_from_checkpoint=newest_checkpoint(...))`, and `trine.sdk.exit_if_stopped()` after it.
Needs `transformers`, `torch` and `accelerate`.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import Any

import trine.sdk

try:
    from transformers import TrainerCallback  # type: ignore[import-not-found, unused-ignore]
except ImportError:
    TrainerCallback = object


class TrineCallback(TrainerCallback):  # type: ignore[misc, valid-type, unused-ignore]
    """Tells trine how far the training is, and the Trainer when to leave; all ranks leave after the same step."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> Any:  # noqa: ARG002
        trine.sdk.catch_sigterm()
        trine.sdk.report(state.global_step, state.max_steps, checkpoint_step=state.global_step or None)
        return control

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:  # noqa: ARG002
        if state.global_step >= state.max_steps > 0:
            trine.sdk.report(state.global_step, state.max_steps)
        elif trine.sdk.step_done(state.global_step, state.max_steps):
            control.should_save = control.should_training_stop = True
        return control

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> Any:  # noqa: ARG002
        trine.sdk.report(state.global_step, state.max_steps, checkpoint_step=state.global_step)
        return control


def checkpoint_folder() -> Path:
    """Where the Trainer should write, so that the next start of the job finds it."""
    return Path(os.environ.get("TRINE_CHECKPOINT_DIR", "checkpoints"))


def newest_checkpoint(folder: Path) -> str | None:
    """The newest of the Trainer's checkpoints that is complete: it writes `trainer_state.json` late."""
    numbered = [(int(m[1]), p) for p in folder.glob("checkpoint-*") if (m := re.fullmatch(r"checkpoint-(\d+)", p.name))]
    complete = [(step, path) for step, path in numbered if (path / "trainer_state.json").is_file()]
    return str(max(complete)[1]) if complete else None


def main() -> int:
    parser = argparse.ArgumentParser(description="Train a tiny GPT-2 from scratch on made-up tokens.")
    parser.add_argument("--steps", type=int, default=100, help="steps in all")
    steps = parser.parse_args().steps
    if TrainerCallback is object:
        print("this example needs transformers: pip install transformers accelerate torch", file=sys.stderr)
        return 2
    train(steps)
    trine.sdk.exit_if_stopped()
    return 0


def train(steps: int) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

    set_seed(0)
    folder = checkpoint_folder()
    model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=32, n_embd=32, n_layer=2, n_head=2))
    rows = [{"input_ids": (ids := [(row * 7 + i) % 128 for i in range(32)]), "labels": ids} for row in range(256)]
    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=steps, per_device_train_batch_size=8, save_total_limit=2, report_to=[]
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[TrineCallback()])
    trainer.train(resume_from_checkpoint=newest_checkpoint(folder))


if __name__ == "__main__":
    sys.exit(main())
